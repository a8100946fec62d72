package projection_test

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/projection"
	"github.com/rowfold/rowfold/store/sqlite"
)

// a record is decoded once, however many sources and projections read it.
func TestRouteDecodesOnce(t *testing.T) {
	t.Parallel()
	var decoded atomic.Int64
	counted := event.MustStream[weighed]("Scale", []string{"sessionId"}, event.Type[weighed]("Weighed", event.SchemaVersion(2),
		event.Upcast(1, func(payload json.RawMessage) (json.RawMessage, error) { decoded.Add(1); return payload, nil })))
	definition := func(name string) *projection.Projection[string, crate] {
		return crates(t, func(c *projection.Config[string, crate]) {
			first, second := scaleSource(), scaleSource()
			first.Name, first.Stream, second.Name, second.Stream = "scale", counted, "twin", counted
			c.Name, c.Table, c.Sources, c.Outbox = name, name, []projection.AnySource[string, crate]{first, second}, nil
		})
	}
	a, b := definition("first"), definition("second")
	store := openStore(t, sqlite.Config{}, a, b)
	processor, err := projection.NewProcessor(projection.ProcessorConfig{Definitions: []projection.Definition{a, b}, Store: store, Events: store})
	require.NoError(t, err)
	result, err := processor.ProcessBatch(t.Context(), batch(
		recordsOf(t, "Scale", "s1", 1, weighed{"c1", 3}), recordsOf(t, "Scale", "s1", 2, weighed{"c1", 4})), projection.BatchOptions{})
	require.NoError(t, err)
	require.Empty(t, result.Failures)
	require.EqualValues(t, 2, decoded.Load())
	for _, p := range []*projection.Projection[string, crate]{a, b} {
		row, err := projection.NewRows(p, store).Get(t.Context(), "c1")
		require.NoError(t, err)
		require.InDelta(t, 14, row.Grams, 0, "R-9: two sources of one stream are two instances")
		require.Equal(t, map[string]int64{"scale#s1": 2, "twin#s1": 2}, row.Checkpoints)
	}
}

// of two sources that read one stream, one may fail without the other.
func TestRouteTwoSourcesOfOneStream(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{definition: func(c *projection.Config[string, crate]) {
		twin := scaleSource()
		twin.Name = "twin"
		twin.Key = func(_ event.Event[weighed]) (string, bool) { return "c9", true }
		twin.Evolve = func(_ context.Context, c crate, _ event.Event[weighed], _ projection.Instance) (crate, error) {
			return c, errBroken
		}
		c.Sources = append(c.Sources, twin)
	}})
	result := l.apply(l.record("Scale", "s1", weighed{"c1", 1}))
	require.Len(t, result.Failures, 1)
	require.Equal(t, projection.Instance{Source: "twin", StreamID: "s1"}, result.Failures[0].Instance)
	require.Equal(t, []string{"c9"}, result.Failures[0].Rows)
	require.InDelta(t, 1, l.row("c1").Grams, 0)
}

// A key that names no row is an error of its instance.
func TestRouteIncompleteKey(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{})
	result := l.apply(l.record("Scale", "s1", weighed{"c1", 1}, weighed{"", 1}))
	require.Len(t, result.Failures, 1)
	var incomplete *projection.IncompleteKey
	require.ErrorAs(t, result.Failures[0], &incomplete)
	require.Equal(t, 1, result.Failures[0].Record)
	require.Equal(t, map[string]int64{"scale#s1": 1}, l.row("c1").Checkpoints)
}

// A row's key is found by its text again, whatever it holds.
func TestRouteKeysWithSeparators(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{})
	for _, key := range []string{"a#b", "a%23b", "%", "ü | ;'\""} {
		l.apply(l.record("Scale", event.ID("s"+key), weighed{key, 5}))
		row := l.row(key)
		require.Equal(t, key, row.ID)
		require.InDelta(t, 5, row.Grams, 0)
		require.Equal(t, map[string]int64{"scale#s" + key: 1}, row.Checkpoints)
	}
	require.Len(t, allKeys(t, l.rows), 4)
}

// An event of a source is an event of its row, and of no other.
func TestRowEvent(t *testing.T) {
	t.Parallel()
	p := crates(t)
	env := envelope(t, "Scale", "s1", 3, weighed{"c1", 1})
	e, mine, err := p.RowEvent("scale", "c1", env)
	require.NoError(t, err)
	require.True(t, mine)
	require.Equal(t, projection.Instance{Source: "scale", StreamID: "s1"}, e.Instance)
	require.Equal(t, env, e.Envelope)
	for _, other := range []struct{ source, key string }{{"scale", "c2"}, {"order", "c1"}, {"ghost", "c1"}} {
		_, mine, err = p.RowEvent(other.source, other.key, env)
		require.NoError(t, err)
		require.False(t, mine, other)
	}
	env.SchemaVersion = 9
	_, mine, err = p.RowEvent("scale", "c1", env)
	var newer *event.UnknownSchemaVersion
	require.ErrorAs(t, err, &newer)
	require.False(t, mine)
	var broken *event.RecordError
	require.ErrorAs(t, err, &broken)
	require.EqualValues(t, 3, broken.Version)
}
