package outbox_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
)

func TestHandleTakesEffectsOfItsType(t *testing.T) {
	t.Parallel()
	var got []string
	deliver := outbox.Handle(func(_ context.Context, effect mail, delivery outbox.Delivery) error {
		got = append(got, effect.To+" "+delivery.ID)
		return errNobody
	})
	require.ErrorIs(t, deliver(t.Context(), outbox.Delivery{Item: outbox.Item{ID: "a"}, Effect: mail{To: "ann"}}), errNobody)
	require.Equal(t, []string{"ann a"}, got)

	err := deliver(t.Context(), outbox.Delivery{Item: outbox.Item{ID: "b", Type: "Call"}, Effect: call{}})
	var unexpected *outbox.UnexpectedEffect
	require.ErrorAs(t, err, &unexpected)
	require.Equal(t, &outbox.UnexpectedEffect{ID: "b", Type: "Call", Got: "outbox_test.call"}, unexpected)
	require.Equal(t, event.ClassPermanent, event.Classify(err))
	require.Len(t, got, 1)
}

func TestByTypeChoosesADeliverer(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.write(zrh.Key, func(write *projection.Write) {
		write.Effects[1].Type, write.Effects[1].SchemaVersion, write.Effects[1].Payload = "Call", 1, []byte(`{"phone":"117"}`)
	}, 1, 2, 3)
	var phones []string
	deliverers := map[string]outbox.Deliverer{"Mail": f.got.deliver}
	result, err := outbox.Drain(t.Context(), f.store, zrh, outbox.ByType(deliverers), f.options())
	require.NoError(t, err)
	require.Equal(t, 1, result.Delivered)
	require.True(t, result.Failed.Parked, "no deliverer will appear by waiting")
	require.Contains(t, result.Failed.Error, `no deliverer for the type "Call"`)

	deliverers["Call"] = outbox.Handle(func(_ context.Context, effect call, _ outbox.Delivery) error {
		phones = append(phones, effect.Phone)
		return nil
	})
	again, err := outbox.Retry(t.Context(), f.store, zrh)
	require.NoError(t, err)
	require.True(t, again)
	result, err = outbox.Drain(t.Context(), f.store, zrh, outbox.ByType(deliverers), f.options())
	require.NoError(t, err)
	require.True(t, result.Empty)
	require.Equal(t, []int{1, 3}, f.got.numbers())
	require.Equal(t, []string{"117"}, phones)
}

func TestErrorsSayWhatCanBeDone(t *testing.T) {
	t.Parallel()
	cause := event.WithClass(errors.New("too many requests"), event.ClassThrottled)
	for _, c := range []struct {
		err   error
		class event.Class
		parts []string
		cause error
	}{
		{&outbox.UnexpectedEffect{ID: "e", Type: "Call", Got: "call"}, event.ClassPermanent, []string{"effect e", `"Call"`}, nil},
		{&outbox.DeliveryError{Row: zrh, Sequence: "7", ID: "e", Err: cause}, event.ClassThrottled, []string{"Board/ZRH", "effect e", "sequence 7", "too many"}, cause},
		{&outbox.DeliveryPanic{ID: "e", Type: "Mail", Value: cause}, event.ClassPermanent, []string{"effect e", "Mail", "panicked", "too many"}, cause},
		{&outbox.DeliveryPanic{ID: "e", Type: "Mail", Value: 42}, event.ClassPermanent, []string{"panicked: 42"}, nil},
		{&outbox.DrainError{Row: zrh, Step: "read the head", Err: cause}, event.ClassThrottled, []string{"Board/ZRH", "read the head", "too many"}, cause},
		{&outbox.ClaimsLost{Row: zrh, Rounds: 10}, event.ClassRetry, []string{"Board/ZRH", "10 rounds"}, nil},
		{&outbox.HeadMoved{Row: zrh, Want: "a", Head: "b"}, event.ClassStale, []string{"effect a", "the head is b", "Board/ZRH"}, nil},
		{&outbox.HeadMoved{Row: zrh, Want: "a"}, event.ClassStale, []string{"nothing is pending"}, nil},
		{&outbox.IncompleteOrder{Fields: []string{"Who", "Why"}}, event.ClassPermanent, []string{"Who, Why"}, nil},
	} {
		require.Equal(t, c.class, event.Classify(c.err), "%T", c.err)
		for _, part := range c.parts {
			require.Contains(t, c.err.Error(), part, "%T", c.err)
		}
		require.Equal(t, c.cause, errors.Unwrap(c.err), "%T", c.err)
	}
}
