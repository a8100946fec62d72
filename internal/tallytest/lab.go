package tallytest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/activities"
	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
	"github.com/rowfold/rowfold/store/sqlite"
)

// Names of what a [Lab] has.
const (
	Projection = "Tally" // the projection
	Source     = "day"   // its source
	Stream     = "Day"   // the stream that the source reads
	Consumer   = "tallies"
)

// Entry is the event: it adds an amount to a tally.
type Entry struct {
	Tally  string `json:"tally"`
	Amount int64  `json:"amount"`
	// Poison lets the fold fail while the lab is broken.
	Poison bool `json:"poison,omitempty"`
	// Removes removes the tally.
	Removes bool `json:"removes,omitempty"`
}

// Tally is the row.
type Tally struct {
	Name        string           `row:"name,key"`
	Total       int64            `row:"total"`
	Entries     int64            `row:"entries"`
	Checkpoints map[string]int64 `row:"checkpoints"`
	Revision    int64            `row:"revision"`
}

// Added is the effect of every entry that is applied.
type Added struct {
	Total int64 `json:"total"`
}

// Lab is a store with the projection.
type Lab struct {
	Store      *sqlite.Store
	Definition *projection.Projection[string, Tally]

	stream *event.Stream[Entry]
	fault  atomic.Pointer[error]
}

// New returns a lab on a store of its own, which the end of the test closes. Its zero
// configuration is a database in memory.
func New(tb testing.TB, config sqlite.Config) *Lab {
	tb.Helper()
	stream, err := event.NewStream[Entry](Stream, []string{"day"}, event.Type[Entry]("Entry"))
	require.NoError(tb, err)
	l := &Lab{stream: stream}
	l.Definition, err = projection.New(projection.Config[string, Tally]{
		Name:    Projection,
		Initial: func(string) Tally { return Tally{} },
		Sources: []projection.AnySource[string, Tally]{projection.Source[string, Tally, Entry]{
			Name: Source, Stream: stream,
			Key:    func(e event.Event[Entry]) (string, bool) { return e.Data.Tally, true },
			Evolve: l.evolve,
			Effects: func(next *Tally, _ event.Event[Entry], _ projection.Instance) ([]any, error) {
				if next == nil {
					return nil, nil
				}
				return []any{Added{Total: next.Total}}, nil
			},
		}},
		Checkpoints: projection.Checkpoints{Map: "checkpoints"},
		Revision:    projection.Revision{Field: "revision"},
		Removal:     &projection.Removal{TTL: 60 * 24 * time.Hour},
		Outbox:      &projection.Outbox{Effects: []event.TypeDef{event.Type[Added]("Added")}},
	})
	require.NoError(tb, err)
	l.Store, err = sqlite.Open(tb.Context(), config)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, l.Store.Close()) })
	require.NoError(tb, l.Store.Prepare(tb.Context(), l.Definition.Model()))
	return l
}

func (l *Lab) evolve(_ context.Context, tally Tally, e event.Event[Entry], _ projection.Instance) (Tally, error) {
	if fault := l.fault.Load(); fault != nil && e.Data.Poison {
		return tally, *fault
	}
	if e.Data.Removes {
		return tally, projection.RemoveRow
	}
	tally.Total += e.Data.Amount
	tally.Entries++
	return tally, nil
}

// Break lets the fold fail with err at every poisoned entry.
func (l *Lab) Break(err error) { l.fault.Store(&err) }

// Mend lets the fold take poisoned entries again.
func (l *Lab) Mend() { l.fault.Store(nil) }

// Processor returns a processor that tells wake of rows with effects; nil = nobody is told.
func (l *Lab) Processor(tb testing.TB, wake func(context.Context, []outbox.Row)) *projection.Processor {
	tb.Helper()
	processor, err := projection.NewProcessor(projection.ProcessorConfig{
		Definitions: []projection.Definition{l.Definition}, Store: l.Store, Events: l.Store, Wake: wake,
	})
	require.NoError(tb, err)
	return processor
}

// Append records entries of a day as its next versions, and returns the last one.
func (l *Lab) Append(tb testing.TB, day event.ID, entries ...Entry) int64 {
	tb.Helper()
	version, err := l.Store.Version(tb.Context(), Stream, day)
	require.NoError(tb, err)
	appended, err := l.stream.Append(tb.Context(), l.Store, day, version, entries...)
	require.NoError(tb, err)
	return appended.Last
}

// Records returns the events of a day as a feed would show them.
func (l *Lab) Records(tb testing.TB, day event.ID) []event.Record {
	tb.Helper()
	var records []event.Record
	for envelope, err := range l.Store.Read(tb.Context(), Stream, day, event.Range{}) {
		require.NoError(tb, err)
		records = append(records, event.Record{Envelope: envelope})
	}
	return records
}

// Tally returns a row, and the zero row where there is none.
func (l *Lab) Tally(tb testing.TB, name string) Tally {
	tb.Helper()
	row, err := l.Find(tb.Context(), name)
	require.NoError(tb, err)
	return row
}

// Find is Tally for conditions, which must not end the test.
func (l *Lab) Find(ctx context.Context, name string) (Tally, error) {
	row, err := projection.NewRows(l.Definition, l.Store).Get(ctx, name)
	if _, absent := errors.AsType[*projection.NotFound](err); absent {
		return Tally{}, nil
	}
	return row, err
}

// Parked returns the park of a day; nil = it is not parked.
func (l *Lab) Parked(tb testing.TB, day event.ID) *projection.Park {
	tb.Helper()
	parks, err := l.Store.Parked(tb.Context(), Projection, []projection.Instance{Instance(day)})
	require.NoError(tb, err)
	if len(parks) == 0 {
		return nil
	}
	return &parks[0]
}

// Position returns the consumer's record in a shard of a feed; nil = there is none.
func (l *Lab) Position(tb testing.TB, feed, shard string) *projection.PositionRecord {
	tb.Helper()
	records, err := l.Store.Positions(tb.Context(), Consumer, feed)
	require.NoError(tb, err)
	if record, found := records[shard]; found {
		return &record
	}
	return nil
}

// Instance returns the instance of a day.
func Instance(day event.ID) projection.Instance {
	return projection.Instance{Source: Source, StreamID: day}
}

// Entries returns n entries of 1 for a tally.
func Entries(tally string, n int) []Entry {
	entries := make([]Entry, n)
	for i := range entries {
		entries[i] = Entry{Tally: tally, Amount: 1}
	}
	return entries
}

var _ activities.Processor = (*projection.Processor)(nil)
