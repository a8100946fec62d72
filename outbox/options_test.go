package outbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
)

func TestOptionsTellAllFaultsAtOnce(t *testing.T) {
	t.Parallel()
	registry := types(t)
	process := outbox.ProcessOwner(noon, time.Second)
	workflow := outbox.Owner{
		Kind: outbox.OwnerTemporal, Nonce: "n", Namespace: "default", WorkflowID: "w", RunID: "r", ActivityID: "1", StartedAt: noon,
	}
	require.NoError(t, outbox.Options{Types: registry}.Validate(), "only Types is required")
	require.NoError(t, outbox.Options{Types: registry, Owner: process}.Validate())
	require.NoError(t, outbox.Options{Types: registry, Owner: workflow}.Validate())

	without := func(change func(*outbox.Owner)) outbox.Owner {
		owner := workflow
		change(&owner)
		return owner
	}
	for name, c := range map[string]struct {
		options outbox.Options
		faults  []string // parts of them
	}{
		"nothing":      {outbox.Options{}, []string{"Types"}},
		"no nonce":     {outbox.Options{Types: registry, Owner: outbox.Owner{Kind: outbox.OwnerProcess, Until: noon}}, []string{"Owner.Nonce"}},
		"no end":       {outbox.Options{Types: registry, Owner: outbox.Owner{Kind: outbox.OwnerProcess, Nonce: "n"}}, []string{"Owner.Until"}},
		"no kind":      {outbox.Options{Types: registry, Owner: outbox.Owner{Nonce: "n"}}, []string{"Owner.Kind"}},
		"no namespace": {outbox.Options{Types: registry, Owner: without(func(o *outbox.Owner) { o.Namespace = "" })}, []string{"Namespace"}},
		"no workflow":  {outbox.Options{Types: registry, Owner: without(func(o *outbox.Owner) { o.WorkflowID = "" })}, []string{"WorkflowID"}},
		"no run":       {outbox.Options{Types: registry, Owner: without(func(o *outbox.Owner) { o.RunID = "" })}, []string{"RunID"}},
		"no activity":  {outbox.Options{Types: registry, Owner: without(func(o *outbox.Owner) { o.ActivityID = "" })}, []string{"ActivityID"}},
		"no start":     {outbox.Options{Types: registry, Owner: without(func(o *outbox.Owner) { o.StartedAt = time.Time{} })}, []string{"StartedAt"}},
		"all negative": {outbox.Options{
			ClaimFor: -1, ClaimAhead: -1, MaxEffects: -1, DeliveryTimeout: -1, Attempts: -1,
			Retry: outbox.Backoff{Min: -1, Max: -1}, Deferral: outbox.Backoff{Min: -1, Max: -1}, Contention: outbox.Backoff{Min: -1, Max: -1},
			ParkAfter: -1, Rounds: -1, TombstoneTTL: -1, Parallelism: -1,
		}, []string{
			"Types", "ClaimFor", "ClaimAhead", "MaxEffects", "DeliveryTimeout", "Attempts", "Retry.Min", "Retry.Max",
			"Deferral.Min", "Deferral.Max", "ParkAfter", "Rounds", "Contention.Min", "Contention.Max", "TombstoneTTL", "Parallelism",
		}},
	} {
		faults := faultsOf(t, c.options.Validate())
		require.Len(t, faults, len(c.faults), name)
		for i, part := range c.faults {
			require.Contains(t, faults[i], part, name)
		}
	}
}

func TestBadArgumentsAreRefusedBeforeAnythingIsDone(t *testing.T) {
	t.Parallel()
	_, err := outbox.Drain(t.Context(), nil, outbox.Row{}, nil, outbox.Options{})
	require.Len(t, faultsOf(t, err), 4, "the types, the store, the deliverer and the row")
	_, err = outbox.DrainPending(t.Context(), nil, "", nil, outbox.Options{})
	require.Len(t, faultsOf(t, err), 4)
	f := newFixture(t)
	_, err = outbox.Drain(t.Context(), f.store, outbox.Row{Projection: "Board"}, f.got.deliver, f.options())
	require.Equal(t, []string{"row needs a projection and a key"}, faultsOf(t, err))
}

func faultsOf(t *testing.T, err error) []string {
	t.Helper()
	var definition *event.DefinitionError
	require.ErrorAs(t, err, &definition)
	require.Equal(t, event.ClassPermanent, event.Classify(err))
	return definition.Faults
}

// The default wait ends with its context.
func TestADrainDoesNotWaitOnForACancelledCaller(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue(1)
	ctx, cancel := context.WithCancelCause(t.Context())
	opts := f.options()
	opts.Wait, opts.Retry = nil, outbox.Backoff{Min: 24 * time.Hour}
	opts.OnFailure = func(context.Context, *outbox.DeliveryError) { cancel(errBroken) } // the wait is next
	f.got.before = failing(1, errNobody)
	result, err := outbox.Drain(ctx, f.store, zrh, f.got.deliver, opts)
	require.ErrorIs(t, err, errBroken)
	require.Zero(t, result.Delivered)
	require.True(t, f.pending()[0].Claim.IsZero(), "claims are released")
	require.True(t, f.pending()[0].Deferral.IsZero(), "a cancelled drain says nothing about the effect")
}

// With the default wait time passes by itself.
func TestADrainTriesAgainByTheRealClock(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue(1)
	f.got.before = failing(2, errNobody)
	result := f.drain(outbox.Options{Types: types(t), Retry: outbox.Backoff{Min: time.Microsecond}})
	require.Equal(t, outbox.Result{Delivered: 1, Revision: 1, Empty: true}, result)
	require.Equal(t, []int{1}, f.got.numbers())
}
