package sqlite

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rowfold/rowfold/outbox"
)

// Defaults of [Config].
const (
	DefaultMaxRowBytes = 1 << 20
	DefaultBusyTimeout = 5 * time.Second
)

// Synchronous says when a commit counts as done.
type Synchronous string

const (
	// SynchronousNormal survives a crash of the process. When the machine loses its
	// power, the last commits may be gone, and never a part of one.
	SynchronousNormal Synchronous = "normal"
	// SynchronousFull survives a loss of power as well, at the cost of a sync for
	// each commit.
	SynchronousFull Synchronous = "full"
)

// Config says where a store lies and what it takes.
type Config struct {
	// Path is the database file; it is created. Empty = a database in memory that
	// lives as long as the store.
	Path string
	// MaxRowBytes is how large one row may be, see projection.Model.Size. Defaults to
	// [DefaultMaxRowBytes].
	MaxRowBytes int
	// MaxEffects is how many effects one write takes, at most outbox.MaxIndex.
	// Defaults to outbox.MaxIndex.
	MaxEffects int
	// MaxBytes is how large one write may be, row and effects; 0 = no limit.
	MaxBytes int
	// BusyTimeout is how long a write waits for another process's before it fails
	// as throttled. Defaults to [DefaultBusyTimeout].
	BusyTimeout time.Duration
	// Synchronous defaults to [SynchronousFull]: what is committed stays.
	Synchronous Synchronous
	// Now is the clock of records that the store dates by itself, events above all.
	// Defaults to time.Now.
	Now func() time.Time
}

// InvalidConfig is a fault of a [Config]. Open reports all at once, joined.
type InvalidConfig struct {
	Field  string // of Config
	Reason string
}

// Error implements error.
func (e *InvalidConfig) Error() string {
	return fmt.Sprintf("sqlite.Config.%s: %s", e.Field, e.Reason)
}

// Validate reports every fault at once, as joined *[InvalidConfig] errors.
func (c Config) Validate() error {
	var faults []error
	fault := func(field, format string, args ...any) {
		faults = append(faults, &InvalidConfig{Field: field, Reason: fmt.Sprintf(format, args...)})
	}
	if strings.ContainsRune(c.Path, 0) {
		fault("Path", "it holds a zero byte")
	}
	if c.MaxRowBytes < 0 {
		fault("MaxRowBytes", "%d is negative; 0 takes the default", c.MaxRowBytes)
	}
	if c.MaxEffects < 0 || c.MaxEffects > outbox.MaxIndex {
		fault("MaxEffects", "%d is not between 0 and %d", c.MaxEffects, outbox.MaxIndex)
	}
	if c.MaxBytes < 0 {
		fault("MaxBytes", "%d is negative; 0 is no limit", c.MaxBytes)
	}
	if c.BusyTimeout < 0 {
		fault("BusyTimeout", "%v is negative; 0 takes the default", c.BusyTimeout)
	}
	switch c.Synchronous {
	case "", SynchronousNormal, SynchronousFull:
	default:
		fault("Synchronous", "%q is neither %q nor %q", c.Synchronous, SynchronousNormal, SynchronousFull)
	}
	return errors.Join(faults...)
}

func (c Config) withDefaults() Config {
	if c.MaxRowBytes == 0 {
		c.MaxRowBytes = DefaultMaxRowBytes
	}
	if c.MaxEffects == 0 {
		c.MaxEffects = outbox.MaxIndex
	}
	if c.BusyTimeout == 0 {
		c.BusyTimeout = DefaultBusyTimeout
	}
	if c.Synchronous == "" {
		c.Synchronous = SynchronousFull
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}
