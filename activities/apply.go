package activities

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
)

// ApplyEvents is the name of the activity of [Applies].
const ApplyEvents = "ApplyEvents"

// Applies are the activities that apply events by reference.
type Applies struct {
	Applier

	Events event.Reader // required
}

// EventRange names events of one instance of a stream.
type EventRange struct {
	Stream   string   `json:"stream"`
	StreamID event.ID `json:"streamId"`
	From     int64    `json:"from"` // the first version
	To       int64    `json:"to"`   // the last version, inclusive
}

// ApplyInput asks for events to be applied.
type ApplyInput struct {
	Events      []EventRange `json:"events"`
	Projections []string     `json:"projections,omitempty"` // empty = all of the worker
	PageSize    int          `json:"pageSize"`
	Attempts    int          `json:"attempts"`
	RetryMin    Duration     `json:"retryMin"`
	RetryMax    Duration     `json:"retryMax"`
}

// MissingEvent is returned when a referenced event cannot be read.
type MissingEvent struct {
	Range   EventRange
	Missing int64 // the lowest version that is missing
}

// Error implements error.
func (e *MissingEvent) Error() string {
	return fmt.Sprintf("event %s %q version %d is not in the event store (yet), versions %d to %d were asked for",
		e.Range.Stream, e.Range.StreamID, e.Missing, e.Range.From, e.Range.To)
}

// Class is event.ClassRetry: a store may show an event a little later.
func (e *MissingEvent) Class() event.Class { return event.ClassRetry }

// ApplyEvents reads the events and applies them in pages. Repeating it is harmless.
// Errors: *[MissingEvent], faults of the stores; failures of instances are parked and
// counted.
func (a *Applies) ApplyEvents(ctx context.Context, in ApplyInput) (Applied, error) {
	var total Applied
	var events atomic.Int64
	stop := heartbeat(ctx, func() any { return events.Load() })
	defer stop()
	policy := retries{
		attempts: in.Attempts, backoff: outbox.Backoff{Min: in.RetryMin.Std(), Max: in.RetryMax.Std()},
	}
	ensured := map[string]bool{}
	page := make([]event.Record, 0, in.PageSize)
	flush := func() error {
		counts, err := a.page(ctx, page, in.Projections, policy, ensured)
		total.Add(counts)
		events.Store(int64(total.Events))
		page = page[:0]
		return err
	}
	for _, part := range in.Events {
		next := part.From
		span := event.Range{After: part.From - 1, UpTo: part.To, Consistent: true}
		for envelope, err := range a.Events.Read(ctx, part.Stream, part.StreamID, span) {
			if err != nil {
				return total, Failure(err)
			}
			if envelope.Version != next {
				break
			}
			next++
			page = append(page, event.Record{Envelope: envelope})
			if len(page) == in.PageSize {
				if err := flush(); err != nil {
					return total, Failure(err)
				}
			}
		}
		if next <= part.To {
			return total, Failure(&MissingEvent{Range: part, Missing: next})
		}
	}
	return total, Failure(flush())
}
