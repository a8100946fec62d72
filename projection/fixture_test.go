package projection_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The fixture: parcels of an order are loaded onto crates. An order feeds several
// crates, a tracker reports each crate's whole position, a scale its weighings.

type orderEvent interface{ order() }

type loaded struct {
	Crate string `json:"crate"`
	Count int64  `json:"count"`
}

type scrapped struct {
	Crate string `json:"crate"`
}

func (loaded) order()   {}
func (scrapped) order() {}

type moved struct {
	Place string `json:"place"`
}

type weighed struct {
	Crate string  `json:"crate"`
	Grams float64 `json:"grams"`
}

type crate struct {
	ID          string           `row:"id,key"`
	Count       int64            `row:"count"`
	Place       string           `row:"place"`
	Grams       float64          `row:"grams"`
	History     []string         `row:"history"`
	Checkpoints map[string]int64 `row:"checkpoints"`
	Revision    int64            `row:"revision"`
}

type note struct {
	Text string `json:"text"`
}

var (
	orders = event.MustStream[orderEvent]("Order", []string{"orderId"}, event.Type[loaded]("Loaded"), event.Type[scrapped]("Scrapped"))
	tracks = event.MustStream[moved]("Track", []string{"crateId"}, event.Type[moved]("Moved"))
	scales = event.MustStream[weighed]("Scale", []string{"sessionId"}, event.Type[weighed]("Weighed"))

	errNoPlace = errors.New("a crate is nowhere")
	errBroken  = errors.New("the scale is broken")
)

func orderSource() projection.Source[string, crate, orderEvent] {
	return projection.Source[string, crate, orderEvent]{
		Name: "order", Stream: orders,
		Key: func(e event.Event[orderEvent]) (string, bool) {
			switch data := e.Data.(type) {
			case loaded:
				return data.Crate, data.Crate != ""
			case scrapped:
				return data.Crate, true
			}
			return "", false
		},
		Evolve: func(_ context.Context, c crate, e event.Event[orderEvent], in projection.Instance) (crate, error) {
			switch data := e.Data.(type) {
			case loaded:
				if data.Count < 0 {
					panic("negative count")
				}
				c.Count += data.Count
				c.History = append(slices.Clone(c.History), fmt.Sprintf("%s@%d", in, e.Version))
				return c, nil
			default:
				return c, projection.RemoveRow
			}
		},
		Effects: func(next *crate, e event.Event[orderEvent], _ projection.Instance) ([]any, error) {
			if next == nil {
				return []any{note{"scrapped"}}, nil
			}
			if data, ok := e.Data.(loaded); ok && data.Count > 1 {
				return []any{note{fmt.Sprintf("%s has %d", next.ID, next.Count)}}, nil
			}
			return nil, nil
		},
	}
}

func trackSource() projection.Source[string, crate, moved] {
	return projection.Source[string, crate, moved]{
		Name: "track", Stream: tracks, Mode: projection.ModeLatest,
		Key: func(e event.Event[moved]) (string, bool) { return string(e.StreamID), true },
		Evolve: func(_ context.Context, c crate, e event.Event[moved], _ projection.Instance) (crate, error) {
			switch e.Data.Place {
			case "":
				return c, errNoPlace
			case "same":
				return c, projection.SkipEvent
			case "fault":
				return c, errBroken
			}
			c.Place = e.Data.Place
			return c, nil
		},
		Terminal: func(err error, _ event.Event[moved]) bool { return errors.Is(err, errNoPlace) },
		Effects: func(next *crate, _ event.Event[moved], _ projection.Instance) ([]any, error) {
			return []any{note{"at " + next.Place}}, nil
		},
	}
}

func scaleSource() projection.Source[string, crate, weighed] {
	return projection.Source[string, crate, weighed]{
		Name: "scale", Stream: scales,
		Key: func(e event.Event[weighed]) (string, bool) { return e.Data.Crate, true },
		Evolve: func(_ context.Context, c crate, e event.Event[weighed], _ projection.Instance) (crate, error) {
			switch {
			case e.Data.Grams == 0:
				return c, projection.SkipEvent
			case e.Data.Grams == -1:
				return c, errBroken
			case e.Data.Grams < -1:
				return c, errNoPlace
			}
			c.Grams += e.Data.Grams
			return c, nil
		},
		Terminal: func(err error, _ event.Event[weighed]) bool { return errors.Is(err, errNoPlace) },
	}
}

func cratesConfig() projection.Config[string, crate] {
	return projection.Config[string, crate]{
		Name:        "Crates",
		Initial:     func(string) crate { return crate{Place: "unknown"} },
		Sources:     []projection.AnySource[string, crate]{orderSource(), trackSource(), scaleSource()},
		Checkpoints: projection.Checkpoints{Map: "checkpoints"},
		Revision:    projection.Revision{Field: "revision"},
		Removal:     &projection.Removal{},
		Outbox:      &projection.Outbox{Effects: []event.TypeDef{event.Type[note]("Note")}},
	}
}

// crates returns a projection of the fixture, as change makes it.
func crates(tb testing.TB, change ...func(*projection.Config[string, crate])) *projection.Projection[string, crate] {
	tb.Helper()
	config := cratesConfig()
	for _, c := range change {
		c(&config)
	}
	p, err := projection.New(config)
	require.NoError(tb, err)
	return p
}

// envelope returns an event as a store would return it.
func envelope(tb testing.TB, stream string, id event.ID, version int64, data any) event.Envelope {
	tb.Helper()
	names := map[string]string{"loaded": "Loaded", "scrapped": "Scrapped", "moved": "Moved", "weighed": "Weighed"}
	payload, err := json.Marshal(data)
	require.NoError(tb, err)
	return event.Envelope{
		Stream: stream, StreamID: id, Version: version, Type: names[fmt.Sprintf("%T", data)[len("projection_test."):]],
		SchemaVersion: 1, Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Payload: payload,
	}
}

// harness folds batches onto one row in memory: it stands for a store that takes
// every write, since the fold itself knows no other.
type harness[R any] struct {
	t      testing.TB
	p      *projection.Projection[string, R]
	row    projection.Stored
	now    time.Time
	limits projection.Limits
	items  []outbox.Item
	skips  []projection.Skip
	writes int
}

func newHarness[R any](tb testing.TB, p *projection.Projection[string, R], key string) *harness[R] {
	tb.Helper()
	return &harness[R]{t: tb, p: p, row: projection.Stored{Key: key, Status: projection.RowAbsent}, now: time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)}
}

type fed struct {
	source   string
	envelope event.Envelope
}

func feed(source string, envelope event.Envelope) fed { return fed{source, envelope} }

// fold folds a batch and stores its writes.
func (h *harness[R]) fold(batch ...fed) projection.Outcome {
	h.t.Helper()
	return h.foldKnowing(nil, batch...)
}

func (h *harness[R]) foldKnowing(known map[projection.Instance]projection.Versions, batch ...fed) projection.Outcome {
	h.t.Helper()
	input := projection.RowBatch{Row: h.row, Known: known, Skips: h.skips}
	for _, f := range batch {
		e, mine, err := h.p.RowEvent(f.source, h.row.Key, f.envelope)
		require.NoError(h.t, err)
		if mine {
			input.Events = append(input.Events, e)
		}
	}
	fold := h.p.Fold(h.t.Context(), []projection.RowBatch{input}, projection.FoldOptions{Now: h.now, Limits: h.limits})[0]
	for _, write := range fold.Writes {
		require.Equal(h.t, h.row.Books.Revision, write.Guard.Revision, "each write is guarded by the revision before it")
		h.row.Books, h.row.Values, h.row.Status = write.Books, write.Values, projection.RowLive
		if write.Tombstone {
			h.row.Status = projection.RowTombstone
		}
		h.row.ExpiresAt, h.row.WriteID = write.ExpiresAt, write.ID
		h.items = append(h.items, write.Effects...)
		h.writes++
	}
	return fold.Outcome
}

// instance returns the outcome of one instance.
func instance(tb testing.TB, outcome projection.Outcome, source string, id event.ID) projection.InstanceOutcome {
	tb.Helper()
	at := slices.IndexFunc(outcome.Instances, func(in projection.InstanceOutcome) bool {
		return in.Source == source && in.StreamID == id
	})
	require.GreaterOrEqual(tb, at, 0, "no outcome of %s#%s", source, id)
	return outcome.Instances[at]
}

func rejectedVersions(in projection.InstanceOutcome) []int64 {
	var versions []int64
	for _, r := range in.Rejected {
		versions = append(versions, r.Version)
	}
	return versions
}
