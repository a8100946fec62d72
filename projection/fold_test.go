package projection_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
)

// sources in declaration order, then stream id bytewise, then version.
func TestFoldOrder(t *testing.T) {
	t.Parallel()
	h := newHarness(t, crates(t), "c1")
	outcome := h.fold(
		feed("order", envelope(t, "Order", "o2", 1, loaded{"c1", 1})),
		feed("order", envelope(t, "Order", "o1", 2, loaded{"c1", 1})),
		feed("track", envelope(t, "Track", "c1", 1, moved{"dock"})),
		feed("order", envelope(t, "Order", "o10", 1, loaded{"c1", 1})),
		feed("order", envelope(t, "Order", "o1", 1, loaded{"c1", 1})),
	)
	row := outcome.State.(crate)
	require.Equal(t, []string{"order#o1@1", "order#o1@2", "order#o10@1", "order#o2@1"}, row.History)
	require.Equal(t, "dock", row.Place)
	require.Equal(t, map[string]int64{"order#o1": 2, "order#o10": 1, "order#o2": 1, "track#c1": 1}, row.Checkpoints)
	require.Equal(t, 1, h.writes)
	require.EqualValues(t, 1, row.Revision)
}

// a checkpoint never passes a hole.
func TestFoldGap(t *testing.T) {
	t.Parallel()
	h := newHarness(t, crates(t), "c1")
	outcome := h.fold(feed("order", envelope(t, "Order", "o1", 2, loaded{"c1", 1})), feed("track", envelope(t, "Track", "c1", 4, moved{"dock"})))
	var gap *projection.Gap
	require.ErrorAs(t, instance(t, outcome, "order", "o1").Err, &gap)
	require.EqualValues(t, 1, gap.Missing)
	require.Equal(t, event.ClassRetry, event.Classify(gap))
	require.NoError(t, outcome.Err, "the row's other instance applies")
	require.Equal(t, []int64{4}, instance(t, outcome, "track", "c1").Applied, "R-14: nothing is read for the latest mode")

	in := projection.Instance{Source: "order", StreamID: "o1"}
	outcome = h.foldKnowing(map[projection.Instance]projection.Versions{in: {{First: 1, Last: 1}}},
		feed("order", envelope(t, "Order", "o1", 2, loaded{"c1", 1})))
	require.Equal(t, []int64{2}, instance(t, outcome, "order", "o1").Applied, "version 1 belongs to another row")
}

// newest first; older ones are superseded; rejected and skipped ones fall back.
func TestFoldLatest(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name                                   string
		places                                 map[int64]string
		applied, rejected, skipped, superseded []int64
		checkpoint                             int64
		place                                  string
	}{
		{"newest", map[int64]string{3: "a", 5: "b"}, []int64{5}, nil, nil, []int64{3}, 5, "b"},
		{"rejected newest", map[int64]string{3: "a", 4: "b", 5: ""}, []int64{4}, []int64{5}, nil, []int64{3}, 5, "b"},
		{"skipped newest", map[int64]string{3: "a", 5: "same"}, []int64{3}, nil, []int64{5}, nil, 3, "a"},
		{"skipped above rejected", map[int64]string{3: "a", 5: "", 6: "same"}, []int64{3}, []int64{5}, []int64{6}, nil, 5, "a"},
		{"rejected between", map[int64]string{2: "a", 3: "", 5: "b"}, []int64{5}, nil, nil, []int64{2, 3}, 5, "b"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, crates(t), "c1")
			var batch []fed
			for version, place := range test.places {
				batch = append(batch, feed("track", envelope(t, "Track", "c1", version, moved{place})))
			}
			outcome := h.fold(batch...)
			in := instance(t, outcome, "track", "c1")
			require.Equal(t, test.applied, in.Applied)
			require.Equal(t, test.rejected, rejectedVersions(in))
			require.Equal(t, test.skipped, in.Skipped)
			require.Equal(t, test.superseded, in.Superseded)
			require.Equal(t, test.checkpoint, in.Version)
			require.Equal(t, test.place, outcome.State.(crate).Place)
			require.Equal(t, test.checkpoint, h.row.Books.Checkpoints["track#c1"])
			require.Len(t, h.items, 1)
		})
	}
}

// in latest mode a rejection alone moves the checkpoint only over a contiguous batch.
func TestFoldLatestRejections(t *testing.T) {
	t.Parallel()
	h := newHarness(t, crates(t), "c1")
	h.fold(feed("track", envelope(t, "Track", "c1", 1, moved{"dock"})))
	outcome := h.fold(feed("track", envelope(t, "Track", "c1", 3, moved{""})))
	require.EqualValues(t, 1, instance(t, outcome, "track", "c1").Version, "version 2 was not seen")
	require.False(t, outcome.Written)
	outcome = h.fold(feed("track", envelope(t, "Track", "c1", 2, moved{""})), feed("track", envelope(t, "Track", "c1", 3, moved{""})), feed("track", envelope(t, "Track", "c1", 5, moved{""})))
	require.EqualValues(t, 3, instance(t, outcome, "track", "c1").Version)
	require.Equal(t, []int64{2, 3, 5}, rejectedVersions(instance(t, outcome, "track", "c1")))
	require.True(t, outcome.Written)
	require.EqualValues(t, 2, outcome.Revision)
	require.Equal(t, "dock", outcome.State.(crate).Place)
}

// what the checkpoint covers is never folded again.
func TestFoldAlreadyApplied(t *testing.T) {
	t.Parallel()
	h := newHarness(t, crates(t), "c1")
	batch := []fed{feed("order", envelope(t, "Order", "o1", 1, loaded{"c1", 2})), feed("order", envelope(t, "Order", "o1", 2, loaded{"c1", 3}))}
	h.fold(batch...)
	outcome := h.fold(append(batch, batch...)...)
	require.False(t, outcome.Written)
	require.Equal(t, []int64{1, 2}, instance(t, outcome, "order", "o1").AlreadyApplied)
	require.EqualValues(t, 5, outcome.State.(crate).Count)
	require.EqualValues(t, 1, outcome.Revision)
	require.Len(t, h.items, 2)
}

// a terminal error rejects one event; any other takes the instance out of the write.
func TestFoldFailures(t *testing.T) {
	t.Parallel()
	h := newHarness(t, crates(t), "c1")
	outcome := h.fold(
		feed("scale", envelope(t, "Scale", "s1", 1, weighed{"c1", 5})),
		feed("scale", envelope(t, "Scale", "s1", 2, weighed{"c1", -2})),
		feed("scale", envelope(t, "Scale", "s2", 1, weighed{"c1", 100})),
		feed("scale", envelope(t, "Scale", "s2", 2, weighed{"c1", -1})),
		feed("order", envelope(t, "Order", "o1", 1, loaded{"c1", 7})),
		feed("order", envelope(t, "Order", "o1", 2, loaded{"c1", -7})),
	)
	require.NoError(t, outcome.Err)
	row := outcome.State.(crate)
	require.InDelta(t, 5, row.Grams, 0)
	require.Zero(t, row.Count, "the panicking instance left the write with all its events")
	require.Equal(t, map[string]int64{"scale#s1": 2}, row.Checkpoints)
	s1, s2, o1 := instance(t, outcome, "scale", "s1"), instance(t, outcome, "scale", "s2"), instance(t, outcome, "order", "o1")
	require.Equal(t, []int64{2}, rejectedVersions(s1))
	require.ErrorIs(t, s1.Rejected[0].Err, errNoPlace)
	require.ErrorIs(t, s2.Err, errBroken)
	require.Empty(t, s2.Applied)
	var failed *projection.InstanceError
	require.ErrorAs(t, s2.Err, &failed)
	require.EqualValues(t, 2, failed.Version)
	var panicked *projection.EvolvePanic
	require.ErrorAs(t, o1.Err, &panicked)
	require.Equal(t, "evolve", panicked.Func)
	require.NotEmpty(t, panicked.Stack)
	require.Empty(t, h.items, "effects of an instance that left are not committed")

	outcome = h.fold(feed("scale", envelope(t, "Scale", "s2", 1, weighed{"c1", -1})), feed("order", envelope(t, "Order", "o1", 1, loaded{"c1", -7})))
	require.Error(t, outcome.Err, "the row fails when every instance does")
	require.Equal(t, 1, h.writes)
}

// skips write nothing, create nothing, and leave no entry.
func TestFoldSkips(t *testing.T) {
	t.Parallel()
	h := newHarness(t, crates(t), "c1")
	outcome := h.fold(feed("scale", envelope(t, "Scale", "s1", 1, weighed{"c1", 0})))
	require.False(t, outcome.Written)
	require.NoError(t, outcome.Err)
	require.Nil(t, outcome.State)
	require.Equal(t, projection.RowAbsent, h.row.Status)
	require.Equal(t, []int64{1}, instance(t, outcome, "scale", "s1").Skipped)

	h.fold(feed("order", envelope(t, "Order", "o1", 1, loaded{"c1", 1})))
	outcome = h.fold(
		feed("scale", envelope(t, "Scale", "s1", 1, weighed{"c1", 0})), feed("scale", envelope(t, "Scale", "s1", 2, weighed{"c1", 3})),
		feed("scale", envelope(t, "Scale", "s1", 3, weighed{"c1", 0})), feed("scale", envelope(t, "Scale", "s2", 1, weighed{"c1", 0})))
	require.Equal(t, []int64{1, 3}, instance(t, outcome, "scale", "s1").Skipped)
	require.EqualValues(t, 2, instance(t, outcome, "scale", "s1").Version, "the checkpoint stops at the last applied one")
	require.Equal(t, map[string]int64{"order#o1": 1, "scale#s1": 2}, outcome.State.(crate).Checkpoints)
	require.EqualValues(t, 2, outcome.Revision)

	outcome = h.fold(feed("scale", envelope(t, "Scale", "s1", 3, weighed{"c1", 0})), feed("scale", envelope(t, "Scale", "s1", 2, weighed{"c1", 3})))
	require.False(t, outcome.Written)
	require.EqualValues(t, 2, outcome.Revision)
	require.InDelta(t, 3, outcome.State.(crate).Grams, 0, "the outcome has the row as read")
}

// returning the state as it is counts as a step.
func TestFoldUnchangedState(t *testing.T) {
	t.Parallel()
	h := newHarness(t, crates(t), "c1")
	h.fold(feed("order", envelope(t, "Order", "o1", 1, loaded{"c1", 1})))
	outcome := h.fold(feed("order", envelope(t, "Order", "o1", 2, loaded{"c1", 0})))
	require.True(t, outcome.Written)
	require.Equal(t, []int64{2}, instance(t, outcome, "order", "o1").Applied)
	require.EqualValues(t, 2, outcome.Revision)
}

// rejections alone do not create a row, nor write onto a tombstone.
func TestFoldOnlyRejections(t *testing.T) {
	t.Parallel()
	h := newHarness(t, crates(t), "c1")
	reject := feed("scale", envelope(t, "Scale", "s1", 1, weighed{"c1", -2}))
	outcome := h.fold(reject)
	require.False(t, outcome.Written)
	require.Equal(t, []int64{1}, rejectedVersions(instance(t, outcome, "scale", "s1")))
	require.Zero(t, instance(t, outcome, "scale", "s1").Version)

	h.fold(feed("order", envelope(t, "Order", "o1", 1, scrapped{"c1"})))
	require.Equal(t, projection.RowTombstone, h.row.Status)
	require.False(t, h.fold(reject).Written)

	h = newHarness(t, crates(t), "c1")
	h.fold(feed("order", envelope(t, "Order", "o1", 1, loaded{"c1", 1})))
	outcome = h.fold(reject)
	require.True(t, outcome.Written, "on a live row the checkpoint passes a rejection")
	require.EqualValues(t, 1, outcome.State.(crate).Checkpoints["scale#s1"])
}

// the key belongs to the row.
func TestFoldRowKeyChanged(t *testing.T) {
	t.Parallel()
	source := orderSource()
	source.Evolve = func(_ context.Context, c crate, _ event.Event[orderEvent], _ projection.Instance) (crate, error) {
		c.ID = "other"
		return c, nil
	}
	h := newHarness(t, crates(t, func(c *projection.Config[string, crate]) { c.Sources[0] = source }), "c1")
	outcome := h.fold(feed("order", envelope(t, "Order", "o1", 1, loaded{"c1", 1})))
	var changed *projection.RowKeyChanged
	require.ErrorAs(t, outcome.Err, &changed)
	require.Equal(t, "other", changed.To)
}

// removal leaves bookkeeping; a later event starts again above it.
func TestFoldRemoval(t *testing.T) {
	t.Parallel()
	h := newHarness(t, crates(t), "c1")
	outcome := h.fold(feed("order", envelope(t, "Order", "o1", 1, loaded{"c1", 5})), feed("order", envelope(t, "Order", "o1", 2, scrapped{"c1"})))
	require.True(t, outcome.Removed)
	require.Nil(t, outcome.State)
	require.Nil(t, h.row.Values)
	require.Equal(t, map[string]int64{"order#o1": 2}, h.row.Books.Checkpoints)
	require.Len(t, h.items, 2, "R-34: effects run for a removal, too")

	require.False(t, h.fold(feed("order", envelope(t, "Order", "o1", 1, loaded{"c1", 5}))).Written, "a redelivery cannot undo it")
	outcome = h.fold(feed("order", envelope(t, "Order", "o1", 3, loaded{"c1", 2})))
	row := outcome.State.(crate)
	require.EqualValues(t, 2, row.Count)
	require.Equal(t, "unknown", row.Place, "it starts from initial")
	require.EqualValues(t, 2, row.Revision)

	outcome = h.fold(feed("order", envelope(t, "Order", "o1", 4, scrapped{"c1"})), feed("order", envelope(t, "Order", "o1", 5, loaded{"c1", 1})))
	require.False(t, outcome.Removed)
	require.EqualValues(t, 1, outcome.State.(crate).Count)

	absent := newHarness(t, crates(t), "c2")
	require.True(t, absent.fold(feed("order", envelope(t, "Order", "o9", 1, scrapped{"c2"}))).Removed)
	require.Equal(t, projection.RowTombstone, absent.row.Status)
}

// without removal, evolve may not remove.
func TestFoldRemovalNotDeclared(t *testing.T) {
	t.Parallel()
	h := newHarness(t, crates(t, func(c *projection.Config[string, crate]) { c.Removal = nil }), "c1")
	var undeclared *projection.RemovalNotDeclared
	require.ErrorAs(t, h.fold(feed("order", envelope(t, "Order", "o1", 1, scrapped{"c1"}))).Err, &undeclared)
}

// without an outbox the tombstone is dated by the write, with one by the drain.
func TestFoldTombstoneExpiry(t *testing.T) {
	t.Parallel()
	const ttl = 60 * 24 * time.Hour
	scrap := feed("order", envelope(t, "Order", "o1", 1, scrapped{"c1"}))
	with := newHarness(t, crates(t, func(c *projection.Config[string, crate]) { c.Removal.TTL = ttl }), "c1")
	with.fold(scrap)
	require.Nil(t, with.row.ExpiresAt)
	without := newHarness(t, crates(t, func(c *projection.Config[string, crate]) {
		source := orderSource()
		source.Effects = nil
		c.Removal.TTL, c.Outbox = ttl, nil
		c.Sources = []projection.AnySource[string, crate]{source}
	}), "c1")
	without.fold(scrap)
	require.Equal(t, without.now.Add(ttl), *without.row.ExpiresAt)
}

// effects in fold order, numbered by revision and index, with ids of their own.
func TestFoldEffects(t *testing.T) {
	t.Parallel()
	h := newHarness(t, crates(t), "c1")
	h.fold(feed("track", envelope(t, "Track", "c1", 1, moved{"dock"})),
		feed("order", envelope(t, "Order", "o1", 1, loaded{"c1", 2})), feed("order", envelope(t, "Order", "o1", 2, loaded{"c1", 3})))
	h.fold(feed("order", envelope(t, "Order", "o1", 3, loaded{"c1", 4})))
	var got []string
	for _, item := range h.items {
		got = append(got, string(item.Sequence)+" "+item.ID+" "+string(item.Payload))
		require.Equal(t, "Note", item.Type)
		require.Equal(t, 1, item.SchemaVersion)
		require.Equal(t, h.now, item.EnqueuedAt)
	}
	require.Equal(t, []string{
		`0000000000000001000 Crates|c1|order|o1|1|0 {"text":"c1 has 2"}`,
		`0000000000000001001 Crates|c1|order|o1|2|0 {"text":"c1 has 5"}`,
		`0000000000000001002 Crates|c1|track|c1|1|0 {"text":"at dock"}`,
		`0000000000000002000 Crates|c1|order|o1|3|0 {"text":"c1 has 9"}`,
	}, got)
}

type unencodable struct{ Channel chan int }

// Bad effects are errors of their instance that name the type and the event.
func TestFoldBadEffects(t *testing.T) {
	t.Parallel()
	for name, effects := range map[string][]any{"does not encode": {unencodable{}}, "is not declared": {42}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source := orderSource()
			source.Effects = func(*crate, event.Event[orderEvent], projection.Instance) ([]any, error) { return effects, nil }
			h := newHarness(t, crates(t, func(c *projection.Config[string, crate]) {
				c.Sources[0] = source
				c.Outbox.Effects = append(c.Outbox.Effects, event.Type[unencodable]("Unencodable"))
			}), "c1")
			outcome := h.fold(feed("order", envelope(t, "Order", "o1", 1, loaded{"c1", 1})), feed("scale", envelope(t, "Scale", "s1", 1, weighed{"c1", 1})))
			err := instance(t, outcome, "order", "o1").Err
			require.ErrorContains(t, err, "order#o1")
			require.ErrorContains(t, err, "outbox of projection Crates")
			require.Equal(t, event.ClassPermanent, event.Classify(err))
			require.InDelta(t, 1, outcome.State.(crate).Grams, 0)
		})
	}
}

// a fold with more effects than one write takes is cut at event borders.
func TestFoldCuts(t *testing.T) {
	t.Parallel()
	source := orderSource()
	source.Effects = func(_ *crate, e event.Event[orderEvent], _ projection.Instance) ([]any, error) {
		effects := make([]any, e.Data.(loaded).Count)
		for i := range effects {
			effects[i] = note{strings.Repeat("x", 10)}
		}
		return effects, nil
	}
	h := newHarness(t, crates(t, func(c *projection.Config[string, crate]) { c.Sources[0] = source }), "c1")
	h.limits = projection.Limits{MaxEffects: 5}
	outcome := h.fold(feed("order", envelope(t, "Order", "o1", 1, loaded{"c1", 3})), feed("order", envelope(t, "Order", "o1", 2, loaded{"c1", 2})),
		feed("order", envelope(t, "Order", "o1", 3, loaded{"c1", 1})), feed("order", envelope(t, "Order", "o2", 1, loaded{"c1", 5})),
		feed("scale", envelope(t, "Scale", "s1", 1, weighed{"c1", 4})))
	require.Equal(t, 3, h.writes)
	require.Equal(t, 11, outcome.Enqueued)
	require.EqualValues(t, 3, outcome.Revision)
	require.EqualValues(t, 11, outcome.State.(crate).Count)
	require.Equal(t, outbox.SequenceOf(1, 4), h.items[4].Sequence)
	require.Equal(t, outbox.SequenceOf(2, 0), h.items[5].Sequence)
	require.Equal(t, map[string]int64{"order#o1": 3, "order#o2": 1, "scale#s1": 1}, h.row.Books.Checkpoints)

	outcome = h.fold(feed("order", envelope(t, "Order", "o1", 4, loaded{"c1", 6})))
	var many *projection.TooManyEffects
	require.ErrorAs(t, outcome.Err, &many)
	require.Equal(t, 6, many.Effects)

	h.limits = projection.Limits{MaxBytes: 2000}
	before := h.writes
	h.fold(feed("order", envelope(t, "Order", "o1", 4, loaded{"c1", 2})), feed("order", envelope(t, "Order", "o1", 5, loaded{"c1", 2})), feed("order", envelope(t, "Order", "o1", 6, loaded{"c1", 2})))
	require.Equal(t, before+3, h.writes, "bytes are a limit, too")
}

// §12: who emits is a field of the row.
func TestFoldEmits(t *testing.T) {
	t.Parallel()
	h := newHarness(t, crates(t), "c1")
	h.row.Status = projection.RowTombstone
	h.row.Books.Emits = new(false)
	h.fold(feed("order", envelope(t, "Order", "o1", 1, loaded{"c1", 2})))
	require.Empty(t, h.items)
	require.False(t, *h.row.Books.Emits, "it is kept")
	require.Equal(t, 1, h.row.Books.Definition)

	h.row.Books.Emits, h.row.Books.EmitAbove = nil, map[string]int64{"order#o1": 2}
	h.fold(feed("order", envelope(t, "Order", "o1", 2, loaded{"c1", 2})), feed("order", envelope(t, "Order", "o1", 3, loaded{"c1", 2})))
	require.Len(t, h.items, 1)
	require.EqualValues(t, 3, h.items[0].Version)
}

// an operator's skip reads as a rejection.
func TestFoldOperatorSkip(t *testing.T) {
	t.Parallel()
	h := newHarness(t, crates(t), "c1")
	h.skips = []projection.Skip{{Projection: "Crates", Instance: projection.Instance{Source: "order", StreamID: "o1"}, Version: 2, Who: "ann", Why: "known fault"}}
	outcome := h.fold(feed("order", envelope(t, "Order", "o1", 1, loaded{"c1", 1})), feed("order", envelope(t, "Order", "o1", 2, loaded{"c1", -1})))
	in := instance(t, outcome, "order", "o1")
	require.Equal(t, []int64{2}, rejectedVersions(in))
	require.ErrorContains(t, in.Rejected[0].Err, "ann: known fault")
	require.EqualValues(t, 2, in.Version)
}

// a row that a store would refuse is an error before the write.
func TestFoldRowTooLarge(t *testing.T) {
	t.Parallel()
	h := newHarness(t, crates(t), "c1")
	h.limits = projection.Limits{MaxRowBytes: 200}
	h.fold(feed("order", envelope(t, "Order", "o1", 1, loaded{"c1", 1})))
	outcome := h.fold(feed("track", envelope(t, "Track", "c1", 1, moved{strings.Repeat("far away ", 40)})))
	var large *projection.RowTooLarge
	require.ErrorAs(t, outcome.Err, &large)
	require.Equal(t, "c1", large.Key)
	require.Equal(t, 200, large.Limit)
	require.Greater(t, large.Size, 360)
	require.ErrorAs(t, instance(t, outcome, "track", "c1").Err, &large)
	require.Equal(t, 1, h.writes)
}

// a closed instance's entry is dropped after the replay window, and not before.
func TestFoldCloses(t *testing.T) {
	t.Parallel()
	source := orderSource()
	source.Closes = func(e event.Event[orderEvent]) bool { return e.Data.(loaded).Count == 9 }
	h := newHarness(t, crates(t, func(c *projection.Config[string, crate]) { c.Sources[0] = source; c.ReplayWindow = time.Hour }), "c1")
	h.fold(feed("order", envelope(t, "Order", "o1", 1, loaded{"c1", 9})))
	require.Equal(t, []projection.Instance{{Source: "order", StreamID: "o1"}}, h.row.Books.Instances())
	h.now = h.now.Add(30 * time.Minute)
	h.fold(feed("order", envelope(t, "Order", "o2", 1, loaded{"c1", 1})))
	require.Contains(t, h.row.Books.Checkpoints, "order#o1")
	h.now = h.now.Add(31 * time.Minute)
	h.fold(feed("order", envelope(t, "Order", "o2", 2, loaded{"c1", 1})))
	require.Equal(t, map[string]int64{"order#o2": 2}, h.row.Books.Checkpoints)
}

// A value that no column can hold fails the row with the column's name.
func TestFoldValueError(t *testing.T) {
	t.Parallel()
	source := scaleSource()
	source.Evolve = func(_ context.Context, c crate, _ event.Event[weighed], _ projection.Instance) (crate, error) {
		zero := 0.0
		c.Grams = 1 / zero
		return c, nil
	}
	h := newHarness(t, crates(t, func(c *projection.Config[string, crate]) { c.Sources[2] = source }), "c1")
	outcome := h.fold(feed("scale", envelope(t, "Scale", "s1", 1, weighed{"c1", 1})))
	var value *projection.ValueError
	require.ErrorAs(t, outcome.Err, &value)
	require.Equal(t, "grams", value.Column)
}
