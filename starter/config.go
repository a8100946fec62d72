package starter

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/rowfold/rowfold/workflows"
)

// Defaults of [Config].
const (
	DefaultDeployment  = "rowfold"
	DefaultTaskQueue   = "rowfold"
	DefaultWakeTimeout = 500 * time.Millisecond
	DefaultWakers      = 4
)

// Config configures a [Starter].
type Config struct {
	// Client is connected to the namespace of the workflows. Required.
	Client client.Client
	// DataConverter is the client's, in which memos are read. Defaults to the SDK's.
	DataConverter converter.DataConverter
	// Namespace is the client's. Defaults to "default".
	Namespace string
	// Deployment tells installations in one namespace apart: workflow ids begin with it.
	// Defaults to [DefaultDeployment].
	Deployment string
	// TaskQueue is the queue of the workers. Defaults to [DefaultTaskQueue].
	TaskQueue string
	// RowNames says how row keys appear in ids, attributes and summaries. Defaults to
	// workflows.RowNamesPlain.
	RowNames workflows.RowNames
	// RowNamesKey is the secret of workflows.RowNamesHMAC.
	RowNamesKey []byte
	// WakeTimeout bounds one wake; then it is dropped, and the sweep heals it. Defaults to
	// [DefaultWakeTimeout].
	WakeTimeout time.Duration
	// Wakers is how many wakes are sent at a time. Defaults to [DefaultWakers].
	Wakers int
	// Drain is the input of drains that are woken: everything but the row. Defaults to the
	// workflow's own defaults.
	Drain workflows.DrainRow
	// CatchUp is the input of catch-ups that consumers start: everything but the instance.
	// Defaults to the workflow's own defaults.
	CatchUp workflows.CatchUpInstance
	// Log gets what is dropped or done without. Defaults to discarding.
	Log *slog.Logger
}

// InvalidConfig is a fault of a [Config]. New reports all at once, joined.
type InvalidConfig struct {
	Field  string // of Config
	Reason string
}

// Error implements error.
func (e *InvalidConfig) Error() string {
	return fmt.Sprintf("starter.Config.%s: %s", e.Field, e.Reason)
}

// Validate reports every fault at once, as joined *[InvalidConfig] errors.
func (c Config) Validate() error {
	var faults []error
	fault := func(field, reason string) { faults = append(faults, &InvalidConfig{Field: field, Reason: reason}) }
	if c.Client == nil {
		fault("Client", "it is nil: use Dial")
	}
	if err := c.withDefaults().ids().Validate(); err != nil {
		fault("RowNames", err.Error())
	}
	if c.WakeTimeout < 0 {
		fault("WakeTimeout", "it is negative; 0 takes the default")
	}
	if c.Wakers < 0 {
		fault("Wakers", "it is negative; 0 takes the default")
	}
	drain := c.Drain
	drain.Projection, drain.Row = "any", "any"
	if err := drain.WithDefaults().Validate(); err != nil {
		fault("Drain", err.Error())
	}
	catchUp := c.CatchUp
	catchUp.Projection, catchUp.Source, catchUp.StreamID = "any", "any", "any"
	if err := catchUp.WithDefaults().Validate(); err != nil {
		fault("CatchUp", err.Error())
	}
	return errors.Join(faults...)
}

func (c Config) withDefaults() Config {
	if c.Namespace == "" {
		c.Namespace = client.DefaultNamespace
	}
	if c.Deployment == "" {
		c.Deployment = DefaultDeployment
	}
	if c.TaskQueue == "" {
		c.TaskQueue = DefaultTaskQueue
	}
	if c.WakeTimeout == 0 {
		c.WakeTimeout = DefaultWakeTimeout
	}
	if c.Wakers == 0 {
		c.Wakers = DefaultWakers
	}
	if c.DataConverter == nil {
		c.DataConverter = converter.GetDefaultDataConverter()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) ids() workflows.IDs {
	return workflows.IDs{Deployment: c.Deployment, RowNames: c.RowNames, Key: c.RowNamesKey}
}
