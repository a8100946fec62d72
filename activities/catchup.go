package activities

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/internal/clip"
	"github.com/rowfold/rowfold/projection"
)

// Names of the activities of [Parked].
const (
	CatchUp    = "CatchUp"
	RecordSkip = "RecordSkip"
)

// Parked are the activities that bring parked instances up to date.
type Parked struct {
	Processor Processor            // required
	Store     projection.ParkStore // required
	Events    event.Reader         // required
	Waker     Waker                // required
}

// CatchUpInput names a parked instance.
type CatchUpInput struct {
	Projection string   `json:"projection"`
	Source     string   `json:"source"`
	StreamID   event.ID `json:"streamId"`
	PageSize   int      `json:"pageSize"`
}

func (in CatchUpInput) instance() projection.Instance {
	return projection.Instance{Source: in.Source, StreamID: in.StreamID}
}

// CaughtUp says how far a catch-up has come.
type CaughtUp struct {
	// Done says that the instance is not parked any more.
	Done bool `json:"done,omitempty"`
	// NotParked says that it was not parked in the first place.
	NotParked bool  `json:"notParked,omitempty"`
	Events    int   `json:"events"`             // events that were given to the fold
	Version   int64 `json:"version,omitempty"`  // the last of them
	Newest    int64 `json:"newest,omitempty"`   // the newest version that a feed has seen
	Enqueued  int   `json:"enqueued,omitempty"` // effects that were committed
	// Failed is why the instance cannot go on; nil = nothing is in its way.
	Failed *InstanceFault `json:"failed,omitempty"`
}

// InstanceFault is why an instance cannot be applied.
type InstanceFault struct {
	Version int64       `json:"version"` // the lowest one that was not applied
	Class   event.Class `json:"class"`
	Error   string      `json:"error"`
	Rows    int         `json:"rows,omitempty"` // rows that it failed for
}

// CatchUp applies the events of a parked instance from the first one that was not
// applied up to the head, in pages, and ends the park when no feed has noted a newer
// version meanwhile. A result that is neither Done nor Failed wants to be called
// again. Errors are faults of the stores.
func (a *Parked) CatchUp(ctx context.Context, in CatchUpInput) (CaughtUp, error) {
	var version atomic.Int64
	stop := heartbeat(ctx, func() any { return version.Load() })
	defer stop()
	result := CaughtUp{}
	after, began := int64(-1), int64(-1)
	for {
		parks, err := a.Store.Parked(ctx, in.Projection, []projection.Instance{in.instance()})
		if err != nil {
			return result, Failure(err)
		}
		if len(parks) == 0 {
			result.Done, result.NotParked = true, began < 0
			return result, nil
		}
		park := parks[0]
		result.Newest = park.Newest
		if first := max(park.From-1, 0); began < 0 || first < began { // a feed may note a lower version meanwhile
			after, began = first, first
		}
		after, err = a.catchUpFrom(ctx, in, park, after, &result, &version)
		if err != nil || result.Failed != nil || stopping(ctx) {
			return result, Failure(err)
		}
		done, err := a.Store.Unpark(ctx, in.Projection, in.instance(), park.Newest)
		if err != nil {
			return result, Failure(err)
		}
		if done {
			result.Done = true
			return result, nil
		}
	}
}

// catchUpFrom applies what follows a version and returns the last version that it
// applied.
func (a *Parked) catchUpFrom(
	ctx context.Context, in CatchUpInput, park projection.Park, after int64, result *CaughtUp, version *atomic.Int64,
) (int64, error) {
	page := make([]event.Record, 0, in.PageSize)
	apply := func() error {
		if len(page) == 0 {
			return nil
		}
		if err := a.applyPage(ctx, in, page, result); err != nil || result.Failed != nil {
			return err
		}
		after = page[len(page)-1].Envelope.Version
		result.Version = after
		version.Store(after)
		page = page[:0]
		return nil
	}
	for envelope, err := range a.Events.Read(ctx, park.Stream, in.StreamID, event.Range{After: after, Consistent: true}) {
		if err != nil {
			return after, err
		}
		page = append(page, event.Record{Envelope: envelope})
		if len(page) < in.PageSize {
			continue
		}
		if err := apply(); err != nil || result.Failed != nil || stopping(ctx) {
			return after, err
		}
	}
	if err := apply(); err != nil || result.Failed != nil {
		return after, err
	}
	if after < park.Newest {
		missing := &projection.Gap{Instance: in.instance(), Missing: after + 1, Before: park.Newest}
		result.Failed = &InstanceFault{Version: after + 1, Class: missing.Class(), Error: missing.Error()}
	}
	return after, nil
}

func (a *Parked) applyPage(ctx context.Context, in CatchUpInput, page []event.Record, result *CaughtUp) error {
	batch, err := a.Processor.ProcessBatch(ctx, page, projection.BatchOptions{
		CatchUp: map[string][]projection.Instance{in.Projection: {in.instance()}},
		Only:    []string{in.Projection},
	})
	if err != nil {
		return err
	}
	result.Events += len(page)
	result.Enqueued += batch.Enqueued
	a.Waker.Flush(ctx)
	for _, failure := range batch.Failures {
		if failure.Projection == in.Projection && failure.Instance == in.instance() {
			result.Failed = &InstanceFault{
				Version: failure.From, Class: failure.Class(), Error: clip.Text(failure.Err.Error(), maxMessage), Rows: len(failure.Rows),
			}
		}
	}
	return nil
}

// SkipInput is an operator's decision to pass over one event of an instance.
type SkipInput struct {
	Projection string    `json:"projection"`
	Source     string    `json:"source"`
	StreamID   event.ID  `json:"streamId"`
	Version    int64     `json:"version"`
	Who        string    `json:"who"`
	Why        string    `json:"why"`
	At         time.Time `json:"at"`
}

// RecordSkip records the decision. Whoever folds that event from now on treats it as
// rejected. Recording it again changes nothing. Errors are faults of the store.
func (a *Parked) RecordSkip(ctx context.Context, in SkipInput) error {
	return Failure(a.Store.RecordSkip(ctx, projection.Skip{
		Projection: in.Projection, Instance: projection.Instance{Source: in.Source, StreamID: in.StreamID},
		Version: in.Version, Who: in.Who, Why: in.Why, At: in.At,
	}))
}
