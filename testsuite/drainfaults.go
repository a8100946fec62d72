package testsuite

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
)

// DrainFaults proves that a drain which meets a fault, at whatever call, loses nothing,
// keeps the order, and repeats at most one delivery.
func DrainFaults(t *testing.T, h Harness) {
	t.Helper()
	runCases(t, h, []testCase{
		{"AFaultAtAnyCallLosesNothing", faultAtAnyCall},
		{"EffectsThatBecomeVisibleOneByOneKeepTheOrder", oneByOne},
	})
}

// R-38, T-7: every kind of fault at every call of a drain, then a second drain, by another
// process, after the first one's claim has ended.
func faultAtAnyCall(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	calls := len(faultyDrain(t, b, model, "none", Plan{}))
	require.Greater(t, calls, 6)
	for call := 1; call <= calls; call++ {
		for _, fault := range Faults() {
			faultyDrain(t, b, model, fmt.Sprintf("%s at %d", fault, call), Plan{At: map[int]Fault{call: fault}})
		}
	}
}

// faultyDrain drains a fresh row under a plan and then without one, and returns the calls of
// the first drain.
func faultyDrain(t *testing.T, b Backend, model *projection.Model, key string, plan Plan) []string {
	t.Helper()
	enqueue(t, b, model, key, 1, 2)
	enqueue(t, b, model, key, 3)
	want := sequences(head(t, b, key, 10).Items)
	got, faulty := &deliveries{}, NewFaulty(b.Store, plan)
	_, err := outbox.Drain(t.Context(), faulty, boardRow(key), got.deliver, drainOptions(t, noon))
	if len(plan.At) == 0 {
		require.NoError(t, err, key)
	}
	result, err := outbox.Drain(t.Context(), b.Store, boardRow(key), got.deliver, drainOptions(t, noon.Add(time.Hour)))
	require.NoError(t, err, key)
	require.True(t, result.Empty, "%s: %+v", key, result)
	delivered, repeats := got.first()
	require.Equal(t, want, delivered, key)
	require.LessOrEqual(t, repeats, 1, key)
	return faulty.Calls()
}

// R-38 (iii): a drain that sees a part of a later write leaves it alone.
func oneByOne(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	enqueue(t, b, model, "ZRH", 1, 2)
	writes := 0
	store := NewFaulty(b.Store, Plan{OneByOne: func(context.Context, outbox.Row) {
		writes++
		if writes <= 4 {
			enqueue(t, b, model, "ZRH", writes*10, writes*10+1, writes*10+2)
		}
	}})
	got := &deliveries{}
	result, err := outbox.Drain(t.Context(), store, boardRow("ZRH"), got.deliver, drainOptions(t, noon))
	require.NoError(t, err)
	for !result.Empty || writes <= 4 {
		result, err = outbox.Drain(t.Context(), store, boardRow("ZRH"), got.deliver, drainOptions(t, noon))
		require.NoError(t, err)
	}
	delivered, repeats := got.first()
	require.Zero(t, repeats)
	require.Len(t, delivered, 2+4*3)
	require.IsIncreasing(t, delivered)
}
