package event

import (
	"context"
	"iter"
	"strings"
)

// Append is a request to record events of one instance.
type Append struct {
	Stream   string
	StreamID ID
	// Expected is the version that the writer last saw; 0 = the instance is new.
	Expected int64
	// Events become the versions Expected+1, Expected+2 …; none = nothing is sent.
	Events []NewEvent
	// CommandID makes the append happen at most once; empty = not asked for.
	CommandID string
}

// Validate reports what no store could take, as an *[InvalidAppend] or an
// *[InvalidStreamID]. Stores call it first.
func (a Append) Validate() error {
	switch {
	case a.Stream == "":
		return &InvalidAppend{Field: "Stream", Reason: "it is empty"}
	case strings.Contains(a.Stream, idSeparator):
		return &InvalidAppend{Stream: a.Stream, Field: "Stream", Reason: "it holds '#', which separates a name from an id"}
	case a.Expected < 0:
		return &InvalidAppend{Stream: a.Stream, Field: "Expected", Reason: "it is negative"}
	}
	if _, err := NewID(a.Stream, []string{"id"}, []string{string(a.StreamID)}); err != nil {
		return err
	}
	for _, e := range a.Events {
		switch {
		case e.Type == "":
			return &InvalidAppend{Stream: a.Stream, Field: "Events.Type", Reason: "it is empty"}
		case e.SchemaVersion < 1:
			return &InvalidAppend{Stream: a.Stream, Field: "Events.SchemaVersion", Reason: "it must be 1 or more"}
		case len(e.Payload) == 0:
			return &InvalidAppend{Stream: a.Stream, Field: "Events.Payload", Reason: "it is empty; without data it is {}"}
		}
	}
	return nil
}

// Appended says which versions an append recorded. Both are 0 for an empty append.
type Appended struct {
	First int64
	Last  int64
}

// Appender records events.
type Appender interface {
	// Append records the events as the next versions, all or nothing. Errors:
	// *[VersionConflict], *[AppendTooLarge], *[DuplicateCommand],
	// *[InvalidAppend], *[InvalidStreamID], and those of the store.
	Append(ctx context.Context, request Append) (Appended, error)
}

// Range is a half-open or closed part of an instance's events.
type Range struct {
	After   int64 // exclusive; 0 = from the first one
	UpTo    int64 // inclusive; 0 = to the head
	Reverse bool  // newest first
	// Consistent asks for a read that sees every append that returned before it.
	Consistent bool
}

// Reader reads events.
type Reader interface {
	// Read yields the events of an instance, in version order, with bounded
	// memory. The first error ends the sequence. A head is the last contiguous
	// version, so nothing is yielded beyond a hole.
	Read(ctx context.Context, stream string, id ID, part Range) iter.Seq2[Envelope, error]
	// Version returns the instance's current version, with one request; 0 = none.
	Version(ctx context.Context, stream string, id ID) (int64, error)
	// Oldest returns the lowest version that the store still holds; 0 = none.
	Oldest(ctx context.Context, stream string, id ID) (int64, error)
}

// Store is an event store.
type Store interface {
	Appender
	Reader
}
