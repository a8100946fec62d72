package outbox_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
)

type judgeFunc func(ctx context.Context, claim outbox.Claim) (outbox.Verdict, error)

func (f judgeFunc) Judge(ctx context.Context, claim outbox.Claim) (outbox.Verdict, error) {
	return f(ctx, claim)
}

var (
	everybodyIsGone   = judgeFunc(func(context.Context, outbox.Claim) (outbox.Verdict, error) { return outbox.VerdictGone, nil })
	everybodyIsAtWork = judgeFunc(func(context.Context, outbox.Claim) (outbox.Verdict, error) { return outbox.VerdictWorking, nil })
)

func workflowOwner(nonce string) outbox.Owner {
	return outbox.Owner{
		Kind: outbox.OwnerTemporal, Nonce: nonce, Namespace: "default", WorkflowID: "drain/Board/ZRH", RunID: "run-1", ActivityID: "5", StartedAt: noon,
	}
}

// who is at work is left at work; a process's claim ends by the clock.
func TestAProcessAtWorkIsNotDisturbed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue(1, 2)
	owner := outbox.ProcessOwner(noon, outbox.DefaultClaimFor)
	f.claim(owner, 2)
	f.clock.pass(20 * time.Second)
	result := f.drain(f.options())
	require.Equal(t, outbox.Result{Revision: 1, Blocked: &outbox.Blocked{
		Sequence: outbox.SequenceOf(1, 0), ID: "Board|ZRH|flight|LX1|1|0", Claim: outbox.Claim{Owner: owner, Epoch: 1},
		Since: noon, RetryIn: 10 * time.Second,
	}}, result)
	require.Empty(t, f.got.deliveries())
	require.Equal(t, owner.Nonce, f.pending()[0].Claim.Nonce)
	f.clock.pass(result.Blocked.RetryIn)
	require.Equal(t, outbox.Result{Delivered: 2, Revision: 1, Empty: true}, f.drain(f.options()))
}

// only the orchestrator knows about a workflow.
func TestAWorkflowIsNotJudgedByTheClock(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue(1)
	f.claim(workflowOwner("w"), 1)
	f.clock.pass(10_000 * time.Hour)
	result := f.drain(f.options())
	require.Equal(t, outbox.Claim{Owner: workflowOwner("w"), Epoch: 1}, result.Blocked.Claim)
	require.Zero(t, result.Blocked.RetryIn, "nobody knows")
	opts := f.options()
	opts.Judge = everybodyIsGone
	require.Equal(t, 1, f.drain(opts).Delivered)
}

// A judge that cannot tell is a judge that says "at work", whatever else it says.
func TestAJudgeThatFailsBlocks(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue(1)
	f.claim(workflowOwner("w"), 1)
	opts := f.options()
	opts.Judge = judgeFunc(func(context.Context, outbox.Claim) (outbox.Verdict, error) {
		return outbox.VerdictGone, errors.New(strings.Repeat("no answer ", 200))
	})
	result := f.drain(opts)
	require.NotNil(t, result.Blocked)
	require.Contains(t, result.Blocked.Reason, "no answer")
	require.LessOrEqual(t, len(result.Blocked.Reason), outbox.MaxErrorBytes)
	require.Empty(t, f.got.deliveries())
}

func TestACancelledJudgementIsACancelledDrain(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue(1)
	f.claim(workflowOwner("w"), 1)
	ctx, cancel := context.WithCancel(t.Context())
	opts := f.options()
	opts.Judge = judgeFunc(func(ctx context.Context, _ outbox.Claim) (outbox.Verdict, error) {
		cancel()
		return outbox.VerdictWorking, ctx.Err()
	})
	result, err := outbox.Drain(ctx, f.store, zrh, f.got.deliver, opts)
	require.ErrorIs(t, err, context.Canceled)
	require.Nil(t, result.Blocked)
}

func TestAJudgeIsAskedOnceAboutAnOwner(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue(1, 2, 3, 4)
	f.claim(workflowOwner("w"), 3)
	asked := 0
	opts := f.options()
	opts.Judge = judgeFunc(func(context.Context, outbox.Claim) (outbox.Verdict, error) {
		asked++
		return outbox.VerdictGone, nil
	})
	require.Equal(t, 4, f.drain(opts).Delivered)
	require.Equal(t, 1, asked)
}

// Somebody at work behind the head stops the drain there, and not before.
func TestADrainStopsAtTheFirstEffectThatIsTaken(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue(1, 2, 3)
	items := f.pending()
	other := workflowOwner("w")
	claimed, err := f.store.Claim(t.Context(), zrh, []outbox.Ref{items[1].Ref()}, other)
	require.NoError(t, err)
	require.Equal(t, 1, claimed)
	result := f.drain(f.options())
	require.Equal(t, 1, result.Delivered)
	require.Equal(t, items[1].ID, result.Blocked.ID)
	require.Equal(t, []int{1}, f.got.numbers())
	require.Zero(t, f.pending()[1].Claim.Epoch, "what is behind is not claimed either")
}

// An effect behind the head that was put off is looked at when it is the head.
func TestAnEffectThatIsPutOffIsNotClaimedAhead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue(1, 2, 3)
	until := noon.Add(time.Hour)
	put, err := f.store.Defer(t.Context(), zrh, f.pending()[1].Ref(), outbox.Deferral{Attempts: 3, Until: until, Class: event.ClassRetry, Error: "x"})
	require.NoError(t, err)
	require.True(t, put)
	result := f.drain(f.options())
	require.Equal(t, 1, result.Delivered)
	require.Equal(t, 3, result.Failed.Attempts)
	require.Equal(t, time.Hour, result.Failed.NextDelay)
	f.clock.pass(time.Hour)
	require.Equal(t, outbox.Result{Delivered: 2, Revision: 1, Empty: true}, f.drain(f.options()))
	require.Equal(t, []int{1, 2, 3}, f.got.numbers())
}

// An execution that starts again with its own nonce goes on with its own claims.
func TestOwnClaimsAreTakenAsTheyAre(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue(1, 2, 3)
	owner := workflowOwner("mine")
	f.claim(owner, 2)
	opts := f.options()
	opts.Owner, opts.Judge = owner, everybodyIsAtWork
	var epochs []int64
	f.got.before = func(_ context.Context, _ int, delivery outbox.Delivery) error {
		epochs = append(epochs, delivery.Claim.Epoch)
		require.Equal(t, owner, delivery.Claim.Owner)
		return nil
	}
	require.Equal(t, outbox.Result{Delivered: 3, Revision: 1, Empty: true}, f.drain(opts))
	require.Equal(t, []int64{1, 1, 1}, epochs, "nothing was claimed twice")
}

// They are released as any other claims.
func TestOwnClaimsAreReleasedAfterAFailure(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue(1, 2)
	opts := f.options()
	opts.Owner = workflowOwner("mine")
	f.claim(opts.Owner, 2)
	f.got.before = failing(100, errNobody)
	require.NotNil(t, f.drain(opts).Failed)
	for _, item := range f.pending() {
		require.True(t, item.Claim.IsZero())
	}
}

// A claim whose answer got lost is found at the next look.
func TestALostAnswerOfAClaimIsNoLoss(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue(1, 2)
	calls := 0
	store := &intercepted{Store: f.store}
	store.claim = func(ctx context.Context, refs []outbox.Ref, owner outbox.Owner) error {
		calls++
		if calls > 1 {
			return nil
		}
		_, err := f.store.Claim(ctx, zrh, refs, owner)
		require.NoError(t, err)
		return event.WithClass(errBroken, event.ClassUnknownOutcome)
	}
	opts := f.options()
	opts.Judge = everybodyIsAtWork
	result, err := outbox.Drain(t.Context(), store, zrh, f.got.deliver, opts)
	require.NoError(t, err)
	require.Equal(t, outbox.Result{Delivered: 2, Revision: 1, Empty: true}, result)
	require.Equal(t, 1, calls)
	require.Equal(t, []int{1, 2}, f.got.numbers())
}

// A claim that somebody else got first is looked at again, a bounded number of times.
func TestADrainThatLosesEveryClaimGivesUp(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue(1)
	store := &intercepted{Store: f.store}
	store.claim = func(ctx context.Context, _ []outbox.Ref, _ outbox.Owner) error {
		claimFirst(ctx, t, f.store, workflowOwner(outbox.NewNonce()), 1)
		return nil
	}
	opts := f.options()
	store.free = func(context.Context, []outbox.Ref) error {
		t.Error("there is nothing to release")
		return nil
	}
	opts.Judge, opts.Rounds = everybodyIsGone, 3
	result, err := outbox.Drain(t.Context(), store, zrh, f.got.deliver, opts)
	var lost *outbox.ClaimsLost
	require.ErrorAs(t, err, &lost)
	require.Equal(t, &outbox.ClaimsLost{Row: zrh, Rounds: 3}, lost)
	require.Equal(t, outbox.Result{Revision: 1}, result)
	require.Equal(t, []time.Duration{10 * time.Millisecond, 20 * time.Millisecond}, f.clock.waited())
	require.Empty(t, f.got.deliveries())
	require.False(t, f.pending()[0].Claim.IsZero(), "the winner keeps its claim")
}

// Only rounds without a delivery are counted.
func TestADeliveryStartsTheRoundsAnew(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue(1, 2, 3, 4)
	store, calls := &intercepted{Store: f.store}, 0
	store.head = func(context.Context) error {
		calls++
		if calls%2 == 1 {
			return errBroken
		}
		return nil
	}
	opts := f.options()
	opts.Rounds, opts.ClaimAhead = 2, 1
	result, err := outbox.Drain(t.Context(), store, zrh, f.got.deliver, opts)
	require.NoError(t, err)
	require.Equal(t, 4, result.Delivered)
}

// a process renews its claims before half of their time is over.
func TestAProcessRenewsItsClaims(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue(1, 2, 3, 4, 5)
	opts := f.options()
	opts.ClaimFor = 30 * time.Second
	var left []time.Duration
	var epochs []int64
	f.got.before = func(context.Context, int, outbox.Delivery) error {
		head := f.pending()[0] //nolint:contextcheck // the fixture has the test's own
		left, epochs = append(left, head.Claim.Until.Sub(f.clock.Now())), append(epochs, head.Claim.Epoch)
		f.clock.pass(10 * time.Second)
		return nil
	}
	require.Equal(t, outbox.Result{Delivered: 5, Revision: 1, Empty: true}, f.drain(opts))
	require.Equal(t, []time.Duration{30 * time.Second, 20 * time.Second, 30 * time.Second, 20 * time.Second, 30 * time.Second}, left)
	require.Equal(t, []int64{1, 1, 2, 2, 3}, epochs)
}

func TestAWorkflowDoesNotRenew(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue(1, 2, 3)
	opts := f.options()
	opts.Owner = workflowOwner("mine")
	f.got.before = func(_ context.Context, _ int, delivery outbox.Delivery) error {
		require.Equal(t, int64(1), delivery.Claim.Epoch)
		f.clock.pass(10 * time.Hour)
		return nil
	}
	require.Equal(t, 3, f.drain(opts).Delivered)
}

// a claim that cannot be renewed is lost before the next delivery, not after it.
func TestADrainWhoseClaimEndedDoesNotDeliverOn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue(1, 2, 3)
	other := workflowOwner("other")
	f.got.before = func(ctx context.Context, n int, _ outbox.Delivery) error {
		if n == 1 {
			head, err := f.store.Head(ctx, zrh, 3)
			require.NoError(t, err)
			claimed, err := f.store.Claim(ctx, zrh, []outbox.Ref{head.Items[1].Ref()}, other)
			require.NoError(t, err)
			require.Equal(t, 1, claimed)
			f.clock.pass(29 * time.Second)
		}
		return nil
	}
	result := f.drain(f.options())
	require.Equal(t, 1, result.Delivered)
	require.Equal(t, "other", result.Blocked.Claim.Nonce)
	require.Equal(t, []int{1}, f.got.numbers())
	require.Equal(t, "other", f.pending()[0].Claim.Nonce, "a release leaves the claims of others")
	require.True(t, f.pending()[1].Claim.IsZero(), "and takes off its own")
}

// a drain that was overtaken looks at the head again: it repeats one effect at most.
func TestAnOvertakenDrainRepeatsOneEffect(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue(1, 2, 3, 4)
	f.got.before = func(ctx context.Context, n int, _ outbox.Delivery) error {
		if n != 1 {
			return nil
		}
		// In the middle of the first delivery, somebody else delivers three effects.
		opts := f.options()
		opts.Judge, opts.MaxEffects = everybodyIsGone, 3
		result, err := outbox.Drain(ctx, f.store, zrh, f.got.deliver, opts)
		require.NoError(t, err)
		require.Equal(t, 3, result.Delivered)
		return nil
	}
	result := f.drain(f.options())
	require.Equal(t, outbox.Result{Delivered: 2, Revision: 1, Empty: true, Overtaken: 1}, result)
	require.Equal(t, []int{1, 2, 3, 1, 4}, f.got.numbers(), "first deliveries are in order")
}

// a delivered effect is deleted whoever has claimed it by then.
func TestADeliveredEffectIsDeletedUnderAForeignClaim(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue(1, 2)
	f.got.before = func(ctx context.Context, _ int, _ outbox.Delivery) error {
		claimFirst(ctx, t, f.store, workflowOwner("other"), 2)
		return nil
	}
	result := f.drain(f.options())
	require.Equal(t, 1, result.Delivered)
	require.Equal(t, 1, result.Overtaken)
	require.Equal(t, "other", result.Blocked.Claim.Nonce, "the next head is the other one's")
	require.Len(t, f.pending(), 1)
	require.Equal(t, "other", f.pending()[0].Claim.Nonce)
}

// A delete whose answer got lost is repeated and finds the effect gone: no second delivery.
func TestALostAnswerOfADeleteRepeatsNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue(1, 2)
	store, calls := &intercepted{Store: f.store}, 0
	store.delete = func(ctx context.Context, ref outbox.Ref) error {
		calls++
		if calls > 1 {
			return nil
		}
		_, err := f.store.Delete(ctx, zrh, ref)
		require.NoError(t, err)
		return event.WithClass(errBroken, event.ClassUnknownOutcome)
	}
	result, err := outbox.Drain(t.Context(), store, zrh, f.got.deliver, f.options())
	require.NoError(t, err)
	require.Equal(t, 2, result.Delivered)
	require.Equal(t, []int{1, 2}, f.got.numbers())
	require.LessOrEqual(t, result.Overtaken, 1)
}

// A failure is recorded by whoever owns the head, and by nobody else.
func TestAnOvertakenDrainRecordsNoFailure(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue(1)
	f.got.before = func(ctx context.Context, _ int, _ outbox.Delivery) error {
		claimFirst(ctx, t, f.store, workflowOwner("other"), 1)
		return event.Permanent(errNobody)
	}
	result := f.drain(f.options())
	require.Nil(t, result.Failed)
	require.Equal(t, 1, result.Overtaken)
	require.Equal(t, "other", result.Blocked.Claim.Nonce)
	require.True(t, f.pending()[0].Deferral.IsZero())
}
