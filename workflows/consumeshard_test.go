package workflows_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/rowfold/rowfold/activities"
	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/workflows"
)

func shardInput() workflows.ConsumeShard {
	return workflows.ConsumeShard{Following: workflows.Following{Consumer: "c", Feed: "days"}, Shard: "s-1"}
}

// followed is what an activity tells that has followed up to a position.
func followed(position event.Position, events int) activities.Followed {
	return activities.Followed{Progress: activities.Progress{
		Position: position, Behind: 7, Pages: 1, Applied: activities.Applied{Events: events},
	}}
}

func ended(position event.Position) activities.Followed {
	last := followed(position, 1)
	last.End, last.Behind = true, 0
	return last
}

type followAnswer = func(call int, in activities.FollowInput) (activities.Followed, error)

func (b *bench) follow(takes time.Duration, answer followAnswer) {
	b.t.Helper()
	script(b, activities.FollowShard, takes, answer)
}

// T-15: activities follow the shard one after the other until its end.
func TestConsumeShard(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.follow(5*time.Minute, func(call int, in activities.FollowInput) (activities.Followed, error) {
		if call == 1 {
			require.Equal(t, activities.FollowInput{
				Consumer: "c", Feed: "days", Shard: "s-1", Child: true, Projections: []string{"Tally"}, PageSize: 500,
				PollInterval: activities.Duration(200 * time.Millisecond), SaveEvery: activities.Duration(5 * time.Second),
				RunFor: activities.Duration(5 * time.Minute), Attempts: 5,
				RetryMin: activities.Duration(200 * time.Millisecond), RetryMax: activities.Duration(5 * time.Second),
			}, in)
		}
		if call == 3 {
			return ended("0012"), nil
		}
		return followed("0005", 5), nil
	})
	b.at(7*time.Minute, func() {
		state := ask[workflows.ShardState](b, workflows.QueryProgress)
		require.Equal(t, event.Position("0005"), state.Position)
		require.EqualValues(t, 7, state.Behind)
	})
	in := shardInput()
	in.Child, in.Projections = true, []string{"Tally"}
	b.ExecuteWorkflow(workflows.TypeConsumeShard, in)
	state := result[workflows.ShardState](b)
	require.True(t, state.End)
	require.Equal(t, 11, state.Events)
	require.EqualValues(t, 3, state.Pages)
	require.EqualValues(t, 3, state.Rounds)
	require.Equal(t, []string{workflows.StateFollowing}, b.names(), "a state is published when it changes, and never besides")
}

// StopAtHead ends the run where nothing is left.
func TestConsumeShard_stopAtHead(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.follow(time.Second, func(_ int, in activities.FollowInput) (activities.Followed, error) {
		require.True(t, in.StopAtHead)
		last := followed("0005", 5)
		last.CaughtUp = true
		return last, nil
	})
	in := shardInput()
	in.StopAtHead = true
	b.ExecuteWorkflow(workflows.TypeConsumeShard, in)
	require.True(t, result[workflows.ShardState](b).CaughtUp)
}

// A pause ends the activity, which says how far it came; resume and stop work while paused.
func TestConsumeShard_pauseResumeStop(t *testing.T) {
	t.Parallel()
	for name, send := range map[string]func(*bench, time.Duration, string){
		"by updates": func(b *bench, after time.Duration, verb string) { b.update(after, verb, workflows.NoInput{}) },
		"by signals": func(b *bench, after time.Duration, verb string) {
			b.at(after, func() { b.SignalWorkflow(workflows.SignalControl, workflows.Control{Verb: verb}) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			calls := 0
			b.follow(5*time.Minute, func(call int, _ activities.FollowInput) (activities.Followed, error) {
				calls = call
				return followed("0005", 5), nil
			})
			var paused workflows.ShardState
			send(b, time.Minute, workflows.UpdatePause)
			b.at(10*time.Hour, func() { paused = ask[workflows.ShardState](b, workflows.QueryProgress) })
			send(b, 20*time.Hour, workflows.UpdateResume)
			send(b, 21*time.Hour, "dance") // unknown: nothing happens
			send(b, 22*time.Hour, workflows.UpdatePause)
			send(b, 23*time.Hour, workflows.UpdateStop)
			b.ExecuteWorkflow(workflows.TypeConsumeShard, shardInput())
			state := result[workflows.ShardState](b)
			require.True(t, state.Stopped)
			require.Equal(t, workflows.StatePaused, paused.State)
			require.EqualValues(t, 1, paused.Rounds, "nothing is followed during a pause")
			require.Greater(t, calls, 20, "it went on after the pause")
			require.Equal(t, []string{
				workflows.StateFollowing, workflows.StatePaused, workflows.StateFollowing, workflows.StatePaused,
			}, b.names())
		})
	}
}

// A pause that is taken back before the activity has ended is no fault.
func TestConsumeShard_pauseAndResumeAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.follow(5*time.Minute, func(int, activities.FollowInput) (activities.Followed, error) { return ended("0001"), nil })
	b.at(time.Minute, func() {
		for _, verb := range []string{workflows.UpdatePause, workflows.UpdateResume} {
			b.SignalWorkflowSkippingWorkflowTask(workflows.SignalControl, workflows.Control{Verb: verb})
		}
		b.SignalWorkflow(workflows.SignalControl, workflows.Control{Verb: workflows.UpdateResume})
	})
	b.ExecuteWorkflow(workflows.TypeConsumeShard, shardInput())
	state := result[workflows.ShardState](b)
	require.True(t, state.End)
	require.EqualValues(t, 2, state.Rounds)
}

// T-15: a gap is visible and waits for an operator, who goes on the record.
func TestConsumeShard_gap(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.follow(time.Second, func(call int, in activities.FollowInput) (activities.Followed, error) {
		switch call {
		case 1:
			require.Nil(t, in.AcceptGap)
			found := followed("0005", 5)
			found.Gap = &activities.Gap{After: "0005", Oldest: "0009"}
			return found, nil
		case 2:
			require.Equal(t, new(event.Position("0009")), in.AcceptGap)
			return followed("0012", 3), nil
		default:
			require.Nil(t, in.AcceptGap, "an acceptance is for one gap")
			return ended("0013"), nil
		}
	})
	early := b.update(0, workflows.UpdateAcceptGap, workflows.AcceptGap{Shard: "s-1", Who: "ada", Why: "too eager"})
	var waiting workflows.ShardState
	b.at(100*time.Hour, func() { waiting = ask[workflows.ShardState](b, workflows.QueryProgress) })
	nobody := b.update(101*time.Hour, workflows.UpdateAcceptGap, workflows.AcceptGap{Shard: "s-1", Why: "it is fine"})
	other := b.update(102*time.Hour, workflows.UpdateAcceptGap, workflows.AcceptGap{Shard: "s-2", Who: "ada", Why: "it is fine"})
	accepted := b.update(103*time.Hour, workflows.UpdateAcceptGap, workflows.AcceptGap{Shard: "s-1", Who: "ada", Why: "it is fine"})
	b.ExecuteWorkflow(workflows.TypeConsumeShard, shardInput())
	state := result[workflows.ShardState](b)

	requireNoGap(t, early.err, "s-1")
	requireInvalid(t, nobody.rejected, "who: it is empty")
	requireNoGap(t, other.err, "s-2")
	accepted.require(t)
	require.Equal(t, workflows.StateGap, waiting.State)
	require.Equal(t, &activities.Gap{After: "0005", Oldest: "0009"}, waiting.Gap)
	require.EqualValues(t, 1, waiting.Rounds)
	require.Len(t, state.Accepted, 1)
	require.Equal(t, "ada", state.Accepted[0].Who)
	require.Equal(t, "it is fine", state.Accepted[0].Why)
	require.Equal(t, []string{workflows.StateFollowing, workflows.StateGap, workflows.StateFollowing}, b.names())
	require.Equal(t, `records after "0005" up to "0009" are gone`, b.States[1].Error)
}

func requireNoGap(t *testing.T, err error, shard string) {
	t.Helper()
	application, is := errors.AsType[*temporal.ApplicationError](err)
	require.True(t, is, "%v", err)
	require.Equal(t, workflows.ErrorNoGap, application.Type())
	require.Contains(t, application.Message(), shard)
}

// T-15: an unknown start is visible without a worker, and stays in the state.
func TestConsumeShard_unknownStart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.follow(time.Second, func(call int, _ activities.FollowInput) (activities.Followed, error) {
		found := followed("0005", 5)
		found.UnknownStart = call == 1
		found.End = call == 3
		return found, nil
	})
	b.ExecuteWorkflow(workflows.TypeConsumeShard, shardInput())
	require.True(t, result[workflows.ShardState](b).UnknownStart)
	require.Len(t, b.States, 2)
	require.Equal(t, "unknown start: what was trimmed before is missing", b.States[1].Error)
}

// T-6: what fails for now is tried again, what fails for good ends the run with its cause.
func TestConsumeShard_faults(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	calls := 0
	b.follow(time.Second, func(call int, _ activities.FollowInput) (activities.Followed, error) {
		calls = call
		if call < 4 {
			return activities.Followed{}, activities.Failure(errors.New("the database is away"))
		}
		return activities.Followed{}, activities.Failure(&activities.UnknownFeed{Feed: "days", Known: []string{"weeks"}})
	})
	b.ExecuteWorkflow(workflows.TypeConsumeShard, shardInput())
	require.Equal(t, 4, calls)
	err := b.GetWorkflowError()
	require.ErrorContains(t, err, "type: permanent, retryable: false")
	require.ErrorContains(t, err, `follow shard s-1 of days`)
	require.ErrorContains(t, err, `feed "days" is not among this worker's [weeks]`)
}

// A run that is cancelled ends as cancelled.
func TestConsumeShard_cancelled(t *testing.T) {
	t.Parallel()
	for name, gap := range map[string]*activities.Gap{"while it follows": nil, "while it waits": {Oldest: "0009"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.follow(time.Minute, func(int, activities.FollowInput) (activities.Followed, error) {
				found := followed("0005", 5)
				found.Gap = gap
				return found, nil
			})
			b.at(10*time.Minute, b.CancelWorkflow)
			b.ExecuteWorkflow(workflows.TypeConsumeShard, shardInput())
			require.True(t, b.IsWorkflowCompleted())
			require.True(t, temporal.IsCanceledError(b.GetWorkflowError()), "%v", b.GetWorkflowError())
		})
	}
}

// T-4: a run continues as new by its own count or by the server's suggestion, with its whole
// state; the next run goes on with it.
func TestConsumeShard_continuesAsNew(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*bench, *workflows.ConsumeShard){
		"by its own count": func(_ *bench, in *workflows.ConsumeShard) { in.ContinueAfter = 2 },
		"by the server's suggestion": func(b *bench, _ *workflows.ConsumeShard) {
			b.at(90*time.Second, func() { b.SetContinueAsNewSuggested(true) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.follow(time.Minute, func(int, activities.FollowInput) (activities.Followed, error) {
				found := followed("0005", 5)
				found.UnknownStart = true
				return found, nil
			})
			in := shardInput()
			prepare(b, &in)
			b.ExecuteWorkflow(workflows.TypeConsumeShard, in)
			next := continued[workflows.ConsumeShard](b)
			require.Equal(t, 10, next.Carried.Events)
			require.EqualValues(t, 2, next.Carried.Rounds)

			second := newBench(t)
			second.follow(time.Minute, func(int, activities.FollowInput) (activities.Followed, error) { return ended("0006"), nil })
			second.ExecuteWorkflow(workflows.TypeConsumeShard, next)
			state := result[workflows.ShardState](second)
			require.Equal(t, 11, state.Events)
			require.EqualValues(t, 3, state.Rounds)
			require.EqualValues(t, 1, state.Runs)
			require.True(t, state.UnknownStart)
			require.Empty(t, second.States, "the state is the same as before")
		})
	}
}

// T-4: signals that arrive with the end of a run are not lost, and a pause and a gap outlive it.
func TestConsumeShard_carriesOrders(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.follow(time.Minute, func(int, activities.FollowInput) (activities.Followed, error) {
		b.SignalWorkflowSkippingWorkflowTask(workflows.SignalControl, workflows.Control{Verb: workflows.UpdatePause})
		found := followed("0005", 5)
		found.Gap = &activities.Gap{After: "0005", Oldest: "0009"}
		return found, nil
	})
	in := shardInput()
	in.ContinueAfter = 1
	b.ExecuteWorkflow(workflows.TypeConsumeShard, in)
	next := continued[workflows.ConsumeShard](b)
	require.True(t, next.Paused)
	require.Equal(t, event.Position("0009"), next.Carried.Gap.Oldest)

	second := newBench(t)
	second.follow(time.Minute, func(_ int, in activities.FollowInput) (activities.Followed, error) {
		require.Equal(t, new(event.Position("0009")), in.AcceptGap)
		return ended("0010"), nil
	})
	next.ContinueAfter = 10
	second.update(time.Hour, workflows.UpdateAcceptGap, workflows.AcceptGap{Shard: "s-1", Who: "ada", Why: "it is fine"})
	second.update(2*time.Hour, workflows.UpdateResume, workflows.NoInput{})
	second.ExecuteWorkflow(workflows.TypeConsumeShard, next)
	require.True(t, result[workflows.ShardState](second).End)
	require.Equal(t, []string{workflows.StatePaused, workflows.StateFollowing}, second.names())
}

// T-3: a history carries references: what a full round adds stays small.
func TestConsumeShard_smallPayloads(t *testing.T) {
	t.Parallel()
	in := shardInput()
	in.Carried = &workflows.ShardState{Gap: &activities.Gap{}}
	for range 20 {
		in.Carried.Accepted = append(in.Carried.Accepted, workflows.Accepted{
			Shard: strings.Repeat("s", 64), Who: strings.Repeat("w", 64), Why: strings.Repeat("y", 200),
		})
	}
	require.Less(t, len(encode(t, in)), 64<<10)
}
