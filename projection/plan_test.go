package projection_test

import (
	"context"
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/projection"
	"github.com/rowfold/rowfold/store/sqlite"
)

type colour string

// everything has a column of every kind, and a key of two columns.
type everything struct {
	Shelf       string `row:"shelf,key"`
	Place       int32  `row:"place,key"`
	Text        string
	Colour      colour
	Int         int64
	Small       int8
	Byte        uint8
	Word        uint32
	Float       float64
	Half        float32
	Bool        bool
	Time        time.Time
	Bytes       []byte
	Raw         json.RawMessage
	Map         map[string]int
	Slice       []string
	Struct      note
	Array       [2]int
	Any         any
	TextOrNot   *string
	IntOrNot    *int64
	FloatOrNot  *float64
	BoolOrNot   *bool
	TimeOrNot   *time.Time
	NoteOrNot   *note
	Ignored     string `row:"-"`
	hidden      string
	Checkpoints map[string]int64
	Revision    *int64
}

type slot struct {
	Place int32
	Shelf string
}

func shelves(t *testing.T, evolve func(everything) everything) *projection.Projection[slot, everything] {
	t.Helper()
	p, err := projection.New(projection.Config[slot, everything]{
		Name: "Shelves", Initial: func(slot) everything { return everything{} },
		Checkpoints: projection.Checkpoints{Map: "checkpoints"}, Revision: projection.Revision{Field: "revision"},
		Sources: []projection.AnySource[slot, everything]{projection.Source[slot, everything, weighed]{
			Name: "scale", Stream: scales, Key: func(e event.Event[weighed]) (slot, bool) { return slot{-7, e.Data.Crate}, true },
			Evolve: func(_ context.Context, row everything, _ event.Event[weighed], _ projection.Instance) (everything, error) {
				return evolve(row), nil
			},
		}},
	})
	require.NoError(t, err)
	return p
}

// Values of every kind come back from the store as they were, to readers and to the fold.
func TestRowsOfEveryKind(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 2, 3, 4, 5, 6, 7000, time.UTC)
	full := everything{
		Text: "a'b\x00ü", Colour: "red", Int: math.MinInt64, Small: -128, Byte: 255, Word: math.MaxUint32, Float: 0.1, Half: 0.25, Bool: true,
		Time: at, Bytes: []byte{0, 1, 255}, Raw: json.RawMessage(`{"a":[1,2]}`), Map: map[string]int{"x": 1}, Slice: []string{"y"},
		Struct: note{"z"}, Array: [2]int{3, 4}, Any: map[string]any{"k": "v"},
		TextOrNot: new(""), IntOrNot: new(int64(0)), FloatOrNot: new(0.0), BoolOrNot: new(false), TimeOrNot: new(at), NoteOrNot: &note{"w"},
	}
	for name, want := range map[string]everything{"full": full, "empty": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var seen []everything
			p := shelves(t, func(row everything) everything {
				seen = append(seen, row)
				next := want
				next.Shelf, next.Place, next.Ignored, next.hidden = row.Shelf, row.Place, "not stored", "not stored"
				return next
			})
			store := openStore(t, sqlite.Config{}, p)
			processor, err := projection.NewProcessor(projection.ProcessorConfig{Definitions: []projection.Definition{p}, Store: store, Events: store})
			require.NoError(t, err)
			for version := range int64(2) {
				result, err := processor.ProcessBatch(t.Context(), recordsOf(t, "Scale", "s1", version+1, weighed{"top#1", 1}), projection.BatchOptions{})
				require.NoError(t, err)
				require.Empty(t, result.Failures)
			}
			want.Shelf, want.Place = "top#1", -7
			want.Checkpoints, want.Revision = map[string]int64{"scale#s1": 1}, new(int64(1))
			require.Equal(t, everything{Shelf: "top#1", Place: -7}, seen[0])
			require.Equal(t, want, seen[1])
			want.Checkpoints, want.Revision = map[string]int64{"scale#s1": 2}, new(int64(2))
			got, err := projection.NewRows(p, store).Get(t.Context(), slot{-7, "top#1"})
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
	}
}

// Times lose what is below the microsecond, and their zone; nothing else.
func TestRowsTimes(t *testing.T) {
	t.Parallel()
	p := shelves(t, func(row everything) everything { return row })
	store := openStore(t, sqlite.Config{}, p)
	rows := projection.NewRows(p, store)
	at := time.Date(2026, 2, 3, 4, 5, 6, 7999, time.FixedZone("east", 3600))
	require.NoError(t, rows.Put(t.Context(), everything{Shelf: "a", Time: at}))
	row, err := rows.Get(t.Context(), slot{0, "a"})
	require.NoError(t, err)
	require.Equal(t, time.Date(2026, 2, 3, 3, 5, 6, 7000, time.UTC), row.Time)
}

// What no column can hold is refused, with the column's name, before it is sent.
func TestRowsRefuseValues(t *testing.T) {
	t.Parallel()
	p := shelves(t, func(row everything) everything { return row })
	store := openStore(t, sqlite.Config{}, p)
	for column, row := range map[string]everything{
		"float": {Shelf: "a", Float: math.NaN()}, "half": {Shelf: "a", Half: float32(math.Inf(1))},
		"float_or_not": {Shelf: "a", FloatOrNot: new(math.Inf(-1))}, "any": {Shelf: "a", Any: func() {}},
		"raw": {Shelf: "a", Raw: json.RawMessage(`{`)},
	} {
		var value *projection.ValueError
		require.ErrorAs(t, projection.NewRows(p, store).Put(t.Context(), row), &value, column)
		require.Equal(t, projection.ValueError{Projection: "Shelves", Column: column, Err: value.Err}, *value)
		require.Equal(t, event.ClassPermanent, event.Classify(value))
	}
}

// meterLab is a projection whose checkpoint may be in a column of its own.
func meterLab(t *testing.T, change ...func(*projection.Config[string, meter])) (apply func(id event.ID, version int64, grams float64) projection.BatchResult, get func() meter) {
	t.Helper()
	p := meters(t, change...)
	store := openStore(t, sqlite.Config{}, p)
	processor, err := projection.NewProcessor(projection.ProcessorConfig{Definitions: []projection.Definition{p}, Store: store, Events: store})
	require.NoError(t, err)
	apply = func(id event.ID, version int64, grams float64) projection.BatchResult {
		env := envelope(t, "Scale", id, version, weighed{"m1", grams})
		recordEnvelope(t, store, env)
		result, err := processor.ProcessBatch(t.Context(), []event.Record{{Envelope: env}}, projection.BatchOptions{})
		require.NoError(t, err)
		return result
	}
	get = func() meter {
		row, err := projection.NewRows(p, store).Get(t.Context(), "m1")
		require.NoError(t, err)
		return row
	}
	return apply, get
}

// on a store, too, the first instance that writes has the column, the
// others the map, which comes into being with them.
func TestRowsWithAScalarCheckpoint(t *testing.T) {
	t.Parallel()
	apply, get := meterLab(t)
	require.Empty(t, apply("s0", 1, 0).Failures)
	apply("s1", 1, 5)
	require.Equal(t, meter{ID: "m1", Grams: 5, Version: new(int64(0)), Session: new("s1"), Revision: new(int64(1))}, get())
	apply("s2", 1, 7)
	apply("s1", 2, 1)
	require.Equal(t, meter{
		ID: "m1", Grams: 13, Version: new(int64(1)), Session: new("s1"), Revision: new(int64(3)), Checkpoints: map[string]int64{"scale#s2": 1},
	}, get())
}

// without a map another instance has no place, and nothing of it is written.
func TestRowsWithAScalarCheckpointOnly(t *testing.T) {
	t.Parallel()
	apply, get := meterLab(t, func(c *projection.Config[string, meter]) { c.Checkpoints.Map = "" })
	apply("s1", 1, 5)
	before := get()
	result := apply("s2", 1, 7)
	require.Len(t, result.Failures, 1)
	var conflict *projection.ProjectionSourceConflict
	require.ErrorAs(t, result.Failures[0], &conflict)
	require.Equal(t, event.ID("s1"), conflict.Owner)
	require.Equal(t, projection.Instance{Source: "scale", StreamID: "s2"}, conflict.Instance)
	require.Equal(t, event.ClassPermanent, result.Failures[0].Class())
	require.Equal(t, before, get())
}

// a row that was there before, with a stored number, no owner and no
// revision, is adopted: what the number covers is not applied again.
func TestRowsAdoptAScalarCheckpoint(t *testing.T) {
	t.Parallel()
	p := meters(t)
	store := openStore(t, sqlite.Config{}, p)
	write := projection.Write{
		Key: "m1", GuardStatus: projection.RowAbsent, Values: []any{"m1", 40.0}, ID: "from another program",
		Books: projection.Bookkeeping{Scalars: map[string]projection.ScalarCheckpoint{"scale": {Stored: new(int64(1))}}},
	}
	require.NoError(t, store.Commit(t.Context(), p.Model(), []projection.Write{write})[0])
	processor, err := projection.NewProcessor(projection.ProcessorConfig{Definitions: []projection.Definition{p}, Store: store, Events: store})
	require.NoError(t, err)
	var records []event.Record
	for version := range int64(3) {
		env := envelope(t, "Scale", "s1", version+1, weighed{"m1", 1})
		recordEnvelope(t, store, env)
		records = append(records, event.Record{Envelope: env})
	}
	result, err := processor.ProcessBatch(t.Context(), records, projection.BatchOptions{})
	require.NoError(t, err)
	require.Empty(t, result.Failures)
	in := outcomeOf(t, result, "m1").Instances[0]
	require.Equal(t, []int64{1, 2}, in.AlreadyApplied, "1 + 1, as the offset says")
	require.Equal(t, []int64{3}, in.Applied)
	row, err := projection.NewRows(p, store).Get(t.Context(), "m1")
	require.NoError(t, err)
	require.Equal(t, meter{ID: "m1", Grams: 41, Version: new(int64(2)), Session: new("s1"), Revision: new(int64(1))}, row)
}
