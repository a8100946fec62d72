package projection_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/rowfold/rowfold/projection"
)

// the set of known versions agrees with a plain one.
func TestVersionsProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		plain := map[int64]bool{}
		var set projection.Versions
		for range rapid.IntRange(0, 12).Draw(t, "spans") {
			first := rapid.Int64Range(1, 30).Draw(t, "first")
			last := first + rapid.Int64Range(-1, 5).Draw(t, "length")
			set = set.With(projection.Span{First: first, Last: last})
			for v := first; v <= last; v++ {
				plain[v] = true
			}
		}
		for i := 1; i < len(set); i++ {
			require.Greater(t, set[i].First, set[i-1].Last+1, "spans are sorted and do not touch")
		}
		after, before := rapid.Int64Range(0, 20).Draw(t, "after"), rapid.Int64Range(0, 40).Draw(t, "before")
		missing := map[int64]bool{}
		for _, span := range set.Missing(after, before) {
			for v := span.First; v <= span.Last; v++ {
				missing[v] = true
			}
		}
		for v := range int64(45) {
			require.Equal(t, plain[v], set.Has(v))
			require.Equal(t, v > after && v < before && !plain[v], missing[v], "version %d", v)
		}
	})
}
