package event

import (
	"context"
	"fmt"
)

// Position is a place in a shard: everything up to and including it has been
// read. Positions of one shard compare bytewise; the empty one is before all.
type Position string

// Shard is a part of a feed that is read in order, independently of the others.
type Shard struct {
	ID string `json:"id"`
	// Parents are the shards that have to be finished, or trimmed, before this one.
	Parents []string `json:"parents,omitempty"`
}

// Record is one entry of a feed.
type Record struct {
	Position Position
	Envelope Envelope
	// Err is set for an entry that is not a readable event. The envelope's stream
	// and id are filled in as far as they are known.
	Err error
}

// Page is what one read of a feed returns.
type Page struct {
	Records []Record
	// Next is where to go on. It may move without records.
	Next Position
	// End says that the shard is closed and Next is its end.
	End bool
	// Behind is how many records are known to be left after Next; -1 = unknown.
	Behind int64
}

// Feed follows what is appended to an event store, at least once, in the order of
// positions per shard.
type Feed interface {
	// Shards lists the shards that the feed knows now.
	Shards(ctx context.Context) ([]Shard, error)
	// Read returns at most limit records after a position, without waiting for
	// new ones. It returns *[Trimmed] when records after the position are gone.
	Read(ctx context.Context, shard string, after Position, limit int) (Page, error)
}

// Trimmed is returned when a feed no longer holds what comes after a position.
type Trimmed struct {
	Shard  string
	After  Position
	Oldest Position // the position before the oldest record that is left
}

// Error implements error.
func (e *Trimmed) Error() string {
	return fmt.Sprintf("shard %s holds nothing between %q and %q any more: events may have been missed", e.Shard, e.After, e.Oldest)
}

// Class is [ClassPermanent].
func (e *Trimmed) Class() Class { return ClassPermanent }
