package projection_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/projection"
)

type meter struct {
	ID          string           `row:"id,key"`
	Grams       float64          `row:"grams"`
	Version     *int64           `row:"scale_version"`
	Session     *string          `row:"scale_session"`
	Checkpoints map[string]int64 `row:"checkpoints"`
	Revision    *int64           `row:"revision"`
}

func meters(t *testing.T, change ...func(*projection.Config[string, meter])) *projection.Projection[string, meter] {
	t.Helper()
	config := projection.Config[string, meter]{
		Name:    "Meters",
		Initial: func(string) meter { return meter{} },
		Sources: []projection.AnySource[string, meter]{projection.Source[string, meter, weighed]{
			Name: "scale", Stream: scales,
			Key: func(e event.Event[weighed]) (string, bool) { return e.Data.Crate, true },
			Evolve: func(_ context.Context, m meter, e event.Event[weighed], _ projection.Instance) (meter, error) {
				if e.Data.Grams == 0 {
					return m, projection.SkipEvent
				}
				m.Grams += e.Data.Grams
				return m, nil
			},
		}},
		Checkpoints: projection.Checkpoints{
			Map:     "checkpoints",
			Scalars: map[string]projection.Scalar{"scale": {Field: "scale_version", Offset: -1, InstanceField: "scale_session"}},
		},
		Revision: projection.Revision{Field: "revision"},
	}
	for _, c := range change {
		c(&config)
	}
	p, err := projection.New(config)
	require.NoError(t, err)
	return p
}

func weighing(t *testing.T, id event.ID, version int64, grams float64) fed {
	t.Helper()
	return feed("scale", envelope(t, "Scale", id, version, weighed{"m1", grams}))
}

// the first instance that writes adopts the scalar, the next goes to the map.
func TestScalarCheckpoint(t *testing.T) {
	t.Parallel()
	h := newHarness(t, meters(t), "m1")
	h.fold(weighing(t, "s0", 1, 0)) // only skipped: it does not adopt
	require.Nil(t, h.row.Books.Scalars)
	outcome := h.fold(weighing(t, "s1", 1, 5), weighing(t, "s1", 2, 5))
	row := outcome.State.(meter)
	require.EqualValues(t, 1, *row.Version, "stored = version + offset")
	require.Equal(t, "s1", *row.Session)
	require.Nil(t, row.Checkpoints, "the map is created only when an instance lands in it")

	outcome = h.fold(weighing(t, "s2", 1, 7), weighing(t, "s1", 3, 1))
	row = outcome.State.(meter)
	require.EqualValues(t, 2, *row.Version)
	require.Equal(t, map[string]int64{"scale#s2": 1}, row.Checkpoints)
	require.InDelta(t, 18, row.Grams, 0)
	require.False(t, h.fold(weighing(t, "s1", 3, 1), weighing(t, "s2", 1, 7)).Written)
}

// a legacy number without an owner is the adopter's checkpoint.
func TestScalarAdoption(t *testing.T) {
	t.Parallel()
	h := newHarness(t, meters(t), "m1")
	h.row.Status = projection.RowLive
	h.row.Values = []any{"m1", 10.0}
	h.row.Books.Scalars = map[string]projection.ScalarCheckpoint{"scale": {Stored: new(int64(2))}} // version 3
	outcome := h.foldKnowing(nil, weighing(t, "s1", 3, 5), weighing(t, "s1", 4, 1))
	in := instance(t, outcome, "scale", "s1")
	require.Equal(t, []int64{3}, in.AlreadyApplied)
	require.Equal(t, []int64{4}, in.Applied)
	require.InDelta(t, 11, outcome.State.(meter).Grams, 0)
	require.EqualValues(t, 1, *outcome.State.(meter).Revision, "R-26: a legacy row's first write gets the initial revision")
}

// an instance with a map entry never adopts.
func TestScalarMapEntryNeverAdopts(t *testing.T) {
	t.Parallel()
	h := newHarness(t, meters(t), "m1")
	h.row.Status, h.row.Values = projection.RowLive, []any{"m1", 10.0}
	h.row.Books.Checkpoints = map[string]int64{"scale#s1": 1}
	row := h.fold(weighing(t, "s1", 2, 5)).State.(meter)
	require.Nil(t, row.Session)
	require.Equal(t, map[string]int64{"scale#s1": 2}, row.Checkpoints)
}

// without a map another instance has no place.
func TestScalarConflict(t *testing.T) {
	t.Parallel()
	h := newHarness(t, meters(t, func(c *projection.Config[string, meter]) { c.Checkpoints.Map = "" }), "m1")
	h.row.Status, h.row.Values = projection.RowLive, []any{"m1", 10.0, nil}
	outcome := h.fold(weighing(t, "s1", 1, 5), weighing(t, "s2", 1, 7))
	require.NoError(t, outcome.Err)
	var conflict *projection.ProjectionSourceConflict
	require.ErrorAs(t, instance(t, outcome, "scale", "s2").Err, &conflict)
	require.EqualValues(t, "s1", conflict.Owner)
	require.InDelta(t, 15, outcome.State.(meter).Grams, 0)
}

// the first revision is configured, 0 allowed.
func TestInitialRevision(t *testing.T) {
	t.Parallel()
	for initial, want := range map[*int64][]int64{nil: {1, 2}, new(int64(0)): {0, 1}, new(int64(40)): {40, 41}} {
		h := newHarness(t, meters(t, func(c *projection.Config[string, meter]) { c.Revision.Initial = initial }), "m1")
		require.Equal(t, want[0], h.fold(weighing(t, "s1", 1, 5)).Revision)
		require.Equal(t, want[1], h.fold(weighing(t, "s1", 2, 5)).Revision)
	}
}

// "<source>#<stream id>" parses back, whatever a single-field id holds.
func TestCheckpointKey(t *testing.T) {
	t.Parallel()
	for _, in := range []projection.Instance{{Source: "a", StreamID: "b"}, {Source: "a", StreamID: "b#c"}, {Source: "a", StreamID: "#"}} {
		parsed, ok := projection.ParseCheckpointKey(in.CheckpointKey())
		require.True(t, ok)
		require.Equal(t, in, parsed)
	}
	for _, key := range []string{"", "a", "#closed#a#b", "a#"} {
		_, ok := projection.ParseCheckpointKey(key)
		require.False(t, ok, key)
	}
}
