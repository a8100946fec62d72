package workflows_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/proto"

	"github.com/rowfold/rowfold/activities"
	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/internal/tallytest"
	"github.com/rowfold/rowfold/projection"
	"github.com/rowfold/rowfold/workflows"
)

// storeFeed is the feed of the store, in two partitions.
const storeFeed = "days"

func newStoreSite(t *testing.T) *site {
	t.Helper()
	s := newSite(t, map[string]event.Feed{})
	feed, err := s.Store.Feed(tallytest.Stream, 2)
	require.NoError(t, err)
	s.feeds[storeFeed] = feed
	return s
}

// T-15, T-3: what is appended is followed, applied and delivered; a consumer with StopAtHead
// ends then, its positions are on record, and histories hold no event.
func TestConsumeStreamOnServer(t *testing.T) {
	t.Parallel()
	s := newStoreSite(t)
	s.work()
	const amount = 987654321
	for i := range 9 {
		tally := "t-" + strconv.Itoa(i%3)
		s.Append(t, event.ID(fmt.Sprintf("d-%d", i)), tallytest.Entry{Tally: tally, Amount: amount}, tallytest.Entry{Tally: tally, Amount: amount})
	}
	run := s.consume(storeFeed, stopAtHead, func(in *workflows.ConsumeStream) {
		in.HeartbeatTimeout = activities.Duration(time.Minute) // an attempt that is cut off loses its counts
	})
	var state workflows.StreamState
	require.NoError(t, run.Get(t.Context(), &state))
	require.ElementsMatch(t, []string{"0of2", "1of2"}, state.Finished)
	require.Equal(t, 18, state.Applied.Events)
	require.Equal(t, 18, state.Applied.Enqueued)
	for i := range 3 {
		require.EqualValues(t, 6*amount, s.Tally(t, fmt.Sprintf("t-%d", i)).Total)
	}
	s.eventually(func() bool { return s.delivered.Load() == 18 }, "the effects are delivered")
	for _, shard := range state.Finished {
		require.NotEmpty(t, s.Position(t, storeFeed, shard).Position)
		history := fetchHistory(t, s.temporal, s.follower(storeFeed, shard), "")
		text, err := proto.Marshal(history)
		require.NoError(t, err)
		require.NotContains(t, string(text), strconv.Itoa(amount))
		recordHistory(t, s.temporal, "ConsumeShard-caught-up-"+shard, s.follower(storeFeed, shard), "")
	}
	recordHistory(t, s.temporal, "ConsumeStream-caught-up", run.GetID(), run.GetRunID())
}

// T-6, T-15: a worker that stops lets the page finish and leaves; another one goes on at the
// position record, and nothing is applied twice.
func TestConsumeStreamOnServer_workerRestarts(t *testing.T) {
	t.Parallel()
	feed := &tallytest.Feed{}
	gate := newGate(feed, tallytest.At(4))
	s := newSite(t, map[string]event.Feed{"gated": gate})
	feed.Open("s")
	s.Append(t, "d-1", tallytest.Entries("a", 10)...)
	feed.Put("s", s.Records(t, "d-1")...)
	stop := s.work()
	run := s.consume("gated", stopAtHead)
	await(t, gate.reached, "the middle of the shard")
	stop()
	require.Equal(t, tallytest.At(6), s.Position(t, "gated", "s").Position, "the page that was under way is finished")
	require.EqualValues(t, 6, s.Tally(t, "a").Entries)
	reads := len(feed.Reads())

	s.work()
	var state workflows.StreamState
	require.NoError(t, run.Get(t.Context(), &state))
	require.Equal(t, tallytest.At(6), feed.Reads()[reads].After)
	require.Equal(t, tallytest.At(10), s.Position(t, "gated", "s").Position)
	require.EqualValues(t, 10, s.Tally(t, "a").Entries)
}

// R-45, T-14: an instance that cannot be applied is parked, and its feed goes on. It heals when
// the definition is mended and an operator asks for it.
func TestCatchUpOnServer_mended(t *testing.T) {
	t.Parallel()
	s := newStoreSite(t)
	s.work()
	s.Break(event.Permanent(errors.New("no such tally")))
	s.Append(t, "d-1", tallytest.Entry{Tally: "a", Amount: 5, Poison: true})
	s.Append(t, "d-2", tallytest.Entries("b", 2)...)
	require.NoError(t, s.consume(storeFeed, stopAtHead).Get(t.Context(), nil))
	require.EqualValues(t, 2, s.Tally(t, "b").Total)
	id := s.starter.IDs().CatchUpInstance(tallytest.Projection, tallytest.Instance("d-1"))
	s.waitForState(id, workflows.StateParked)
	require.Contains(t, s.details(id), "send the update `retry`")
	_, memo, _ := s.shown(id)
	require.Equal(t, "version 1", memo.About)
	require.Contains(t, memo.Error, "no such tally")

	// While it is parked its newer versions are noted only.
	s.Append(t, "d-1", tallytest.Entries("a", 1)...)
	require.NoError(t, s.consume(storeFeed, stopAtHead).Get(t.Context(), nil))
	require.EqualValues(t, 2, s.Parked(t, "d-1").Newest)
	require.Zero(t, s.Tally(t, "a").Entries)

	s.Mend()
	require.NoError(t, s.order(id, workflows.UpdateRetry, workflows.Retry{Who: "ada"}))
	var state workflows.CatchUpState
	require.NoError(t, s.temporal.GetWorkflow(t.Context(), id, "").Get(t.Context(), &state))
	require.True(t, state.Done)
	require.EqualValues(t, 6, s.Tally(t, "a").Total)
	require.Nil(t, s.Parked(t, "d-1"))
	recordHistory(t, s.temporal, "CatchUpInstance-parked-retried", id, "")
}

// R-45, T-14: an operator's recorded skip lets a parked instance go on without the event.
func TestCatchUpOnServer_skipped(t *testing.T) {
	t.Parallel()
	s := newStoreSite(t)
	s.work()
	s.Break(event.Permanent(errors.New("no such tally")))
	s.Append(t, "d-1", tallytest.Entry{Tally: "a", Amount: 5, Poison: true}, tallytest.Entry{Tally: "a", Amount: 1})
	require.NoError(t, s.consume(storeFeed, stopAtHead).Get(t.Context(), nil))
	id := s.starter.IDs().CatchUpInstance(tallytest.Projection, tallytest.Instance("d-1"))
	s.waitForState(id, workflows.StateParked)
	require.NoError(t, s.order(id, workflows.UpdateSkip, workflows.SkipEvent{Version: 1, Who: "ada", Why: "a typing error"}))
	var state workflows.CatchUpState
	require.NoError(t, s.temporal.GetWorkflow(t.Context(), id, "").Get(t.Context(), &state))
	require.Equal(t, []int64{1}, state.Skipped)
	require.EqualValues(t, 1, s.Tally(t, "a").Total)
	skips, err := s.Store.Skips(t.Context(), tallytest.Projection, []projection.Instance{tallytest.Instance("d-1")})
	require.NoError(t, err)
	require.Equal(t, "ada", skips[0].Who)
	recordHistory(t, s.temporal, "CatchUpInstance-parked-skipped", id, "")
}

// waitForState waits until a run shows a state without the help of a worker.
func (s *site) waitForState(workflowID, state string) {
	s.t.Helper()
	s.eventually(func() bool {
		attribute, memo, open := s.shown(workflowID)
		return open && attribute == state && memo.State == state
	}, workflowID+" is "+state)
}

// T-15, T-19: records that were trimmed while nobody followed are a visible gap, also after the run
// has continued as new; an operator accepts it.
func TestConsumeStreamOnServer_gap(t *testing.T) {
	t.Parallel()
	feed := &tallytest.Feed{}
	s := newSite(t, map[string]event.Feed{"trimmed": feed})
	s.work()
	feed.Open("s")
	for i := range 6 {
		day := event.ID(fmt.Sprintf("d-%d", i))
		s.Append(t, day, tallytest.Entries("a", 1)...)
		if i < 2 {
			feed.Put("s", s.Records(t, day)...)
		}
	}
	require.NoError(t, s.consume("trimmed", stopAtHead).Get(t.Context(), nil))
	first := s.follower("trimmed", "s")
	_, memo, _ := s.shown(first)
	require.Equal(t, "unknown start: what was trimmed before is missing", memo.Error)

	for i := range 4 {
		feed.Put("s", s.Records(t, event.ID(fmt.Sprintf("d-%d", i+2)))...)
	}
	feed.Trim("s", 4)
	run := s.consume("trimmed", stopAtHead, func(in *workflows.ConsumeStream) { in.ContinueAfter = 1 })
	s.waitForState(first, workflows.StateGap)
	_, memo, _ = s.shown(first)
	require.Equal(t, `records after "0002" up to "0004" are gone`, memo.Error)
	state, answers := query[workflows.ShardState](s, first, workflows.QueryProgress)
	require.True(t, answers)
	require.Positive(t, state.Runs, "it has continued as new")
	require.Contains(t, s.details(first), "send the update `acceptGap` `{\"shard\": \"s\", ")
	require.Contains(t, s.details(first), `records after "0002" up to "0004" were trimmed`)
	require.EqualValues(t, 2, s.Tally(t, "a").Total)

	require.NoError(t, s.order(first, workflows.UpdateAcceptGap, workflows.AcceptGap{Shard: "s", Who: "ada", Why: "we rebuild it"}))
	require.NoError(t, run.Get(t.Context(), nil))
	require.EqualValues(t, 4, s.Tally(t, "a").Total)
	require.Equal(t, tallytest.At(6), s.Position(t, "trimmed", "s").Position)
	recordRuns(t, s, "ConsumeShard-gap-accepted", first)
}

// recordRuns records the last run of a workflow, and the one before it, which continued as new.
func recordRuns(t *testing.T, s *site, name, workflowID string) {
	t.Helper()
	last := fetchHistory(t, s.temporal, workflowID, "")
	recordHistory(t, s.temporal, name, workflowID, "")
	if before := last.GetEvents()[0].GetWorkflowExecutionStartedEventAttributes().GetContinuedExecutionRunId(); before != "" {
		recordHistory(t, s.temporal, name+"-continued", workflowID, before)
	}
}

// A pause stops every follower, and resume and stop reach them.
func TestConsumeStreamOnServer_pauseResumeStop(t *testing.T) {
	t.Parallel()
	s := newStoreSite(t)
	s.work()
	run := s.consume(storeFeed)
	s.Append(t, "d-1", tallytest.Entries("a", 3)...)
	s.total("a", 3)
	require.NoError(t, s.starter.PauseConsumer(t.Context(), tallytest.Consumer, storeFeed))
	shards := []string{"0of2", "1of2"}
	for _, shard := range shards {
		s.waitForState(s.follower(storeFeed, shard), workflows.StatePaused)
	}
	s.waitForState(run.GetID(), workflows.StatePaused)
	s.Append(t, "d-1", tallytest.Entries("a", 3)...)
	require.NoError(t, s.starter.ResumeConsumer(t.Context(), tallytest.Consumer, storeFeed))
	s.total("a", 6)
	for _, shard := range shards {
		s.waitForState(s.follower(storeFeed, shard), workflows.StateFollowing)
	}
	require.NoError(t, s.starter.StopConsumer(t.Context(), tallytest.Consumer, storeFeed))
	var state workflows.StreamState
	require.NoError(t, run.Get(t.Context(), &state))
	require.True(t, state.Stopped)
	for _, shard := range shards {
		var followed workflows.ShardState
		require.NoError(t, s.temporal.GetWorkflow(t.Context(), s.follower(storeFeed, shard), "").Get(t.Context(), &followed))
		require.True(t, followed.Stopped)
	}
	recordHistory(t, s.temporal, "ConsumeStream-paused-stopped", run.GetID(), run.GetRunID())
	recordHistory(t, s.temporal, "ConsumeShard-paused-stopped", s.follower(storeFeed, shards[0]), "")
}

// T-4, T-19: followers live on when their consumer continues as new, or is terminated and
// started again; it sees how far they are behind; and they end with it when it is cancelled.
func TestConsumeStreamOnServer_followersLiveOn(t *testing.T) {
	t.Parallel()
	feed := &tallytest.Feed{}
	gate := newGate(feed, tallytest.At(2))
	s := newSite(t, map[string]event.Feed{"gated": gate})
	s.work()
	feed.Open("s")
	s.Append(t, "d-1", tallytest.Entries("a", 7)...)
	feed.Put("s", s.Records(t, "d-1")...)
	run := s.consume("gated", func(in *workflows.ConsumeStream) { in.ContinueAfter = 3 })
	await(t, gate.reached, "the middle of the shard")
	follower := s.follower("gated", "s")
	began, err := s.temporal.DescribeWorkflowExecution(t.Context(), follower, "")
	require.NoError(t, err)
	var state workflows.StreamState
	s.eventually(func() bool {
		state, _ = query[workflows.StreamState](s, run.GetID(), workflows.QueryProgress)
		return state.Runs > 0 && state.Behind["s"] == 5
	}, "the consumer continues as new and knows the lag")

	require.NoError(t, s.temporal.TerminateWorkflow(t.Context(), run.GetID(), "", "a test"))
	recordRuns(t, s, "ConsumeStream-terminated", run.GetID())
	run = s.consume("gated")
	s.eventually(func() bool {
		state, _ = query[workflows.StreamState](s, run.GetID(), workflows.QueryProgress)
		return state.Running["s"] == follower && state.Behind["s"] == 5
	}, "the consumer is back")
	s.eventually(func() bool { return strings.Contains(s.details(run.GetID()), "| s | 5 | "+follower+" |") }, "the lag is shown")
	described, err := s.temporal.DescribeWorkflowExecution(t.Context(), follower, "")
	require.NoError(t, err)
	require.Equal(t, began.GetWorkflowExecutionInfo().GetExecution().GetRunId(),
		described.GetWorkflowExecutionInfo().GetExecution().GetRunId(), "it is the same follower")

	require.NoError(t, s.temporal.CancelWorkflow(t.Context(), run.GetID(), ""))
	s.eventually(func() bool {
		ended, err := s.temporal.DescribeWorkflowExecution(t.Context(), follower, "")
		return err == nil && ended.GetWorkflowExecutionInfo().GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED
	}, "the follower is cancelled")
	require.Equal(t, tallytest.At(2), s.Position(t, "gated", "s").Position, "what was applied is on record")
	recordHistory(t, s.temporal, "ConsumeStream-cancelled", run.GetID(), run.GetRunID())
	recordHistory(t, s.temporal, "ConsumeShard-cancelled", follower, "")
}

// T-15: children are followed after their parents, and a shard that vanishes before its end is a
// gap until an operator accepts it.
func TestConsumeStreamOnServer_shardsComeAndGo(t *testing.T) {
	t.Parallel()
	feed := &tallytest.Feed{}
	s := newSite(t, map[string]event.Feed{"shards": feed})
	s.work()
	feed.Open("parent")
	s.Append(t, "d-1", tallytest.Entries("a", 2)...)
	records := s.Records(t, "d-1")
	feed.Put("parent", records[0])
	run := s.consume("shards")
	s.total("a", 1)
	feed.Open("child", "parent")
	feed.Put("child", records[1])
	s.eventually(func() bool {
		state, _ := query[workflows.StreamState](s, run.GetID(), workflows.QueryProgress)
		return state.Waiting == 1
	}, "the child waits")
	require.EqualValues(t, 1, s.Tally(t, "a").Total)
	feed.CloseShard("parent")
	s.total("a", 2)
	require.True(t, s.Position(t, "shards", "parent").Done)

	require.NoError(t, s.starter.PauseConsumer(t.Context(), tallytest.Consumer, "shards"))
	s.waitForState(s.follower("shards", "child"), workflows.StatePaused)
	feed.Vanish("child")
	s.waitForState(run.GetID(), workflows.StateGap)
	require.Contains(t, s.details(run.GetID()), "shard child vanished before it was read to its end")
	require.NoError(t, s.order(run.GetID(), workflows.UpdateAcceptGap, workflows.AcceptGap{Shard: "child", Who: "ada", Why: "it is fine"}))
	s.waitForState(run.GetID(), workflows.StatePaused)
	require.True(t, s.Position(t, "shards", "child").Done)
	require.NoError(t, s.starter.StopConsumer(t.Context(), tallytest.Consumer, "shards"))
	var state workflows.StreamState
	require.NoError(t, run.Get(t.Context(), &state))
	require.Equal(t, "ada", state.Accepted[0].Who)
	recordHistory(t, s.temporal, "ConsumeStream-gap-accepted", run.GetID(), run.GetRunID())
}

// T-14, T-3: a batch of references is applied; one that cannot be is parked, and the batch is
// done. Its history is small whatever the events hold.
func TestApplyBatchOnServer(t *testing.T) {
	t.Parallel()
	s := newStoreSite(t)
	s.work()
	s.Break(event.Permanent(errors.New("no such tally")))
	var in workflows.ApplyBatch
	for i := range 50 {
		day := event.ID(fmt.Sprintf("d-%d", i))
		s.Append(t, day, tallytest.Entry{Tally: "a", Amount: 1, Poison: i == 7}, tallytest.Entry{Tally: "a", Amount: 1})
		in.Events = append(in.Events, activities.EventRange{Stream: tallytest.Stream, StreamID: day, From: 1, To: 2})
	}
	runs, err := s.starter.ApplyBatch(t.Context(), in)
	require.NoError(t, err)
	require.Len(t, runs, 1)
	var applied activities.Applied
	require.NoError(t, runs[0].Get(t.Context(), &applied))
	require.Equal(t, 100, applied.Events)
	require.Equal(t, 1, applied.Parked)
	require.EqualValues(t, 98, s.Tally(t, "a").Total)
	s.waitForState(s.starter.IDs().CatchUpInstance(tallytest.Projection, tallytest.Instance("d-7")), workflows.StateParked)
	require.Less(t, proto.Size(fetchHistory(t, s.temporal, runs[0].GetID(), runs[0].GetRunID())), 64<<10)
	recordHistory(t, s.temporal, "ApplyBatch-applied", runs[0].GetID(), runs[0].GetRunID())
}

// T-6: a batch whose event is not in the store yet is tried again until it is.
func TestApplyBatchOnServer_early(t *testing.T) {
	t.Parallel()
	s := newStoreSite(t)
	s.work()
	s.Append(t, "d-1", tallytest.Entries("a", 1)...)
	runs, err := s.starter.ApplyBatch(t.Context(), workflows.ApplyBatch{
		Events: []activities.EventRange{{Stream: tallytest.Stream, StreamID: "d-1", From: 1, To: 2}},
	})
	require.NoError(t, err)
	s.eventually(func() bool {
		described, err := s.temporal.DescribeWorkflowExecution(t.Context(), runs[0].GetID(), "")
		return err == nil && len(described.GetPendingActivities()) == 1 &&
			described.GetPendingActivities()[0].GetLastFailure().GetApplicationFailureInfo().GetType() == string(event.ClassRetry)
	}, "the first attempt fails")
	s.Append(t, "d-1", tallytest.Entries("a", 1)...)
	require.NoError(t, runs[0].Get(t.Context(), nil))
	require.EqualValues(t, 2, s.Tally(t, "a").Total)
	recordHistory(t, s.temporal, "ApplyBatch-retried", runs[0].GetID(), runs[0].GetRunID())
}

// a scheduled purge runs; a tombstone that has not expired stays.
func TestPurgeTombstonesOnServer(t *testing.T) {
	t.Parallel()
	s := newStoreSite(t)
	s.work()
	s.Append(t, "d-1", tallytest.Entry{Tally: "a", Removes: true})
	require.NoError(t, s.consume(storeFeed, stopAtHead).Get(t.Context(), nil))
	require.NoError(t, s.starter.SchedulePurge(t.Context(), time.Hour, workflows.PurgeTombstones{Projection: tallytest.Projection}))
	id := s.starter.IDs().PurgeTombstones(tallytest.Projection)
	schedule := s.temporal.ScheduleClient().GetHandle(t.Context(), id)
	require.NoError(t, schedule.Trigger(t.Context(), client.ScheduleTriggerOptions{}))
	var ran string
	s.eventually(func() bool {
		described, err := schedule.Describe(t.Context())
		if err != nil || len(described.Info.RecentActions) == 0 {
			return false
		}
		ran = described.Info.RecentActions[0].StartWorkflowResult.WorkflowID
		return true
	}, "the schedule starts a purge")
	var purged projection.Purged
	require.NoError(t, s.temporal.GetWorkflow(t.Context(), ran, "").Get(t.Context(), &purged))
	require.Equal(t, projection.Purged{Dated: 1}, purged)
	recordHistory(t, s.temporal, "PurgeTombstones-purged", ran, "")
	require.NoError(t, schedule.Delete(t.Context()))
}
