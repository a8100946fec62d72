package workflows_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/rowfold/rowfold/activities"
	"github.com/rowfold/rowfold/workflows"
)

func streamInput() workflows.ConsumeStream {
	return workflows.ConsumeStream{
		Following:     workflows.Following{Consumer: "c", Feed: "days"},
		DiscoverEvery: activities.Duration(time.Minute),
	}
}

type discoverAnswer = func(call int, in activities.DiscoverInput) (activities.Discovered, error)

func (b *bench) discover(answer discoverAnswer) {
	b.t.Helper()
	script(b, activities.DiscoverShards, time.Second, answer)
}

func ready(ids ...string) []activities.ShardRef {
	refs := make([]activities.ShardRef, 0, len(ids))
	for _, id := range ids {
		refs = append(refs, activities.ShardRef{ID: id})
	}
	return refs
}

// follower is what ConsumeShard is replaced by.
type follower = func(ctx workflow.Context, in workflows.ConsumeShard) (workflows.ShardState, error)

// newStreamBench returns a bench whose followers do as told, and where their ids are noted
// when they start.
func newStreamBench(t *testing.T, do follower) (b *bench, started *[]string) {
	t.Helper()
	started = new([]string)
	return newBench(t, func(b *bench) {
		b.RegisterWorkflowWithOptions(func(ctx workflow.Context, in workflows.ConsumeShard) (workflows.ShardState, error) {
			*started = append(*started, workflow.GetInfo(ctx).WorkflowExecution.ID)
			return do(ctx, in)
		}, workflow.RegisterOptions{Name: workflows.TypeConsumeShard, DisableAlreadyRegisteredCheck: true})
	}), started
}

// follows is a follower that takes a time and then says how it ended.
func follows(takes time.Duration, state workflows.ShardState) follower {
	return func(ctx workflow.Context, _ workflows.ConsumeShard) (workflows.ShardState, error) {
		return state, workflow.Sleep(ctx, takes)
	}
}

// T-2, T-15: one follower per shard, by its id; children when the feed says that they are
// ready, which is asked for by a timer and whenever a follower has ended.
func TestConsumeStream(t *testing.T) {
	t.Parallel()
	var inputs []workflows.ConsumeShard
	b, started := newStreamBench(t, func(ctx workflow.Context, in workflows.ConsumeShard) (workflows.ShardState, error) {
		inputs = append(inputs, in)
		takes := map[string]time.Duration{"p-1": 90 * time.Second, "p/2": 100 * time.Second, "c-1": time.Second}[in.Shard]
		state := workflows.ShardState{End: true, Applied: activities.Applied{Events: 5, Wakes: activities.Wakes{Sent: 1}}}
		return state, workflow.Sleep(ctx, takes)
	})
	b.discover(func(call int, in activities.DiscoverInput) (activities.Discovered, error) {
		require.Equal(t, "c", in.Consumer)
		require.Equal(t, "days", in.Feed)
		switch call {
		case 1:
			require.Empty(t, in.Running)
			require.Equal(t, workflows.MaxShards, in.MaxReady)
			return activities.Discovered{Ready: ready("p-1", "p/2"), Waiting: 1}, nil
		case 2, 3: // the timer, then the end of p-1
			return activities.Discovered{Waiting: 1, Behind: map[string]int64{"p/2": 12}}, nil
		case 4: // the end of p/2
			require.Empty(t, in.Running)
			return activities.Discovered{Ready: []activities.ShardRef{{ID: "c-1", Child: true}}, Done: 2}, nil
		default:
			return activities.Discovered{Done: 3}, nil
		}
	})
	var middle workflows.StreamState
	b.at(95*time.Second, func() { middle = ask[workflows.StreamState](b, workflows.QueryProgress) })
	stop := b.update(150*time.Second, workflows.UpdateStop, workflows.NoInput{})
	b.ExecuteWorkflow(workflows.TypeConsumeStream, streamInput())
	state := result[workflows.StreamState](b)
	stop.require(t)
	require.Equal(t, []string{benchID + "/p-1", benchID + "/p%2F2", benchID + "/c-1"}, *started)
	require.Equal(t, []bool{false, false, true}, []bool{inputs[0].Child, inputs[1].Child, inputs[2].Child})
	require.Equal(t, streamInput().WithDefaults().Following, inputs[0].Following)
	require.Equal(t, map[string]string{"p/2": benchID + "/p%2F2"}, middle.Running)
	require.Equal(t, map[string]int64{"p/2": 12}, middle.Behind)
	require.Equal(t, 5, middle.Applied.Events)
	require.Equal(t, 15, state.Applied.Events)
	require.Equal(t, 3, state.Applied.Wakes.Sent)
	require.Equal(t, 3, state.Done)
	require.True(t, state.Stopped)
	require.Equal(t, []string{workflows.StateFollowing}, b.names())
}

// StopAtHead ends the run when every shard was read to its head, also those that had to wait;
// a shard at its head is not followed again.
func TestConsumeStream_stopAtHead(t *testing.T) {
	t.Parallel()
	b, started := newStreamBench(t, follows(time.Second, workflows.ShardState{CaughtUp: true}))
	b.discover(func(call int, in activities.DiscoverInput) (activities.Discovered, error) {
		require.LessOrEqual(t, in.MaxReady+len(in.Running), 1)
		switch call {
		case 1:
			return activities.Discovered{Ready: ready("s-1"), Waiting: 1}, nil
		default:
			return activities.Discovered{Ready: ready("s-1", "s-2")}, nil
		}
	})
	in := streamInput()
	in.StopAtHead, in.MaxShards = true, 1
	b.ExecuteWorkflow(workflows.TypeConsumeStream, in)
	require.ElementsMatch(t, []string{"s-1", "s-2"}, result[workflows.StreamState](b).Finished)
	require.Equal(t, []string{benchID + "/s-1", benchID + "/s-2"}, *started)
}

// A look at the shards may see that a follower has completed before its result is there: the
// run waits for that.
func TestConsumeStream_waitsForResults(t *testing.T) {
	t.Parallel()
	b, _ := newStreamBench(t, follows(70*time.Second, workflows.ShardState{CaughtUp: true, Applied: activities.Applied{Events: 5}}))
	b.discover(func(call int, _ activities.DiscoverInput) (activities.Discovered, error) {
		if call == 1 {
			return activities.Discovered{Ready: ready("s-1")}, nil
		}
		return activities.Discovered{Ready: ready("s-1"), Ended: []string{"s-1"}}, nil
	})
	in := streamInput()
	in.StopAtHead = true
	b.ExecuteWorkflow(workflows.TypeConsumeStream, in)
	state := result[workflows.StreamState](b)
	require.Equal(t, []string{"s-1"}, state.Finished)
	require.Equal(t, 5, state.Applied.Events)
}

// A pause, its end and the stop reach every follower; a follower that begins during the pause
// begins paused, and none begins after the stop.
func TestConsumeStream_pauseResumeStop(t *testing.T) {
	t.Parallel()
	told := map[string][]string{}
	paused := map[string]bool{}
	b, started := newStreamBench(t, func(ctx workflow.Context, in workflows.ConsumeShard) (workflows.ShardState, error) {
		paused[in.Shard] = in.Paused
		for {
			var said workflows.Control
			workflow.GetSignalChannel(ctx, workflows.SignalControl).Receive(ctx, &said)
			told[in.Shard] = append(told[in.Shard], said.Verb)
			if said.Verb == workflows.UpdateStop {
				return workflows.ShardState{Stopped: true}, nil
			}
		}
	})
	all := []string{"s-1", "s-2"}
	b.discover(func(_ int, in activities.DiscoverInput) (activities.Discovered, error) {
		var left []string
		for _, shard := range all {
			if _, running := in.Running[shard]; !running {
				left = append(left, shard)
			}
		}
		return activities.Discovered{Ready: ready(left...)}, nil
	})
	updates := []*outcome{b.update(10*time.Minute, workflows.UpdatePause, workflows.NoInput{})}
	b.at(15*time.Minute, func() { all = append(all, "s-3") })
	var during workflows.StreamState
	b.at(20*time.Minute, func() { during = ask[workflows.StreamState](b, workflows.QueryProgress) })
	updates = append(updates,
		b.update(30*time.Minute, workflows.UpdateResume, workflows.NoInput{}),
		b.update(40*time.Minute, workflows.UpdateStop, workflows.NoInput{}))
	b.ExecuteWorkflow(workflows.TypeConsumeStream, streamInput())
	state := result[workflows.StreamState](b)
	for _, update := range updates {
		update.require(t)
	}
	require.Equal(t, workflows.StatePaused, during.State)
	require.Len(t, during.Running, 3)
	require.Equal(t, map[string]bool{"s-1": false, "s-2": false, "s-3": true}, paused)
	require.Equal(t, map[string][]string{
		"s-1": {"pause", "resume", "stop"}, "s-2": {"pause", "resume", "stop"}, "s-3": {"resume", "stop"},
	}, told)
	require.Len(t, *started, 3)
	require.True(t, state.Stopped)
	require.Empty(t, state.Running)
	require.Equal(t, []string{workflows.StateFollowing, workflows.StatePaused, workflows.StateFollowing}, b.names())
}

// T-15: a shard that vanished before its end is a visible gap; an operator accepts it, on the
// record. With StopAtHead, too, it is waited for.
func TestConsumeStream_gap(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	accepted := false
	b.discover(func(int, activities.DiscoverInput) (activities.Discovered, error) {
		if accepted {
			return activities.Discovered{Done: 1}, nil
		}
		return activities.Discovered{Vanished: []string{"s-0"}}, nil
	})
	script(b, activities.CloseShard, time.Second, func(_ int, in activities.CloseInput) (struct{}, error) {
		require.Equal(t, activities.CloseInput{Consumer: "c", Feed: "days", Shard: "s-0"}, in)
		accepted = true
		return struct{}{}, nil
	})
	other := b.update(10*time.Minute, workflows.UpdateAcceptGap, workflows.AcceptGap{Shard: "s-1", Who: "ada", Why: "it is fine"})
	nobody := b.update(11*time.Minute, workflows.UpdateAcceptGap, workflows.AcceptGap{Shard: "s-0"})
	done := b.update(12*time.Minute, workflows.UpdateAcceptGap, workflows.AcceptGap{Shard: "s-0", Who: "ada", Why: "it is fine"})
	in := streamInput()
	in.StopAtHead = true
	b.ExecuteWorkflow(workflows.TypeConsumeStream, in)
	state := result[workflows.StreamState](b)
	requireNoGap(t, other.err, "s-1")
	requireInvalid(t, nobody.rejected, "who: it is empty")
	done.require(t)
	require.Equal(t, "ada", state.Accepted[0].Who)
	require.Equal(t, "s-0", state.Accepted[0].Shard)
	require.Empty(t, state.Vanished)
	require.Equal(t, []string{workflows.StateGap, workflows.StateFollowing}, b.names())
	require.Equal(t, "1 shards vanished before their end, s-0 the first", b.States[0].Error)
}

// A follower that fails is shown, and started again at the next look at the shards.
func TestConsumeStream_followerFails(t *testing.T) {
	t.Parallel()
	calls := 0
	b, started := newStreamBench(t, func(ctx workflow.Context, _ workflows.ConsumeShard) (workflows.ShardState, error) {
		calls++
		if calls == 1 {
			return workflows.ShardState{}, temporal.NewNonRetryableApplicationError("no such feed", "permanent", nil)
		}
		return workflows.ShardState{CaughtUp: true}, workflow.Sleep(ctx, time.Hour)
	})
	b.discover(func(_ int, in activities.DiscoverInput) (activities.Discovered, error) {
		if _, running := in.Running["s-1"]; running {
			return activities.Discovered{}, nil
		}
		return activities.Discovered{Ready: ready("s-1")}, nil
	})
	var failed workflows.StreamState
	b.at(30*time.Second, func() { failed = ask[workflows.StreamState](b, workflows.QueryProgress) })
	in := streamInput()
	in.StopAtHead = true
	b.ExecuteWorkflow(workflows.TypeConsumeStream, in)
	state := result[workflows.StreamState](b)
	require.Contains(t, failed.Failed, "s-1: ")
	require.Contains(t, failed.Failed, "no such feed")
	require.Empty(t, failed.Running)
	require.Len(t, *started, 2)
	require.Equal(t, []string{"s-1"}, state.Finished, "a failed follower is not at its head")
}

// Shards of which Temporal knows no running follower are followed again, unless they are at
// their head.
func TestConsumeStream_takesOver(t *testing.T) {
	t.Parallel()
	b, started := newStreamBench(t, follows(time.Second, workflows.ShardState{CaughtUp: true}))
	b.discover(func(call int, in activities.DiscoverInput) (activities.Discovered, error) {
		if call > 1 {
			return activities.Discovered{}, nil
		}
		require.Equal(t, map[string]string{"completed": "w/1", "lost": "w/2", "runs": "w/3"}, in.Running)
		return activities.Discovered{Ready: ready("completed", "lost"), Ended: []string{"completed"}, Lost: []string{"lost"}}, nil
	})
	b.OnSignalExternalWorkflow(mock.Anything, "w/3", "", workflows.SignalControl, workflows.Control{Verb: "stop"}).
		Return(errors.New("unknown external workflow execution")).Maybe()
	in := streamInput()
	in.StopAtHead = true
	in.Carried = &workflows.StreamState{Running: map[string]string{"completed": "w/1", "lost": "w/2", "runs": "w/3"}}
	b.at(10*time.Minute, b.CancelWorkflow)
	cancelled := ""
	b.OnRequestCancelExternalWorkflow(mock.Anything, mock.Anything, mock.Anything).
		Return(func(_, id, _ string) error { cancelled += id; return nil })
	b.ExecuteWorkflow(workflows.TypeConsumeStream, in)
	require.True(t, temporal.IsCanceledError(b.GetWorkflowError()), "%v", b.GetWorkflowError())
	require.Equal(t, []string{benchID + "/lost"}, *started)
	require.Equal(t, "w/3", cancelled, "the followers of runs before are cancelled with this one")
}

// T-4: the state goes from run to run; followers live on and are not started again.
func TestConsumeStream_continuesAsNew(t *testing.T) {
	t.Parallel()
	b, _ := newStreamBench(t, follows(100*time.Hour, workflows.ShardState{}))
	b.discover(func(call int, _ activities.DiscoverInput) (activities.Discovered, error) {
		if call == 1 {
			return activities.Discovered{Ready: ready("s-1", "s-2"), Waiting: 3}, nil
		}
		return activities.Discovered{Waiting: 3, Vanished: []string{"s-0"}}, nil
	})
	in := streamInput()
	in.ContinueAfter = 4
	b.ExecuteWorkflow(workflows.TypeConsumeStream, in)
	next := continued[workflows.ConsumeStream](b)
	require.Equal(t, map[string]string{"s-1": benchID + "/s-1", "s-2": benchID + "/s-2"}, next.Carried.Running)
	require.Equal(t, workflows.StateGap, next.Carried.State)

	second, started := newStreamBench(t, follows(time.Second, workflows.ShardState{}))
	second.discover(func(call int, in activities.DiscoverInput) (activities.Discovered, error) {
		if call == 1 {
			require.Equal(t, next.Carried.Running, in.Running)
		}
		return activities.Discovered{Ended: []string{"s-1", "s-2"}, Vanished: []string{"s-0"}}, nil
	})
	second.update(10*time.Second, workflows.UpdateStop, workflows.NoInput{})
	second.ExecuteWorkflow(workflows.TypeConsumeStream, next)
	state := result[workflows.StreamState](second)
	require.Empty(t, *started)
	require.EqualValues(t, 1, state.Runs)
	require.EqualValues(t, 4, state.Rounds)
	require.Empty(t, second.States)
}

// T-6: a listing that fails for now is tried again; one that fails for good ends the run.
func TestConsumeStream_listingFails(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	calls := 0
	b.discover(func(call int, _ activities.DiscoverInput) (activities.Discovered, error) {
		calls = call
		if call < 3 {
			return activities.Discovered{}, activities.Failure(errors.New("the feed is away"))
		}
		return activities.Discovered{}, activities.Failure(&activities.UnknownFeed{Feed: "days", Known: []string{"weeks"}})
	})
	b.ExecuteWorkflow(workflows.TypeConsumeStream, streamInput())
	require.Equal(t, 3, calls)
	require.ErrorContains(t, b.GetWorkflowError(), `list the shards of days`)
	require.ErrorContains(t, b.GetWorkflowError(), "type: permanent, retryable: false")
}

// T-3: what a consumer of as many shards as it may follow hands to its activity and to its next
// run stays below 64 KB.
func TestConsumeStream_smallPayloads(t *testing.T) {
	t.Parallel()
	in := streamInput().WithDefaults()
	in.Carried = &workflows.StreamState{Running: map[string]string{}, Behind: map[string]int64{}}
	id := workflows.IDs{Deployment: "production"}.ConsumeStream("board", "Day")
	for i := range workflows.MaxShards {
		shard := fmt.Sprintf("shardId-%020d-%08x", i, i) // as long as those of DynamoDB Streams
		in.Carried.Running[shard] = workflows.ShardID(id, shard)
		in.Carried.Behind[shard] = 1_000_000
	}
	require.Less(t, len(encode(t, in)), 64<<10)
	require.Less(t, len(encode(t, activities.DiscoverInput{Running: in.Carried.Running})), 64<<10)
}

// T-2: a shard's id is bounded and tells shards apart.
func TestShardID(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("s", 300)
	ids := []string{workflows.ShardID("w", long+"1"), workflows.ShardID("w", long+"2"), workflows.ShardID("w", "a/b"), workflows.ShardID("w/a", "b")}
	for _, id := range ids {
		require.LessOrEqual(t, len(id), workflows.MaxID)
	}
	slices.Sort(ids)
	require.Len(t, slices.Compact(ids), 4)
}
