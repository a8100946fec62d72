package testsuite

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
)

// DrainFaults proves that a drain which meets a fault, at whatever call, loses nothing,
// keeps the order, and repeats at most one delivery for each crash.
func DrainFaults(t *testing.T, h Harness) {
	t.Helper()
	runCases(t, h, []testCase{
		{"AFaultAtAnyCallOfADrain", func(t *testing.T, b Backend) { faultInDrain(t, b, liveRow) }},
		{"AFaultAtAnyCallOfADrainOfARemovedRow", func(t *testing.T, b Backend) { faultInDrain(t, b, removedRow) }},
		{"AFaultAtAnyCallOfADrainThatFails", func(t *testing.T, b Backend) { faultInDrain(t, b, failedDelivery) }},
		{"DrainersThatCrashAndCrashAgain", crashAgain},
		{"EffectsThatBecomeVisibleOneByOneKeepTheOrder", oneByOne},
	})
}

// drainScene is a row to be drained, and what its first drain is like.
type drainScene struct {
	enqueue func(t *testing.T, b Backend, model *projection.Model, key string)
	calls   []string // the first drain is to make these
	// refused is the number of a delivery that fails the first time; 0 = none does.
	refused int
	// expires says that the row is a tombstone, which expires once it is drained.
	expires bool
}

//nolint:gochecknoglobals // a table
var (
	liveRow = drainScene{
		enqueue: func(t *testing.T, b Backend, model *projection.Model, key string) {
			enqueue(t, b, model, key, 1, 2)
			enqueue(t, b, model, key, 3)
		},
		calls: []string{"Head", "Claim", "Delete"},
	}
	removedRow = drainScene{
		enqueue: func(t *testing.T, b Backend, model *projection.Model, key string) {
			enqueue(t, b, model, key, 1)
			remove(t, b, model, key, 2, 3)
		},
		calls:   []string{"Head", "Claim", "Delete", "ExpireTombstone"},
		expires: true,
	}
	failedDelivery = drainScene{
		enqueue: func(t *testing.T, b Backend, model *projection.Model, key string) {
			enqueue(t, b, model, key, 1, 2, 3)
		},
		calls:   []string{"Head", "Claim", "Delete", "Defer", "Release"},
		refused: 2,
	}
)

// R-38, T-7: every kind of fault at every call of a drain, then a second drain by another
// process, after the claim of the first has ended.
func faultInDrain(t *testing.T, b Backend, scene drainScene) {
	model := prepare(t, b, boardModel())
	calls, repeats := scene.drain(t, b, model, "none", Plan{})
	require.Zero(t, repeats)
	for _, name := range scene.calls {
		require.Contains(t, calls, name, "a drain is to have it")
	}
	repeated := 0
	for at, name := range calls {
		for _, fault := range Faults() {
			key := fmt.Sprintf("%s at %d %s", fault, at+1, name)
			_, repeats = scene.drain(t, b, model, key, Plan{At: map[int]Fault{at + 1: fault}})
			repeated += repeats
		}
	}
	require.Positive(t, repeated, "of all crashes, one is between a delivery and its delete")
}

// drain drains a fresh row under a plan of at most one fault and then without one. It
// returns the calls of the first drain, and how many deliveries were repeats.
func (s drainScene) drain(t *testing.T, b Backend, model *projection.Model, key string, plan Plan) (calls []string, repeats int) {
	t.Helper()
	s.enqueue(t, b, model, key)
	want := sequences(head(t, b, key, 10).Items)
	got, faulty, refused := &deliveries{}, NewFaulty(b.Store, plan), false
	got.fail = func(n int, _ outbox.Item) error {
		if n == s.refused && !refused {
			refused = true
			return errors.New("nobody answers")
		}
		return nil
	}
	result, err := outbox.Drain(t.Context(), faulty, boardRow(key), got.deliver, drainOptions(t, noon))
	if crashes := requireCrash(t, key, plan, err); crashes == 0 {
		require.NoError(t, err, "%s: a drain bears what passes", key)
		require.Equal(t, s.refused == 0, result.Empty, "%s: %+v", key, result)
		require.Equal(t, s.refused > 0, result.Failed != nil, "%s: %+v", key, result)
		_, repeats = got.first()
		require.Zero(t, repeats, "%s: nobody has crashed", key)
	}
	refused = true // what it refuses, it refuses the first drain
	result, err = outbox.Drain(t.Context(), b.Store, boardRow(key), got.deliver, drainOptions(t, noon.Add(time.Hour)))
	require.NoError(t, err, key)
	require.True(t, result.Empty, "%s: %+v", key, result)
	delivered, repeats := got.first()
	require.Equal(t, want, delivered, "%s: first deliveries are in order, and nothing is lost", key)
	require.LessOrEqual(t, repeats, 1, key)
	require.Empty(t, head(t, b, key, 10).Items, key)
	require.Equal(t, s.expires, load(t, b, model, key).ExpiresAt != nil, key)
	return faulty.Calls(), repeats
}

// requireCrash returns how many crashes are planned, and requires that the error tells one.
func requireCrash(t *testing.T, key string, plan Plan, err error) (crashes int) {
	t.Helper()
	for at, fault := range plan.At {
		if fault != FaultCrashBefore && fault != FaultCrashAfter {
			continue
		}
		crashes++
		var crashed *Crashed
		require.ErrorAs(t, err, &crashed, key)
		require.Equal(t, at, crashed.Call, key)
	}
	return crashes
}

// drainers that all crash after the same number of calls still get on, as long as one
// delivery fits in, in order, with one repeat for each crash at most.
func crashAgain(t *testing.T, b Backend) {
	const effects = 6
	model := prepare(t, b, boardModel())
	for _, fault := range []Fault{FaultCrashBefore, FaultCrashAfter} {
		for calls := 4; calls <= 7; calls++ { // Head, Claim, Delete, and where it ends
			key := fmt.Sprintf("%s at %d", fault, calls)
			enqueue(t, b, model, key, 1, 2, 3)
			enqueue(t, b, model, key, 4, 5, 6)
			want := sequences(head(t, b, key, effects).Items)
			got, crashes := &deliveries{}, 0
			for drain, empty := 0, false; !empty; drain++ {
				require.Less(t, drain, 2*effects, "%s: drains get on", key)
				faulty := NewFaulty(b.Store, Plan{At: map[int]Fault{calls: fault}})
				now := noon.Add(time.Duration(drain) * time.Hour) // the claim before has ended
				result, err := outbox.Drain(t.Context(), faulty, boardRow(key), got.deliver, drainOptions(t, now))
				empty = result.Empty
				if err == nil {
					continue
				}
				var crashed *Crashed
				require.ErrorAs(t, err, &crashed, key)
				crashes++
			}
			delivered, repeats := got.first()
			require.Equal(t, want, delivered, key)
			require.Positive(t, crashes, key)
			require.LessOrEqual(t, repeats, crashes, key)
		}
	}
}

// R-38 (iii): a drain that sees a part of a later write leaves it alone.
func oneByOne(t *testing.T, b Backend) {
	const writes = 4
	model := prepare(t, b, boardModel())
	enqueue(t, b, model, "ZRH", 1, 2)
	written := 0
	store := NewFaulty(b.Store, Plan{OneByOne: func(context.Context, outbox.Row) {
		if written < writes {
			written++
			enqueue(t, b, model, "ZRH", 1, 2, 3)
		}
	}})
	got := &deliveries{}
	options := drainOptions(t, noon)
	options.ClaimAhead = 10 // so that what is visible of the later write is within reach
	for drain, left := 0, true; left; drain++ {
		require.LessOrEqual(t, drain, writes+1, "drains get on")
		result, err := outbox.Drain(t.Context(), store, boardRow("ZRH"), got.deliver, options)
		require.NoError(t, err)
		left = !result.Empty || written < writes
	}
	delivered, repeats := got.first()
	require.Zero(t, repeats)
	require.Len(t, delivered, 2+writes*3)
	require.IsIncreasing(t, delivered)
	require.Empty(t, head(t, b, "ZRH", 10).Items)
}
