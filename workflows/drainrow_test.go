package workflows_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/rowfold/rowfold/activities"
	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/workflows"
)

// drainAnswer is what an activity that drains answers, by its call from 1 on.
type drainAnswer = func(call int, in activities.DrainInput) (outbox.Result, error)

// newDrainBench returns a bench whose activities drain as the answer says, each for a second.
func newDrainBench(t *testing.T, answer drainAnswer) *bench {
	t.Helper()
	b := newBench(t)
	registerStub[activities.DrainInput, outbox.Result](b, activities.DrainOutbox)
	registerStub[activities.HeadInput, bool](b, activities.RetryHead)
	registerStub[activities.DecideInput, struct{}](b, activities.DecideHead)
	script(b, activities.DrainOutbox, time.Second, answer)
	return b
}

func drainInput() workflows.DrainRow { return workflows.DrainRow{Projection: "board", Row: "JFK"} }

func (b *bench) drain(in workflows.DrainRow) { b.ExecuteWorkflow(workflows.TypeDrainRow, in) }

func (b *bench) wake() { b.SignalWorkflow(workflows.SignalWake, nil) }

// failing is a head that has failed, and is due again after a delay; 0 = it is parked.
func failing(attempts int, delay time.Duration) outbox.Result {
	return outbox.Result{Revision: 7, Failed: &outbox.Failure{
		Sequence: outbox.SequenceOf(7, 0), ID: "JFK|late|1", Type: "Late", Stream: "Day", StreamID: "2026-01-01", Version: 3,
		Class: event.ClassRetry, Error: "mailbox full", Attempts: attempts, NextDelay: delay, Parked: delay == 0,
	}}
}

func emptied(delivered int) outbox.Result {
	return outbox.Result{Delivered: delivered, Revision: 9, Empty: true}
}

// T-1: every field has its default, and what the activity gets says all of them.
func TestDrainRow(t *testing.T) {
	t.Parallel()
	var got activities.DrainInput
	b := newDrainBench(t, func(_ int, in activities.DrainInput) (outbox.Result, error) {
		got = in
		return emptied(2), nil
	})
	b.drain(drainInput())
	require.Equal(t, workflows.DrainResult{Delivered: 2, Revision: 9, Rounds: 1}, result[workflows.DrainResult](b))
	require.Equal(t, activities.DrainInput{
		Row: outbox.Row{Projection: "board", Key: "JFK"}, MaxEffects: 100, ClaimAhead: 16, Attempts: 3, ParkAfter: 60,
		DeliveryTimeout: activities.Duration(30 * time.Second),
		RetryMin:        activities.Duration(time.Second), RetryMax: activities.Duration(5 * time.Minute),
	}, got)
	require.Empty(t, b.States) // nothing is published by a run that only drains
}

// T-8: the run completes only on an empty answer of an activity that was scheduled after the last wake.
func TestDrainRow_wakes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		wakes  []time.Duration
		rounds int64
	}{
		"before the first round":      {[]time.Duration{0}, 1},
		"during the last round":       {[]time.Duration{500 * time.Millisecond}, 2},
		"several during one round":    {[]time.Duration{400 * time.Millisecond, 500 * time.Millisecond}, 2},
		"during a round that follows": {[]time.Duration{500 * time.Millisecond, 1500 * time.Millisecond}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newDrainBench(t, func(int, activities.DrainInput) (outbox.Result, error) { return emptied(1), nil })
			for _, after := range test.wakes {
				b.at(after, b.wake)
			}
			b.drain(drainInput())
			got := result[workflows.DrainResult](b)
			require.Equal(t, test.rounds, got.Rounds)
			require.Equal(t, test.rounds, got.Delivered)
			require.Equal(t, int64(len(test.wakes)), got.Wakes)
		})
	}
}

// An activity that has delivered as many as it may, or whose worker stops, is followed by another one.
func TestDrainRow_more(t *testing.T) {
	t.Parallel()
	b := newDrainBench(t, func(call int, _ activities.DrainInput) (outbox.Result, error) {
		if call < 3 {
			return outbox.Result{Delivered: 100, Revision: 8, More: true, Overtaken: 1}, nil
		}
		return emptied(5), nil
	})
	b.drain(drainInput())
	require.Equal(t, workflows.DrainResult{Delivered: 205, Revision: 9, Rounds: 3, Overtaken: 2}, result[workflows.DrainResult](b))
}

// T-11: a failed head is waited for by a timer, which wakes do not shorten.
// T-19: the memo tells what a run waits for when it enters and leaves the state, and not besides.
func TestDrainRow_retries(t *testing.T) {
	t.Parallel()
	var at []time.Duration
	b := (*bench)(nil)
	start := time.Time{}
	b = newDrainBench(t, func(call int, _ activities.DrainInput) (outbox.Result, error) {
		at = append(at, b.Now().Sub(start))
		switch call {
		case 1:
			return failing(3, 10*time.Second), nil
		case 2:
			return failing(6, 20*time.Second), nil
		}
		return emptied(1), nil
	})
	start = b.Now()
	b.at(5*time.Second, func() {
		b.wake()
		state := ask[workflows.DrainState](b, workflows.QueryState)
		require.Equal(t, workflows.StateRetrying, state.State)
		require.Equal(t, 3, state.Head.Attempts)
		require.WithinDuration(t, start.Add(11*time.Second), state.RetryAt, 0)
	})
	b.drain(drainInput())
	require.Equal(t, workflows.DrainResult{Delivered: 1, Revision: 9, Rounds: 3, Wakes: 1}, result[workflows.DrainResult](b))
	require.Equal(t, []time.Duration{time.Second, 12 * time.Second, 33 * time.Second}, at) // each takes a second
	require.Equal(t, []string{workflows.StateRetrying, workflows.StateDraining}, b.names())
	require.Equal(t, workflows.StateMemo{
		State: workflows.StateRetrying, Since: b.States[0].Since, About: "JFK|late|1", Attempts: 3, Class: event.ClassRetry, Error: "mailbox full",
	}, b.States[0])
}

// A head that became due while its failure was recorded is tried at once.
func TestDrainRow_dueAlready(t *testing.T) {
	t.Parallel()
	b := newDrainBench(t, func(call int, _ activities.DrainInput) (outbox.Result, error) {
		if call > 1 {
			return emptied(1), nil
		}
		due := failing(3, 0)
		due.Failed.Parked = false
		return due, nil
	})
	b.drain(drainInput())
	require.EqualValues(t, 2, result[workflows.DrainResult](b).Rounds)
}

// T-11: a parked queue waits for an operator, however long; an update that asks for a retry ends the wait at once.
func TestDrainRow_parked(t *testing.T) {
	t.Parallel()
	b := newDrainBench(t, func(call int, _ activities.DrainInput) (outbox.Result, error) {
		if call == 1 {
			return failing(60, 0), nil
		}
		return emptied(4), nil
	})
	script(b, activities.RetryHead, 2*time.Second, func(_ int, in activities.HeadInput) (bool, error) {
		require.Equal(t, outbox.Row{Projection: "board", Key: "JFK"}, in.Row)
		return true, nil
	})
	b.at(time.Hour, b.wake) // wakes do not unpark
	retry := b.update(100*time.Hour, workflows.UpdateRetry, workflows.Retry{Who: "ada"})
	b.drain(drainInput())
	retry.require(t)
	require.Equal(t, workflows.Retried{Waited: true}, retry.result)
	require.Equal(t, workflows.DrainResult{Delivered: 4, Revision: 9, Rounds: 2, Wakes: 1}, result[workflows.DrainResult](b))
	require.Equal(t, []string{workflows.StateParked, workflows.StateDraining}, b.names())
}

// T-11: a retry ends the timer between attempts, too.
func TestDrainRow_retryNow(t *testing.T) {
	t.Parallel()
	b := newDrainBench(t, func(call int, _ activities.DrainInput) (outbox.Result, error) {
		if call == 1 {
			return failing(3, time.Hour), nil
		}
		return emptied(1), nil
	})
	script(b, activities.RetryHead, 0, func(int, activities.HeadInput) (bool, error) { return true, nil })
	started := b.Now()
	b.update(10*time.Second, workflows.UpdateRetry, workflows.Retry{})
	b.drain(drainInput())
	require.EqualValues(t, 1, result[workflows.DrainResult](b).Delivered)
	require.Less(t, b.Now().Sub(started), time.Minute)
}

// T-11: an operator's decision is recorded with who and why, and while it is carried out no delivery is begun.
func TestDrainRow_decisions(t *testing.T) {
	t.Parallel()
	for verb, update := range map[outbox.Verb]string{outbox.VerbSkip: workflows.UpdateSkip, outbox.VerbPark: workflows.UpdatePark} {
		t.Run(update, func(t *testing.T) {
			t.Parallel()
			deciding := false
			b := newDrainBench(t, func(call int, _ activities.DrainInput) (outbox.Result, error) {
				require.False(t, deciding)
				if call == 1 {
					return failing(3, 5*time.Second), nil
				}
				return emptied(2), nil
			})
			// It begins before the timer fires, and ends after that.
			b.at(3*time.Second, func() { deciding = true })
			script(b, activities.DecideHead, 10*time.Second, func(_ int, in activities.DecideInput) (struct{}, error) {
				deciding = false
				require.NotZero(t, in.At)
				in.At = time.Time{}
				require.Equal(t, activities.DecideInput{
					Row: outbox.Row{Projection: "board", Key: "JFK"}, Verb: verb, EffectID: "JFK|late|1", Who: "ada", Why: "sent by hand",
				}, in)
				return struct{}{}, nil
			})
			decided := b.update(3*time.Second, update, workflows.Decision{EffectID: "JFK|late|1", Who: "ada", Why: "sent by hand"})
			b.drain(drainInput())
			decided.require(t)
			require.Equal(t, workflows.Decided{EffectID: "JFK|late|1", Verb: verb}, decided.result)
			require.Equal(t, workflows.DrainResult{Delivered: 2, Decided: 1, Revision: 9, Rounds: 2}, result[workflows.DrainResult](b))
		})
	}
}

// An order that is refused tells why, and the queue goes on waiting.
func TestDrainRow_orderRefused(t *testing.T) {
	t.Parallel()
	b := newDrainBench(t, func(call int, _ activities.DrainInput) (outbox.Result, error) {
		if call == 1 {
			return failing(3, time.Minute), nil
		}
		return emptied(1), nil
	})
	script(b, activities.DecideHead, time.Second, func(int, activities.DecideInput) (struct{}, error) {
		return struct{}{}, temporal.NewNonRetryableApplicationError("another effect is the head", activities.ErrorHeadMoved, nil)
	})
	started := b.Now()
	moved := b.update(2*time.Second, workflows.UpdateSkip, workflows.Decision{EffectID: "x", Who: "ada", Why: "y"})
	incomplete := b.update(3*time.Second, workflows.UpdateSkip, workflows.Decision{EffectID: "x", Who: "ada"})
	misspelt := b.update(4*time.Second, workflows.UpdatePark, map[string]string{"effectID ": "x"})
	b.drain(drainInput())
	require.True(t, moved.done)
	application, is := errors.AsType[*temporal.ApplicationError](moved.err)
	require.True(t, is)
	require.Equal(t, activities.ErrorHeadMoved, application.Type())
	requireInvalid(t, incomplete.rejected, "why: it is empty")
	requireInvalid(t, misspelt.rejected, "effectID : there is no such field")
	require.Equal(t, workflows.DrainResult{Delivered: 1, Revision: 9, Rounds: 2}, result[workflows.DrainResult](b))
	require.GreaterOrEqual(t, b.Now().Sub(started), time.Minute)
}

// An order that arrives while the outbox is found empty is answered before the run completes.
func TestDrainRow_orderAtTheEnd(t *testing.T) {
	t.Parallel()
	b := newDrainBench(t, func(int, activities.DrainInput) (outbox.Result, error) { return emptied(0), nil })
	script(b, activities.RetryHead, time.Minute, func(int, activities.HeadInput) (bool, error) { return false, nil })
	retry := b.update(500*time.Millisecond, workflows.UpdateRetry, workflows.Retry{})
	b.drain(drainInput())
	retry.require(t)
	require.Equal(t, workflows.Retried{}, retry.result)
	require.EqualValues(t, 2, result[workflows.DrainResult](b).Rounds) // it looks again after an order
}

// T-10: while somebody else works at the head the run looks again, after a doubling time or when a process's claim ends.
func TestDrainRow_blocked(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		claim   outbox.Claim
		retryIn time.Duration
		waits   []time.Duration
	}{
		"by a workflow": {
			outbox.Claim{Owner: outbox.Owner{Kind: outbox.OwnerTemporal, WorkflowID: "w", RunID: "r", ActivityID: "5"}},
			0,
			[]time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 10 * time.Second, 10 * time.Second},
		},
		"by a process": {
			outbox.Claim{Owner: outbox.Owner{Kind: outbox.OwnerProcess}},
			3 * time.Second,
			[]time.Duration{3 * time.Second, 3 * time.Second},
		},
		"by a process for long": {
			outbox.Claim{Owner: outbox.Owner{Kind: outbox.OwnerProcess}},
			time.Hour,
			[]time.Duration{10 * time.Second, 10 * time.Second},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var at []time.Time
			b := (*bench)(nil)
			b = newDrainBench(t, func(call int, _ activities.DrainInput) (outbox.Result, error) {
				at = append(at, b.Now())
				if call > len(test.waits) {
					return emptied(1), nil
				}
				return outbox.Result{Revision: 7, Blocked: &outbox.Blocked{ID: "e", Claim: test.claim, RetryIn: test.retryIn}}, nil
			})
			b.drain(drainInput())
			result[workflows.DrainResult](b)
			for i, wait := range test.waits {
				require.Equal(t, wait+time.Second, at[i+1].Sub(at[i])) // the activity takes a second
			}
			require.Empty(t, b.States)
		})
	}
}

// T-4: a run continues as new by its own count of wakes, and a queue that waits goes on waiting, since when it did.
func TestDrainRow_continueAsNew(t *testing.T) {
	t.Parallel()
	b := newDrainBench(t, func(int, activities.DrainInput) (outbox.Result, error) { return failing(60, 0), nil })
	for i := range 9 {
		b.at(time.Minute+time.Duration(i)*time.Second, b.wake)
	}
	in := drainInput()
	in.ContinueAfter = 10
	b.drain(in)
	next := continued[workflows.DrainRow](b)
	require.Equal(t, workflows.StateParked, next.Carried.State)
	require.EqualValues(t, 9, next.Carried.Wakes)
	require.EqualValues(t, 1, next.Carried.Rounds)
	require.Equal(t, 60, next.Carried.Head.Attempts)
	since := next.Carried.Since

	then := newDrainBench(t, func(call int, _ activities.DrainInput) (outbox.Result, error) {
		if call == 1 {
			return failing(60, 0), nil
		}
		return emptied(1), nil
	})
	then.SetStartTime(since.Add(time.Hour))
	script(then, activities.RetryHead, 0, func(int, activities.HeadInput) (bool, error) { return true, nil })
	then.at(time.Minute, func() {
		state := ask[workflows.DrainState](then, workflows.QueryState)
		require.Equal(t, workflows.StateParked, state.State)
		require.WithinDuration(t, since, state.Since, 0)
		require.EqualValues(t, 1, state.Runs)
		require.Empty(t, then.States) // it has not left the state
	})
	then.update(2*time.Minute, workflows.UpdateRetry, workflows.Retry{})
	then.drain(next)
	require.Equal(t, workflows.DrainResult{Delivered: 1, Revision: 9, Rounds: 3, Wakes: 9}, result[workflows.DrainResult](then))
}

// T-4: the server's suggestion is followed, too, and not before updates are answered.
func TestDrainRow_continueAsNewSuggested(t *testing.T) {
	t.Parallel()
	b := newDrainBench(t, func(int, activities.DrainInput) (outbox.Result, error) {
		return outbox.Result{Delivered: 1, More: true}, nil
	})
	script(b, activities.RetryHead, time.Minute, func(int, activities.HeadInput) (bool, error) { return false, nil })
	b.at(2500*time.Millisecond, func() { b.SetContinueAsNewSuggested(true) })
	retry := b.update(2600*time.Millisecond, workflows.UpdateRetry, workflows.Retry{})
	b.drain(drainInput())
	require.EqualValues(t, 3, continued[workflows.DrainRow](b).Carried.Delivered)
	retry.require(t)
}

// T-6: an activity that must not be retried fails the run, which tells the row.
func TestDrainRow_fails(t *testing.T) {
	t.Parallel()
	b := newDrainBench(t, func(int, activities.DrainInput) (outbox.Result, error) {
		return outbox.Result{}, activities.Failure(&activities.UnknownProjection{Projection: "board"})
	})
	b.drain(drainInput())
	require.ErrorContains(t, b.GetWorkflowError(), "drain row JFK of projection board")
	require.Equal(t, event.ClassPermanent, activities.ClassOf(b.GetWorkflowError()))
}

// T-6: other errors of an activity are retried until it has an answer.
func TestDrainRow_retriesActivities(t *testing.T) {
	t.Parallel()
	b := newDrainBench(t, func(call int, _ activities.DrainInput) (outbox.Result, error) {
		if call < 8 {
			return outbox.Result{}, activities.Failure(errors.New("the database is away"))
		}
		return emptied(1), nil
	})
	b.drain(drainInput())
	require.EqualValues(t, 1, result[workflows.DrainResult](b).Rounds)
}

// A cancelled run ends, whatever it waits for.
func TestDrainRow_cancelled(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]outbox.Result{
		"retrying": failing(3, time.Hour), "parked": failing(60, 0),
		"blocked": {Blocked: &outbox.Blocked{ID: "e"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newDrainBench(t, func(int, activities.DrainInput) (outbox.Result, error) { return answer, nil })
			b.at(1200*time.Millisecond, b.CancelWorkflow)
			b.drain(drainInput())
			require.True(t, b.IsWorkflowCompleted())
			require.True(t, temporal.IsCanceledError(b.GetWorkflowError()), "%v", b.GetWorkflowError())
		})
	}
}

// T-1: a wrong input fails at once, is not retried, and names the field.
func TestDrainRow_invalidInput(t *testing.T) {
	t.Parallel()
	for input, field := range map[string]string{
		`{"row": "JFK"}`:                                                                         "projection: it is empty",
		`{"projection": "board"}`:                                                                "row: it is empty",
		`{"projection": "board/JFK", "row": "x"}`:                                                "projection: \"board/JFK\" holds",
		`{"projection": "p", "row": "r", "parkAfter": -2}`:                                       "parkAfter: -2 is too low",
		`{"projection": "p", "row": "r", "maxEffects": -1}`:                                      "maxEffects: -1 is too low",
		`{"projection": "p", "row": "r", "retryMax": "1ms"}`:                                     "retryMax: 1ms is below retryMin",
		`{"projection": "p", "row": "r", "deliveryTimeout": "2h"}`:                               "deliveryTimeout: 2h0m0s is not below activityTimeout",
		`{"projection": "p", "row": "r", "heartbeatTimeout": "soon"}`:                            `heartbeatTimeout: "soon" is no duration`,
		`{"projection": "p", "row": "r", "projections": "p"}`:                                    "projections: there is no such field",
		`{"projection": "p", "row": 7}`:                                                          "row: a JSON number does not fit: write a string",
		`{"projection": "p", "row": "r", "attempts": -1, "claimAhead": -1, "continueAfter": -1}`: "attempts: -1 is too low: write 1 or more, or leave it out for the default; continueAfter",
		`"JFK"`: "the input is no JSON object",
	} {
		t.Run(field, func(t *testing.T) {
			t.Parallel()
			b := newDrainBench(t, func(int, activities.DrainInput) (outbox.Result, error) { return emptied(0), nil })
			b.ExecuteWorkflow(workflows.TypeDrainRow, json.RawMessage(input))
			require.True(t, b.IsWorkflowCompleted())
			requireInvalid(t, b.GetWorkflowError(), field)
		})
	}
}
