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

func (c *consuming) applies() *activities.Applies {
	return &activities.Applies{Applier: c.applier(), Events: c.Store}
}

func apply(ranges ...activities.EventRange) activities.ApplyInput {
	return activities.ApplyInput{
		Events: ranges, PageSize: 2, Attempts: 3,
		RetryMin: activities.Duration(time.Microsecond), RetryMax: activities.Duration(time.Microsecond),
	}
}

func days(day event.ID, from, to int64) activities.EventRange {
	return activities.EventRange{Stream: tallytest.Stream, StreamID: day, From: from, To: to}
}

// T-3, T-14: events are given by reference, applied in pages, and again without effect.
func TestApplyEvents(t *testing.T) {
	t.Parallel()
	c := newConsuming(t)
	c.Append(t, "d-1", tallytest.Entries("a", 4)...)
	c.Append(t, "d-2", tallytest.Entries("b", 3)...)
	wrapped := &processor{Processor: c.processor, before: func(int, []event.Record) error { return nil }}
	c.processor = wrapped
	got, err := run[activities.Applied](environment(), c.applies().ApplyEvents, apply(days("d-1", 1, 3), days("d-2", 1, 2)))
	require.NoError(t, err)
	require.Equal(t, activities.Applied{Events: 5, Rows: 4, Written: 4, Enqueued: 5, Wakes: got.Wakes}, got)
	require.Positive(t, got.Wakes.Sent)
	require.Zero(t, got.Wakes.Dropped)
	require.Equal(t, 3, wrapped.calls, "pages of two events, across the ranges")
	require.EqualValues(t, 3, c.Tally(t, "a").Total)
	require.EqualValues(t, 2, c.Tally(t, "b").Total)

	got, err = run[activities.Applied](environment(), c.applies().ApplyEvents, apply(days("d-1", 1, 4)))
	require.NoError(t, err)
	require.Equal(t, 1, got.Enqueued)
	require.EqualValues(t, 4, c.Tally(t, "a").Total)
}

// A batch may name projections of the worker; the others are left alone.
func TestApplyEvents_onlySomeProjections(t *testing.T) {
	t.Parallel()
	c := newConsuming(t)
	c.Append(t, "d-1", tallytest.Entries("a", 1)...)
	in := apply(days("d-1", 1, 1))
	in.Projections = []string{"Another"}
	got, err := run[activities.Applied](environment(), c.applies().ApplyEvents, in)
	require.NoError(t, err)
	require.Zero(t, got.Written)
	require.Zero(t, c.Tally(t, "a").Entries)
}

// T-6: an event that the store does not show yet is waited for, by another attempt.
func TestApplyEvents_missing(t *testing.T) {
	t.Parallel()
	c := newConsuming(t)
	c.Append(t, "d-1", tallytest.Entries("a", 2)...)
	_, err := run[activities.Applied](environment(), c.applies().ApplyEvents, apply(days("d-1", 1, 3)))
	requireClass(t, err, event.ClassRetry, true)
	require.ErrorContains(t, err, `event Day "d-1" version 3 is not in the event store (yet), versions 1 to 3 were asked for`)
}

// R-45, T-14: a batch whose instance cannot be applied parks it, with its catch-up, and is
// done with it.
func TestApplyEvents_parks(t *testing.T) {
	t.Parallel()
	c := newConsuming(t)
	c.Break(event.Permanent(errors.New("no such tally")))
	c.Append(t, "d-1", tallytest.Entries("a", 1)...)
	c.Append(t, "d-1", tallytest.Entry{Tally: "a", Amount: 1, Poison: true})
	got, err := run[activities.Applied](environment(), c.applies().ApplyEvents, apply(days("d-1", 1, 2)))
	require.NoError(t, err)
	require.Equal(t, 1, got.Parked)
	require.Equal(t, []projection.Instance{tallytest.Instance("d-1")}, c.catchUps.Started())
	park := c.Parked(t, "d-1")
	require.EqualValues(t, 2, park.Newest)
	require.Contains(t, park.Reason, "no such tally")
}

// A store that is away fails the activity, which is tried again as a whole.
func TestApplyEvents_storeIsAway(t *testing.T) {
	t.Parallel()
	c := newConsuming(t)
	c.Append(t, "d-1", tallytest.Entries("a", 1)...)
	c.processor = &processor{Processor: c.processor, before: func(int, []event.Record) error {
		return event.WithClass(errors.New("the answer got lost"), event.ClassUnknownOutcome)
	}}
	_, err := run[activities.Applied](environment(), c.applies().ApplyEvents, apply(days("d-1", 1, 1)))
	requireClass(t, err, event.ClassUnknownOutcome, true)
	require.Nil(t, c.Parked(t, "d-1"))
}
