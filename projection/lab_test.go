package projection_test

import (
	"context"
	"iter"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
	"github.com/rowfold/rowfold/store/sqlite"
)

// setup says how a lab differs from the fixture.
type setup struct {
	definition func(*projection.Config[string, crate])
	processor  func(*projection.ProcessorConfig)
	store      sqlite.Config
}

// lab is the fixture's projection with a processor on a real store. What passes between
// them is counted, and can be made to fail.
type lab struct {
	tb        testing.TB
	p         *projection.Projection[string, crate]
	store     *sqlite.Store
	spy       *spyStore
	events    *spyReader
	metrics   *totals
	rows      *projection.Rows[string, crate]
	processor *projection.Processor
}

func newLab(tb testing.TB, s setup) *lab {
	tb.Helper()
	l := &lab{tb: tb, metrics: &totals{byName: map[string]*atomic.Int64{}}}
	if s.definition == nil {
		s.definition = func(*projection.Config[string, crate]) {}
	}
	l.p = crates(tb, s.definition)
	l.store = openStore(tb, s.store, l.p)
	l.spy, l.events = &spyStore{Store: l.store}, &spyReader{Reader: l.store}
	l.rows = projection.NewRows(l.p, l.store)
	config := projection.ProcessorConfig{
		Definitions: []projection.Definition{l.p}, Store: l.spy, Events: l.events, Meter: l.metrics,
		BackoffMin: time.Microsecond, BackoffMax: time.Millisecond,
	}
	if s.processor != nil {
		s.processor(&config)
	}
	processor, err := projection.NewProcessor(config)
	require.NoError(tb, err)
	l.processor = processor
	return l
}

func openStore(tb testing.TB, config sqlite.Config, definitions ...projection.Definition) *sqlite.Store {
	tb.Helper()
	store, err := sqlite.Open(tb.Context(), config)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, store.Close()) })
	models := make([]*projection.Model, len(definitions))
	for i, definition := range definitions {
		models[i] = definition.Model()
	}
	require.NoError(tb, store.Prepare(tb.Context(), models...))
	return store
}

// record appends events to an instance and returns them as a feed would.
func (l *lab) record(stream string, id event.ID, data ...any) []event.Record {
	l.tb.Helper()
	head, err := l.store.Version(l.tb.Context(), stream, id)
	require.NoError(l.tb, err)
	recorded := make([]event.Record, len(data))
	for i, d := range data {
		env := envelope(l.tb, stream, id, head+int64(i)+1, d)
		recordEnvelope(l.tb, l.store, env)
		recorded[i] = event.Record{Position: event.Position(strconv.Itoa(i)), Envelope: env}
	}
	return recorded
}

// recordEnvelope appends one event at its version.
func recordEnvelope(tb testing.TB, store event.Appender, env event.Envelope) {
	tb.Helper()
	_, err := store.Append(tb.Context(), event.Append{
		Stream: env.Stream, StreamID: env.StreamID, Expected: env.Version - 1,
		Events: []event.NewEvent{{Type: env.Type, SchemaVersion: env.SchemaVersion, Time: env.Time, Metadata: env.Metadata, Payload: env.Payload}},
	})
	require.NoError(tb, err)
}

// apply processes records that come in several pieces as one batch.
func (l *lab) apply(pieces ...[]event.Record) projection.BatchResult {
	l.tb.Helper()
	return l.applyWith(projection.BatchOptions{}, pieces...)
}

func (l *lab) applyWith(options projection.BatchOptions, pieces ...[]event.Record) projection.BatchResult {
	l.tb.Helper()
	result, err := l.processor.ProcessBatch(l.tb.Context(), batch(pieces...), options)
	require.NoError(l.tb, err)
	return result
}

func batch(pieces ...[]event.Record) []event.Record {
	var records []event.Record
	for _, piece := range pieces {
		records = append(records, piece...)
	}
	return records
}

// row returns a live row.
func (l *lab) row(key string) crate {
	l.tb.Helper()
	row, err := l.rows.Get(l.tb.Context(), key)
	require.NoError(l.tb, err)
	return row
}

// stored returns what stands in a row's place.
func (l *lab) stored(key string) projection.Stored {
	l.tb.Helper()
	stored, err := l.store.Load(l.tb.Context(), l.p.Model(), []string{key})
	require.NoError(l.tb, err)
	return stored[0]
}

// pending returns the effects that wait in a row's outbox, in order.
func (l *lab) pending(key string) []outbox.Item {
	l.tb.Helper()
	head, err := l.store.Head(l.tb.Context(), outbox.Row{Projection: l.p.Name(), Key: key}, 10_000)
	require.NoError(l.tb, err)
	return head.Items
}

// outcomeOf returns the outcome of a row.
func outcomeOf(tb testing.TB, result projection.BatchResult, key string) projection.Outcome {
	tb.Helper()
	for _, outcome := range result.Rows {
		if outcome.Key == key {
			return outcome
		}
	}
	require.Fail(tb, "no outcome of the row", key)
	return projection.Outcome{}
}

// spyStore watches a store. Its hooks run before the call and answer in its place when
// they say so.
type spyStore struct {
	projection.Store

	mu      sync.Mutex
	commits [][]projection.Write
	loads   [][]string
	// beforeCommit gets the number of the call, from 1. Results that are not nil are the
	// call's.
	beforeCommit func(call int, writes []projection.Write) []error
	// afterCommit may change the results.
	afterCommit func(call int, results []error) []error
}

func (s *spyStore) Load(ctx context.Context, model *projection.Model, keys []string) ([]projection.Stored, error) {
	s.mu.Lock()
	s.loads = append(s.loads, keys)
	s.mu.Unlock()
	return s.Store.Load(ctx, model, keys)
}

func (s *spyStore) Commit(ctx context.Context, model *projection.Model, writes []projection.Write) []error {
	s.mu.Lock()
	s.commits = append(s.commits, writes)
	call := len(s.commits)
	s.mu.Unlock()
	if s.beforeCommit != nil {
		if results := s.beforeCommit(call, writes); results != nil {
			return results
		}
	}
	results := s.Store.Commit(ctx, model, writes)
	if s.afterCommit != nil {
		results = s.afterCommit(call, results)
	}
	return results
}

// writes returns how many writes were sent.
func (s *spyStore) writes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent := 0
	for _, writes := range s.commits {
		sent += len(writes)
	}
	return sent
}

// spyReader watches an event store, and can hide a part of it.
type spyReader struct {
	event.Reader

	mu    sync.Mutex
	reads []event.Range
	// hidden says which events are not there (yet, or any more); nil = none.
	hidden func(event.Envelope) bool
	// fails is the error of every read; nil = none.
	fails error
}

func (s *spyReader) Read(ctx context.Context, stream string, id event.ID, part event.Range) iter.Seq2[event.Envelope, error] {
	s.mu.Lock()
	s.reads = append(s.reads, part)
	s.mu.Unlock()
	return func(yield func(event.Envelope, error) bool) {
		if s.fails != nil {
			yield(event.Envelope{}, s.fails)
			return
		}
		for env, err := range s.Reader.Read(ctx, stream, id, part) {
			if err == nil && s.hidden != nil && s.hidden(env) {
				continue
			}
			if !yield(env, err) {
				return
			}
		}
	}
}

func (s *spyReader) Oldest(ctx context.Context, stream string, id event.ID) (int64, error) {
	for env, err := range s.Reader.Read(ctx, stream, id, event.Range{Consistent: true}) {
		if err != nil {
			return 0, err
		}
		if s.hidden == nil || !s.hidden(env) {
			return env.Version, nil
		}
	}
	return 0, nil
}

// below hides the versions below one, as a retention would.
func below(version int64) func(event.Envelope) bool {
	return func(env event.Envelope) bool { return env.Version < version }
}

// totals adds up what counters and histograms are given, by the instrument's name.
type totals struct {
	noop.MeterProvider

	mu     sync.Mutex
	byName map[string]*atomic.Int64
}

func (t *totals) of(name string) *atomic.Int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byName[name] == nil {
		t.byName[name] = &atomic.Int64{}
	}
	return t.byName[name]
}

func (t *totals) Meter(string, ...metric.MeterOption) metric.Meter { return tally{totals: t} }

type tally struct {
	noop.Meter

	totals *totals
}

func (m tally) Int64Counter(name string, _ ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return counter{total: m.totals.of(name)}, nil
}

func (m tally) Int64Histogram(name string, _ ...metric.Int64HistogramOption) (metric.Int64Histogram, error) {
	return histogram{total: m.totals.of(name)}, nil
}

type counter struct {
	noop.Int64Counter

	total *atomic.Int64
}

func (c counter) Add(_ context.Context, n int64, _ ...metric.AddOption) { c.total.Add(n) }

type histogram struct {
	noop.Int64Histogram

	total *atomic.Int64
}

func (h histogram) Record(_ context.Context, n int64, _ ...metric.RecordOption) { h.total.Add(n) }
