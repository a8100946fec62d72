package projection_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/projection"
)

// every fault of a declaration is reported at once, and names the field.
func TestDefinitionFaults(t *testing.T) {
	t.Parallel()
	type bad struct {
		ID       string `row:"id,key"`
		Email    string `row:"email,unique"`
		Version  string `row:"version"`
		Session  string `row:"session"`
		Stray    chan int
		Revision int64 `row:"revision"`
	}
	source := projection.Source[string, bad, weighed]{Name: "a#b", Mode: "newest"}
	_, err := projection.New(projection.Config[string, bad]{
		Name: "x#y", Version: -1,
		Sources: []projection.AnySource[string, bad]{source, source},
		Checkpoints: projection.Checkpoints{Scalars: map[string]projection.Scalar{
			"a#b":   {Field: "version", InstanceField: "id"},
			"stray": {Field: "revision", InstanceField: "session"},
		}},
		Revision: projection.Revision{Field: "revision"},
		Removal:  &projection.Removal{TTL: time.Hour},
		Outbox:   &projection.Outbox{},
	})
	var definition *event.DefinitionError
	require.ErrorAs(t, err, &definition)
	for _, want := range []string{
		`Name "x#y"`, "Version is -1", "Initial is nil", "Stream is nil", "Key is nil", "Evolve is nil", `Mode is "newest"`,
		`the name "a#b" is empty or holds '#'`, "declared twice", `Scalars["stray"]: there is no such source`,
		`Scalars["a#b"].Field: column "version" is string`, `column "id" is part of the key`, `column "revision" already holds`,
		`column "email" is unique`, "field Stray", "Removal.TTL is 1h0m0s", "no types: declare one with event.Type",
	} {
		require.ErrorContains(t, err, want)
	}
	require.GreaterOrEqual(t, len(definition.Faults), 17)
}

// bookkeeping has to have a place.
func TestDefinitionBookkeeping(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*projection.Config[string, crate])
		want   string
	}{
		"no source":                    {func(c *projection.Config[string, crate]) { c.Sources = nil }, "Sources is empty"},
		"no checkpoint position":       {func(c *projection.Config[string, crate]) { c.Checkpoints.Map = "" }, `source "order" has no checkpoint position`},
		"several sources, no revision": {func(c *projection.Config[string, crate]) { c.Revision.Field = "" }, "several sources need a revision"},
		"outbox, no revision":          {func(c *projection.Config[string, crate]) { c.Revision.Field = ""; c.Sources = c.Sources[:1] }, "an outbox needs a revision"},
		"map of another type":          {func(c *projection.Config[string, crate]) { c.Checkpoints.Map = "history" }, "it must be a map[string]int64"},
		"revision missing":             {func(c *projection.Config[string, crate]) { c.Revision.Field = "rev" }, `the row type has no column "rev"`},
		"effects without outbox":       {func(c *projection.Config[string, crate]) { c.Outbox = nil }, "declare their types in Config.Outbox"},
		"negative revision":            {func(c *projection.Config[string, crate]) { c.Revision.Initial = new(int64(-1)) }, "Revision.Initial is negative"},
		"ttl below the replay window": {func(c *projection.Config[string, crate]) {
			c.Removal.TTL = 21 * 24 * time.Hour
			c.ReplayWindow = 7 * 24 * time.Hour
		}, "FeedRetention + LongestPark + ReplayWindow"},
		"one field for map and revision": {func(c *projection.Config[string, crate]) { c.Revision.Field = "checkpoints" }, "checkpoints"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := cratesConfig()
			test.change(&config)
			_, err := projection.New(config)
			require.ErrorContains(t, err, test.want)
			require.Panics(t, func() { projection.Must(config) })
		})
	}
}

func TestDefinitionKeyTypes(t *testing.T) {
	t.Parallel()
	type row struct {
		A string           `row:"a,key"`
		B int32            `row:"b,key"`
		C map[string]int64 `row:"c"`
	}
	type key struct {
		B int32 `row:"b"`
		A string
	}
	type half struct{ A string }
	p, err := projection.New(projection.Config[key, row]{
		Name: "Pairs", Initial: func(key) row { return row{} }, Checkpoints: projection.Checkpoints{Map: "c"},
		Sources: []projection.AnySource[key, row]{projection.Source[key, row, weighed]{
			Name: "s", Stream: scales, Key: func(event.Event[weighed]) (key, bool) { return key{A: "x#y%", B: -7}, true },
			Evolve: func(_ context.Context, r row, _ event.Event[weighed], _ projection.Instance) (row, error) {
				return r, nil
			},
		}},
	})
	require.NoError(t, err)
	text, err := p.KeyText(key{A: "x#y%", B: -7})
	require.NoError(t, err)
	require.Equal(t, "x%23y%25#-7", text)
	values, err := p.Model().ParseKey(text)
	require.NoError(t, err)
	require.Equal(t, []any{"x#y%", int64(-7)}, values)

	var incomplete *projection.IncompleteKey
	_, err = p.KeyText(key{B: 1})
	require.ErrorAs(t, err, &incomplete)
	require.Equal(t, "a", incomplete.Field)
	_, err = p.KeyText(key{A: "bad\xff", B: 1}) // JSON makes another key of it
	require.ErrorAs(t, err, &incomplete)
	require.Equal(t, "it is not valid UTF-8", incomplete.Reason)
	for _, text := range []string{"", "x", "x#", "x#y", "x#1#2", "#1"} {
		_, err = p.Model().ParseKey(text)
		require.ErrorAs(t, err, &incomplete, text)
	}
	_, err = projection.New(projection.Config[half, row]{Name: "Half", Initial: func(half) row { return row{} }, Checkpoints: projection.Checkpoints{Map: "c"}})
	require.ErrorContains(t, err, `no int field for the key column "b"`)
	_, err = projection.New(projection.Config[string, row]{Name: "Half", Initial: func(string) row { return row{} }, Checkpoints: projection.Checkpoints{Map: "c"}})
	require.ErrorContains(t, err, "does not fit the key columns")
}
