package outbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
)

// a failing delivery stays at the head; it is tried in place, with growing waits.
func TestAHeadIsTriedInPlace(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue(1, 2)
	f.got.before = failing(2, errNobody)
	var failures []string
	opts := f.options()
	opts.OnFailure = func(_ context.Context, failure *outbox.DeliveryError) {
		require.ErrorIs(t, failure, errNobody)
		failures = append(failures, failure.ID)
	}
	require.Equal(t, outbox.Result{Delivered: 2, Revision: 1, Empty: true}, f.drain(opts))
	require.Equal(t, []int{1, 2}, f.got.numbers())
	require.Equal(t, []time.Duration{100 * time.Millisecond, 200 * time.Millisecond}, f.clock.waited())
	require.Equal(t, []string{"Board|ZRH|flight|LX1|1|0", "Board|ZRH|flight|LX1|1|0"}, failures)
}

// R-38, T-11: a head that keeps failing is put off, and everything behind it waits.
func TestAFailedHeadIsPutOff(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue(1, 2, 3)
	f.got.before = failing(8, errNobody)
	opts := f.options()
	opts.Retry, opts.Deferral = outbox.Backoff{Min: time.Millisecond}, outbox.Backoff{Min: time.Second, Max: time.Minute}
	for drain, delay := range []time.Duration{time.Second, 2 * time.Second} {
		result := f.drain(opts)
		require.Equal(t, outbox.Result{Revision: 1, Failed: &outbox.Failure{
			Sequence: outbox.SequenceOf(1, 0), ID: "Board|ZRH|flight|LX1|1|0", Type: "Mail", Stream: "Flight", StreamID: "LX1", Version: 1,
			Class: event.ClassRetry, Error: "nobody answers", Attempts: (drain + 1) * 3, NextDelay: delay,
		}}, result)
		items := f.pending()
		require.Len(t, items, 3)
		require.Equal(t, (drain+1)*3, items[0].Deferral.Attempts)
		require.True(t, items[0].Deferral.Until.Equal(f.clock.Now().Add(delay)))
		for _, item := range items {
			require.True(t, item.Claim.IsZero(), "a drain that ends leaves no claim")
		}
		require.True(t, items[1].Deferral.IsZero())

		f.clock.pass(delay - time.Millisecond)
		early := f.drain(opts)
		require.Equal(t, time.Millisecond, early.Failed.NextDelay)
		require.Equal(t, (drain+1)*3, early.Failed.Attempts, "it was not tried")
		require.Equal(t, items[0].Claim.Epoch, f.pending()[0].Claim.Epoch, "and not claimed")
		f.clock.pass(time.Millisecond)
	}
	require.Equal(t, outbox.Result{Delivered: 3, Revision: 1, Empty: true}, f.drain(opts), "two of the third drain's tries fail")
	require.Equal(t, []int{1, 2, 3}, f.got.numbers())
}

// T-11: what the class of an error means for its head.
func TestTheClassOfAnErrorDecides(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err    error
		tries  int
		waits  []time.Duration
		parked bool
	}{
		"retry":           {errNobody, 3, []time.Duration{100 * time.Millisecond, 200 * time.Millisecond}, false},
		"stale":           {event.WithClass(errNobody, event.ClassStale), 3, []time.Duration{100 * time.Millisecond, 200 * time.Millisecond}, false},
		"unknown outcome": {event.WithClass(errNobody, event.ClassUnknownOutcome), 3, []time.Duration{100 * time.Millisecond, 200 * time.Millisecond}, false},
		"throttled":       {event.WithClass(errNobody, event.ClassThrottled), 3, []time.Duration{2 * time.Second, 2 * time.Second}, false},
		"fenced":          {event.WithClass(errNobody, event.ClassFenced), 1, nil, false},
		"permanent":       {event.Permanent(errNobody), 1, nil, true},
		"wrapped":         {fmt.Errorf("send: %w", event.Permanent(errNobody)), 1, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.enqueue(1, 2)
			f.got.before = failing(100, c.err)
			result := f.drain(f.options())
			require.NotNil(t, result.Failed)
			require.Equal(t, c.tries, result.Failed.Attempts)
			require.Equal(t, c.parked, result.Failed.Parked)
			require.Equal(t, event.Classify(c.err), result.Failed.Class)
			require.Equal(t, c.parked, result.Failed.NextDelay == 0)
			require.Equal(t, c.waits, f.clock.waited())
			require.Empty(t, f.got.deliveries(), "nothing overtakes the head")
			f.clock.pass(1000 * time.Hour)
			again := f.drain(f.options())
			require.Equal(t, c.parked, again.Failed.Attempts == c.tries, "time does not end a park")
		})
	}
}

// T-11: the end of the policy parks the queue, over all drains.
func TestTooManyFailuresParkTheQueue(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue(1, 2)
	f.got.before = failing(100, errNobody)
	opts := f.options()
	opts.ParkAfter = 5
	result := f.drain(opts)
	require.Equal(t, 3, result.Failed.Attempts)
	require.False(t, result.Failed.Parked)
	f.clock.pass(time.Hour)
	result = f.drain(opts)
	require.Equal(t, 5, result.Failed.Attempts, "two tries were left")
	require.True(t, result.Failed.Parked)
	require.Equal(t, event.ClassRetry, result.Failed.Class)

	cleared, err := outbox.Retry(t.Context(), f.store, zrh)
	require.NoError(t, err)
	require.True(t, cleared)
	result = f.drain(opts)
	require.Equal(t, 3, result.Failed.Attempts, "an operator's retry starts to count anew")

	// A policy that became stricter still tries once: a try is what the drain is for.
	f.clock.pass(time.Hour)
	opts.ParkAfter = 2
	result = f.drain(opts)
	require.Equal(t, 4, result.Failed.Attempts)
	require.True(t, result.Failed.Parked)
}

// A delivery has its own deadline, which is no failure of the drain.
func TestADeliveryHasADeadline(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue(1)
	f.got.before = func(ctx context.Context, _ int, _ outbox.Delivery) error {
		deadline, _ := ctx.Deadline()
		require.LessOrEqual(t, time.Until(deadline), time.Millisecond)
		<-ctx.Done()
		return ctx.Err()
	}
	opts := f.options()
	opts.Attempts, opts.DeliveryTimeout = 2, time.Millisecond
	result := f.drain(opts)
	require.Equal(t, 2, result.Failed.Attempts)
	require.Equal(t, event.ClassRetry, result.Failed.Class)
	require.Equal(t, context.DeadlineExceeded.Error(), result.Failed.Error)
}

// A panic is an error of the effect that it happened with.
func TestAPanicParksTheQueue(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue(1)
	f.got.before = func(context.Context, int, outbox.Delivery) error { panic(errBroken) }
	var failure *outbox.DeliveryError
	opts := f.options()
	opts.OnFailure = func(_ context.Context, err *outbox.DeliveryError) { failure = err }
	result := f.drain(opts)
	require.True(t, result.Failed.Parked)
	require.Equal(t, 1, result.Failed.Attempts)
	require.Contains(t, result.Failed.Error, "panicked: broken")
	var panicked *outbox.DeliveryPanic
	require.ErrorAs(t, failure, &panicked)
	require.ErrorIs(t, failure, errBroken)
	require.Equal(t, "Mail", panicked.Type)
	require.Contains(t, string(panicked.Stack), "attempt_test.go")
}

func TestAPanicOfAnUpcasterParksTheQueue(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.write(zrh.Key, func(write *projection.Write) { write.Effects[0].Type, write.Effects[0].SchemaVersion = "Legacy", 1 }, 1)
	opts := f.options()
	opts.Types = withLegacy(t, func() (json.RawMessage, error) { panic("no such field") })
	result := f.drain(opts)
	require.True(t, result.Failed.Parked)
	require.Contains(t, result.Failed.Error, "no such field")
	require.Empty(t, f.got.deliveries())
}

// What is kept of an error is bounded, and stays text.
func TestTheTextOfAnErrorIsBounded(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"exactly": strings.Repeat("x", outbox.MaxErrorBytes), "one more": strings.Repeat("x", outbox.MaxErrorBytes+1),
		"long characters": strings.Repeat("ü🛫", outbox.MaxErrorBytes), "no text at all": strings.Repeat("\x80", 2*outbox.MaxErrorBytes),
	} {
		f := newFixture(t)
		f.enqueue(1)
		f.got.before = failing(1, event.Permanent(fmt.Errorf("%s", text)))
		failed := f.drain(f.options()).Failed
		require.LessOrEqual(t, len(failed.Error), outbox.MaxErrorBytes, name)
		if len(text) <= outbox.MaxErrorBytes {
			require.Equal(t, text, failed.Error, name)
			continue
		}
		require.True(t, utf8.ValidString(failed.Error), name)
		require.True(t, strings.HasSuffix(failed.Error, "…"), name)
		require.True(t, strings.HasPrefix(text, strings.TrimSuffix(failed.Error, "…")), name)
	}
}
