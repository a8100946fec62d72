package activities_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/activities"
	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/internal/tallytest"
	"github.com/rowfold/rowfold/projection"
)

func (c *consuming) record(tb testing.TB, position event.Position, done bool) {
	tb.Helper()
	require.NoError(tb, c.Store.SavePosition(tb.Context(), projection.PositionRecord{
		Consumer: tallytest.Consumer, Stream: feedName, Shard: "s", Position: position, Done: done, At: time.Now(),
	}))
}

// T-15: it begins at the higher of the position record and the heartbeat; without both at
// the oldest, and says so.
func TestFollowShard_begins(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		record    int // -1 = none
		heartbeat int // -1 = none
		child     bool
		accept    int
		after     int
		unknown   bool
	}{
		"at the oldest":                         {record: -1, heartbeat: -1, after: 0, unknown: true},
		"at the oldest of a child":              {record: -1, heartbeat: -1, child: true, after: 0},
		"at the record":                         {record: 2, heartbeat: -1, after: 2},
		"at the heartbeat":                      {record: 1, heartbeat: 3, after: 3},
		"at the record above the heartbeat":     {record: 3, heartbeat: 1, after: 3},
		"behind an accepted gap":                {record: 1, heartbeat: -1, accept: 2, after: 2},
		"at the record above an accepted gap":   {record: 3, heartbeat: -1, accept: 2, after: 3},
		"at the heartbeat, the record was lost": {record: -1, heartbeat: 2, after: 2, unknown: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, env := newConsuming(t), environment()
			c.feed.Open("s")
			c.put(t, "s", "d-1", tallytest.Entries("a", 4)...)
			if test.record >= 0 {
				c.record(t, tallytest.At(test.record), false)
			}
			if test.heartbeat >= 0 {
				env.SetHeartbeatDetails(activities.Progress{Position: tallytest.At(test.heartbeat)})
			}
			in := follow()
			in.Child = test.child
			if test.accept > 0 {
				in.AcceptGap = new(tallytest.At(test.accept))
			}
			got, err := run[activities.Followed](env, c.consumers().FollowShard, in)
			require.NoError(t, err)
			require.Equal(t, tallytest.At(test.after), c.feed.Reads()[0].After)
			require.Equal(t, test.unknown, got.UnknownStart)
			require.True(t, got.CaughtUp)
			require.Equal(t, 4-test.after, got.Events)
			require.Equal(t, tallytest.At(4), c.Position(t, feedName, "s").Position)
		})
	}
}

// T-15: whoever begins without a record tells it before the record is there, so that an
// attempt which finds the record still knows; and the counts of both attempts add up.
func TestFollowShard_unknownStartSurvivesAnAttempt(t *testing.T) {
	t.Parallel()
	c, env := newConsuming(t), environment()
	told := heartbeats(env)
	c.feed.Open("s")
	c.put(t, "s", "d-1", tallytest.Entries("a", 4)...)
	c.processor = &processor{Processor: c.processor, before: func(call int, _ []event.Record) error {
		if call == 2 {
			return errors.New("the database is away")
		}
		return nil
	}}
	in := follow()
	_, err := run[activities.Followed](env, c.consumers().FollowShard, in)
	requireClass(t, err, event.ClassRetry, true)
	require.NotEmpty(t, told())
	require.True(t, told()[0].UnknownStart)
	require.Equal(t, tallytest.At(2), c.Position(t, feedName, "s").Position, "what was applied is on record")

	second := environment()
	second.SetHeartbeatDetails(activities.Progress{
		UnknownStart: true, Position: tallytest.At(2), Pages: 1, Applied: activities.Applied{Events: 2},
	})
	got, err := run[activities.Followed](second, c.consumers().FollowShard, in)
	require.NoError(t, err)
	require.True(t, got.UnknownStart)
	require.Equal(t, 4, got.Events)
	require.EqualValues(t, 2, got.Pages)
	require.EqualValues(t, 4, c.Tally(t, "a").Total)
}

// T-15: records that are gone before they were read are a gap, never a silent jump; before
// the first read they are an unknown start.
func TestFollowShard_trimmed(t *testing.T) {
	t.Parallel()
	c := newConsuming(t)
	c.feed.Open("s")
	for _, day := range []event.ID{"d-1", "d-2", "d-3", "d-4", "d-5"} {
		c.put(t, "s", day, tallytest.Entries("a", 1)...)
	}
	c.feed.Trim("s", 1)
	got, err := run[activities.Followed](environment(), c.consumers().FollowShard, follow())
	require.NoError(t, err)
	require.True(t, got.UnknownStart)
	require.Nil(t, got.Gap)
	require.EqualValues(t, 4, c.Tally(t, "a").Total)

	c.put(t, "s", "d-6", tallytest.Entries("a", 1)...)
	c.put(t, "s", "d-7", tallytest.Entries("a", 1)...)
	c.feed.Trim("s", 6)
	got, err = run[activities.Followed](environment(), c.consumers().FollowShard, follow())
	require.NoError(t, err)
	require.False(t, got.UnknownStart)
	require.Equal(t, &activities.Gap{After: tallytest.At(5), Oldest: tallytest.At(6)}, got.Gap)
	require.EqualValues(t, 4, c.Tally(t, "a").Total, "nothing was applied behind the gap")
	require.Equal(t, tallytest.At(5), c.Position(t, feedName, "s").Position)

	in := follow()
	in.AcceptGap = new(got.Gap.Oldest)
	got, err = run[activities.Followed](environment(), c.consumers().FollowShard, in)
	require.NoError(t, err)
	require.Nil(t, got.Gap)
	require.True(t, got.CaughtUp)
	require.EqualValues(t, 5, c.Tally(t, "a").Total)
	require.Equal(t, tallytest.At(7), c.Position(t, feedName, "s").Position)
}

// T-15: the record only rises, is written after everything up to it was applied, and not
// more often than asked for.
func TestFollowShard_recordsPositions(t *testing.T) {
	t.Parallel()
	c := newConsuming(t)
	c.feed.Open("s")
	c.put(t, "s", "d-1", tallytest.Entries("a", 10)...)
	var mu sync.Mutex
	clock := time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)
	consumers := c.consumers()
	consumers.Now = func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return clock
	}
	wrapped := &processor{Processor: c.processor, before: func(_ int, records []event.Record) error {
		require.Less(t, c.positions.last(), records[0].Position)
		mu.Lock()
		defer mu.Unlock()
		clock = clock.Add(2 * time.Second)
		return nil
	}}
	consumers.Processor = wrapped
	in := follow()
	in.SaveEvery = activities.Duration(5 * time.Second)
	_, err := run[activities.Followed](environment(), consumers.FollowShard, in)
	require.NoError(t, err)
	require.Equal(t, 5, wrapped.calls)
	require.Equal(t, []event.Position{"", tallytest.At(6), tallytest.At(10)}, c.positions.saved)
}

// T-6: a worker that stops lets the page finish, and begins no other one.
func TestFollowShard_leavesWhenTheWorkerStops(t *testing.T) {
	t.Parallel()
	c, env := newConsuming(t), environment()
	c.feed.Open("s")
	c.put(t, "s", "d-1", tallytest.Entries("a", 10)...)
	stop := make(chan struct{})
	env.SetWorkerStopChannel(stop)
	wrapped := &processor{Processor: c.processor, before: func(call int, _ []event.Record) error {
		if call == 2 {
			close(stop)
		}
		return nil
	}}
	c.processor = wrapped
	got, err := run[activities.Followed](env, c.consumers().FollowShard, follow())
	require.NoError(t, err)
	require.True(t, got.Early)
	require.False(t, got.CaughtUp)
	require.Equal(t, 2, wrapped.calls)
	require.EqualValues(t, 4, c.Tally(t, "a").Total)
	require.Equal(t, tallytest.At(4), c.Position(t, feedName, "s").Position)
}

// T-6: a stop ends the wait between two polls, too.
func TestFollowShard_leavesWhileItWaits(t *testing.T) {
	t.Parallel()
	c, env := newConsuming(t), environment()
	c.feed.Open("s")
	c.put(t, "s", "d-1", tallytest.Entries("a", 1)...)
	stop := make(chan struct{})
	env.SetWorkerStopChannel(stop)
	in := follow()
	in.StopAtHead, in.PollInterval = false, activities.Duration(time.Hour)
	type result struct {
		followed activities.Followed
		err      error
	}
	done := make(chan result, 1)
	go func() {
		followed, err := run[activities.Followed](env, c.consumers().FollowShard, in)
		done <- result{followed, err}
	}()
	require.Eventually(t, func() bool { return len(c.feed.Reads()) == 2 }, time.Minute, time.Millisecond)
	close(stop)
	got := <-done
	require.NoError(t, got.err)
	require.True(t, got.followed.Early)
}

// T-15: the end of a closed shard is on record, and a shard that was read is not read again.
func TestFollowShard_end(t *testing.T) {
	t.Parallel()
	c := newConsuming(t)
	c.feed.Open("s")
	c.put(t, "s", "d-1", tallytest.Entries("a", 3)...)
	c.feed.CloseShard("s")
	in := follow()
	in.StopAtHead = false
	got, err := run[activities.Followed](environment(), c.consumers().FollowShard, in)
	require.NoError(t, err)
	require.True(t, got.End)
	require.True(t, c.Position(t, feedName, "s").Done)

	reads := len(c.feed.Reads())
	got, err = run[activities.Followed](environment(), c.consumers().FollowShard, in)
	require.NoError(t, err)
	require.True(t, got.End)
	require.Len(t, c.feed.Reads(), reads)
}

func TestFollowShard_runsForAWhile(t *testing.T) {
	t.Parallel()
	c := newConsuming(t)
	c.feed.Open("s")
	in := follow()
	in.StopAtHead, in.RunFor = false, activities.Duration(20*time.Millisecond)
	got, err := run[activities.Followed](environment(), c.consumers().FollowShard, in)
	require.NoError(t, err)
	require.False(t, got.End || got.CaughtUp || got.Early)
	require.EqualValues(t, 0, got.Behind)
}

// T-6: errors have the class that Temporal decides about retries by.
func TestFollowShard_faults(t *testing.T) {
	t.Parallel()
	c := newConsuming(t)
	in := follow()
	in.Feed = "weeks"
	_, err := run[activities.Followed](environment(), c.consumers().FollowShard, in)
	requireClass(t, err, event.ClassPermanent, false)
	require.ErrorContains(t, err, `feed "weeks" is not among this worker's [days]`)

	c.feed.Open("s")
	c.feed.Break(event.WithClass(errors.New("too fast"), event.ClassThrottled))
	_, err = run[activities.Followed](environment(), c.consumers().FollowShard, follow())
	requireClass(t, err, event.ClassThrottled, true)
}

// what fails for good is parked at once, what fails for now after its attempts; the
// shard goes on, and each parked instance gets its catch-up once.
func TestFollowShard_parks(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err   error
		calls int // of the first page
	}{
		"for good": {event.Permanent(errors.New("no such tally")), 1},
		"for now":  {event.WithClass(errors.New("try later"), event.ClassRetry), 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newConsuming(t)
			c.Break(test.err)
			c.feed.Open("s")
			c.put(t, "s", "d-1", tallytest.Entry{Tally: "a", Amount: 5, Poison: true})
			c.put(t, "s", "d-2", tallytest.Entries("b", 1)...)
			c.put(t, "s", "d-1", tallytest.Entries("a", 1)...)
			c.put(t, "s", "d-2", tallytest.Entries("b", 1)...)
			var sizes []int
			c.processor = &processor{Processor: c.processor, before: func(_ int, records []event.Record) error {
				sizes = append(sizes, len(records))
				return nil
			}}
			got, err := run[activities.Followed](environment(), c.consumers().FollowShard, follow())
			require.NoError(t, err)
			require.Equal(t, append(append([]int{2}, []int{1, 1, 1}[:test.calls-1]...), 2), sizes,
				"only the records of the failing instance are tried again")
			require.Equal(t, 1, got.Parked)
			require.Equal(t, 1, got.StillParked)
			require.Equal(t, []projection.Instance{tallytest.Instance("d-1")}, c.catchUps.Started())
			require.EqualValues(t, 2, c.Tally(t, "b").Total)
			require.EqualValues(t, 0, c.Tally(t, "a").Total)
			require.EqualValues(t, 1, c.Parked(t, "d-1").From)
			require.EqualValues(t, 2, c.Parked(t, "d-1").Newest)
			require.Equal(t, tallytest.At(4), c.Position(t, feedName, "s").Position)
			require.Len(t, c.waker.Rows(), got.Wakes.Sent)
			require.Positive(t, got.Wakes.Sent)
		})
	}
}

// a fault that goes away while a page is tried again parks nothing.
func TestFollowShard_triesAPageAgain(t *testing.T) {
	t.Parallel()
	c := newConsuming(t)
	c.Break(errors.New("try later"))
	c.feed.Open("s")
	c.put(t, "s", "d-1", tallytest.Entry{Tally: "a", Amount: 5, Poison: true})
	c.processor = &processor{Processor: c.processor, before: func(call int, _ []event.Record) error {
		if call == 3 {
			c.Mend()
		}
		return nil
	}}
	got, err := run[activities.Followed](environment(), c.consumers().FollowShard, follow())
	require.NoError(t, err)
	require.Zero(t, got.Parked)
	require.Nil(t, c.Parked(t, "d-1"))
	require.Empty(t, c.catchUps.Started())
	require.EqualValues(t, 5, c.Tally(t, "a").Total)
	require.Equal(t, 1, got.Rows)
}

// an instance that was parked before this worker began gets a catch-up as well; and
// while that cannot be started the position stays, so that nothing is forgotten.
func TestFollowShard_ensuresCatchUps(t *testing.T) {
	t.Parallel()
	c := newConsuming(t)
	require.NoError(t, c.Store.Park(t.Context(), projection.Park{
		Projection: tallytest.Projection, Instance: tallytest.Instance("d-1"), Stream: tallytest.Stream,
		Reason: "by hand", Class: event.ClassPermanent, From: 1, Newest: 1, ParkedAt: time.Now(),
	}))
	c.feed.Open("s")
	c.put(t, "s", "d-1", tallytest.Entries("a", 5)...)
	away := errors.New("Temporal is away")
	c.catchUps.Start = func(context.Context, string, projection.Instance) error { return away }
	_, err := run[activities.Followed](environment(), c.consumers().FollowShard, follow())
	requireClass(t, err, event.ClassRetry, true)
	require.ErrorContains(t, err, "start the catch-up of instance day#d-1 of projection Tally: Temporal is away")
	require.Equal(t, event.Position(""), c.Position(t, feedName, "s").Position)

	c.catchUps.Start = nil
	got, err := run[activities.Followed](environment(), c.consumers().FollowShard, follow())
	require.NoError(t, err)
	require.Equal(t, []projection.Instance{tallytest.Instance("d-1")}, c.catchUps.Started(), "once, not for each page")
	require.Equal(t, 3, got.StillParked)
	require.EqualValues(t, 5, c.Parked(t, "d-1").Newest)
}
