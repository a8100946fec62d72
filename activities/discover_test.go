package activities_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

	"github.com/rowfold/rowfold/activities"
	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/internal/tallytest"
	"github.com/rowfold/rowfold/projection"
)

func (c *consuming) recordShard(tb testing.TB, shard string, done bool) {
	tb.Helper()
	require.NoError(tb, c.Store.SavePosition(tb.Context(), projection.PositionRecord{
		Consumer: tallytest.Consumer, Stream: feedName, Shard: shard, Position: "0001", Done: done, At: time.Now(),
	}))
}

func discover(running map[string]string) activities.DiscoverInput {
	return activities.DiscoverInput{Consumer: tallytest.Consumer, Feed: feedName, Running: running, MaxReady: 3}
}

// T-15: children wait until their parents are done or trimmed. One whose parents were read to
// their end has a known start; one whose parents were never seen has not.
func TestDiscoverShards_parents(t *testing.T) {
	t.Parallel()
	c := newConsuming(t)
	c.feed.Open("orphan", "trimmed long ago")
	c.feed.Open("done")
	c.recordShard(t, "done", true)
	c.feed.Open("half")
	c.recordShard(t, "half", false)
	c.feed.Open("child of done", "done")
	c.feed.Open("child of both", "done", "half")
	got, err := run[activities.Discovered](environment(), c.consumers().DiscoverShards, discover(nil))
	require.NoError(t, err)
	require.Equal(t, activities.Discovered{
		Ready: []activities.ShardRef{{ID: "orphan"}, {ID: "half"}, {ID: "child of done", Child: true}}, Waiting: 1, Done: 1,
	}, got)
}

// The shards that are followed at a time are bounded; the others wait for their turn.
func TestDiscoverShards_bound(t *testing.T) {
	t.Parallel()
	c := newConsuming(t)
	for _, shard := range []string{"s-1", "s-2", "s-3", "s-4"} {
		c.feed.Open(shard)
	}
	got, err := run[activities.Discovered](environment(), c.consumers().DiscoverShards, discover(nil))
	require.NoError(t, err)
	require.Len(t, got.Ready, 3)
	require.Equal(t, 1, got.Waiting)
}

// T-15: a known shard that vanished before its end is a gap until an operator accepts it.
func TestDiscoverShards_vanished(t *testing.T) {
	t.Parallel()
	c := newConsuming(t)
	c.recordShard(t, "gone", false)
	c.recordShard(t, "read", true)
	got, err := run[activities.Discovered](environment(), c.consumers().DiscoverShards, discover(nil))
	require.NoError(t, err)
	require.Equal(t, activities.Discovered{Done: 1, Vanished: []string{"gone"}}, got)

	_, err = run[struct{}](environment(), c.consumers().CloseShard,
		activities.CloseInput{Consumer: tallytest.Consumer, Feed: feedName, Shard: "gone"})
	require.NoError(t, err)
	record := c.Position(t, feedName, "gone")
	require.True(t, record.Done)
	require.Equal(t, event.Position("0001"), record.Position)
	got, err = run[activities.Discovered](environment(), c.consumers().DiscoverShards, discover(nil))
	require.NoError(t, err)
	require.Equal(t, activities.Discovered{Done: 2}, got)
}

// T-15, T-19: Temporal knows which followers run, and how far they are behind.
func TestDiscoverShards_asksFollowers(t *testing.T) {
	t.Parallel()
	c := newConsuming(t)
	running := map[string]string{}
	for _, shard := range []string{"runs", "silent", "paused", "completed", "failed", "terminated", "never there"} {
		c.feed.Open(shard)
		running[shard] = "w/" + shard
	}
	consumers := c.consumers()
	consumers.Temporal = describer{
		"w/runs": {status: enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, progress: &activities.Progress{Behind: 42}},
		"w/silent": {
			status: enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, progress: &activities.Progress{Behind: -1},
		},
		"w/paused":     {status: enumspb.WORKFLOW_EXECUTION_STATUS_PAUSED},
		"w/completed":  {status: enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED},
		"w/failed":     {status: enumspb.WORKFLOW_EXECUTION_STATUS_FAILED},
		"w/terminated": {status: enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED},
	}
	in := discover(running)
	in.MaxReady = 10
	got, err := run[activities.Discovered](environment(), consumers.DiscoverShards, in)
	require.NoError(t, err)
	require.Equal(t, activities.Discovered{
		Ready:  []activities.ShardRef{{ID: "completed"}, {ID: "failed"}, {ID: "terminated"}, {ID: "never there"}},
		Ended:  []string{"completed"},
		Lost:   []string{"failed", "never there", "terminated"},
		Behind: map[string]int64{"runs": 42},
	}, got)
}

// T-6: faults have their class; Temporal being away is none of the followers' ends.
func TestDiscoverShards_faults(t *testing.T) {
	t.Parallel()
	c := newConsuming(t)
	consumers := c.consumers()
	consumers.Temporal = describer{"w/s": {err: errors.New("Temporal is away")}}
	_, err := run[activities.Discovered](environment(), consumers.DiscoverShards, discover(map[string]string{"s": "w/s"}))
	requireClass(t, err, event.ClassRetry, true)

	c.feed.Break(event.WithClass(errors.New("too fast"), event.ClassThrottled))
	_, err = run[activities.Discovered](environment(), consumers.DiscoverShards, discover(nil))
	requireClass(t, err, event.ClassThrottled, true)

	in := discover(nil)
	in.Feed = "weeks"
	_, err = run[activities.Discovered](environment(), consumers.DiscoverShards, in)
	requireClass(t, err, event.ClassPermanent, false)
}
