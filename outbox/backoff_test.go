package outbox_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/rowfold/rowfold/outbox"
)

func TestABackoffDoublesUpToItsMaximum(t *testing.T) {
	t.Parallel()
	policy := outbox.Backoff{Min: 100 * time.Millisecond, Max: time.Second}
	for n, want := range map[int]int64{1: 100, 2: 200, 3: 400, 4: 800, 5: 1000, 6: 1000, 10_000: 1000} {
		_, _, bound := outbox.BackoffBounds(policy, n, func() float64 { return 0 })
		require.Equal(t, want, time.Duration(bound).Milliseconds(), "wait %d", n)
	}
}

func TestJitterStaysWithinItsBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		policy := outbox.Backoff{Min: time.Duration(rapid.Int64Range(1, int64(24*time.Hour)).Draw(t, "min"))}
		policy.Max = policy.Min + time.Duration(rapid.Int64Range(0, int64(24*time.Hour)).Draw(t, "span"))
		n := rapid.IntRange(1, 200).Draw(t, "n")
		random := rapid.Float64Range(0, 0.999999).Draw(t, "random")
		full, half, bound := outbox.BackoffBounds(policy, n, func() float64 { return random })
		require.LessOrEqual(t, bound, int64(policy.Max), "no overflow either")
		require.GreaterOrEqual(t, bound, int64(policy.Min))
		require.GreaterOrEqual(t, full, int64(0))
		require.LessOrEqual(t, full, bound)
		require.GreaterOrEqual(t, half, bound/2)
		require.LessOrEqual(t, half, bound)
		_, _, next := outbox.BackoffBounds(policy, n+1, func() float64 { return random })
		require.GreaterOrEqual(t, next, bound, "waits only grow")
	})
}
