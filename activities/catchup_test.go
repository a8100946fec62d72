package activities_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/activities"
	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/internal/tallytest"
	"github.com/rowfold/rowfold/projection"
)

func catchUp(day event.ID) activities.CatchUpInput {
	return activities.CatchUpInput{Projection: tallytest.Projection, Source: tallytest.Source, StreamID: day, PageSize: 2}
}

// park parks a day as a feed does that has seen versions up to newest.
func (c *consuming) park(tb testing.TB, day event.ID, from, newest int64) {
	tb.Helper()
	require.NoError(tb, c.Store.Park(tb.Context(), projection.Park{
		Projection: tallytest.Projection, Instance: tallytest.Instance(day), Stream: tallytest.Stream,
		Rows: []string{"a"}, Reason: "it failed", Class: event.ClassPermanent, From: from, Newest: newest, ParkedAt: time.Now(),
	}))
}

// a parked instance is applied up to its head and is not parked any more.
func TestCatchUp(t *testing.T) {
	t.Parallel()
	c := newConsuming(t)
	c.Append(t, "d-1", tallytest.Entries("a", 5)...)
	c.park(t, "d-1", 1, 2)
	got, err := run[activities.CaughtUp](environment(), c.parked().CatchUp, catchUp("d-1"))
	require.NoError(t, err)
	require.Equal(t, activities.CaughtUp{Done: true, Events: 5, Version: 5, Newest: 2, Enqueued: 5}, got)
	require.Nil(t, c.Parked(t, "d-1"))
	require.EqualValues(t, 5, c.Tally(t, "a").Total)
	require.NotEmpty(t, c.waker.Rows())

	got, err = run[activities.CaughtUp](environment(), c.parked().CatchUp, catchUp("d-1"))
	require.NoError(t, err)
	require.Equal(t, activities.CaughtUp{Done: true, NotParked: true}, got)
}

// what a feed notes while the catch-up runs is applied before the park ends.
func TestCatchUp_newerVersionsMeanwhile(t *testing.T) {
	t.Parallel()
	c := newConsuming(t)
	c.Append(t, "d-1", tallytest.Entries("a", 2)...)
	c.park(t, "d-1", 1, 2)
	c.processor = &processor{Processor: c.processor, before: func(call int, _ []event.Record) error {
		if call == 1 {
			c.Append(t, "d-1", tallytest.Entries("a", 3)...)
			c.park(t, "d-1", 3, 5)
		}
		return nil
	}}
	got, err := run[activities.CaughtUp](environment(), c.parked().CatchUp, catchUp("d-1"))
	require.NoError(t, err)
	require.True(t, got.Done)
	require.EqualValues(t, 5, got.Version)
	require.EqualValues(t, 5, c.Tally(t, "a").Total)
	require.Nil(t, c.Parked(t, "d-1"))
}

// what still fails is named; the instance stays parked and what was applied stays.
// After an operator's skip it goes on, and the skipped event is not applied.
func TestCatchUp_failsUntilSkipped(t *testing.T) {
	t.Parallel()
	c := newConsuming(t)
	c.Break(event.Permanent(errors.New("no such tally")))
	c.Append(t, "d-1", tallytest.Entries("a", 2)...)
	c.Append(t, "d-1", tallytest.Entry{Tally: "a", Amount: 100, Poison: true})
	c.Append(t, "d-1", tallytest.Entries("a", 1)...)
	c.park(t, "d-1", 1, 4)
	got, err := run[activities.CaughtUp](environment(), c.parked().CatchUp, catchUp("d-1"))
	require.NoError(t, err)
	require.False(t, got.Done)
	require.EqualValues(t, 3, got.Failed.Version)
	require.Equal(t, event.ClassPermanent, got.Failed.Class)
	require.Contains(t, got.Failed.Error, "no such tally")
	require.Equal(t, 1, got.Failed.Rows)
	require.NotNil(t, c.Parked(t, "d-1"))
	require.EqualValues(t, 2, c.Tally(t, "a").Total)

	skip := activities.SkipInput{
		Projection: tallytest.Projection, Source: tallytest.Source, StreamID: "d-1", Version: 3,
		Who: "ada", Why: "a typing error", At: time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC),
	}
	for range 2 { // again by the next attempt, or by another operator
		_, err = run[struct{}](environment(), c.parked().RecordSkip, skip)
		require.NoError(t, err)
	}
	skips, err := c.Store.Skips(t.Context(), tallytest.Projection, []projection.Instance{tallytest.Instance("d-1")})
	require.NoError(t, err)
	require.Equal(t, []projection.Skip{{
		Projection: tallytest.Projection, Instance: tallytest.Instance("d-1"), Version: 3, Who: "ada", Why: "a typing error", At: skip.At,
	}}, skips)

	got, err = run[activities.CaughtUp](environment(), c.parked().CatchUp, catchUp("d-1"))
	require.NoError(t, err)
	require.True(t, got.Done)
	require.EqualValues(t, 3, c.Tally(t, "a").Total)
	require.EqualValues(t, 3, c.Tally(t, "a").Entries)
}

// an event that a feed has seen and the store does not show is waited for.
func TestCatchUp_missingEvent(t *testing.T) {
	t.Parallel()
	c := newConsuming(t)
	c.Append(t, "d-1", tallytest.Entries("a", 2)...)
	c.park(t, "d-1", 1, 3)
	got, err := run[activities.CaughtUp](environment(), c.parked().CatchUp, catchUp("d-1"))
	require.NoError(t, err)
	require.False(t, got.Done)
	require.EqualValues(t, 3, got.Failed.Version)
	require.Equal(t, event.ClassRetry, got.Failed.Class)
	require.NotNil(t, c.Parked(t, "d-1"))
}

// T-6: a worker that stops lets the page finish; the workflow calls again.
func TestCatchUp_leavesWhenTheWorkerStops(t *testing.T) {
	t.Parallel()
	c, env := newConsuming(t), environment()
	c.Append(t, "d-1", tallytest.Entries("a", 6)...)
	c.park(t, "d-1", 1, 6)
	stop := make(chan struct{})
	env.SetWorkerStopChannel(stop)
	c.processor = &processor{Processor: c.processor, before: func(call int, _ []event.Record) error {
		if call == 2 {
			close(stop)
		}
		return nil
	}}
	got, err := run[activities.CaughtUp](env, c.parked().CatchUp, catchUp("d-1"))
	require.NoError(t, err)
	require.Equal(t, activities.CaughtUp{Events: 4, Version: 4, Newest: 6, Enqueued: 4}, got)
	require.NotNil(t, c.Parked(t, "d-1"))
}

// T-6: faults of the store fail the activity and are tried again.
func TestCatchUp_storeIsAway(t *testing.T) {
	t.Parallel()
	c := newConsuming(t)
	c.Append(t, "d-1", tallytest.Entries("a", 1)...)
	c.park(t, "d-1", 1, 1)
	c.processor = &processor{Processor: c.processor, before: func(int, []event.Record) error { return errors.New("the database is away") }}
	_, err := run[activities.CaughtUp](environment(), c.parked().CatchUp, catchUp("d-1"))
	requireClass(t, err, event.ClassRetry, true)
	require.NotNil(t, c.Parked(t, "d-1"))
}
