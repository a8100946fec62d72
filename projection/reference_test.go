package projection_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

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

func (f fact) instance() string { return f.source + "#" + string(f.env.StreamID) }

func (f fact) name() string { return fmt.Sprintf("%s@%d", f.instance(), f.env.Version) }

// drawHistory draws a history of orders, weighings and positions: each instance has
// versions without holes, and each event of an order or a scale may belong to another
// crate. Crates are removed and come back, events are skipped, rejected, and fail.
func drawHistory(tb testing.TB, t *rapid.T) []fact {
	tb.Helper()
	var facts []fact
	crateOf := func() string { return fmt.Sprintf("c%d", rapid.IntRange(1, 3).Draw(t, "crate")) }
	draw := func(source, stream, id string, most int64, next func() (string, any)) {
		for version := range rapid.Int64Range(1, most).Draw(t, source+" "+id) {
			key, data := next()
			facts = append(facts, fact{source, envelope(tb, stream, event.ID(id), version+1, data), key, data})
		}
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "orders") {
		draw("order", "Order", fmt.Sprintf("o%d", i), 8, func() (string, any) {
			key := crateOf()
			if rapid.IntRange(0, 5).Draw(t, "scrap") == 0 {
				return key, scrapped{key}
			}
			return key, loaded{key, rapid.Int64Range(0, 3).Draw(t, "count")}
		})
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "sessions") {
		draw("scale", "Scale", fmt.Sprintf("s%d", i), 6, func() (string, any) {
			key := crateOf()
			return key, weighed{key, rapid.SampledFrom([]float64{0, 1, 2, 4, -2, -1}).Draw(t, "grams")}
		})
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "tracked") {
		key := fmt.Sprintf("c%d", i+1)
		draw("track", "Track", key, 5, func() (string, any) {
			return key, moved{rapid.SampledFrom([]string{"dock", "quay", "ship", "", "same", "fault"}).Draw(t, "place")}
		})
	}
	return facts
}

// deliverable cuts a history into batches as a feed may: instances interleave in any
// order, a feed may repeat what it delivered, and within a batch nothing is in order.
func deliverable(t *rapid.T, facts []fact) [][]fact {
	byInstance := map[string][]fact{}
	for _, f := range facts {
		byInstance[f.instance()] = append(byInstance[f.instance()], f)
	}
	var batches [][]fact
	var delivered []fact
	for len(byInstance) > 0 {
		var batch []fact
		for range rapid.IntRange(1, 6).Draw(t, "batch") {
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

// reference says what a row has to be, with none of the projection's code: the rules,
// event by event.
type reference struct {
	row     crate // with its checkpoints and its revision
	live    bool
	effects []string        // ids, in order
	failing map[string]bool // instances that failed in the last batch
	skips   map[string]bool // facts that an operator passed over
}

// apply takes a batch. history is everything that the event store holds.
func (r *reference) apply(key string, history, batch []fact) {
	before := *r
	row, live, applied, passed := r.row, r.live, false, false
	row.Checkpoints = maps.Clone(row.Checkpoints)
	r.failing = map[string]bool{}
	for _, name := range instancesOf(key, batch) {
		facts := r.wanted(key, name, history, batch)
		at := reference{row: row, live: live, effects: r.effects, skips: r.skips}
		a, p, failed := at.fold(facts)
		if failed {
			r.failing[name] = true
			continue // as if the instance had not come
		}
		row, live, r.effects, applied, passed = at.row, at.live, at.effects, applied || a, passed || p
	}
	if !applied && (!before.live || !passed) {
		r.effects = before.effects
		return
	}
	r.row, r.live = row, live
	r.row.Revision++
}

// instancesOf returns the instances that have events for a row, in the order of the fold.
func instancesOf(key string, batch []fact) []string {
	var names []string
	for _, source := range []string{"order", "track", "scale"} {
		var ids []string
		for _, f := range batch {
			if f.crate == key && f.source == source {
				ids = append(ids, f.instance())
			}
		}
		slices.Sort(ids)
		names = append(names, slices.Compact(ids)...)
	}
	return names
}

// wanted returns the facts of an instance that are new to the row, in order: up to the
// newest in the batch, with those that the batch lacks unless only the latest
// counts.
func (r *reference) wanted(key, name string, history, batch []fact) []fact {
	newest := int64(0)
	inBatch := map[int64]bool{}
	for _, f := range batch {
		if f.crate == key && f.instance() == name {
			newest = max(newest, f.env.Version)
			inBatch[f.env.Version] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(history), func(f fact) bool {
		version := f.env.Version
		return f.crate != key || f.instance() != name || version <= r.row.Checkpoints[name] || version > newest ||
			f.source == "track" && !inBatch[version]
	})
}

// fold folds the facts of one instance. It reports whether any was applied, whether the
// checkpoint passed a rejection, and whether the instance failed.
func (r *reference) fold(facts []fact) (applied, passed, failed bool) {
	if len(facts) > 0 && facts[0].source == "track" {
		return r.foldLatest(facts)
	}
	for _, f := range facts {
		switch data := f.data.(type) {
		case loaded:
			if r.reject(f, false) {
				passed = true
				continue
			}
			r.accept(f, data.Count > 1)
			r.row.History = append(slices.Clone(r.row.History), f.name())
			r.row.Count += data.Count
			applied = true
		case scrapped:
			if r.reject(f, false) {
				passed = true
				continue
			}
			r.accept(f, true)
			r.row = crate{Checkpoints: r.row.Checkpoints, Revision: r.row.Revision, Place: "unknown"}
			r.live, applied = false, true
		case weighed:
			switch {
			case r.reject(f, data.Grams < -1):
				passed = true
			case data.Grams < 0:
				return false, false, true
			case data.Grams > 0:
				r.accept(f, false)
				r.row.Grams += data.Grams
				applied = true
			}
		}
	}
	return applied, passed, false
}

// reject passes a fact that the source, or an operator, gives up on.
func (r *reference) reject(f fact, terminal bool) bool {
	if !terminal && !r.skips[f.name()] {
		return false
	}
	r.row.Checkpoints = with(r.row.Checkpoints, f.instance(), f.env.Version)
	return true
}

// foldLatest applies the newest fact that is neither rejected nor skipped. A
// rejection above it moves the checkpoint; without one, only what has no hole below.
func (r *reference) foldLatest(facts []fact) (applied, passed, failed bool) {
	var name string
	var highest, covered int64
	for i, f := range slices.Backward(facts) {
		place := f.data.(moved).Place
		name = f.instance()
		switch {
		case place == "" || r.skips[f.name()]:
			highest = max(highest, f.env.Version)
			if f.env.Version == r.row.Checkpoints[name]+int64(i)+1 {
				covered = max(covered, f.env.Version)
			}
		case place == "same":
		case place == "fault":
			return false, false, true
		default:
			r.accept(f, true)
			r.row.Place = place
			r.row.Checkpoints = with(r.row.Checkpoints, name, max(highest, f.env.Version))
			return true, false, false
		}
	}
	if covered > 0 {
		r.row.Checkpoints = with(r.row.Checkpoints, name, covered)
	}
	return false, covered > 0, false
}

// accept makes the row live, with a checkpoint and an effect.
func (r *reference) accept(f fact, emits bool) {
	r.live = true
	r.row.ID = f.crate
	r.row.Checkpoints = with(r.row.Checkpoints, f.instance(), f.env.Version)
	if emits {
		row := outbox.Row{Projection: "Crates", Key: f.crate}
		r.effects = append(slices.Clone(r.effects), outbox.EffectID(row, f.source, f.env.StreamID, f.env.Version, 0))
	}
}

func with(checkpoints map[string]int64, name string, version int64) map[string]int64 {
	next := map[string]int64{}
	maps.Copy(next, checkpoints)
	next[name] = version
	return next
}

// any interleaving that keeps each
// instance's order, cut into any batches, with repeats, gives after every batch the row,
// the checkpoints and the effects of the reference, each effect once and in its order.
// Some batches get lost: gap reads make up for them. Crates are removed and come back;
// events are skipped, rejected, passed by operators, or fail their instance.
func TestAnyDeliveryGivesTheReference(t *testing.T) {
	t.Parallel()
	p := crates(t)
	rapid.Check(t, func(rt *rapid.T) {
		limit := rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(rt, "effects in one write")
		store, err := sqlite.Open(t.Context(), sqlite.Config{MaxEffects: limit})
		require.NoError(rt, err)
		defer func() { require.NoError(rt, store.Close()) }()
		require.NoError(rt, store.Prepare(t.Context(), p.Model()))
		facts := drawHistory(t, rt)
		skips := map[string]bool{}
		for _, f := range facts {
			recordEnvelope(t, store, f.env)
			if rapid.IntRange(0, 9).Draw(rt, "skip") == 0 {
				skips[f.name()] = true
				require.NoError(rt, store.RecordSkip(t.Context(), projection.Skip{
					Projection: "Crates", Instance: projection.Instance{Source: f.source, StreamID: f.env.StreamID}, Version: f.env.Version, At: time.Now(),
				}))
			}
		}
		processor, err := projection.NewProcessor(projection.ProcessorConfig{
			Definitions: []projection.Definition{p}, Store: store, Events: store,
			BatchRows: rapid.IntRange(1, 3).Draw(rt, "rows"),
		})
		require.NoError(rt, err)
		references := map[string]*reference{}
		for _, key := range []string{"c1", "c2", "c3"} {
			references[key] = &reference{row: crate{Place: "unknown"}, skips: skips}
		}
		for _, batch := range append(deliverable(rt, facts), facts) {
			if rapid.IntRange(0, 4).Draw(rt, "lose") == 0 {
				continue
			}
			result, err := processor.ProcessBatch(t.Context(), records(batch), projection.BatchOptions{})
			require.NoError(rt, err)
			failing := map[string]bool{}
			for _, key := range slices.Sorted(maps.Keys(references)) {
				references[key].apply(key, facts, batch)
				compareRow(rt, store, p, key, references[key], limit == 0)
				maps.Copy(failing, references[key].failing)
			}
			require.Equal(rt, failing, failingOf(result))
		}
	})
}

func failingOf(result projection.BatchResult) map[string]bool {
	failing := map[string]bool{}
	for _, failure := range result.Failures {
		failing[failure.Instance.String()] = true
	}
	return failing
}

func compareRow(t *rapid.T, store *sqlite.Store, p *projection.Projection[string, crate], key string, want *reference, wholeWrites bool) {
	ctx := context.Background()
	stored, err := store.Load(ctx, p.Model(), []string{key})
	require.NoError(t, err)
	require.Equal(t, want.live, stored[0].Status == projection.RowLive)
	require.Equal(t, want.row.Checkpoints, stored[0].Books.Checkpoints)
	head, err := store.Head(ctx, outbox.Row{Projection: "Crates", Key: key}, 1000)
	require.NoError(t, err)
	require.Equal(t, want.effects, emptyAsNil(itemIDs(head.Items)))
	if wholeWrites {
		require.Equal(t, want.row.Revision, head.Revision)
	}
	for i, item := range head.Items {
		require.True(t, i == 0 || head.Items[i-1].Sequence < item.Sequence)
		require.LessOrEqual(t, item.Sequence.Revision(), head.Revision)
	}
	if !want.live {
		return
	}
	got, err := projection.NewRows(p, store).Get(ctx, key)
	require.NoError(t, err)
	expected := want.row
	expected.Revision = head.Revision
	require.Equal(t, expected, got)
}

func emptyAsNil(ids []string) []string {
	if len(ids) == 0 {
		return nil
	}
	return ids
}

// The reference's own sanity: it tells rows apart that the rules tell apart.
func TestReference(t *testing.T) {
	t.Parallel()
	history := []fact{
		{"order", envelope(t, "Order", "o", 1, loaded{"c1", 2}), "c1", loaded{"c1", 2}},
		{"order", envelope(t, "Order", "o", 2, scrapped{"c1"}), "c1", scrapped{"c1"}},
		{"order", envelope(t, "Order", "o", 3, loaded{"c1", 1}), "c1", loaded{"c1", 1}},
		{"scale", envelope(t, "Scale", "s", 1, weighed{"c1", 0}), "c1", weighed{"c1", 0}},
		{"scale", envelope(t, "Scale", "s", 2, weighed{"c1", 3}), "c1", weighed{"c1", 3}},
		{"scale", envelope(t, "Scale", "s", 3, weighed{"c1", -2}), "c1", weighed{"c1", -2}},
		{"scale", envelope(t, "Scale", "s", 4, weighed{"c1", -1}), "c1", weighed{"c1", -1}},
		{"track", envelope(t, "Track", "c1", 1, moved{"dock"}), "c1", moved{"dock"}},
		{"track", envelope(t, "Track", "c1", 2, moved{""}), "c1", moved{""}},
	}
	r := reference{row: crate{Place: "unknown"}}
	r.apply("c1", history, history[1:2])
	require.False(t, r.live)
	require.Equal(t, map[string]int64{"order#o": 2}, r.row.Checkpoints)
	require.EqualValues(t, 1, r.row.Revision)
	require.Equal(t, []string{"Crates|c1|order|o|1|0", "Crates|c1|order|o|2|0"}, r.effects)
	r.apply("c1", history, history[5:6])
	require.InDelta(t, 3, r.row.Grams, 0)
	require.EqualValues(t, 3, r.row.Checkpoints["scale#s"])
	r.apply("c1", history, history[6:])
	require.Equal(t, map[string]bool{"scale#s": true}, r.failing)
	require.Equal(t, "dock", r.row.Place)
	require.EqualValues(t, 2, r.row.Checkpoints["track#c1"])
	r.apply("c1", history, history[6:])
	require.EqualValues(t, 3, r.row.Revision, "what is known or fails writes nothing")
}
