package outbox

import (
	"context"
	"time"

	"github.com/rowfold/rowfold/event"
)

// Head is the beginning of a row's queue, as one consistent view of it.
type Head struct {
	// Revision is the row's, read before the items. The items are those that were
	// committed up to it: of a later write one could see a part only.
	Revision int64
	Items    []Item // lowest sequences first
	More     bool   // there are more than were asked for
	// Tombstone says that the row is removed; Expires whether its expiry is set.
	Tombstone bool
	Expires   bool
}

// Deleted is what a delete found.
type Deleted struct {
	Found bool
	Claim Claim // whose claim was on the item
}

// Verb is what an operator decided about an effect.
type Verb string

const (
	// VerbSkip drops the effect without delivering it.
	VerbSkip Verb = "skip"
	// VerbPark moves the effect to the parked store; later ones overtake it.
	VerbPark Verb = "park"
)

// Decision is an operator's recorded decision about an effect, the only way other
// than a delivery by which an effect leaves its queue.
type Decision struct {
	Verb  Verb        `json:"verb"`
	Who   string      `json:"who"`
	Why   string      `json:"why"`
	At    time.Time   `json:"at"`
	Class event.Class `json:"class,omitempty"` // of the last failure
	Error string      `json:"error,omitempty"` // the last failure
}

// Decided is an effect that left its queue by a decision, with its raw bytes.
type Decided struct {
	Item     Item     `json:"item"`
	Decision Decision `json:"decision"`
}

// PendingQuery asks for rows that have pending effects.
type PendingQuery struct {
	Projection string
	After      string // the row key after which to go on; empty = from the first
	Limit      int
}

// PendingRow is a row with pending effects.
type PendingRow struct {
	Row  Row
	Head Item // its lowest pending effect
}

// Store keeps outboxes. Inserts are part of the row's write (projection.RowStore).
//
// Every method reads and writes the primary copy, consistently: never an index, a
// replica or a cache. Errors carry a class (event.Classify).
type Store interface {
	// Head reads the row's revision first and then its lowest pending effects, at
	// most limit, of writes up to that revision.
	Head(ctx context.Context, row Row, limit int) (Head, error)
	// Claim puts owner's claim on the items, in order, each under the condition that
	// its claim is as in its Ref, with the epoch one higher. It stops at the first
	// item that is gone or claimed otherwise, and returns how many it claimed.
	Claim(ctx context.Context, row Row, refs []Ref, owner Owner) (int, error)
	// Release takes the owner's claim off the items that still have it; epochs stay.
	Release(ctx context.Context, row Row, refs []Ref, nonce string) error
	// Delete removes a delivered item by sequence and effect id, whoever has claimed
	// it by now, and says what it found. Deleting what is gone is no error.
	Delete(ctx context.Context, row Row, ref Ref) (Deleted, error)
	// Defer records a failed delivery on an item, under the condition that its claim
	// is still the ref's nonce. It reports whether it was.
	Defer(ctx context.Context, row Row, ref Ref, deferral Deferral) (bool, error)
	// Decide removes an item by an operator's decision and records it, with the
	// item, in one transaction. It reports false when the item is already gone.
	Decide(ctx context.Context, row Row, ref Ref, decision Decision) (bool, error)
	// Decisions lists what was decided about a row's effects, in sequence order.
	Decisions(ctx context.Context, row Row) ([]Decided, error)
	// Pending lists rows that have pending effects, in order of their keys. Its cost
	// follows the number of rows returned, not of their effects.
	Pending(ctx context.Context, query PendingQuery) ([]PendingRow, error)
	// HasPending answers for many rows of one projection at once, by row key.
	HasPending(ctx context.Context, projection string, keys []string) (map[string]bool, error)
	// ExpireTombstone sets when a tombstone may be purged, under the condition that
	// the row is a tombstone of that revision without pending effects. It reports
	// whether it was.
	ExpireTombstone(ctx context.Context, row Row, revision int64, at time.Time) (bool, error)
}
