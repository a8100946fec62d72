package testsuite

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
)

// Drain proves that outbox.Drain delivers a store's effects in order.
func Drain(t *testing.T, h Harness) {
	t.Helper()
	runCases(t, h, []testCase{
		{"EffectsAreDeliveredInOrderAndDeleted", drainInOrder},
		{"SeveralDrainersKeepTheOrder", drainersKeepOrder},
		{"AnOvertakenDrainerRepeatsNothingMore", overtakenAndDrained},
		{"ADrainerWhoseClaimIsTakenStops", overtakenAndBlocked},
		{"ARowThatFailsHoldsUpNobodyElse", failingRow},
		{"AFailedHeadWaitsForItsTime", headIsDeferred},
		{"APermanentFailureWaitsForAnOperator", headIsParked},
		{"AnOperatorsSkipAndParkAreRecorded", operatorDecides},
		{"AnEffectThatDoesNotDecodeIsParkedWithItsBytes", undecodable},
		{"AWorkingOwnerIsNotDisturbed", workingOwner},
		{"TheLastEffectOfATombstoneSetsItsExpiry", drainExpiresTombstone},
	})
}

// deliveries collects what was delivered, across drains.
type deliveries struct {
	mu   sync.Mutex
	all  []outbox.Item
	fail func(n int, item outbox.Item) error // n counts from 1; nil = nothing fails
}

func (d *deliveries) deliver(_ context.Context, delivery outbox.Delivery) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail != nil {
		if err := d.fail(len(d.all)+1, delivery.Item); err != nil {
			return err
		}
	}
	d.all = append(d.all, delivery.Item)
	return nil
}

// first returns the first deliveries, and how many were repeats.
func (d *deliveries) first() (numbers []outbox.Sequence, repeats int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	seen := map[string]bool{}
	for _, item := range d.all {
		if seen[item.ID] {
			repeats++
			continue
		}
		seen[item.ID] = true
		numbers = append(numbers, item.Sequence)
	}
	return numbers, repeats
}

// drainOptions are options that wait for nothing, at a given time.
func drainOptions(t testing.TB, now time.Time) outbox.Options {
	t.Helper()
	return outbox.Options{
		Types: noticeTypes(t), Attempts: 1, ClaimAhead: 2, TombstoneTTL: tombstoneTTL,
		Now:  func() time.Time { return now },
		Wait: func(ctx context.Context, _ time.Duration) error { return context.Cause(ctx) },
	}
}

//
func drainInOrder(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	enqueue(t, b, model, "ZRH", 1, 2, 3)
	enqueue(t, b, model, "ZRH", 4)
	want := sequences(head(t, b, "ZRH", 10).Items)
	got := &deliveries{}
	options := drainOptions(t, noon)
	options.MaxEffects = 3
	result, err := outbox.Drain(t.Context(), b.Store, boardRow("ZRH"), got.deliver, options)
	require.NoError(t, err)
	require.Equal(t, outbox.Result{Delivered: 3, Revision: 2, More: true}, result)
	result, err = outbox.Drain(t.Context(), b.Store, boardRow("ZRH"), got.deliver, options)
	require.NoError(t, err)
	require.Equal(t, outbox.Result{Delivered: 1, Revision: 2, Empty: true}, result)
	delivered, repeats := got.first()
	require.Equal(t, want, delivered)
	require.Zero(t, repeats)
	require.Empty(t, head(t, b, "ZRH", 10).Items)
}

// whoever drains, first deliveries are in order, and an overtaken drainer repeats at
// most one effect.
func drainersKeepOrder(t *testing.T, b Backend) {
	const drainers = 4
	model := prepare(t, b, boardModel())
	for i := range 5 {
		enqueue(t, b, model, "ZRH", i*3, i*3+1, i*3+2)
	}
	want := sequences(head(t, b, "ZRH", 100).Items)
	got := &deliveries{}
	overtaken := make([]int, drainers)
	together(t, drainers, func(i int) error {
		options := drainOptions(t, noon)
		options.Wait = nil
		// Everybody takes everybody's claims, the worst of judges.
		options.Judge = judgeFunc(func(context.Context, outbox.Claim) (outbox.Verdict, error) { return outbox.VerdictGone, nil })
		for {
			result, err := outbox.Drain(t.Context(), b.Store, boardRow("ZRH"), got.deliver, options)
			overtaken[i] += result.Overtaken
			if result.Empty || err != nil && event.Classify(err) != event.ClassStale {
				return err
			}
		}
	})
	delivered, repeats := got.first()
	require.Equal(t, want, delivered)
	sum := 0
	for _, n := range overtaken {
		sum += n
	}
	require.LessOrEqual(t, repeats, sum, "a repeat comes of being overtaken")
}

// while a drainer delivers, another one takes over, since the claim has ended by its
// clock, and drains the row. The first one repeats nothing of what it holds.
func overtakenAndDrained(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	enqueue(t, b, model, "ZRH", 1, 2, 3)
	want := sequences(head(t, b, "ZRH", 10).Items)
	got := &deliveries{}
	var other outbox.Result
	overtaken := false
	slow := func(ctx context.Context, delivery outbox.Delivery) (err error) {
		if !overtaken {
			overtaken = true
			other, err = outbox.Drain(ctx, b.Store, boardRow("ZRH"), got.deliver, drainOptions(t, noon.Add(time.Hour)))
		}
		return errors.Join(err, got.deliver(ctx, delivery))
	}
	options := drainOptions(t, noon)
	options.ClaimAhead = 3
	result, err := outbox.Drain(t.Context(), b.Store, boardRow("ZRH"), slow, options)
	require.NoError(t, err)
	require.Equal(t, outbox.Result{Delivered: 3, Revision: 1, Empty: true}, other)
	require.Equal(t, outbox.Result{Delivered: 1, Revision: 1, Empty: true, Overtaken: 1}, result)
	delivered, repeats := got.first()
	require.Equal(t, want, delivered)
	require.Equal(t, 1, repeats)
}

// while a drainer delivers, another one takes its claims. What was delivered is
// removed, whoever claims it by then, and the rest is the other one's.
func overtakenAndBlocked(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	enqueue(t, b, model, "ZRH", 1, 2, 3)
	want := sequences(head(t, b, "ZRH", 10).Items)
	got := &deliveries{fail: func(n int, _ outbox.Item) error {
		if n == 1 {
			require.Equal(t, 3, claim(t, b, "ZRH", head(t, b, "ZRH", 10).Items, "other"))
		}
		return nil
	}}
	options := drainOptions(t, noon)
	options.ClaimAhead = 3
	result, err := outbox.Drain(t.Context(), b.Store, boardRow("ZRH"), got.deliver, options)
	require.NoError(t, err)
	require.Equal(t, 1, result.Delivered)
	require.Equal(t, 1, result.Overtaken)
	require.NotNil(t, result.Blocked)
	require.Equal(t, "other", result.Blocked.Claim.Nonce)
	left := head(t, b, "ZRH", 10).Items
	require.Equal(t, want[1:], sequences(left))
	for _, item := range left {
		require.Equal(t, "other", item.Claim.Nonce, "a drain releases its own claims only")
	}
}

type judgeFunc func(ctx context.Context, claim outbox.Claim) (outbox.Verdict, error)

// Judge implements outbox.Judge.
func (f judgeFunc) Judge(ctx context.Context, claim outbox.Claim) (outbox.Verdict, error) {
	return f(ctx, claim)
}

// rows are independent.
func failingRow(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	for _, key := range []string{"GVA", "LUG", "ZRH"} {
		enqueue(t, b, model, key, 1, 2)
	}
	got := &deliveries{fail: func(_ int, item outbox.Item) error {
		if item.Row.Key == "LUG" {
			return errors.New("nobody answers")
		}
		return nil
	}}
	swept, err := outbox.DrainPending(t.Context(), b.Store, "Board", got.deliver, drainOptions(t, noon))
	require.NoError(t, err)
	require.Equal(t, 4, swept.Delivered)
	pending, err := b.Store.HasPending(t.Context(), "Board", []string{"GVA", "LUG", "ZRH"})
	require.NoError(t, err)
	require.True(t, pending["LUG"])
	require.False(t, pending["GVA"] || pending["ZRH"])
}

// T-11
func headIsDeferred(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	enqueue(t, b, model, "ZRH", 1, 2)
	broken := true
	got := &deliveries{fail: func(int, outbox.Item) error {
		if broken {
			return errors.New("nobody answers")
		}
		return nil
	}}
	options := drainOptions(t, noon)
	options.Deferral = outbox.Backoff{Min: time.Minute, Max: time.Minute}
	result, err := outbox.Drain(t.Context(), b.Store, boardRow("ZRH"), got.deliver, options)
	require.NoError(t, err)
	require.NotNil(t, result.Failed)
	require.Equal(t, 1, result.Failed.Attempts)
	require.Equal(t, event.ClassRetry, result.Failed.Class)
	require.Contains(t, result.Failed.Error, "nobody answers")
	for _, item := range head(t, b, "ZRH", 10).Items {
		require.True(t, item.Claim.IsZero(), "a drain leaves no claim behind")
	}
	broken = false
	result, err = outbox.Drain(t.Context(), b.Store, boardRow("ZRH"), got.deliver, options)
	require.NoError(t, err)
	require.NotNil(t, result.Failed, "it is not due yet")
	require.Zero(t, result.Delivered)
	result, err = outbox.Drain(t.Context(), b.Store, boardRow("ZRH"), got.deliver, drainOptions(t, noon.Add(2*time.Minute)))
	require.NoError(t, err)
	require.Equal(t, 2, result.Delivered)
}

// T-11
func headIsParked(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	enqueue(t, b, model, "ZRH", 1, 2)
	broken := true
	got := &deliveries{fail: func(int, outbox.Item) error {
		if broken {
			return event.Permanent(errors.New("no such address"))
		}
		return nil
	}}
	result, err := outbox.Drain(t.Context(), b.Store, boardRow("ZRH"), got.deliver, drainOptions(t, noon))
	require.NoError(t, err)
	require.NotNil(t, result.Failed)
	require.True(t, result.Failed.Parked)
	broken = false
	later := drainOptions(t, noon.Add(1000*time.Hour))
	result, err = outbox.Drain(t.Context(), b.Store, boardRow("ZRH"), got.deliver, later)
	require.NoError(t, err)
	require.Zero(t, result.Delivered, "time does not end a park")
	waited, err := outbox.Retry(t.Context(), b.Store, boardRow("ZRH"))
	require.NoError(t, err)
	require.True(t, waited)
	result, err = outbox.Drain(t.Context(), b.Store, boardRow("ZRH"), got.deliver, later)
	require.NoError(t, err)
	require.Equal(t, 2, result.Delivered)
}

// R-38 (ii), T-11
func operatorDecides(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	enqueue(t, b, model, "ZRH", 1, 2, 3)
	items := head(t, b, "ZRH", 10).Items
	order := func(i int) outbox.Order {
		return outbox.Order{EffectID: items[i].ID, Who: "nina", Why: fmt.Sprintf("reason %d", i), At: noon}
	}
	var moved *outbox.HeadMoved
	require.ErrorAs(t, outbox.SkipHead(t.Context(), b.Store, boardRow("ZRH"), order(1)), &moved, "it is not the head")
	require.NoError(t, outbox.SkipHead(t.Context(), b.Store, boardRow("ZRH"), order(0)))
	require.NoError(t, outbox.SkipHead(t.Context(), b.Store, boardRow("ZRH"), order(0)), "an order may be repeated")
	require.NoError(t, outbox.ParkHead(t.Context(), b.Store, boardRow("ZRH"), order(1)))
	decisions, err := b.Store.Decisions(t.Context(), boardRow("ZRH"))
	require.NoError(t, err)
	require.Len(t, decisions, 2)
	for i, verb := range []outbox.Verb{outbox.VerbSkip, outbox.VerbPark} {
		require.Equal(t, verb, decisions[i].Decision.Verb)
		require.Equal(t, "nina", decisions[i].Decision.Who)
		require.Equal(t, fmt.Sprintf("reason %d", i), decisions[i].Decision.Why)
		require.Equal(t, items[i].ID, decisions[i].Item.ID)
		require.JSONEq(t, string(items[i].Payload), string(decisions[i].Item.Payload))
	}
	got := &deliveries{}
	result, err := outbox.Drain(t.Context(), b.Store, boardRow("ZRH"), got.deliver, drainOptions(t, noon))
	require.NoError(t, err)
	require.Equal(t, 1, result.Delivered, "the last effect overtakes those")
}

//
func undecodable(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	write := boardWrite(load(t, b, model, "ZRH"), 1, 1, 2)
	write.Effects[0].Payload = []byte(`{"number":"not a number"}`)
	commit(t, b, model, write)
	got := &deliveries{}
	result, err := outbox.Drain(t.Context(), b.Store, boardRow("ZRH"), got.deliver, drainOptions(t, noon))
	require.NoError(t, err)
	require.NotNil(t, result.Failed)
	require.True(t, result.Failed.Parked, "trying again does not help")
	require.Empty(t, got.all)
	order := outbox.Order{EffectID: result.Failed.ID, Who: "nina", Why: "a typo", At: noon}
	require.NoError(t, outbox.ParkHead(t.Context(), b.Store, boardRow("ZRH"), order))
	decisions, err := b.Store.Decisions(t.Context(), boardRow("ZRH"))
	require.NoError(t, err)
	require.JSONEq(t, `{"number":"not a number"}`, string(decisions[0].Item.Payload))
}

//
func workingOwner(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	enqueue(t, b, model, "ZRH", 1)
	items := head(t, b, "ZRH", 1).Items
	claimed, err := b.Store.Claim(t.Context(), boardRow("ZRH"), refs(items), outbox.ProcessOwner(noon, time.Minute))
	require.NoError(t, err)
	require.Equal(t, 1, claimed)
	got := &deliveries{}
	result, err := outbox.Drain(t.Context(), b.Store, boardRow("ZRH"), got.deliver, drainOptions(t, noon.Add(59*time.Second)))
	require.NoError(t, err)
	require.NotNil(t, result.Blocked)
	require.Equal(t, time.Second, result.Blocked.RetryIn)
	require.Empty(t, got.all)
	result, err = outbox.Drain(t.Context(), b.Store, boardRow("ZRH"), got.deliver, drainOptions(t, noon.Add(time.Minute)))
	require.NoError(t, err)
	require.Equal(t, 1, result.Delivered, "the claim has ended")
}

//
func drainExpiresTombstone(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	enqueue(t, b, model, "ZRH", 1)
	remove(t, b, model, "ZRH", 2)
	require.Nil(t, load(t, b, model, "ZRH").ExpiresAt)
	got := &deliveries{}
	result, err := outbox.Drain(t.Context(), b.Store, boardRow("ZRH"), got.deliver, drainOptions(t, noon))
	require.NoError(t, err)
	require.Equal(t, 2, result.Delivered)
	stored := load(t, b, model, "ZRH")
	require.Equal(t, projection.RowTombstone, stored.Status)
	require.NotNil(t, stored.ExpiresAt)
	require.True(t, stored.ExpiresAt.Equal(noon.Add(tombstoneTTL)))
}
