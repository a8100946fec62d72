package projection_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
	"github.com/rowfold/rowfold/store/sqlite"
)

// commutative is a history whose result does not depend on the order of its instances.
func (l *lab) commutative(orders, rows int) []fact {
	l.tb.Helper()
	var facts []fact
	for i := range orders {
		for version := int64(1); version <= 6; version++ {
			key := fmt.Sprintf("c%d", (int64(i)+version)%int64(rows))
			order, scale := loaded{key, version % 3}, weighed{key, float64(version % 4)}
			facts = append(facts,
				fact{"order", envelope(l.tb, "Order", event.ID(fmt.Sprintf("o%d", i)), version, order), key, order},
				fact{"scale", envelope(l.tb, "Scale", event.ID(fmt.Sprintf("s%d", i)), version, scale), key, scale})
		}
	}
	for _, f := range facts {
		recordEnvelope(l.tb, l.store, f.env)
	}
	return facts
}

// requireReference compares rows with the reference, without what depends on who was first.
func (l *lab) requireReference(facts []fact, rows int) {
	l.tb.Helper()
	for i := range rows {
		key := fmt.Sprintf("c%d", i)
		want := &reference{row: crate{Place: "unknown"}}
		want.apply(key, facts, facts)
		got := l.row(key)
		require.ElementsMatch(l.tb, want.row.History, got.History)
		require.Equal(l.tb, want.row.Checkpoints, got.Checkpoints)
		require.Equal(l.tb, want.row.Count, got.Count)
		require.InDelta(l.tb, want.row.Grams, got.Grams, 0)
		require.ElementsMatch(l.tb, want.effects, itemIDs(l.pending(key)), "each effect once")
	}
}

// meeting holds every processor's first commit until all of them have read the same rows.
func meeting(of int) func(int, []projection.Write) []error {
	var all sync.WaitGroup
	all.Add(of)
	return func(call int, _ []projection.Write) []error {
		if call == 1 {
			all.Done()
			all.Wait()
		}
		return nil
	}
}

// processors that race on the same rows, with the same events and with
// others, lose races and nothing else.
func TestProcessorsRace(t *testing.T) {
	t.Parallel()
	const processors, orders, rows = 4, 6, 3
	for name, config := range map[string]sqlite.Config{
		"in memory": {}, "in a file": {Path: filepath.Join(t.TempDir(), "rows.db"), Synchronous: sqlite.SynchronousNormal},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, setup{store: config})
			facts := l.commutative(orders, rows)
			together := meeting(processors)
			var group errgroup.Group
			for n := range processors {
				spy := &spyStore{Store: l.store, beforeCommit: together}
				processor := l.rival(spy)
				mine := append([]fact(nil), facts...)
				rand.New(rand.NewPCG(uint64(n), 7)).Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
				group.Go(func() error {
					for len(mine) > 0 {
						size := min(len(mine), 9)
						result, err := processor.ProcessBatch(t.Context(), records(mine[:size]), projection.BatchOptions{})
						if err != nil {
							return err
						}
						for _, failure := range result.Failures {
							return failure
						}
						mine = mine[size:]
					}
					return nil
				})
			}
			require.NoError(t, group.Wait())
			require.GreaterOrEqual(t, l.metrics.of("rowfold.lost_races").Load(), int64(processors-1), "they did meet")
			l.requireReference(facts, rows)
		})
	}
}

// rival returns another processor of the same projection and the same metrics.
func (l *lab) rival(store projection.Store) *projection.Processor {
	l.tb.Helper()
	processor, err := projection.NewProcessor(projection.ProcessorConfig{
		Definitions: []projection.Definition{l.p}, Store: store, Events: l.store, Meter: l.metrics,
		BackoffMin: time.Microsecond, BackoffMax: time.Millisecond, Attempts: 1000,
	})
	require.NoError(l.tb, err)
	return processor
}

// events and writes by hand race on one row; neither loses the other's change.
func TestProcessorsRaceWithWritesByHand(t *testing.T) {
	t.Parallel()
	const hands, writes = 3, 10
	l := newLab(t, setup{})
	facts := l.commutative(4, 1)
	l.apply(records(facts[:1]))
	var group errgroup.Group
	var done atomic.Int64
	for range hands {
		group.Go(func() error {
			for range writes {
				err := l.rows.Update(t.Context(), "c0", func(c crate) (crate, error) { c.Count += 1000; return c, nil })
				if event.Classify(err) == event.ClassRetry {
					continue // it lost ten races
				}
				if err != nil {
					return err
				}
				done.Add(1)
			}
			return nil
		})
	}
	processor := l.rival(l.store)
	group.Go(func() error {
		for i := range facts {
			if _, err := processor.ProcessBatch(t.Context(), records(facts[i:i+1]), projection.BatchOptions{}); err != nil {
				return err
			}
		}
		return nil
	})
	require.NoError(t, group.Wait())
	want := &reference{row: crate{Place: "unknown"}}
	want.apply("c0", facts, facts)
	got := l.row("c0")
	require.Equal(t, want.row.Count, got.Count%1000)
	require.Equal(t, want.row.Checkpoints, got.Checkpoints)
	require.InDelta(t, want.row.Grams, got.Grams, 0)
	require.Equal(t, done.Load(), got.Count/1000)
	require.Positive(t, done.Load())
}

// processors that deliver the same rows at the same time deliver every effect,
// first deliveries in order.
func TestProcessorsDeliverTogether(t *testing.T) {
	t.Parallel()
	const processors = 3
	l := newLab(t, setup{})
	facts := l.commutative(4, 2)
	var mu sync.Mutex
	first := map[string][]outbox.Sequence{}
	seen := map[string]bool{}
	deliver := func(_ context.Context, d outbox.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		if !seen[d.ID] {
			seen[d.ID] = true
			first[d.Row.Key] = append(first[d.Row.Key], d.Sequence)
		}
		return nil
	}
	var group errgroup.Group
	for n := range processors {
		processor, err := projection.NewProcessor(projection.ProcessorConfig{
			Definitions: []projection.Definition{l.p}, Store: l.store, Events: l.store, Attempts: 1000, BackoffMax: time.Millisecond,
			Deliver: map[string]outbox.Deliverer{"Crates": deliver},
		})
		require.NoError(t, err)
		group.Go(func() error {
			for i := range facts {
				at := (i + n*len(facts)/processors) % len(facts)
				if _, err := processor.ProcessBatch(t.Context(), records(facts[at:at+1]), projection.BatchOptions{}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	for i := range 2 {
		key := fmt.Sprintf("c%d", i)
		want := &reference{row: crate{Place: "unknown"}}
		want.apply(key, facts, facts)
		_, err := outbox.Drain(t.Context(), l.store, outbox.Row{Projection: "Crates", Key: key}, deliver, outbox.Options{Types: l.p.EffectTypes()})
		require.NoError(t, err)
		require.Len(t, first[key], len(want.effects))
		require.IsIncreasing(t, first[key])
		for _, id := range want.effects {
			require.True(t, seen[id], id)
		}
	}
}
