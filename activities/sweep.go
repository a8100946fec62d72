package activities

import (
	"context"
	"sync"
	"time"

	"github.com/rowfold/rowfold/outbox"
)

// SweepRows is the name of the activity of [Sweeps].
const SweepRows = "SweepRows"

// Sweeps are the activities that find rows whose wake got lost.
type Sweeps struct {
	Store outbox.Store // required
	Waker Waker        // required
	// Now defaults to time.Now.
	Now func() time.Time
}

// SweepInput asks for a sweep over a projection's pending rows.
type SweepInput struct {
	Projection string   `json:"projection"`
	After      string   `json:"after,omitempty"` // the row key after which to begin
	Grace      Duration `json:"grace"`
	MaxWakes   int      `json:"maxWakes"`
	PageSize   int      `json:"pageSize"`
}

// SweepCounts says what a sweep found.
type SweepCounts struct {
	Pending int `json:"pending"`           // rows with pending effects that were looked at
	Woken   int `json:"woken"`             // wakes that were answered
	Dropped int `json:"dropped,omitempty"` // wakes that Temporal did not answer in time
	Young   int `json:"young,omitempty"`   // heads younger than the grace time
	Waiting int `json:"waiting,omitempty"` // heads that are not due yet
	Parked  int `json:"parked,omitempty"`  // heads that wait for an operator
	// Next is the row key after which the next sweep goes on: this one has used up its
	// wakes, or the worker stopped. Empty = the end was reached.
	Next string `json:"next,omitempty"`
}

// SweepRows wakes every row whose head is older than the grace time and neither parked
// nor waiting for its own next attempt, until MaxWakes are used up. It may run beside
// another one: a row that is woken twice is drained once. Errors are faults of the
// store.
func (a *Sweeps) SweepRows(ctx context.Context, in SweepInput) (SweepCounts, error) {
	now := clock(a.Now)
	var mu sync.Mutex
	counts := SweepCounts{Next: in.After}
	stop := heartbeat(ctx, func() any {
		mu.Lock()
		defer mu.Unlock()
		return counts
	})
	defer stop()
	for asked := 0; ; {
		rows, err := a.Store.Pending(ctx, outbox.PendingQuery{Projection: in.Projection, After: counts.Next, Limit: in.PageSize})
		if err != nil {
			return counts, Failure(err)
		}
		var wake []outbox.Row
		mu.Lock()
		for _, row := range rows {
			if asked+len(wake) >= in.MaxWakes {
				break
			}
			counts.Next = row.Row.Key
			if counts.take(row.Head, now(), in.Grace.Std()) {
				wake = append(wake, row.Row)
			}
		}
		mu.Unlock()
		asked += len(wake)
		a.Waker.Wake(ctx, wake)
		wakes := a.Waker.Flush(ctx)
		mu.Lock()
		dropped := min(wakes.Dropped, len(wake))
		counts.Dropped += dropped
		counts.Woken += len(wake) - dropped
		mu.Unlock()
		switch {
		case ctx.Err() != nil:
			return counts, ctx.Err()
		case len(rows) < in.PageSize && (len(rows) == 0 || counts.Next == rows[len(rows)-1].Row.Key):
			counts.Next = ""
			return counts, nil
		case asked >= in.MaxWakes || stopping(ctx):
			return counts, nil
		}
	}
}

// take counts a pending row by its head and reports whether it has to be woken.
func (c *SweepCounts) take(head outbox.Item, now time.Time, grace time.Duration) bool {
	c.Pending++
	switch {
	case head.Deferral.Parked:
		c.Parked++
	case now.Before(head.Deferral.Until.Add(grace)):
		c.Waiting++
	case now.Before(head.EnqueuedAt.Add(grace)):
		c.Young++
	default:
		return true
	}
	return false
}
