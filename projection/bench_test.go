package projection_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/projection"
)

// BenchmarkFold measures the pure fold: no store, events decoded before. Each row gets
// its events from a few instances, and an effect from every second event.
func BenchmarkFold(b *testing.B) {
	for _, size := range []struct{ rows, events int }{{100, 1}, {100, 10}, {1, 1000}} {
		b.Run(fmt.Sprintf("rows=%d/events=%d", size.rows, size.events), func(b *testing.B) {
			p := crates(b)
			batches := make([]projection.RowBatch, size.rows)
			for i := range batches {
				batches[i] = benchmarkBatch(b, p, fmt.Sprintf("c%d", i), size.events)
			}
			options := projection.FoldOptions{Now: time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)}
			for _, fold := range p.Fold(b.Context(), batches, options) {
				require.NoError(b, fold.Outcome.Err)
				require.NotEmpty(b, fold.Writes)
				for _, in := range fold.Outcome.Instances {
					require.NoError(b, in.Err)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				p.Fold(b.Context(), batches, options)
			}
			b.ReportMetric(float64(b.N*size.rows*size.events)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// benchmarkBatch returns a row's batch, in turn from scales and orders, in instances of
// five events.
func benchmarkBatch(b *testing.B, p *projection.Projection[string, crate], key string, events int) projection.RowBatch {
	b.Helper()
	batch := projection.RowBatch{Row: projection.Stored{Key: key, Status: projection.RowAbsent}}
	for i := range events {
		id, version := i/10, int64(i/2%5+1)
		source, env := "scale", envelope(b, "Scale", event.ID(fmt.Sprintf("s%d", id)), version, weighed{key, 1})
		if i%2 == 1 {
			source, env = "order", envelope(b, "Order", event.ID(fmt.Sprintf("o%d", id)), version, loaded{key, 2})
		}
		e, mine, err := p.RowEvent(source, key, env)
		require.NoError(b, err)
		require.True(b, mine)
		batch.Events = append(batch.Events, e)
	}
	return batch
}
