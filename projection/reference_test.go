package projection_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
	"github.com/rowfold/rowfold/store/sqlite"
)

// fact is one event of a generated history.
type fact struct {
	source string
	env    event.Envelope
	crate  string
	data   any
}

// reference folds a row's facts one by one, in the order in which they took effect,
// with none of the projection's code: what the row, its checkpoints and its effects
// have to be.
type reference struct {
	count   int64
	grams   float64
	live    bool
	checks  map[string]int64
	effects map[string]bool
}

func refer(facts []fact) reference {
	r := reference{checks: map[string]int64{}, effects: map[string]bool{}}
	for _, f := range facts {
		key := f.source + "#" + string(f.env.StreamID)
		effect := outbox.EffectID(outbox.Row{Projection: "Crates", Key: f.crate}, f.source, f.env.StreamID, f.env.Version, 0)
		switch data := f.data.(type) {
		case loaded:
			r.live, r.count, r.checks[key] = true, r.count+data.Count, f.env.Version
			if data.Count > 1 {
				r.effects[effect] = true
			}
		case weighed:
			switch {
			case data.Grams > 0:
				r.live, r.grams, r.checks[key] = true, r.grams+data.Grams, f.env.Version
			case data.Grams < -1:
				r.checks[key] = f.env.Version
			}
		}
	}
	return r
}

// drawHistory draws a history of orders and weighings: each instance has versions
// without holes, and each of its events may belong to another crate.
func drawHistory(t *rapid.T, tb testing.TB) []fact {
	var facts []fact
	crateOf := func(label string) string { return fmt.Sprintf("c%d", rapid.IntRange(1, 3).Draw(t, label)) }
	for i := range rapid.IntRange(1, 3).Draw(t, "orders") {
		id := event.ID(fmt.Sprintf("o%d", i))
		for version := int64(1); version <= rapid.Int64Range(1, 8).Draw(t, "versions"); version++ {
			data := loaded{crateOf("crate"), rapid.Int64Range(0, 3).Draw(t, "count")}
			facts = append(facts, fact{"order", envelope(tb, "Order", id, version, data), data.Crate, data})
		}
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "sessions") {
		id := event.ID(fmt.Sprintf("s%d", i))
		for version := int64(1); version <= rapid.Int64Range(1, 6).Draw(t, "versions"); version++ {
			data := weighed{crateOf("crate"), rapid.SampledFrom([]float64{0, 1, 2, 4, -2}).Draw(t, "grams")}
			facts = append(facts, fact{"scale", envelope(tb, "Scale", id, version, data), data.Crate, data})
		}
	}
	return facts
}

// deliverable cuts a history into batches as a feed may: instances interleave in any
// order, a feed may repeat what it delivered, and within a batch nothing is in order.
func deliverable(t *rapid.T, facts []fact) [][]fact {
	byInstance := map[string][]fact{}
	for _, f := range facts {
		byInstance[f.source+string(f.env.StreamID)] = append(byInstance[f.source+string(f.env.StreamID)], f)
	}
	var batches [][]fact
	var delivered []fact
	for len(byInstance) > 0 {
		var batch []fact
		for range rapid.IntRange(1, 5).Draw(t, "batch") {
			if len(byInstance) == 0 {
				break
			}
			name := rapid.SampledFrom(slices.Sorted(maps.Keys(byInstance))).Draw(t, "next")
			batch = append(batch, byInstance[name][0])
			if byInstance[name] = byInstance[name][1:]; len(byInstance[name]) == 0 {
				delete(byInstance, name)
			}
		}
		delivered = append(delivered, batch...)
		for range rapid.IntRange(0, 2).Draw(t, "repeats") {
			batch = append(batch, rapid.SampledFrom(delivered).Draw(t, "repeat"))
		}
		batches = append(batches, rapid.Permutation(batch).Draw(t, "order"))
	}
	return batches
}

func records(facts []fact) []event.Record {
	records := make([]event.Record, len(facts))
	for i, f := range facts {
		records[i] = event.Record{Position: event.Position(strconv.Itoa(i)), Envelope: f.env}
	}
	return records
}

// any interleaving that keeps each
// instance's order, cut into any batches, with repeats, gives the row, the
// checkpoints and the effects of the reference, each effect once and in one sequence.
// Some batches get lost: gap reads make up for them.
func TestAnyDeliveryGivesTheReference(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		p := crates(t)
		store := openStore(t, sqlite.Config{}, p)
		defer func() { require.NoError(t, store.Close()) }()
		facts := drawHistory(rt, t)
		for _, f := range facts {
			recordEnvelope(t, store, f.env)
		}
		processor, err := projection.NewProcessor(projection.ProcessorConfig{
			Definitions: []projection.Definition{p}, Store: store, Events: store,
			BatchRows: rapid.IntRange(1, 3).Draw(rt, "rows"),
		})
		require.NoError(t, err)
		batches := deliverable(rt, facts)
		for i, batch := range batches {
			if i < len(batches)-1 && rapid.IntRange(0, 4).Draw(rt, "lose") == 0 {
				continue
			}
			result, err := processor.ProcessBatch(t.Context(), records(batch), projection.BatchOptions{})
			require.NoError(t, err)
			require.Empty(t, result.Failures)
		}
		_, err = processor.ProcessBatch(t.Context(), records(facts), projection.BatchOptions{})
		require.NoError(t, err)
		for _, key := range []string{"c1", "c2", "c3"} {
			mine := slices.DeleteFunc(slices.Clone(facts), func(f fact) bool { return f.crate != key })
			compareRow(t, store, p, key, refer(mine))
		}
	})
}

func compareRow(t *testing.T, store *sqlite.Store, p *projection.Projection[string, crate], key string, want reference) {
	t.Helper()
	got, err := projection.NewRows(p, store).Get(t.Context(), key)
	if !want.live {
		var missing *projection.NotFound
		require.ErrorAs(t, err, &missing)
		return
	}
	require.NoError(t, err)
	require.Equal(t, want.count, got.Count)
	require.InDelta(t, want.grams, got.Grams, 1e-9)
	require.Equal(t, want.checks, got.Checkpoints)
	head, err := store.Head(t.Context(), outbox.Row{Projection: "Crates", Key: key}, 1000)
	require.NoError(t, err)
	require.Equal(t, got.Revision, head.Revision)
	ids := map[string]bool{}
	for i, item := range head.Items {
		require.False(t, ids[item.ID], "effect %s is there twice", item.ID)
		ids[item.ID] = true
		require.True(t, i == 0 || head.Items[i-1].Sequence < item.Sequence)
		require.LessOrEqual(t, item.Sequence.Revision(), head.Revision)
	}
	require.Equal(t, want.effects, ids)
}

// The reference's own sanity: rejected and skipped weighings count as the rules say.
func TestReference(t *testing.T) {
	t.Parallel()
	got := refer([]fact{
		{"scale", envelope(t, "Scale", "s", 1, weighed{"c1", 0}), "c1", weighed{"c1", 0}},
		{"scale", envelope(t, "Scale", "s", 2, weighed{"c1", 3}), "c1", weighed{"c1", 3}},
		{"scale", envelope(t, "Scale", "s", 3, weighed{"c1", 0}), "c1", weighed{"c1", 0}},
		{"scale", envelope(t, "Scale", "s", 4, weighed{"c1", -2}), "c1", weighed{"c1", -2}},
	})
	require.Equal(t, map[string]int64{"scale#s": 4}, got.checks)
	require.InDelta(t, 3, got.grams, 0)
}
