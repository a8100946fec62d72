package activities_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/activities"
	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/internal/tallytest"
	"github.com/rowfold/rowfold/outbox"
)

// pendingRows is a pending index that a test writes.
type pendingRows struct {
	outbox.Store

	rows    []outbox.PendingRow // in order of their keys
	queries []outbox.PendingQuery
	fault   error
}

func (p *pendingRows) Pending(_ context.Context, query outbox.PendingQuery) ([]outbox.PendingRow, error) {
	p.queries = append(p.queries, query)
	if p.fault != nil {
		return nil, p.fault
	}
	var page []outbox.PendingRow
	for _, row := range p.rows {
		if row.Row.Key > query.After && len(page) < query.Limit {
			page = append(page, row)
		}
	}
	return page, nil
}

var sweepNow = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// pendingAt is a row whose head is as old as said.
func pendingAt(key string, age time.Duration, deferral outbox.Deferral) outbox.PendingRow {
	row := outbox.Row{Projection: tallytest.Projection, Key: key}
	return outbox.PendingRow{Row: row, Head: outbox.Item{Row: row, EnqueuedAt: sweepNow.Add(-age), Deferral: deferral}}
}

func sweepOf() activities.SweepInput {
	return activities.SweepInput{Projection: tallytest.Projection, Grace: activities.Duration(30 * time.Second), MaxWakes: 100, PageSize: 3}
}

func sweep(tb testing.TB, store outbox.Store, waker activities.Waker, in activities.SweepInput) activities.SweepCounts {
	tb.Helper()
	sweeps := &activities.Sweeps{Store: store, Waker: waker, Now: func() time.Time { return sweepNow }}
	counts, err := run[activities.SweepCounts](environment(), sweeps.SweepRows, in)
	require.NoError(tb, err)
	return counts
}

// T-12: rows whose head is older than the grace time are woken, unless they are parked or wait for their own next attempt.
func TestSweepRows(t *testing.T) {
	t.Parallel()
	store := &pendingRows{rows: []outbox.PendingRow{
		pendingAt("a", time.Minute, outbox.Deferral{}),
		pendingAt("b", 10*time.Second, outbox.Deferral{}),
		pendingAt("c", time.Hour, outbox.Deferral{Attempts: 60, Parked: true}),
		pendingAt("d", time.Hour, outbox.Deferral{Attempts: 3, Until: sweepNow.Add(time.Minute)}),
		pendingAt("e", time.Hour, outbox.Deferral{Attempts: 3, Until: sweepNow.Add(-10 * time.Second)}), // its drain is about to
		pendingAt("f", time.Hour, outbox.Deferral{Attempts: 3, Until: sweepNow.Add(-time.Minute)}),
		pendingAt("g", 30*time.Second, outbox.Deferral{}),
	}}
	waker := &tallytest.Waker{}
	counts := sweep(t, store, waker, sweepOf())
	require.Equal(t, activities.SweepCounts{Pending: 7, Woken: 3, Young: 1, Waiting: 2, Parked: 1}, counts)
	require.Equal(t, []string{"a", "f", "g"}, waker.Rows())
	require.Len(t, store.queries, 3) // pages of 3: its cost follows the pending rows
}

// T-12: wakes per run are capped, and the next run goes on behind them, until each row had its turn once.
func TestSweepRows_cap(t *testing.T) {
	t.Parallel()
	store := &pendingRows{}
	for i := range 10 {
		age := time.Minute
		if i%3 == 1 {
			age = 0
		}
		store.rows = append(store.rows, pendingAt(fmt.Sprintf("r%d", i), age, outbox.Deferral{}))
	}
	for _, size := range []int{1, 2, 3, 4, 10, 50} {
		waker := &tallytest.Waker{}
		in := sweepOf()
		in.MaxWakes, in.PageSize = 3, size
		total := activities.SweepCounts{}
		for range 10 {
			counts := sweep(t, store, waker, in)
			require.LessOrEqual(t, counts.Woken, 3)
			total.Pending += counts.Pending
			total.Young += counts.Young
			if in.After = counts.Next; in.After == "" {
				break
			}
		}
		require.Empty(t, in.After)
		require.Equal(t, activities.SweepCounts{Pending: 10, Young: 3}, total)
		require.Equal(t, []string{"r0", "r2", "r3", "r5", "r6", "r8", "r9"}, waker.Rows(), "pages of %d", size)
	}
}

// T-12, T-13: wakes that Temporal does not answer are counted, and no fault of the sweep.
func TestSweepRows_dropped(t *testing.T) {
	t.Parallel()
	store := &pendingRows{rows: []outbox.PendingRow{pendingAt("a", time.Hour, outbox.Deferral{}), pendingAt("b", time.Hour, outbox.Deferral{})}}
	counts := sweep(t, store, &dropping{}, sweepOf())
	require.Equal(t, activities.SweepCounts{Pending: 2, Woken: 1, Dropped: 1}, counts)
}

// dropping drops every other wake.
type dropping struct{ asked int }

func (d *dropping) Wake(_ context.Context, rows []outbox.Row) { d.asked += len(rows) }

func (d *dropping) Flush(context.Context) activities.Wakes {
	counts := activities.Wakes{Sent: d.asked - d.asked/2, Dropped: d.asked / 2}
	d.asked = 0
	return counts
}

// T-6: a sweep stops with its worker, and the next one goes on.
func TestSweepRows_workerStops(t *testing.T) {
	t.Parallel()
	store := &pendingRows{}
	for i := range 9 {
		store.rows = append(store.rows, pendingAt(fmt.Sprintf("r%d", i), time.Hour, outbox.Deferral{}))
	}
	stop := make(chan struct{})
	close(stop)
	env := environment()
	env.SetWorkerStopChannel(stop)
	sweeps := &activities.Sweeps{Store: store, Waker: &tallytest.Waker{}, Now: func() time.Time { return sweepNow }}
	counts, err := run[activities.SweepCounts](env, sweeps.SweepRows, sweepOf())
	require.NoError(t, err)
	require.Equal(t, activities.SweepCounts{Pending: 3, Woken: 3, Next: "r2"}, counts)
}

func TestSweepRows_fault(t *testing.T) {
	t.Parallel()
	sweeps := &activities.Sweeps{Store: &pendingRows{fault: event.Permanent(errors.New("no such index"))}, Waker: &tallytest.Waker{}}
	_, err := run[activities.SweepCounts](environment(), sweeps.SweepRows, sweepOf())
	requireClass(t, err, event.ClassPermanent, false)
}

// T-12: on a real store, with the real clock.
func TestSweepRows_store(t *testing.T) {
	t.Parallel()
	d := newDraining(t)
	d.fill(t, "a", 3)
	d.fill(t, "b", 1)
	waker := &tallytest.Waker{}
	sweeps := &activities.Sweeps{Store: d.Store, Waker: waker}
	in := sweepOf()
	counts, err := run[activities.SweepCounts](environment(), sweeps.SweepRows, in)
	require.NoError(t, err)
	require.Equal(t, activities.SweepCounts{Pending: 2, Young: 2}, counts)
	in.Grace = activities.Duration(time.Nanosecond)
	counts, err = run[activities.SweepCounts](environment(), sweeps.SweepRows, in)
	require.NoError(t, err)
	require.Equal(t, activities.SweepCounts{Pending: 2, Woken: 2}, counts)
	require.Equal(t, []string{"a", "b"}, waker.Rows())
}
