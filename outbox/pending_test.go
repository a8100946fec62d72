package outbox_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
)

func unchanged(*projection.Write) {}

func (f *fixture) sweep(store outbox.Store, opts outbox.Options) (outbox.Swept, error) {
	f.Helper()
	return outbox.DrainPending(f.Context(), store, "Board", f.got.deliver, opts)
}

// rows are independent; each one's end is told by itself.
func TestASweepTellsWhatBecameOfEachRow(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, key := range []string{"A-fine", "B-fails", "C-more", "D-busy", "E-later", "F-broken"} {
		f.write(key, unchanged, 1, 2)
	}
	f.write("G-empty", unchanged)
	f.write("C-more", unchanged, 3, 4)
	row := func(key string) outbox.Row { return outbox.Row{Projection: "Board", Key: key} }
	headOf := func(key string) outbox.Item {
		head, err := f.store.Head(t.Context(), row(key), 1)
		require.NoError(t, err)
		return head.Items[0]
	}
	busy := workflowOwner("busy")
	claimed, err := f.store.Claim(t.Context(), row("D-busy"), []outbox.Ref{headOf("D-busy").Ref()}, busy)
	require.NoError(t, err)
	require.Equal(t, 1, claimed)
	put, err := f.store.Defer(t.Context(), row("E-later"), headOf("E-later").Ref(),
		outbox.Deferral{Attempts: 2, Until: noon.Add(time.Hour), Class: event.ClassRetry, Error: "x"})
	require.NoError(t, err)
	require.True(t, put)
	f.got.before = func(_ context.Context, _ int, delivery outbox.Delivery) error {
		if delivery.Row.Key == "B-fails" {
			return errNobody
		}
		return nil
	}
	opts := f.options()
	opts.MaxEffects, opts.Parallelism = 2, 1
	swept, err := f.sweep(&brokenRows{Store: f.store, keys: []string{"E-later", "F-broken"}}, opts)
	var drainError *outbox.DrainError
	require.ErrorAs(t, err, &drainError)
	require.Equal(t, row("F-broken"), drainError.Row)

	unfinished := map[string]outbox.Unfinished{}
	for _, row := range swept.Unfinished {
		unfinished[row.Row.Key] = row
	}
	require.Len(t, unfinished, 3)
	require.Equal(t, 3, unfinished["B-fails"].Failed.Attempts)
	require.Equal(t, busy, unfinished["D-busy"].Blocked.Claim.Owner)
	require.Equal(t, time.Hour, unfinished["E-later"].Failed.NextDelay.Round(time.Minute))
	require.Equal(t, 2, unfinished["E-later"].Failed.Attempts, "a head that is not due is not tried")
	require.Zero(t, headOf("E-later").Claim.Epoch, "nor claimed, nor even read again")
	swept.Unfinished = nil
	require.Equal(t, outbox.Swept{Rows: 6, Delivered: 4, Emptied: 1, Waiting: 2, Blocked: 1, More: 1, Faults: 1}, swept)
}

// brokenRows is a store that fails for some rows.
type brokenRows struct {
	outbox.Store

	keys []string
}

func (s *brokenRows) Head(ctx context.Context, row outbox.Row, limit int) (outbox.Head, error) {
	if slices.Contains(s.keys, row.Key) {
		return outbox.Head{}, event.Permanent(errBroken)
	}
	return s.Store.Head(ctx, row, limit)
}

func TestASweepWithoutPendingRowsDoesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.write("ZRH", unchanged)
	swept, err := f.sweep(f.store, f.options())
	require.NoError(t, err)
	require.Equal(t, outbox.Swept{}, swept)
}

// T-12: rows are listed page by page, and each row once.
func TestASweepGoesThroughAllPages(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const rows = 205
	for i := range rows {
		f.write(fmt.Sprintf("K%03d", i), unchanged, i)
	}
	swept, err := f.sweep(f.store, f.options())
	require.NoError(t, err)
	require.Equal(t, outbox.Swept{Rows: rows, Delivered: rows, Emptied: rows}, swept)
	require.Len(t, f.got.deliveries(), rows)
}

// The lists of a sweep are bounded, its counts are not.
func TestASweepBoundsWhatItLists(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const rows = outbox.MaxUnfinished + 5
	for i := range rows {
		f.write(fmt.Sprintf("K%03d", i), unchanged, i)
	}
	f.got.before = func(context.Context, int, outbox.Delivery) error { return event.Permanent(errNobody) }
	swept, err := f.sweep(f.store, f.options())
	require.NoError(t, err)
	require.Equal(t, rows, swept.Waiting)
	require.Len(t, swept.Unfinished, outbox.MaxUnfinished)
	swept, err = f.sweep(f.store, f.options())
	require.NoError(t, err)
	require.Equal(t, rows, swept.Waiting, "parked rows are counted again, and not tried")
	require.Len(t, swept.Unfinished, outbox.MaxUnfinished)

	for i := range rows {
		_, err := outbox.Retry(t.Context(), f.store, outbox.Row{Projection: "Board", Key: fmt.Sprintf("K%03d", i)})
		require.NoError(t, err)
	}
	swept, err = f.sweep(&intercepted{Store: f.store, head: func(context.Context) error { return event.Permanent(errBroken) }}, f.options())
	require.Equal(t, rows, swept.Faults)
	joined, isJoined := err.(interface{ Unwrap() []error })
	require.True(t, isJoined)
	require.Len(t, joined.Unwrap(), outbox.MaxUnfinished)
}

// As many rows at a time as asked for, and no more.
func TestASweepDrainsSeveralRowsAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		const parallel, rows = 3, 9
		for i := range rows {
			f.write(fmt.Sprintf("K%d", i), unchanged, i)
		}
		var inside atomic.Int32
		gate := make(chan struct{})
		f.got.before = func(context.Context, int, outbox.Delivery) error {
			inside.Add(1)
			<-gate
			return nil
		}
		opts := f.options()
		opts.Parallelism = parallel
		var swept outbox.Swept
		var err error
		done := make(chan struct{})
		go func() {
			defer close(done)
			swept, err = f.sweep(f.store, opts)
		}()
		synctest.Wait() // until nobody can go on
		require.Equal(t, int32(parallel), inside.Load())
		close(gate)
		<-done
		require.NoError(t, err)
		require.Equal(t, outbox.Swept{Rows: rows, Delivered: rows, Emptied: rows}, swept)
	})
}

// A listing that breaks ends the sweep; what was handed out is finished.
func TestASweepWhoseListingBreaksFinishesWhatItBegan(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for i := range 120 {
		f.write(fmt.Sprintf("K%03d", i), unchanged, i)
	}
	swept, err := f.sweep(&brokenListing{Store: f.store}, f.options())
	require.ErrorIs(t, err, errBroken)
	var drainError *outbox.DrainError
	require.ErrorAs(t, err, &drainError)
	require.Equal(t, "list the pending rows", drainError.Step)
	require.Equal(t, "Board", drainError.Row.Projection)
	require.Equal(t, 100, swept.Emptied)
}

// brokenListing fails at the second page.
type brokenListing struct{ outbox.Store }

func (s *brokenListing) Pending(ctx context.Context, query outbox.PendingQuery) ([]outbox.PendingRow, error) {
	if query.After != "" {
		return nil, errBroken
	}
	return s.Store.Pending(ctx, query)
}

func TestACancelledSweepEnds(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for i := range 20 {
		f.write(fmt.Sprintf("K%02d", i), unchanged, i)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	f.got.before = func(ctx context.Context, _ int, _ outbox.Delivery) error {
		cancel(errBroken)
		<-ctx.Done()
		return ctx.Err()
	}
	opts := f.options()
	opts.Parallelism = 1
	swept, err := outbox.DrainPending(ctx, f.store, "Board", f.got.deliver, opts)
	require.ErrorIs(t, err, errBroken)
	require.Zero(t, swept.Delivered)
	pending, err := f.store.Pending(t.Context(), outbox.PendingQuery{Projection: "Board", Limit: 100})
	require.NoError(t, err)
	require.Len(t, pending, 20)
	for _, row := range pending {
		require.True(t, row.Head.Claim.IsZero(), row.Row)
		require.True(t, row.Head.Deferral.IsZero(), row.Row)
	}
}
