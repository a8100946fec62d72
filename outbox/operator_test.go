package outbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
)

const firstID = "Board|ZRH|flight|LX1|1|0"

func orderFor(id string) outbox.Order {
	return outbox.Order{EffectID: id, Who: "nina", Why: "obsolete", At: noon.Add(time.Minute)}
}

func decisions(f *fixture) []outbox.Decided {
	f.Helper()
	decided, err := f.store.Decisions(f.Context(), zrh)
	require.NoError(f, err)
	return decided
}

func TestAnOrderNamesWhatItLacks(t *testing.T) {
	t.Parallel()
	require.NoError(t, orderFor("a").Validate())
	f := newFixture(t)
	f.enqueue(1)
	for _, decide := range []func(context.Context, outbox.Store, outbox.Row, outbox.Order) error{outbox.SkipHead, outbox.ParkHead} {
		var incomplete *outbox.IncompleteOrder
		require.ErrorAs(t, decide(t.Context(), f.store, zrh, outbox.Order{}), &incomplete)
		require.Equal(t, []string{"EffectID", "Who", "Why", "At"}, incomplete.Fields)
		require.ErrorAs(t, decide(t.Context(), f.store, zrh, outbox.Order{EffectID: firstID, At: noon}), &incomplete)
		require.Equal(t, []string{"Who", "Why"}, incomplete.Fields)
	}
	require.Len(t, f.pending(), 1)
}

// R-38 (ii): an effect that was not delivered leaves its queue by a recorded decision.
func TestAnOperatorDropsTheHead(t *testing.T) {
	t.Parallel()
	for verb, decide := range map[outbox.Verb]func(context.Context, outbox.Store, outbox.Row, outbox.Order) error{
		outbox.VerbSkip: outbox.SkipHead, outbox.VerbPark: outbox.ParkHead,
	} {
		f := newFixture(t)
		committed := f.enqueue(1, 2, 3)
		f.got.before = failing(1, event.Permanent(errNobody))
		require.True(t, f.drain(f.options()).Failed.Parked)
		require.NoError(t, decide(t.Context(), f.store, zrh, orderFor(firstID)))

		decided := decisions(f)
		require.Len(t, decided, 1)
		require.Equal(t, outbox.Decision{
			Verb: verb, Who: "nina", Why: "obsolete", At: noon.Add(time.Minute), Class: event.ClassPermanent, Error: "nobody answers",
		}, decided[0].Decision)
		require.Equal(t, firstID, decided[0].Item.ID)
		require.Equal(t, committed[0].Sequence, decided[0].Item.Sequence)
		require.JSONEq(t, `{"number":1,"to":"ann"}`, string(decided[0].Item.Payload))
		require.Equal(t, 2, f.drain(f.options()).Delivered, "later effects overtake it")
		require.Equal(t, []int{2, 3}, f.got.numbers())
	}
}

// An operator decides about the effect that was seen, and about no other one.
func TestADecisionIsAboutTheHeadThatWasSeen(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	items := f.enqueue(1, 2)
	var moved *outbox.HeadMoved
	require.ErrorAs(t, outbox.SkipHead(t.Context(), f.store, zrh, orderFor(items[1].ID)), &moved)
	require.Equal(t, &outbox.HeadMoved{Row: zrh, Want: items[1].ID, Head: firstID}, moved)
	f.drain(f.options())
	require.ErrorAs(t, outbox.ParkHead(t.Context(), f.store, zrh, orderFor(firstID)), &moved)
	require.Equal(t, &outbox.HeadMoved{Row: zrh, Want: firstID}, moved, "it was delivered")
	require.Empty(t, decisions(f))
}

// It was delivered between the operator's look and the decision.
func TestADecisionLosesAgainstADelivery(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue(1, 2)
	store := &intercepted{Store: f.store, decide: func(ctx context.Context, ref outbox.Ref) error {
		_, err := f.store.Delete(ctx, zrh, ref)
		return err
	}}
	var moved *outbox.HeadMoved
	require.ErrorAs(t, outbox.SkipHead(t.Context(), store, zrh, orderFor(firstID)), &moved)
	require.Empty(t, decisions(f))
	require.Len(t, f.pending(), 1)
}

// An order may be repeated after an unknown outcome. Another order is another order.
func TestAnOrderThatIsRepeatedIsCarriedOutOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue(1, 2)
	store := &intercepted{Store: f.store}
	store.decide = func(ctx context.Context, ref outbox.Ref) error { // does it, and loses the answer
		order := orderFor(firstID)
		_, err := f.store.Decide(ctx, zrh, ref, outbox.Decision{Verb: outbox.VerbSkip, Who: order.Who, Why: order.Why, At: order.At})
		require.NoError(t, err)
		return event.WithClass(errBroken, event.ClassUnknownOutcome)
	}
	err := outbox.SkipHead(t.Context(), store, zrh, orderFor(firstID))
	require.Equal(t, "record a decision", stepOf(t, err))
	require.Equal(t, event.ClassUnknownOutcome, event.Classify(err))
	require.NoError(t, outbox.SkipHead(t.Context(), f.store, zrh, orderFor(firstID)))
	require.Len(t, f.pending(), 1)
	require.Len(t, decisions(f), 1)

	var moved *outbox.HeadMoved
	for name, change := range map[string]func(*outbox.Order){
		"who":  func(o *outbox.Order) { o.Who = "bob" },
		"why":  func(o *outbox.Order) { o.Why = "another reason" },
		"when": func(o *outbox.Order) { o.At = o.At.Add(time.Second) },
	} {
		order := orderFor(firstID)
		change(&order)
		require.ErrorAs(t, outbox.SkipHead(t.Context(), f.store, zrh, order), &moved, name)
	}
	require.ErrorAs(t, outbox.ParkHead(t.Context(), f.store, zrh, orderFor(firstID)), &moved, "it was skipped, not parked")
	order := orderFor(firstID)
	order.At = order.At.Add(time.Microsecond) // what a store may lose of a time
	require.NoError(t, outbox.SkipHead(t.Context(), f.store, zrh, order))
}

func TestFaultsOfADecisionAreToldWithTheirStep(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue(1)
	broken := &intercepted{Store: f.store, head: func(context.Context) error { return errBroken }}
	require.Equal(t, "read the head", stepOf(t, outbox.SkipHead(t.Context(), broken, zrh, orderFor(firstID))))
	_, err := outbox.Retry(t.Context(), broken, zrh)
	require.Equal(t, "read the head", stepOf(t, err))
	err = outbox.SkipHead(t.Context(), &noDecisions{f.store}, zrh, orderFor("another effect"))
	require.Equal(t, "read the decisions", stepOf(t, err))

	put, err := f.store.Defer(t.Context(), zrh, f.pending()[0].Ref(), outbox.Deferral{Attempts: 1, Parked: true})
	require.NoError(t, err)
	require.True(t, put)
	_, err = outbox.Retry(t.Context(), &intercepted{Store: f.store, defers: func(context.Context, outbox.Ref) error { return errBroken }}, zrh)
	require.Equal(t, "clear a failed delivery", stepOf(t, err))
}

type noDecisions struct{ outbox.Store }

func (*noDecisions) Decisions(context.Context, outbox.Row) ([]outbox.Decided, error) {
	return nil, errBroken
}

// T-11
func TestRetryMakesTheHeadDue(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]error{"parked": event.Permanent(errNobody), "waiting": errNobody} {
		f := newFixture(t)
		retry := func() bool {
			cleared, err := outbox.Retry(t.Context(), f.store, zrh)
			require.NoError(t, err)
			return cleared
		}
		require.False(t, retry(), "nothing is pending")
		f.enqueue(1, 2)
		require.False(t, retry(), "nothing failed")
		f.got.before = failing(1, failure)
		opts := f.options()
		opts.Attempts = 1
		require.Equal(t, 1, f.drain(opts).Failed.Attempts, name)
		require.True(t, retry(), name)
		require.True(t, f.pending()[0].Deferral.IsZero(), name)
		require.False(t, retry(), name)
		require.Equal(t, 2, f.drain(opts).Delivered, name)
	}
}

// A head that changes hands again and again cannot be cleared under its claim.
func TestRetryGivesUpOnAHeadThatChangesHands(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue(1)
	put, err := f.store.Defer(t.Context(), zrh, f.pending()[0].Ref(), outbox.Deferral{Attempts: 1, Until: noon})
	require.NoError(t, err)
	require.True(t, put)
	races := outbox.DefaultRounds
	store := &intercepted{Store: f.store, defers: func(ctx context.Context, _ outbox.Ref) error {
		if races > 0 {
			races--
			claimFirst(ctx, t, f.store, workflowOwner(outbox.NewNonce()), 1)
		}
		return nil
	}}
	var lost *outbox.ClaimsLost
	_, err = outbox.Retry(t.Context(), store, zrh)
	require.ErrorAs(t, err, &lost)
	require.Equal(t, outbox.DefaultRounds, lost.Rounds)
	require.Equal(t, 1, f.pending()[0].Deferral.Attempts)
	races = outbox.DefaultRounds - 1
	cleared, err := outbox.Retry(t.Context(), store, zrh)
	require.NoError(t, err)
	require.True(t, cleared)
}
