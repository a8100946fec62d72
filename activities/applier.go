package activities

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
)

// Processor applies batches of records. It is implemented by *projection.Processor.
type Processor interface {
	ProcessBatch(ctx context.Context, records []event.Record, options projection.BatchOptions) (projection.BatchResult, error)
	ParkFailures(ctx context.Context, result projection.BatchResult, choose func(projection.InstanceFailure) bool) (int, error)
}

// Applier applies pages of records so that nothing is lost and nothing stands in the
// way: what fails for good is parked, what fails for now is tried again a few times and
// then parked, and each parked instance gets its catch-up.
type Applier struct {
	Processor Processor // required
	Waker     Waker     // required
	CatchUps  CatchUps  // required
}

// Applied counts what became of events.
type Applied struct {
	Events   int `json:"events"`             // records that were given
	Rows     int `json:"rows"`               // rows that they were for
	Written  int `json:"written"`            // rows that were written
	Rejected int `json:"rejected,omitempty"` // events that were rejected for good
	Enqueued int `json:"enqueued"`           // effects that were committed
	Parked   int `json:"parked,omitempty"`   // instances that were set aside now
	// StillParked counts, per page, the instances that were parked before; their newer
	// versions were noted.
	StillParked int   `json:"stillParked,omitempty"`
	Wakes       Wakes `json:"wakes"`
}

// Add adds the counts of another page.
func (c *Applied) Add(other Applied) {
	c.Events += other.Events
	c.Rows += other.Rows
	c.Written += other.Written
	c.Rejected += other.Rejected
	c.Enqueued += other.Enqueued
	c.Parked += other.Parked
	c.StillParked += other.StillParked
	c.Wakes.Sent += other.Wakes.Sent
	c.Wakes.Dropped += other.Wakes.Dropped
}

// retries says how often a page is tried before what fails for now is parked.
type retries struct {
	attempts int
	backoff  outbox.Backoff
}

// wait returns after the n-th backoff, with half jitter, or when ctx ends.
func (r retries) wait(ctx context.Context, n int) error {
	bound := r.backoff.Bound(n)
	return sleep(ctx, nil, bound/2+rand.N(bound/2+1)) //nolint:gosec // G404: the jitter needs no secret numbers
}

// page applies the records of one page. When it returns without an error every record
// is applied or parked, the catch-ups of parked instances are running, and the wakes
// are answered or given up. ensured remembers the instances whose catch-up is known to
// have been started.
func (a *Applier) page(
	ctx context.Context, records []event.Record, only []string, policy retries, ensured map[string]bool,
) (Applied, error) {
	total := Applied{Events: len(records)}
	if len(records) == 0 {
		return total, nil
	}
	todo := records
	for attempt := 1; ; attempt++ {
		result, err := a.Processor.ProcessBatch(ctx, todo, projection.BatchOptions{Only: only})
		if err != nil {
			return total, err
		}
		counts := countsOf(result)
		if attempt > 1 {
			counts.Rows, counts.StillParked = 0, 0
		}
		total.Add(counts)
		last := attempt >= policy.attempts
		parked, err := a.park(ctx, result, last)
		total.Parked += len(parked)
		if err == nil {
			err = a.ensureCatchUps(ctx, parked, result.Parked, ensured)
		}
		if err != nil {
			return total, err
		}
		todo = failing(todo, result.Failures, parked)
		if len(todo) == 0 {
			total.Wakes = a.Waker.Flush(ctx)
			return total, nil
		}
		if err := policy.wait(ctx, attempt); err != nil {
			return total, err
		}
	}
}

// park sets aside the failures that no repetition mends; all of them the last time.
func (a *Applier) park(ctx context.Context, result projection.BatchResult, all bool) ([]projection.InstanceFailure, error) {
	var parked []projection.InstanceFailure
	_, err := a.Processor.ParkFailures(ctx, result, func(failure projection.InstanceFailure) bool {
		chosen := all || failure.Class() == event.ClassPermanent
		if chosen {
			parked = append(parked, failure)
		}
		return chosen
	})
	return parked, err
}

// ensureCatchUps starts the catch-ups of instances that are parked now, and of those
// that were found parked and are not known to have one.
func (a *Applier) ensureCatchUps(
	ctx context.Context, now []projection.InstanceFailure, before []projection.Park, ensured map[string]bool,
) error {
	var errs []error
	ensure := func(name string, instance projection.Instance) {
		if err := a.CatchUps.EnsureCatchUp(ctx, name, instance); err != nil {
			errs = append(errs, fmt.Errorf("start the catch-up of instance %s of projection %s: %w", instance, name, err))
			return
		}
		ensured[name+"#"+instance.CheckpointKey()] = true
	}
	for _, failure := range now {
		ensure(failure.Projection, failure.Instance)
	}
	for _, park := range before {
		if !ensured[park.Projection+"#"+park.Instance.CheckpointKey()] {
			ensure(park.Projection, park.Instance)
		}
	}
	return errors.Join(errs...)
}

// failing returns the records of the instances that failed and were not parked.
func failing(records []event.Record, failures, parked []projection.InstanceFailure) []event.Record {
	type stream struct {
		name string
		id   event.ID
	}
	again := map[stream]bool{}
	for _, failure := range failures {
		isParked := slices.ContainsFunc(parked, func(p projection.InstanceFailure) bool {
			return p.Projection == failure.Projection && p.Instance == failure.Instance
		})
		if !isParked {
			again[stream{failure.Stream, failure.Instance.StreamID}] = true
		}
	}
	var left []event.Record
	for _, record := range records {
		if again[stream{record.Envelope.Stream, record.Envelope.StreamID}] {
			left = append(left, record)
		}
	}
	return left
}

func countsOf(result projection.BatchResult) Applied {
	counts := Applied{Rows: len(result.Rows), Enqueued: result.Enqueued, StillParked: len(result.Parked)}
	for _, row := range result.Rows {
		if row.Written {
			counts.Written++
		}
		for _, instance := range row.Instances {
			counts.Rejected += len(instance.Rejected)
		}
	}
	return counts
}

// sleep waits for the delay. It returns early, without an error, when stop is closed,
// and with the context's error when that ends.
func sleep(ctx context.Context, stop <-chan struct{}, delay time.Duration) error {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-stop:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
