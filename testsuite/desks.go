package testsuite

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
)

// placed is an order for a desk: every one counts.
type placed struct {
	Desk string `json:"desk"`
	N    int64  `json:"n"`
}

// sighted says where a desk is: the latest one counts.
type sighted struct {
	Place string `json:"place"`
}

// unmoved is a place that changes nothing.
const unmoved = "unmoved"

// desk is the row that both are folded into.
type desk struct {
	ID          string           `row:"id,key"`
	Total       int64            `row:"total"`
	Place       string           `row:"place"`
	Checkpoints map[string]int64 `row:"checkpoints"`
	Revision    int64            `row:"revision"`
}

// desks is a projection of two streams with one effect for each event, and what its
// suites do with it on a backend.
type desks struct {
	*projection.Projection[string, desk]

	orders *event.Stream[placed]
	sights *event.Stream[sighted]
	b      Backend
}

// openDesks builds the projection and prepares the backend for it.
func openDesks(t testing.TB, b Backend) *desks {
	t.Helper()
	orders, err := event.NewStream[placed]("Order", []string{"orderId"}, event.Type[placed]("Placed"))
	require.NoError(t, err)
	sights, err := event.NewStream[sighted]("Sight", []string{"deskId"}, event.Type[sighted]("Sighted"))
	require.NoError(t, err)
	d := &desks{orders: orders, sights: sights, b: b}
	d.Projection, err = projection.New(projection.Config[string, desk]{
		Name: "Desks", Initial: func(string) desk { return desk{} },
		Sources:     []projection.AnySource[string, desk]{d.orderSource(), d.sightSource()},
		Checkpoints: projection.Checkpoints{Map: "checkpoints"},
		Revision:    projection.Revision{Field: "revision"},
		Outbox:      &projection.Outbox{Effects: []event.TypeDef{event.Type[notice]("Notice")}},
	})
	require.NoError(t, err)
	prepare(t, b, d.Model())
	return d
}

func (d *desks) orderSource() projection.AnySource[string, desk] {
	return projection.Source[string, desk, placed]{
		Name: "order", Stream: d.orders,
		Key: func(e event.Event[placed]) (string, bool) { return e.Data.Desk, true },
		Evolve: func(_ context.Context, row desk, e event.Event[placed], _ projection.Instance) (desk, error) {
			row.Total += e.Data.N
			return row, nil
		},
		Effects: func(_ *desk, e event.Event[placed], _ projection.Instance) ([]any, error) {
			return []any{notice{Number: int(e.Data.N)}}, nil
		},
	}
}

func (d *desks) sightSource() projection.AnySource[string, desk] {
	return projection.Source[string, desk, sighted]{
		Name: "sight", Stream: d.sights, Mode: projection.ModeLatest,
		Key: func(e event.Event[sighted]) (string, bool) { return string(e.StreamID), true },
		Evolve: func(_ context.Context, row desk, e event.Event[sighted], _ projection.Instance) (desk, error) {
			if e.Data.Place == unmoved {
				return row, projection.SkipEvent
			}
			row.Place = e.Data.Place
			return row, nil
		},
		Effects: func(*desk, event.Event[sighted], projection.Instance) ([]any, error) {
			return []any{notice{}}, nil
		},
	}
}

// place records orders of one instance and returns what a feed would show.
func (d *desks) place(t testing.TB, id event.ID, orders ...placed) []event.Record {
	t.Helper()
	version, err := d.b.Events.Version(t.Context(), d.orders.Name(), id)
	require.NoError(t, err)
	_, err = d.orders.Append(t.Context(), d.b.Events, id, version, orders...)
	require.NoError(t, err)
	return d.shown(t, d.orders.Name(), id, version)
}

// sight records sightings of a desk.
func (d *desks) sight(t testing.TB, key string, places ...string) []event.Record {
	t.Helper()
	sightings := make([]sighted, len(places))
	for i, place := range places {
		sightings[i] = sighted{place}
	}
	_, err := d.sights.Append(t.Context(), d.b.Events, event.ID(key), 0, sightings...)
	require.NoError(t, err)
	return d.shown(t, d.sights.Name(), event.ID(key), 0)
}

// shown returns the events of an instance after a version as records of a feed.
func (d *desks) shown(t testing.TB, stream string, id event.ID, after int64) []event.Record {
	t.Helper()
	envelopes, err := collect(d.b.Events.Read(t.Context(), stream, id, event.Range{After: after, Consistent: true}))
	require.NoError(t, err)
	records := make([]event.Record, len(envelopes))
	for i, envelope := range envelopes {
		records[i] = event.Record{Position: event.Position(fmt.Sprint(envelope.Version)), Envelope: envelope}
	}
	return records
}

// processor returns a processor of the projection over a store, as change makes it.
func (d *desks) processor(t testing.TB, store projection.Store, change ...func(*projection.ProcessorConfig)) *projection.Processor {
	t.Helper()
	config := projection.ProcessorConfig{
		Definitions: []projection.Definition{d}, Store: store, Events: d.b.Events,
		BackoffMin: time.Microsecond, BackoffMax: time.Millisecond, Now: func() time.Time { return noon },
	}
	for _, c := range change {
		c(&config)
	}
	processor, err := projection.NewProcessor(config)
	require.NoError(t, err)
	return processor
}

// pending returns the ids of the effects that wait in a desk's outbox, in order.
func (d *desks) pending(t testing.TB, key string) []string {
	t.Helper()
	view, err := d.b.Store.Head(t.Context(), d.row(key), outbox.MaxIndex)
	require.NoError(t, err)
	ids := make([]string, len(view.Items))
	for i, item := range view.Items {
		ids[i] = item.ID
	}
	require.IsIncreasing(t, append([]outbox.Sequence{""}, sequences(view.Items)...))
	return ids
}

func (d *desks) row(key string) outbox.Row { return outbox.Row{Projection: d.Name(), Key: key} }

// effectIDs returns the ids that the effects of some versions have.
func (d *desks) effectIDs(key, source string, id event.ID, versions ...int64) []string {
	ids := make([]string, len(versions))
	for i, version := range versions {
		ids[i] = outbox.EffectID(d.row(key), source, id, version, 0)
	}
	return ids
}

// get returns a desk that is there.
func (d *desks) get(t testing.TB, key string) desk {
	t.Helper()
	row, err := projection.NewRows(d.Projection, d.b.Store).Get(t.Context(), key)
	require.NoError(t, err)
	return row
}
