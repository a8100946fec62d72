package projection_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/projection"
	"github.com/rowfold/rowfold/store/sqlite"
)

// weighings is the row of a projection with one source, no revision and no outbox.
type weighings struct {
	Session     string `row:"session,key"`
	Count       int64
	Checkpoints map[string]int64
}

// sessions counts the weighings of each session: it reads a stream that Crates reads, too.
func sessions(tb testing.TB) *projection.Projection[string, weighings] {
	tb.Helper()
	p, err := projection.New(projection.Config[string, weighings]{
		Name:    "Sessions",
		Initial: func(string) weighings { return weighings{} },
		Sources: []projection.AnySource[string, weighings]{projection.Source[string, weighings, weighed]{
			Name: "session", Stream: scales,
			Key: func(e event.Event[weighed]) (string, bool) { return string(e.StreamID), true },
			Evolve: func(_ context.Context, w weighings, _ event.Event[weighed], _ projection.Instance) (weighings, error) {
				w.Count++
				return w, nil
			},
		}},
		Checkpoints: projection.Checkpoints{Map: "checkpoints"},
	})
	require.NoError(tb, err)
	return p
}

// mixedLab has a projection of several sources and one of a single source.
func mixedLab(t *testing.T) (*lab, *projection.Rows[string, weighings]) {
	t.Helper()
	single := sessions(t)
	l := newLab(t, setup{processor: func(c *projection.ProcessorConfig) { c.Definitions = append(c.Definitions, single) }})
	require.NoError(t, l.store.Prepare(t.Context(), single.Model()))
	return l, projection.NewRows(single, l.store)
}

// a record goes to every projection that reads its stream.
func TestBatchMixesProjections(t *testing.T) {
	t.Parallel()
	l, singles := mixedLab(t)
	weights := l.record("Scale", "s1", weighed{"c1", 1}, weighed{"c2", 2}, weighed{"c1", 0})
	result := l.apply(l.record("Order", "o1", loaded{"c1", 1}), weights, l.record("Track", "c2", moved{"dock"}))
	require.Empty(t, result.Failures)
	var names []string
	for _, outcome := range result.Rows {
		names = append(names, outcome.Projection+"/"+outcome.Key)
		require.True(t, outcome.Written)
	}
	require.Equal(t, []string{"Crates/c1", "Crates/c2", "Sessions/s1"}, names)
	require.InDelta(t, 1, l.row("c1").Grams, 0)
	require.Equal(t, "dock", l.row("c2").Place)
	session, err := singles.Get(t.Context(), "s1")
	require.NoError(t, err)
	require.Equal(t, weighings{Session: "s1", Count: 3, Checkpoints: map[string]int64{"session#s1": 3}}, session)
	require.Equal(t, 1, result.Enqueued, "the crate that moved")
	require.EqualValues(t, 1+2+1+3, l.metrics.of("rowfold.events_applied").Load(), "three events by Sessions, a skip by none")

	result = l.apply(weights)
	require.Empty(t, result.Failures)
	for _, outcome := range result.Rows {
		require.False(t, outcome.Written, "R-15, R-8: without a revision, too")
	}
}

// a batch can be kept to some projections.
func TestBatchOnlyForSomeProjections(t *testing.T) {
	t.Parallel()
	l, singles := mixedLab(t)
	weights := l.record("Scale", "s1", weighed{"c1", 1})
	require.Len(t, l.applyWith(projection.BatchOptions{Only: []string{"Sessions"}}, weights).Rows, 1)
	require.Equal(t, projection.RowAbsent, l.stored("c1").Status)
	_, err := singles.Get(t.Context(), "s1")
	require.NoError(t, err)
}

// rows are loaded and committed many at a time, each with one write.
func TestBatchGroupsRows(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{processor: func(c *projection.ProcessorConfig) { c.BatchRows, c.Parallelism = 3, 1 }})
	var records [][]event.Record
	for _, key := range []string{"c1", "c2", "c3", "c4"} {
		records = append(records,
			l.record("Order", event.ID("a-"+key), loaded{key, 1}, loaded{key, 1}), l.record("Order", event.ID("b-"+key), loaded{key, 1}),
			l.record("Scale", event.ID("s-"+key), weighed{key, 1}), l.record("Track", event.ID(key), moved{"dock"}))
	}
	require.Empty(t, l.apply(records...).Failures)
	require.Equal(t, [][]string{{"c1", "c2", "c3"}, {"c4"}}, l.spy.loads)
	require.Len(t, l.spy.commits, 2)
	require.Equal(t, 4, l.spy.writes())
	require.EqualValues(t, 1, l.row("c3").Revision)
	require.Positive(t, l.metrics.of("rowfold.row_size").Load())
}

// records of streams that nobody reads, and of events without a row, are a success.
func TestBatchIgnoresForeignRecords(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{})
	foreign := event.Record{Envelope: event.Envelope{Stream: "Invoice", StreamID: "i1", Version: 1, Type: "Sent", SchemaVersion: 1, Payload: []byte(`{}`)}}
	result := l.apply([]event.Record{foreign}, l.record("Order", "o1", loaded{"", 1}))
	require.Equal(t, projection.BatchResult{}, result)
	require.Equal(t, projection.BatchResult{}, l.apply())
	require.Empty(t, l.spy.loads)
}

// a record that does not decode fails with the later ones of its instance, in
// every projection that reads it; earlier ones and other instances are applied.
func TestBatchWithAnUndecodableRecord(t *testing.T) {
	t.Parallel()
	l, singles := mixedLab(t)
	weights := l.record("Scale", "s1", weighed{"c1", 1}, weighed{"c1", 2}, weighed{"c1", 4}, weighed{"c1", 8})
	weights[1].Envelope.Payload = []byte(`{"grams": "heavy"}`)
	other := l.record("Scale", "s2", weighed{"c1", 16})
	shuffled := []event.Record{other[0], weights[3], weights[2], weights[1], weights[0]}
	result := l.apply(shuffled)
	require.Len(t, result.Failures, 2)
	for i, want := range []projection.InstanceFailure{
		{Projection: "Crates", Instance: projection.Instance{Source: "scale", StreamID: "s1"}},
		{Projection: "Sessions", Instance: projection.Instance{Source: "session", StreamID: "s1"}},
	} {
		got := result.Failures[i]
		require.Equal(t, want.Projection, got.Projection)
		require.Equal(t, want.Instance, got.Instance)
		require.Equal(t, 1, got.Record, "the earliest record by position is version 4")
		require.EqualValues(t, 2, got.From)
		require.EqualValues(t, 4, got.Newest)
		var broken *event.DecodeError
		require.ErrorAs(t, got, &broken)
		require.Equal(t, event.ClassPermanent, got.Class())
	}
	require.InDelta(t, 17, l.row("c1").Grams, 0)
	require.Equal(t, map[string]int64{"scale#s1": 1, "scale#s2": 1}, l.row("c1").Checkpoints)
	session, err := singles.Get(t.Context(), "s1")
	require.NoError(t, err)
	require.EqualValues(t, 1, session.Count)
}

// what the feed could not read fails as what does not decode.
func TestBatchWithAnUnreadableRecord(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{})
	records := l.record("Order", "o1", loaded{"c1", 1}, loaded{"c1", 2})
	records[0].Err = errDown
	result := l.apply(records)
	require.Len(t, result.Failures, 1)
	require.ErrorIs(t, result.Failures[0], errDown)
	require.Equal(t, event.ClassRetry, result.Failures[0].Class())
	require.Empty(t, result.Rows)
}

// an operator's skip passes an event that does not decode.
func TestBatchSkipsAnUndecodableRecord(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{})
	records := l.record("Order", "o1", loaded{"c1", 1}, loaded{"c1", 2}, loaded{"c1", 4})
	records[1].Envelope.Payload = []byte(`[]`)
	require.Len(t, l.apply(records).Failures, 1)
	l.skip(order1, 2)
	require.Empty(t, l.apply(records).Failures)
	require.EqualValues(t, 5, l.row("c1").Count)
	require.Equal(t, map[string]int64{"order#o1": 3}, l.row("c1").Checkpoints)
}

// an operator's skip reads as rejected, with who and why; the event causes nothing.
func TestBatchSkip(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{})
	records := l.record("Order", "o1", loaded{"c1", 5}, loaded{"c1", 7})
	l.skip(order1, 1)
	result := l.apply(records)
	in := instance(t, outcomeOf(t, result, "c1"), "order", "o1")
	require.Equal(t, []int64{1}, rejectedVersions(in))
	var skipped *projection.SkippedByOperator
	require.ErrorAs(t, in.Rejected[0].Err, &skipped)
	require.Equal(t, "ann", skipped.Skip.Who)
	require.Equal(t, []int64{2}, in.Applied)
	require.EqualValues(t, 7, l.row("c1").Count)
	require.Len(t, l.pending("c1"), 1)
}

func (l *lab) skip(in projection.Instance, version int64) {
	l.tb.Helper()
	require.NoError(l.tb, l.store.RecordSkip(l.tb.Context(), projection.Skip{
		Projection: "Crates", Instance: in, Version: version, Who: "ann", Why: "known fault", At: time.Now(),
	}))
}

// a failing instance is parked; feeds note its newer versions and rows, and go on.
func TestBatchParks(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	l := newLab(t, setup{processor: func(c *projection.ProcessorConfig) { c.Now = func() time.Time { return now } }})
	records := l.record("Order", "o1", loaded{"c1", 1}, loaded{"c1", -1}, loaded{"c2", 3}, loaded{"c1", 4})
	other := l.record("Order", "o2", loaded{"c1", 10})
	result := l.apply(records[:2])
	require.Len(t, result.Failures, 1)
	refuse := func(projection.InstanceFailure) bool { return false }
	parked, err := l.processor.ParkFailures(t.Context(), result, refuse)
	require.NoError(t, err)
	require.Zero(t, parked)
	parked, err = l.processor.ParkFailures(t.Context(), result, func(f projection.InstanceFailure) bool { return f.Class() == event.ClassPermanent })
	require.NoError(t, err)
	require.Equal(t, 1, parked)

	result = l.apply(records[2:], other)
	require.Empty(t, result.Failures)
	want := projection.Park{
		Projection: "Crates", Instance: order1, Stream: "Order", Rows: []string{"c1", "c2"}, Class: event.ClassPermanent,
		Reason: "projection Crates, instance order#o1, version 2: evolve panicked: negative count", From: 1, Newest: 4, ParkedAt: now,
	}
	require.Equal(t, []projection.Park{want}, result.Parked)
	stored, err := l.store.Parked(t.Context(), "Crates", []projection.Instance{order1})
	require.NoError(t, err)
	require.Equal(t, []projection.Park{want}, stored)
	require.Equal(t, map[string]int64{"order#o2": 1}, l.row("c1").Checkpoints, "its row's other instances go on")
	require.Equal(t, projection.RowAbsent, l.stored("c2").Status)

	l.skip(order1, 2)
	catchUp := projection.BatchOptions{CatchUp: map[string][]projection.Instance{"Crates": {order1}}}
	result = l.applyWith(catchUp, records)
	require.Empty(t, result.Failures)
	require.Empty(t, result.Parked)
	require.EqualValues(t, 15, l.row("c1").Count)
	require.EqualValues(t, 3, l.row("c2").Count)
}

// a redelivery of what a park knows writes nothing.
func TestBatchNotesNewerVersionsOnly(t *testing.T) {
	t.Parallel()
	noted := 0
	l := newLab(t, setup{processor: func(c *projection.ProcessorConfig) {
		c.Store = parkCounter{Store: c.Store, parks: &noted}
	}})
	records := l.record("Order", "o1", loaded{"c1", -1}, loaded{"c1", 2})
	everyone := func(projection.InstanceFailure) bool { return true }
	_, err := l.processor.ParkFailures(t.Context(), l.apply(records[:1]), everyone)
	require.NoError(t, err)
	l.apply(records[1:])
	l.apply(records)
	l.apply(records[:1])
	require.Equal(t, 2, noted)
}

type parkCounter struct {
	projection.Store

	parks *int
	err   error
}

func (s parkCounter) Park(ctx context.Context, park projection.Park) error {
	*s.parks++
	if s.err != nil {
		return s.err
	}
	return s.Store.Park(ctx, park)
}

// A park that cannot be stored is an error: the feed must not go on.
func TestBatchParkFails(t *testing.T) {
	t.Parallel()
	noted := 0
	l := newLab(t, setup{processor: func(c *projection.ProcessorConfig) {
		c.Store = parkCounter{Store: c.Store, parks: &noted, err: errDown}
	}})
	records := l.record("Order", "o1", loaded{"c1", -1}, loaded{"c1", 2})
	result := l.apply(records[:1])
	_, err := l.processor.ParkFailures(t.Context(), result, func(projection.InstanceFailure) bool { return true })
	require.ErrorIs(t, err, errDown)
	require.ErrorContains(t, err, "park instance order#o1 of projection Crates")
	require.NoError(t, l.store.Park(t.Context(), result.Failures[0].Park(time.Now())))
	_, err = l.processor.ProcessBatch(t.Context(), records[1:], projection.BatchOptions{})
	require.ErrorIs(t, err, errDown)
}

// what is reported of a row.
func TestBatchOutcome(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{})
	l.apply(l.record("Order", "o1", loaded{"c1", 1}))
	result := l.apply(
		slices.Concat(l.record("Order", "o1", loaded{"c1", 2}), recordsOf(t, "Order", "o1", 1, loaded{"c1", 1})),
		l.record("Track", "c1", moved{"a"}, moved{"b"}, moved{"same"}),
		l.record("Scale", "s1", weighed{"c1", -2}, weighed{"c1", 3}),
		l.record("Scale", "s2", weighed{"c1", 4}, weighed{"c1", -1}),
	)
	outcome := outcomeOf(t, result, "c1")
	require.Equal(t, "Crates", outcome.Projection)
	require.True(t, outcome.Written)
	require.False(t, outcome.Removed)
	require.EqualValues(t, 2, outcome.Revision)
	require.Equal(t, 2, outcome.Enqueued)
	require.NoError(t, outcome.Err)
	require.Equal(t, l.row("c1"), outcome.State)
	require.Equal(t, []string{"order#o1", "track#c1", "scale#s1", "scale#s2"}, instanceNames(outcome))
	order, track := outcome.Instances[0], outcome.Instances[1]
	require.Equal(t, "Order", order.Stream)
	require.Equal(t, []int64{2}, order.Applied)
	require.Equal(t, []int64{1}, order.AlreadyApplied)
	require.EqualValues(t, 2, order.Version)
	require.Equal(t, []int64{2}, track.Applied)
	require.Equal(t, []int64{1}, track.Superseded)
	require.Equal(t, []int64{3}, track.Skipped)
	s1, s2 := outcome.Instances[2], outcome.Instances[3]
	require.Equal(t, []int64{1}, rejectedVersions(s1))
	require.ErrorIs(t, s1.Rejected[0].Err, errNoPlace)
	require.Equal(t, []int64{2}, s1.Applied)
	require.ErrorIs(t, s2.Err, errBroken)
	require.Zero(t, s2.Version)
	require.Equal(t, map[projection.Instance]error{s2.Instance: s2.Err}, outcome.Failed())
	require.Len(t, result.Failures, 1)
	require.Equal(t, s2.Instance, result.Failures[0].Instance)
	require.EqualValues(t, 1, result.Failures[0].From)
	require.EqualValues(t, 2, result.Failures[0].Newest)

	removed := outcomeOf(t, l.apply(l.record("Order", "o1", scrapped{"c1"})), "c1")
	require.True(t, removed.Removed)
	require.Nil(t, removed.State)
	require.EqualValues(t, 3, removed.Revision)
}

// recordsOf returns records of events that are in the store already.
func recordsOf(tb testing.TB, stream string, id event.ID, version int64, data any) []event.Record {
	tb.Helper()
	return []event.Record{{Envelope: envelope(tb, stream, id, version, data)}}
}

func instanceNames(outcome projection.Outcome) []string {
	var names []string
	for _, in := range outcome.Instances {
		names = append(names, in.String())
	}
	return names
}

// the row fails when every instance does, and only they are failures.
func TestBatchRowFails(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{})
	result := l.apply(l.record("Order", "o1", loaded{"c1", -1}), l.record("Scale", "s1", weighed{"c1", -1}), l.record("Scale", "s2", weighed{"c2", 1}))
	outcome := outcomeOf(t, result, "c1")
	require.ErrorIs(t, outcome.Err, errBroken)
	require.ErrorContains(t, outcome.Err, "negative count")
	require.Nil(t, outcome.State)
	require.Len(t, result.Failures, 2)
	require.Equal(t, projection.RowAbsent, l.stored("c1").Status)
	require.InDelta(t, 1, l.row("c2").Grams, 0)
}

// what an instance did for another row is no part of its failure.
func TestBatchFailsForOneRow(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{})
	result := l.apply(l.record("Order", "o1", loaded{"c2", 2}, loaded{"c1", -1}, loaded{"c2", 3}))
	require.Len(t, result.Failures, 1)
	failure := result.Failures[0]
	require.Equal(t, []any{1, int64(2), int64(2), []string{"c1"}}, []any{failure.Record, failure.From, failure.Newest, failure.Rows})
	require.EqualValues(t, 5, l.row("c2").Count)
	require.Equal(t, projection.RowAbsent, l.stored("c1").Status)
}

// a row that cannot be written fails the instances whose events wait for it; one
// that was applied before does not.
func TestBatchRowTooLargeFailsWhatIsNew(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{store: sqlite.Config{MaxRowBytes: 400}})
	before := l.record("Order", "o1", loaded{"c1", 1})
	require.Empty(t, l.apply(before).Failures)
	result := l.apply(before, l.record("Track", "c1", moved{string(make([]byte, 500))}), l.record("Scale", "s1", weighed{"c1", 0}))
	require.Len(t, result.Failures, 1, "what was applied before, or skips, does not fail")
	failure := result.Failures[0]
	require.Equal(t, projection.Instance{Source: "track", StreamID: "c1"}, failure.Instance)
	require.Equal(t, 1, failure.Record)
	var large *projection.RowTooLarge
	require.ErrorAs(t, failure, &large)
	require.Equal(t, 400, large.Limit)
	require.ErrorAs(t, outcomeOf(t, result, "c1").Err, &large)
	require.Equal(t, "unknown", l.row("c1").Place)
}

// loadsBroken is a store whose rows have lost a column.
type loadsBroken struct{ projection.Store }

func (s loadsBroken) Load(ctx context.Context, model *projection.Model, keys []string) ([]projection.Stored, error) {
	rows, err := s.Store.Load(ctx, model, keys)
	for i := range rows {
		rows[i].Values = rows[i].Values[:min(1, len(rows[i].Values))]
	}
	return rows, err
}

// a row that cannot be read fails what waits for it.
func TestBatchRowIsUnreadable(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{})
	before := l.record("Order", "o1", loaded{"c1", 1})
	l.apply(before)
	l.spy.Store = loadsBroken{l.store}
	result := l.apply(before, l.record("Scale", "s1", weighed{"c1", 1}, weighed{"c1", 1}))
	require.Len(t, result.Failures, 1, "an event that was applied before has nothing to wait for")
	require.Equal(t, projection.Instance{Source: "scale", StreamID: "s1"}, result.Failures[0].Instance)
	require.Equal(t, 1, result.Failures[0].Record)
	require.EqualValues(t, 1, result.Failures[0].From)
	var value *projection.ValueError
	require.ErrorAs(t, outcomeOf(t, result, "c1").Err, &value)
	require.Equal(t, event.ClassPermanent, result.Failures[0].Class())
}

// A batch about which nothing can be said is an error, and changes nothing.
func TestBatchIsCancelled(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := l.processor.ProcessBatch(ctx, l.record("Order", "o1", loaded{"c1", 1}), projection.BatchOptions{})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, projection.RowAbsent, l.stored("c1").Status)
}

// A context that ends while events are folded is the batch's error, and no instance's:
// otherwise they would be parked for it.
func TestBatchIsCancelledInTheFold(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	l := newLab(t, setup{definition: func(c *projection.Config[string, crate]) {
		source := scaleSource()
		evolve := source.Evolve
		source.Evolve = func(ctx context.Context, c crate, e event.Event[weighed], in projection.Instance) (crate, error) {
			cancel()
			return evolve(ctx, c, e, in)
		}
		c.Sources = []projection.AnySource[string, crate]{source}
		c.Outbox = nil
	}})
	records := l.record("Scale", "s1", weighed{"c1", 1}, weighed{"c1", 2})
	_, err := l.processor.ProcessBatch(ctx, records, projection.BatchOptions{})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, projection.RowAbsent, l.stored("c1").Status)
}

// loadFails is a store that cannot be read.
type loadFails struct{ projection.Store }

func (loadFails) Load(context.Context, *projection.Model, []string) ([]projection.Stored, error) {
	return nil, errDown
}

func (loadFails) Skips(context.Context, string, []projection.Instance) ([]projection.Skip, error) {
	return nil, nil
}

func TestBatchStoreFails(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{processor: func(c *projection.ProcessorConfig) { c.Store = loadFails{c.Store} }})
	_, err := l.processor.ProcessBatch(t.Context(), l.record("Order", "o1", loaded{"c1", 1}), projection.BatchOptions{})
	require.ErrorIs(t, err, errDown)
	require.ErrorContains(t, err, "load 1 rows of projection Crates")
	require.NotErrorIs(t, errors.Unwrap(err), context.Canceled)
}
