package outbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
)

// the lowest sequence is delivered first, and what was delivered is deleted.
func TestADrainDeliversInOrderUntilTheOutboxIsEmpty(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue(1, 2)
	f.enqueue()
	items := append(f.pending(), f.enqueue(3, 4, 5)...)
	opts := f.options()
	var progress []int
	opts.ClaimAhead, opts.Progress = 2, func(delivered int) { progress = append(progress, delivered) }
	require.Equal(t, outbox.Result{Delivered: 5, Revision: 3, Empty: true}, f.drain(opts))
	require.Equal(t, []int{1, 2, 3, 4, 5}, f.got.numbers())
	require.Equal(t, []int{1, 2, 3, 4, 5}, progress)
	require.Empty(t, f.pending())
	for i, delivery := range f.got.deliveries() {
		require.Equal(t, items[i].ID, delivery.ID)
		require.Equal(t, items[i].Sequence, delivery.Sequence)
		require.Equal(t, zrh, delivery.Row)
		require.Equal(t, mail{Number: i + 1, To: "ann"}, delivery.Effect)
		require.Equal(t, event.ID("LX1"), delivery.StreamID)
	}
	require.Equal(t, outbox.Result{Revision: 3, Empty: true}, f.drain(opts), "nothing is left")
	require.Empty(t, f.clock.waited())
}

func TestTheOutboxOfAnAbsentRowIsEmpty(t *testing.T) {
	t.Parallel()
	require.Equal(t, outbox.Result{Empty: true}, newFixture(t).drain(outbox.Options{Types: types(t)}))
}

// An effect is deleted after its own delivery, before the next one.
func TestEachEffectIsDeletedBeforeTheNextDelivery(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue(1, 2, 3)
	var left []int
	f.got.before = func(context.Context, int, outbox.Delivery) error {
		left = append(left, len(f.pending())) //nolint:contextcheck // the fixture has the test's own
		return nil
	}
	f.drain(f.options())
	require.Equal(t, []int{3, 2, 1}, left)
}

func TestWhatIsCommittedMeanwhileIsDelivered(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue(1, 2)
	f.got.before = func(_ context.Context, n int, _ outbox.Delivery) error {
		if n <= 2 {
			f.enqueue(10 + n) //nolint:contextcheck // the fixture has the test's own
		}
		return nil
	}
	require.Equal(t, outbox.Result{Delivered: 4, Revision: 3, Empty: true}, f.drain(f.options()))
	require.Equal(t, []int{1, 2, 11, 12}, f.got.numbers())
}

func TestMaxEffectsLeavesTheRestForAnotherDrain(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue(1, 2, 3, 4, 5)
	opts := f.options()
	opts.MaxEffects, opts.ClaimAhead = 3, 2
	require.Equal(t, outbox.Result{Delivered: 3, Revision: 1, More: true}, f.drain(opts))
	for _, item := range f.pending() {
		require.Zero(t, item.Claim.Epoch, "it claims no more than it may deliver")
	}
	opts.MaxEffects = 2
	require.Equal(t, outbox.Result{Delivered: 2, Revision: 1, Empty: true}, f.drain(opts), "a limit that is met exactly is no more")
	require.Equal(t, []int{1, 2, 3, 4, 5}, f.got.numbers())
}

// an effect of an older schema is delivered in its newest shape.
func TestEffectsAreUpcastOnDelivery(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.write(zrh.Key, func(write *projection.Write) {
		write.Effects[0].SchemaVersion, write.Effects[0].Payload = 1, []byte(`{"number":1,"to_whom":"bob"}`)
	}, 1)
	f.drain(f.options())
	require.Equal(t, mail{Number: 1, To: "bob"}, f.got.deliveries()[0].Effect)
	require.JSONEq(t, `{"number":1,"to_whom":"bob"}`, string(f.got.deliveries()[0].Payload), "the item is as it was stored")
}

// what does not decode waits for an operator, with its raw bytes.
func TestAnEffectThatDoesNotDecodeParksItsQueue(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change  func(*outbox.Item)
		problem string
	}{
		"another shape":      {func(i *outbox.Item) { i.Payload = []byte(`{"number":"one"}`) }, "decode Mail"},
		"no JSON at all":     {func(i *outbox.Item) { i.Payload = []byte("\x00\xff{") }, "decode Mail"},
		"an unknown type":    {func(i *outbox.Item) { i.Type = "Fax" }, `"Fax"`},
		"a newer program's":  {func(i *outbox.Item) { i.SchemaVersion = 3 }, "schema version 3"},
		"a failing upcaster": {func(i *outbox.Item) { i.Type, i.SchemaVersion = "Legacy", 1 }, "upcast"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			committed := f.write(zrh.Key, func(write *projection.Write) { c.change(&write.Effects[0]) }, 1, 2)
			opts := f.options()
			opts.Types = withLegacy(t, func() (json.RawMessage, error) { return nil, errBroken })
			result := f.drain(opts)
			require.NotNil(t, result.Failed)
			require.True(t, result.Failed.Parked)
			require.Equal(t, event.ClassPermanent, result.Failed.Class)
			require.Equal(t, 1, result.Failed.Attempts, "trying again is of no use")
			require.Contains(t, result.Failed.Error, c.problem)
			require.Empty(t, f.got.deliveries(), "and nothing overtakes it")

			order := outbox.Order{EffectID: result.Failed.ID, Who: "nina", Why: "a typo", At: noon}
			require.NoError(t, outbox.ParkHead(t.Context(), f.store, zrh, order))
			decided, err := f.store.Decisions(t.Context(), zrh)
			require.NoError(t, err)
			require.Len(t, decided, 1)
			require.Equal(t, []byte(committed[0].Payload), []byte(decided[0].Item.Payload))
			require.Contains(t, decided[0].Decision.Error, c.problem)
			require.True(t, f.drain(opts).Empty)
			require.Equal(t, []int{2}, f.got.numbers())
		})
	}
}

type legacy struct{}

// withLegacy declares a type whose upcaster is given.
func withLegacy(t *testing.T, upcast func() (json.RawMessage, error)) *event.Registry {
	t.Helper()
	registry, err := event.NewRegistry("Board effects", event.Type[mail]("Mail", event.SchemaVersion(2),
		event.Upcast(1, func(old json.RawMessage) (json.RawMessage, error) { return old, nil })),
		event.Type[legacy]("Legacy", event.SchemaVersion(2), event.Upcast(1, func(json.RawMessage) (json.RawMessage, error) { return upcast() })))
	require.NoError(t, err)
	return registry
}

// R-38 (iii): of a write above the revision that was read, one may see a part only. It is
// left alone, even where a store shows it.
func TestWhatIsAboveTheReadRevisionIsLeftAlone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue(1)
	f.enqueue(2, 3)
	revision := int64(1)
	store := &olderRevision{Store: f.store, revision: &revision}
	result, err := outbox.Drain(t.Context(), store, zrh, f.got.deliver, f.options())
	require.NoError(t, err)
	require.Equal(t, outbox.Result{Delivered: 1, Revision: 1, Empty: true}, result, "empty up to the revision")
	revision = 2
	result, err = outbox.Drain(t.Context(), store, zrh, f.got.deliver, f.options())
	require.NoError(t, err)
	require.Equal(t, 2, result.Delivered)
	require.Equal(t, []int{1, 2, 3}, f.got.numbers())
}

// olderRevision is a store that reads the revision first and the outbox later.
type olderRevision struct {
	outbox.Store

	revision *int64
}

func (s *olderRevision) Head(ctx context.Context, row outbox.Row, limit int) (outbox.Head, error) {
	head, err := s.Store.Head(ctx, row, limit)
	head.Revision = *s.revision
	return head, err
}

func TestACancelledDrainDoesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue(1)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errBroken)
	result, err := outbox.Drain(ctx, f.store, zrh, f.got.deliver, f.options())
	require.ErrorIs(t, err, errBroken, "the cause")
	require.Equal(t, outbox.Result{}, result)
	require.Zero(t, f.pending()[0].Claim.Epoch)
}

// A delivery that was cancelled is no failure of its effect.
func TestACancelledDeliveryLeavesItsEffectAsItWas(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue(1, 2, 3)
	ctx, cancel := context.WithCancel(t.Context())
	f.got.before = func(ctx context.Context, n int, _ outbox.Delivery) error {
		if n < 2 {
			return nil
		}
		cancel()
		<-ctx.Done() // a deliverer that listens
		return ctx.Err()
	}
	opts := f.options()
	opts.OnFailure = func(_ context.Context, failure *outbox.DeliveryError) { t.Error(failure) }
	result, err := outbox.Drain(ctx, f.store, zrh, f.got.deliver, opts)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 1, result.Delivered)
	require.Nil(t, result.Failed)
	items := f.pending()
	require.Len(t, items, 2)
	for _, item := range items {
		require.True(t, item.Claim.IsZero(), "claims are released")
		require.True(t, item.Deferral.IsZero())
	}
}

// What was delivered is recorded, although nobody waits for it any more.
func TestADeliveryThatSucceedsAfterTheCancelIsRecorded(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue(1, 2)
	ctx, cancel := context.WithCancel(t.Context())
	f.got.before = func(context.Context, int, outbox.Delivery) error {
		cancel()
		return nil
	}
	result, err := outbox.Drain(ctx, f.store, zrh, f.got.deliver, f.options())
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 1, result.Delivered)
	items := f.pending()
	require.Len(t, items, 1)
	require.True(t, items[0].Claim.IsZero())
}

// the last effect of a removed row starts the time of its tombstone.
func TestTheDrainSetsTheExpiryOfATombstone(t *testing.T) {
	t.Parallel()
	expiry := func(f *fixture) *time.Time {
		rows, err := f.store.Load(f.Context(), board, []string{zrh.Key})
		require.NoError(f, err)
		return rows[0].ExpiresAt
	}
	t.Run("when the last effect has left", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.enqueue(1)
		f.remove(2)
		opts := f.options()
		opts.TombstoneTTL, opts.MaxEffects = time.Hour, 1
		require.True(t, f.drain(opts).More)
		require.Nil(t, expiry(f), "one is pending")
		require.True(t, f.drain(opts).Empty)
		require.True(t, expiry(f).Equal(noon.Add(time.Hour)))
		f.clock.pass(time.Minute)
		require.True(t, f.drain(opts).Empty)
		require.True(t, expiry(f).Equal(noon.Add(time.Hour)), "it is set once")
	})
	t.Run("not without a time to live", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.remove(1)
		require.True(t, f.drain(f.options()).Empty)
		require.Nil(t, expiry(f))
	})
	t.Run("not of a live row", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.enqueue(1)
		opts := f.options()
		opts.TombstoneTTL = time.Hour
		store := &intercepted{Store: f.store, expire: func(context.Context) error { return event.Permanent(errBroken) }}
		result, err := outbox.Drain(t.Context(), store, zrh, f.got.deliver, opts)
		require.NoError(t, err, "it does not even ask")
		require.True(t, result.Empty)
	})
	t.Run("not of a row that was written again", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.remove()
		opts := f.options()
		opts.TombstoneTTL = time.Hour
		store := &intercepted{Store: f.store, expire: func(context.Context) error {
			f.remove(7) //nolint:contextcheck // the fixture has the test's own
			return nil
		}}
		result, err := outbox.Drain(t.Context(), store, zrh, f.got.deliver, opts)
		require.NoError(t, err)
		require.Equal(t, outbox.Result{Revision: 1, Empty: true}, result, "empty up to the revision that it read")
		require.Nil(t, expiry(f))
		require.Len(t, f.pending(), 1)
	})
	t.Run("and says so when it cannot", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.remove()
		opts := f.options()
		opts.TombstoneTTL = time.Hour
		store := &intercepted{Store: f.store, expire: func(context.Context) error { return event.Permanent(errBroken) }}
		result, err := outbox.Drain(t.Context(), store, zrh, f.got.deliver, opts)
		require.ErrorIs(t, err, errBroken)
		require.Equal(t, "set a tombstone's expiry", stepOf(t, err))
		require.False(t, result.Empty)
	})
}

func stepOf(t *testing.T, err error) string {
	t.Helper()
	var drainError *outbox.DrainError
	require.ErrorAs(t, err, &drainError)
	require.Equal(t, zrh, drainError.Row)
	return drainError.Step
}

// A passing fault of the store, at any step, is tried again; one that does not pass is told with
// its step.
func TestAFaultOfTheStoreIsToldWithItsStep(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		plant     func(*intercepted, func() error)
		fails     bool // the delivery, so that the step is reached
		step      string
		delivered int // when the fault does not pass
	}{
		"head": {func(s *intercepted, f func() error) { s.head = func(context.Context) error { return f() } }, false, "read the head", 0},
		"claim": {func(s *intercepted, f func() error) {
			s.claim = func(context.Context, []outbox.Ref, outbox.Owner) error { return f() }
		}, false, "claim the head", 0},
		"delete": {func(s *intercepted, f func() error) {
			s.delete = func(context.Context, outbox.Ref) error { return f() }
		}, false, "delete a delivered effect", 1},
		"defer": {func(s *intercepted, f func() error) {
			s.defers = func(context.Context, outbox.Ref) error { return f() }
		}, true, "record a failed delivery", 0},
		"release": {func(s *intercepted, f func() error) {
			s.free = func(context.Context, []outbox.Ref) error { return f() }
		}, true, "release claims", 0},
		"expiry": {func(s *intercepted, f func() error) { s.expire = func(context.Context) error { return f() } }, false, "set a tombstone's expiry", 2},
	} {
		run := func(t *testing.T, faults int, fault error) (*fixture, outbox.Result, error) {
			t.Helper()
			f := newFixture(t)
			f.remove(1, 2)
			if c.fails {
				f.got.before = failing(1, errNobody)
			}
			store, met := &intercepted{Store: f.store}, 0
			c.plant(store, func() error {
				met++
				if met <= faults {
					return fault
				}
				return nil
			})
			opts := f.options()
			opts.Rounds, opts.Attempts, opts.TombstoneTTL = 4, 1, time.Hour
			result, err := outbox.Drain(t.Context(), store, zrh, f.got.deliver, opts)
			return f, result, err
		}
		t.Run(name+" passes", func(t *testing.T) {
			t.Parallel()
			f, result, err := run(t, 3, errBroken)
			require.NoError(t, err)
			require.Equal(t, c.fails, result.Failed != nil)
			require.Equal(t, !c.fails, result.Empty)
			require.Equal(t, []time.Duration{10 * time.Millisecond, 20 * time.Millisecond, 40 * time.Millisecond}, f.clock.waited())
		})
		t.Run(name+" does not pass", func(t *testing.T) {
			t.Parallel()
			f, result, err := run(t, 100, errBroken)
			require.ErrorIs(t, err, errBroken)
			require.Equal(t, c.step, stepOf(t, err))
			require.Equal(t, c.delivered, result.Delivered)
			require.Len(t, f.clock.waited(), 3, "four rounds")
		})
		t.Run(name+" is permanent", func(t *testing.T) {
			t.Parallel()
			f, _, err := run(t, 1, event.Permanent(errBroken))
			require.ErrorIs(t, err, errBroken)
			require.Equal(t, c.step, stepOf(t, err))
			require.Equal(t, event.ClassPermanent, event.Classify(err))
			require.Empty(t, f.clock.waited())
		})
	}
}

// A fault of the release does not hide what ended the drain.
func TestBothFaultsAreTold(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue(1)
	errRelease := event.Permanent(errors.New("no release"))
	store := &intercepted{
		Store:  f.store,
		delete: func(context.Context, outbox.Ref) error { return event.Permanent(errBroken) },
		free:   func(context.Context, []outbox.Ref) error { return errRelease },
	}
	_, err := outbox.Drain(t.Context(), store, zrh, f.got.deliver, f.options())
	require.ErrorIs(t, err, errBroken)
	require.ErrorIs(t, err, errRelease)
}
