package projection

import (
	"context"
	"time"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
)

// RowStatus says what stands in a row's place.
type RowStatus string

const (
	// RowAbsent is a row that was never written, or whose tombstone was purged.
	RowAbsent RowStatus = "absent"
	// RowLive is a row that readers see.
	RowLive RowStatus = "live"
	// RowTombstone is a removed row: bookkeeping and nothing else.
	RowTombstone RowStatus = "tombstone"
)

// Stored is a row as read.
type Stored struct {
	Key    string // see [Model.KeyText]
	Status RowStatus
	Values []any // in the order of Model.Columns; only of a live row
	Books  Bookkeeping
	// WriteID is the id of the write that the row comes from. It only refines reports.
	WriteID   string
	ExpiresAt *time.Time // when a tombstone may be purged; nil = not set
}

// Write is one conditional write of one row, with its effects: all or nothing.
type Write struct {
	Key string
	// Guard is the row's bookkeeping as read. With a revision column the write is
	// conditioned on Guard.Revision (nil = the row has none, or is absent). Without
	// one it is conditioned on the checkpoints being as read.
	Guard Bookkeeping
	// GuardStatus is the row's status as read; it is part of the condition where
	// there is no revision column.
	GuardStatus RowStatus
	Tombstone   bool
	ExpiresAt   *time.Time  // of a tombstone; nil = not set
	Values      []any       // in the order of Model.Columns; for a tombstone the key's only, nil else
	Books       Bookkeeping // to be stored as they are
	Effects     []outbox.Item
	// ID is random per computed write, kept when the same write is sent again. A store
	// with idempotency tokens uses it as one; every store keeps it in the row.
	ID string
}

// Limits are what a store takes in one write. 0 = no limit.
type Limits struct {
	MaxEffects  int // effects in one write, besides the row
	MaxBytes    int // one write, row and effects
	MaxRowBytes int // one row, see [Model.Size]
}

// RowPage asks for rows in the order of their keys' text.
type RowPage struct {
	After      string // the key after which to go on; empty = from the first
	Limit      int
	Tombstones bool // also return tombstones, for repair; readers never see them
}

// RowStore keeps rows. Reads are consistent and from the primary copy. Errors carry
// a class (event.Classify).
type RowStore interface {
	// Load returns the rows of the keys, in their order, an absent row among them
	// with [RowAbsent].
	Load(ctx context.Context, model *Model, keys []string) ([]Stored, error)
	// Commit does each write by itself, all of it or nothing, and returns one result
	// for each: nil, or *[LostRace], *[SequenceReused], *[RowTooLarge], or a
	// fault with a class. A row's failure touches no other row. No key occurs twice.
	Commit(ctx context.Context, model *Model, writes []Write) []error
	// CommitAll does all writes or none. The error is the first write's that failed,
	// in a *[WriteError].
	CommitAll(ctx context.Context, writes []ModelWrite) error
	// Rows lists rows by key.
	Rows(ctx context.Context, model *Model, page RowPage) ([]Stored, error)
	// Limits returns what the store takes in one write.
	Limits() Limits
	// PurgeTombstones removes at most limit tombstones that have expired by now and
	// have neither pending effects nor a parked instance, and sets the expiry of
	// tombstones that missed it (now + Model.TombstoneTTL). It returns counts of both,
	// and whether there may be more.
	PurgeTombstones(ctx context.Context, model *Model, now time.Time, limit int) (Purged, error)
}

// Purged says what a purge did.
type Purged struct {
	Removed int  `json:"removed"` // tombstones that are gone now
	Dated   int  `json:"dated"`   // tombstones that got their expiry now
	More    bool `json:"more"`
}

// ModelWrite is a write of a row of some model.
type ModelWrite struct {
	Model *Model
	Write Write
}

// Park is an instance that is set aside: feeds do not apply it, they note newer
// versions only, and everybody else goes on.
type Park struct {
	Projection string      `json:"projection"`
	Instance   Instance    `json:"instance"`
	Stream     string      `json:"stream"`
	Rows       []string    `json:"rows,omitempty"` // row keys as far as they are known
	Reason     string      `json:"reason"`
	Class      event.Class `json:"class"`
	From       int64       `json:"from"`   // the lowest version that was not applied
	Newest     int64       `json:"newest"` // the newest version seen
	ParkedAt   time.Time   `json:"parkedAt"`
}

// Skip is an operator's recorded decision to pass over one event. Whoever folds that
// event treats it as rejected.
type Skip struct {
	Projection string    `json:"projection"`
	Instance   Instance  `json:"instance"`
	Version    int64     `json:"version"`
	Who        string    `json:"who"`
	Why        string    `json:"why"`
	At         time.Time `json:"at"`
}

// ParkStore keeps parked instances and skips.
type ParkStore interface {
	// Parked returns the parks among the instances.
	Parked(ctx context.Context, projection string, instances []Instance) ([]Park, error)
	// Park records that an instance is set aside. Where it already is, the rows are
	// added, Newest only rises, From only falls, and reason, class and time stay.
	Park(ctx context.Context, park Park) error
	// Unpark ends a park, under the condition that Newest is as given: a version that
	// a feed noted meanwhile must be applied first. It reports whether it ended.
	Unpark(ctx context.Context, projection string, instance Instance, newest int64) (bool, error)
	// Parks lists a projection's parks, ordered by checkpoint key, after a given one.
	Parks(ctx context.Context, projection, after string, limit int) ([]Park, error)

	// RecordSkip records a decision. Recording one again changes nothing.
	RecordSkip(ctx context.Context, skip Skip) error
	// Skips returns the skips of the instances.
	Skips(ctx context.Context, projection string, instances []Instance) ([]Skip, error)
}

// PositionRecord is how far a consumer has come in one shard: everything up to it
// is applied or parked.
type PositionRecord struct {
	Consumer string         `json:"consumer"`
	Stream   string         `json:"stream"`
	Shard    string         `json:"shard"`
	Position event.Position `json:"position"`
	Done     bool           `json:"done"` // the shard is closed and read to its end
	At       time.Time      `json:"at"`
}

// PositionStore keeps position records.
type PositionStore interface {
	// Positions returns the records of a consumer in a stream, by shard.
	Positions(ctx context.Context, consumer, stream string) (map[string]PositionRecord, error)
	// SavePosition stores a record unless the stored one is already further: it is
	// monotone, whoever writes it.
	SavePosition(ctx context.Context, record PositionRecord) error
}

// Store is everything that a projection needs of a row store.
type Store interface {
	RowStore
	ParkStore
	PositionStore
	outbox.Store
	// Prepare creates or migrates what the models need. It is idempotent, and safe to
	// call from several processes.
	Prepare(ctx context.Context, models ...*Model) error
}
