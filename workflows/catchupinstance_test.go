package workflows_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/rowfold/rowfold/activities"
	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/workflows"
)

func catchUpInput() workflows.CatchUpInstance {
	return workflows.CatchUpInstance{Projection: "Tally", Source: "day", StreamID: "d-1"}
}

type catchUpAnswer = func(call int, in activities.CatchUpInput) (activities.CaughtUp, error)

func (b *bench) catchUp(answer catchUpAnswer) {
	b.t.Helper()
	script(b, activities.CatchUp, time.Second, answer)
}

// stuck is what an activity tells that cannot go on at version 3.
func stuck(class event.Class) activities.CaughtUp {
	return activities.CaughtUp{
		Events: 2, Version: 2, Newest: 4, Enqueued: 2,
		Failed: &activities.InstanceFault{Version: 3, Class: class, Error: "no such tally", Rows: 1},
	}
}

func caughtUp() activities.CaughtUp {
	return activities.CaughtUp{Done: true, Events: 2, Version: 4, Newest: 4, Enqueued: 2}
}

// R-45, T-14: activities are called until the instance is not parked any more.
func TestCatchUpInstance(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.catchUp(func(call int, in activities.CatchUpInput) (activities.CaughtUp, error) {
		require.Equal(t, activities.CatchUpInput{Projection: "Tally", Source: "day", StreamID: "d-1", PageSize: 500}, in)
		if call == 1 { // the worker stopped in the middle
			return activities.CaughtUp{Events: 2, Version: 2, Newest: 4, Enqueued: 2}, nil
		}
		return caughtUp(), nil
	})
	b.ExecuteWorkflow(workflows.TypeCatchUpInstance, catchUpInput())
	state := result[workflows.CatchUpState](b)
	require.True(t, state.Done)
	require.EqualValues(t, 4, state.Events)
	require.EqualValues(t, 4, state.Enqueued)
	require.EqualValues(t, 4, state.Version)
	require.Empty(t, b.States)
}

func TestCatchUpInstance_notParked(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.catchUp(func(int, activities.CatchUpInput) (activities.CaughtUp, error) {
		return activities.CaughtUp{Done: true, NotParked: true}, nil
	})
	b.ExecuteWorkflow(workflows.TypeCatchUpInstance, catchUpInput())
	require.True(t, result[workflows.CatchUpState](b).NotParked)
}

// T-14: what fails for now is tried again, each time after twice the wait up to the bound,
// and from the first wait again at another version.
func TestCatchUpInstance_backsOff(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var at []time.Time
	b.catchUp(func(call int, _ activities.CatchUpInput) (activities.CaughtUp, error) {
		at = append(at, b.Now())
		found := stuck(event.ClassRetry)
		switch call {
		case 6:
			found.Failed.Version = 4
		case 7:
			return caughtUp(), nil
		}
		return found, nil
	})
	in := catchUpInput()
	in.RetryMin, in.RetryMax = activities.Duration(time.Minute), activities.Duration(5*time.Minute)
	b.ExecuteWorkflow(workflows.TypeCatchUpInstance, in)
	state := result[workflows.CatchUpState](b)
	var waits []time.Duration
	for i := range at[1:] {
		waits = append(waits, at[i+1].Sub(at[i]).Round(time.Minute))
	}
	require.Equal(t, []time.Duration{
		time.Minute, 2 * time.Minute, 4 * time.Minute, 5 * time.Minute, 5 * time.Minute, time.Minute,
	}, waits)
	require.Nil(t, state.Fault)
	require.Zero(t, state.Attempts)
	require.Equal(t, []string{workflows.StateRetrying, workflows.StateCatchingUp}, b.names())
	require.Equal(t, "version 3", b.States[0].About)
	require.Equal(t, "no such tally", b.States[0].Error)
	require.Equal(t, event.ClassRetry, b.States[0].Class)
}

// T-14: what fails for good waits for an operator, for as long as it takes; a retry is carried
// out at once, also during a wait.
func TestCatchUpInstance_waitsForAnOperator(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.catchUp(func(call int, _ activities.CatchUpInput) (activities.CaughtUp, error) {
		switch call {
		case 1:
			return stuck(event.ClassPermanent), nil
		case 2:
			return stuck(event.ClassRetry), nil
		default:
			return caughtUp(), nil
		}
	})
	var waiting workflows.CatchUpState
	b.at(1000*time.Hour, func() { waiting = ask[workflows.CatchUpState](b, workflows.QueryState) })
	first := b.update(1001*time.Hour, workflows.UpdateRetry, workflows.Retry{Who: "ada"})
	second := b.update(1001*time.Hour+10*time.Minute, workflows.UpdateRetry, workflows.Retry{})
	in := catchUpInput()
	in.RetryMin, in.RetryMax = activities.Duration(time.Hour), activities.Duration(time.Hour)
	began := b.Now()
	b.ExecuteWorkflow(workflows.TypeCatchUpInstance, in)
	state := result[workflows.CatchUpState](b)
	for _, update := range []*outcome{first, second} {
		update.require(t)
		require.Equal(t, workflows.Retried{Waited: true}, update.result)
	}
	require.Less(t, b.Now().Sub(began), 1001*time.Hour+20*time.Minute)
	require.Equal(t, workflows.StateParked, waiting.State)
	require.EqualValues(t, 1, waiting.Rounds)
	require.EqualValues(t, 3, waiting.Fault.Version)
	require.EqualValues(t, 3, state.Rounds)
	require.Equal(t, []string{workflows.StateParked, workflows.StateRetrying, workflows.StateCatchingUp}, b.names())
}

// R-45, T-14: an operator's skip is recorded with who and why, and the instance goes on.
func TestCatchUpInstance_skip(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var skips []activities.SkipInput
	b.catchUp(func(int, activities.CatchUpInput) (activities.CaughtUp, error) {
		if len(skips) == 0 {
			return stuck(event.ClassPermanent), nil
		}
		return caughtUp(), nil
	})
	script(b, activities.RecordSkip, time.Second, func(call int, in activities.SkipInput) (struct{}, error) {
		if call == 1 {
			return struct{}{}, activities.Failure(errors.New("the database is away"))
		}
		skips = append(skips, in)
		return struct{}{}, nil
	})
	incomplete := b.update(time.Hour, workflows.UpdateSkip, workflows.SkipEvent{Who: "ada"})
	done := b.update(2*time.Hour, workflows.UpdateSkip, workflows.SkipEvent{Version: 3, Who: "ada", Why: "a typing error"})
	b.ExecuteWorkflow(workflows.TypeCatchUpInstance, catchUpInput())
	state := result[workflows.CatchUpState](b)
	requireInvalid(t, incomplete.rejected, "version: 0 is too low")
	requireInvalid(t, incomplete.rejected, "why: it is empty")
	done.require(t)
	require.Len(t, skips, 1)
	at := skips[0].At
	require.False(t, at.IsZero())
	require.Equal(t, activities.SkipInput{
		Projection: "Tally", Source: "day", StreamID: "d-1", Version: 3, Who: "ada", Why: "a typing error", At: at,
	}, skips[0])
	require.Equal(t, []int64{3}, state.Skipped)
	require.True(t, state.Done)
}

// T-4: a run that waits continues as new when operators have asked for enough, with its state;
// the next one tries again and goes on.
func TestCatchUpInstance_continuesAsNew(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.catchUp(func(int, activities.CatchUpInput) (activities.CaughtUp, error) {
		return stuck(event.ClassPermanent), nil
	})
	script(b, activities.RecordSkip, time.Second, func(int, activities.SkipInput) (struct{}, error) { return struct{}{}, nil })
	updates := []*outcome{
		b.update(time.Hour, workflows.UpdateRetry, workflows.Retry{}),
		b.update(2*time.Hour, workflows.UpdateSkip, workflows.SkipEvent{Version: 2, Who: "ada", Why: "a typing error"}),
	}
	in := catchUpInput()
	in.ContinueAfter = 4
	b.ExecuteWorkflow(workflows.TypeCatchUpInstance, in)
	next := continued[workflows.CatchUpInstance](b)
	for _, update := range updates {
		update.require(t)
	}
	require.Equal(t, []int64{2}, next.Carried.Skipped)
	require.Equal(t, workflows.StateParked, next.Carried.State)
	require.Equal(t, 2, next.Carried.Attempts)

	second := newBench(t)
	second.catchUp(func(call int, _ activities.CatchUpInput) (activities.CaughtUp, error) {
		if call == 1 {
			return stuck(event.ClassPermanent), nil
		}
		return caughtUp(), nil
	})
	var waiting workflows.CatchUpState
	second.at(time.Hour, func() { waiting = ask[workflows.CatchUpState](second, workflows.QueryState) })
	second.update(2*time.Hour, workflows.UpdateRetry, workflows.Retry{})
	second.ExecuteWorkflow(workflows.TypeCatchUpInstance, next)
	state := result[workflows.CatchUpState](second)
	require.Equal(t, 3, waiting.Attempts, "the count goes on")
	require.EqualValues(t, 1, state.Runs)
	require.EqualValues(t, 4, state.Rounds)
	require.Equal(t, []int64{2}, state.Skipped)
}

// T-6: faults of the stores are tried again by Temporal; a worker that does not know the
// projection ends the run.
func TestCatchUpInstance_faults(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	calls := 0
	b.catchUp(func(call int, _ activities.CatchUpInput) (activities.CaughtUp, error) {
		calls = call
		if call < 4 {
			return activities.CaughtUp{}, activities.Failure(errors.New("the database is away"))
		}
		return activities.CaughtUp{}, activities.Failure(&activities.UnknownProjection{Projection: "Tally"})
	})
	b.ExecuteWorkflow(workflows.TypeCatchUpInstance, catchUpInput())
	require.Equal(t, 4, calls)
	require.ErrorContains(t, b.GetWorkflowError(), "catch up Tally day#d-1")
	require.ErrorContains(t, b.GetWorkflowError(), "type: permanent, retryable: false")
}

func TestCatchUpInstance_cancelled(t *testing.T) {
	t.Parallel()
	for name, class := range map[string]event.Class{"while parked": event.ClassPermanent, "while it waits": event.ClassRetry} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.catchUp(func(int, activities.CatchUpInput) (activities.CaughtUp, error) { return stuck(class), nil })
			b.at(10*time.Minute, b.CancelWorkflow)
			b.ExecuteWorkflow(workflows.TypeCatchUpInstance, catchUpInput())
			require.True(t, temporal.IsCanceledError(b.GetWorkflowError()), "%v", b.GetWorkflowError())
		})
	}
}
