package testsuite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
)

// RowFaults proves that a projection on a store which meets a fault, at whatever call of a
// batch, applies every event once and commits every effect once.
func RowFaults(t *testing.T, h Harness) {
	t.Helper()
	runCases(t, h, []testCase{
		{"AFaultAtAnyCallOfABatch", func(t *testing.T, b Backend) { faultInBatch(t, b, 0) }},
		{"AFaultAtAnyCallOfABatchThatIsCut", func(t *testing.T, b Backend) { faultInBatch(t, b, 2) }},
		{"ALostAnswerIsDecidedByTheCheckpoints", lostAnswer},
		{"LostRacesAreRunAgain", lostRaces},
		{"ThrottlesAreNoLostRaces", throttles},
		{"ProcessorsRaceOnRows", processorsRace},
	})
}

// limitedStore takes fewer effects in one write than its store.
type limitedStore struct {
	projection.Store

	effects int // 0 = as many as its store
}

// Limits implements projection.RowStore.
func (s limitedStore) Limits() projection.Limits {
	limits := s.Store.Limits()
	if s.effects > 0 {
		limits.MaxEffects = s.effects
	}
	return limits
}

// every kind of fault at every call of a batch, and the batch again in
// another process. With R-37, a row whose effects do not go into one write.
func faultInBatch(t *testing.T, b Backend, maxEffects int) {
	b.Store = limitedStore{b.Store, maxEffects}
	d := openDesks(t, b)
	calls := d.faultyBatch(t, "none", Plan{})
	for _, name := range []string{"Parked", "Park", "Skips", "Load", "Commit", "HasPending"} {
		require.Contains(t, calls, name, "a batch is to have it")
	}
	for at, name := range calls {
		for _, fault := range Faults() {
			d.faultyBatch(t, fmt.Sprintf("%s at %d %s", fault, at+1, name), Plan{At: map[int]Fault{at + 1: fault}})
		}
	}
}

// desksBatch is a batch for three desks: one of several instances, with a gap, one that
// shares an instance with it, and one whose events change nothing.
type desksBatch struct {
	records        []event.Record
	first, second  string // keys of the desks
	idle           string
	effects        map[string][]string // the ids of the effects, by key, in order
	parked         projection.Instance
	parkedVersions int64
}

func (d *desks) batch(t *testing.T, name string) desksBatch {
	t.Helper()
	s := desksBatch{first: name + " 1", second: name + " 2", idle: name + " 3", parkedVersions: 2}
	one, two, parked := event.ID(name+" a"), event.ID(name+" b"), event.ID(name+" parked")
	s.parked = projection.Instance{Source: "order", StreamID: parked}
	s.records = slices.Concat(
		d.place(t, one, placed{s.first, 1}, placed{s.first, 10}, placed{s.second, 5}, placed{s.first, 100})[1:], // the first one is a gap
		d.place(t, two, placed{s.first, 1000}),
		d.place(t, parked, placed{s.first, 7}, placed{s.second, 7}),
		d.sight(t, s.first, "hall", "stage"),
		d.sight(t, s.idle, unmoved),
	)
	require.NoError(t, d.b.Store.Park(t.Context(), projection.Park{
		Projection: d.Name(), Instance: s.parked, Stream: d.orders.Name(), Reason: "a fault", Class: event.ClassPermanent,
		From: 1, Newest: 1, ParkedAt: noon,
	}))
	s.effects = map[string][]string{
		s.first: slices.Concat(d.effectIDs(s.first, "order", one, 1, 2, 4), d.effectIDs(s.first, "order", two, 1),
			d.effectIDs(s.first, "sight", event.ID(s.first), 2)),
		s.second: d.effectIDs(s.second, "order", one, 3),
	}
	return s
}

// faultyBatch applies a batch under a plan and then without one, and returns the calls of
// the first time.
func (d *desks) faultyBatch(t *testing.T, name string, plan Plan) []string {
	t.Helper()
	s := d.batch(t, name)
	faulty := NewFaulty(d.b.Store, plan)
	result, err := d.processor(t, faulty).ProcessBatch(t.Context(), s.records, projection.BatchOptions{})
	calls := faulty.Calls()
	s.requireFirst(t, name, plan, calls, result, err)

	before := len(d.pending(t, s.first)) + len(d.pending(t, s.second))
	var woken []outbox.Row
	wake := func(_ context.Context, rows []outbox.Row) { woken = append(woken, rows...) }
	again := d.processor(t, d.b.Store, func(c *projection.ProcessorConfig) { c.Wake = wake })
	result, err = again.ProcessBatch(t.Context(), s.records, projection.BatchOptions{})
	require.NoError(t, err, name)
	require.Empty(t, result.Failures, name)
	require.Equal(t, s.count()-before, result.Enqueued, "%s: what was committed before is not committed again", name)
	require.ElementsMatch(t, []outbox.Row{d.row(s.first), d.row(s.second)}, woken, "%s: nobody has drained them yet", name)
	d.requireApplied(t, s, name)
	return calls
}

func (s desksBatch) count() int { return len(s.effects[s.first]) + len(s.effects[s.second]) }

// requireFirst says what a batch under a plan of at most one fault may return.
func (s desksBatch) requireFirst(t *testing.T, name string, plan Plan, calls []string, result projection.BatchResult, err error) {
	t.Helper()
	for at, fault := range plan.At {
		switch call := calls[at-1]; {
		case fault == FaultCrashBefore, fault == FaultCrashAfter:
			for _, failure := range result.Failures {
				err = errors.Join(err, failure)
			}
			var crashed *Crashed
			require.ErrorAs(t, err, &crashed, name)
			require.Equal(t, Crashed{Call: at, Name: call}, *crashed, name)
			return
		case call != "Commit": // nothing is lost with an answer that can be asked for again
			require.Equal(t, classOf(fault), event.Classify(err), "%s: %v", name, err)
			return
		}
	}
	require.NoError(t, err, name)
	require.Empty(t, result.Failures, name)
	require.Equal(t, s.count(), result.Enqueued, name)
	require.Len(t, result.Parked, 1, name)
	require.Equal(t, s.parked, result.Parked[0].Instance, name)
	for _, row := range result.Rows {
		require.Equal(t, row.Key != s.idle, row.Written, "%s: row %s", name, row.Key)
		for _, in := range row.Instances {
			require.Empty(t, in.AlreadyApplied, "%s: row %s, %s: this batch has applied it", name, row.Key, in.Instance)
		}
	}
}

func classOf(fault Fault) event.Class {
	switch fault {
	case FaultConflict:
		return event.ClassStale
	case FaultThrottle:
		return event.ClassThrottled
	case FaultLostAnswer, FaultLostRequest:
		return event.ClassUnknownOutcome
	case FaultCrashBefore, FaultCrashAfter:
		return event.ClassFenced
	default:
		return ""
	}
}

// requireApplied says what a batch leaves, whatever happened on the way.
func (d *desks) requireApplied(t *testing.T, s desksBatch, name string) {
	t.Helper()
	first, second := d.get(t, s.first), d.get(t, s.second)
	writes := int64(1)
	if limits := d.b.Store.Limits(); limits.MaxEffects == 2 {
		writes = 3
	}
	require.Equal(t, desk{
		ID: s.first, Total: 1111, Place: "stage", Revision: writes,
		Checkpoints: map[string]int64{"order#" + name + " a": 4, "order#" + name + " b": 1, "sight#" + s.first: 2},
	}, first, name)
	require.Equal(t, desk{
		ID: s.second, Total: 5, Revision: 1, Checkpoints: map[string]int64{"order#" + name + " a": 3},
	}, second, name)
	_, err := projection.NewRows(d.Projection, d.b.Store).Get(t.Context(), s.idle)
	var none *projection.NotFound
	require.ErrorAs(t, err, &none, "%s: a skip creates no row", name)
	for key, ids := range s.effects {
		require.Equal(t, ids, d.pending(t, key), name)
	}
	parks, err := d.b.Store.Parked(t.Context(), d.Name(), []projection.Instance{s.parked})
	require.NoError(t, err)
	require.Len(t, parks, 1, name)
	require.Equal(t, s.parkedVersions, parks[0].Newest, "%s: newer versions are noted", name)
	require.ElementsMatch(t, []string{s.first, s.second}, parks[0].Rows, name)
}

// commitCall returns the number of the first Commit of a batch.
func commitCall(t *testing.T, d *desks) int {
	t.Helper()
	faulty := NewFaulty(d.b.Store, Plan{})
	records := d.place(t, "to count calls", placed{"to count calls", 1})
	_, err := d.processor(t, faulty).ProcessBatch(t.Context(), records, projection.BatchOptions{})
	require.NoError(t, err)
	at := slices.Index(faulty.Calls(), "Commit")
	require.Positive(t, at)
	return at + 1
}

// interloper writes to the same rows right after a commit that another process made, and
// before that process hears of it.
type interloper struct {
	projection.Store

	write func() // once
}

// Commit implements projection.RowStore.
func (s *interloper) Commit(ctx context.Context, model *projection.Model, writes []projection.Write) []error {
	results := s.Store.Commit(ctx, model, writes)
	if write := s.write; write != nil {
		s.write = nil
		write()
	}
	return results
}

// the answer to a write is lost, and by the time of the next look the row comes from
// somebody else's write. The checkpoints tell that the events are in it.
func lostAnswer(t *testing.T, b Backend) {
	d := openDesks(t, b)
	call := commitCall(t, d)
	mine := d.place(t, "mine", placed{"A", 1}, placed{"A", 2})
	theirs := d.place(t, "theirs", placed{"A", 10})
	store := &interloper{Store: b.Store, write: func() {
		result, err := d.processor(t, b.Store).ProcessBatch(t.Context(), theirs, projection.BatchOptions{})
		require.NoError(t, err)
		require.Equal(t, 1, result.Enqueued)
	}}
	faulty := NewFaulty(store, Plan{At: map[int]Fault{call: FaultLostAnswer}})
	result, err := d.processor(t, faulty).ProcessBatch(t.Context(), mine, projection.BatchOptions{})
	require.NoError(t, err)
	require.Empty(t, result.Failures)
	require.Equal(t, "Commit", faulty.Calls()[call-1])
	require.Equal(t, desk{
		ID: "A", Total: 13, Revision: 2, Checkpoints: map[string]int64{"order#mine": 2, "order#theirs": 1},
	}, d.get(t, "A"))
	require.Equal(t, slices.Concat(
		d.effectIDs("A", "order", "mine", 1, 2), d.effectIDs("A", "order", "theirs", 1),
	), d.pending(t, "A"))
}

// a lost race is run again, as often as configured, and then is a conflict that
// leaves nothing.
func lostRaces(t *testing.T, b Backend) {
	const attempts = 3
	d := openDesks(t, b)
	call := commitCall(t, d)
	patient := func(c *projection.ProcessorConfig) { c.Attempts = attempts }
	plan := Plan{At: map[int]Fault{}}
	for n := range attempts - 1 {
		plan.At[call+2*n] = FaultConflict // with a Load between two of them
	}
	records := d.place(t, "o-1", placed{"A", 1})
	faulty := NewFaulty(b.Store, plan)
	result, err := d.processor(t, faulty, patient).ProcessBatch(t.Context(), records, projection.BatchOptions{})
	require.NoError(t, err)
	require.Empty(t, result.Failures)
	require.Equal(t, attempts, countOf(faulty.Calls(), "Commit"))
	require.Equal(t, attempts, countOf(faulty.Calls(), "Load"), "each try reads the row again")
	require.Equal(t, int64(1), d.get(t, "A").Total)

	plan.At[call+2*(attempts-1)] = FaultConflict
	more := d.place(t, "o-1", placed{"A", 1})
	faulty = NewFaulty(b.Store, plan)
	result, err = d.processor(t, faulty, patient).ProcessBatch(t.Context(), more, projection.BatchOptions{})
	require.NoError(t, err)
	require.Len(t, result.Failures, 1)
	var conflict *projection.ProjectionConflict
	require.ErrorAs(t, result.Failures[0], &conflict)
	require.Equal(t, attempts, conflict.Attempts)
	require.Equal(t, attempts, countOf(faulty.Calls(), "Commit"))
	require.Equal(t, int64(1), d.get(t, "A").Total)
	require.Equal(t, d.effectIDs("A", "order", "o-1", 1), d.pending(t, "A"))
}

// a throttled write is sent again as it is, and is no lost race.
func throttles(t *testing.T, b Backend) {
	const throttled = 5
	d := openDesks(t, b)
	call := commitCall(t, d)
	plan := Plan{At: map[int]Fault{}}
	for n := range throttled {
		plan.At[call+n] = FaultThrottle
	}
	faulty := NewFaulty(b.Store, plan)
	once := func(c *projection.ProcessorConfig) { c.Attempts = 1 }
	result, err := d.processor(t, faulty, once).ProcessBatch(t.Context(), d.place(t, "o-1", placed{"A", 1}), projection.BatchOptions{})
	require.NoError(t, err)
	require.Empty(t, result.Failures)
	require.Equal(t, 1, result.Enqueued)
	require.Equal(t, throttled+1, countOf(faulty.Calls(), "Commit"))
	require.Equal(t, 1, countOf(faulty.Calls(), "Load"))
	require.Equal(t, int64(1), d.get(t, "A").Revision)
}

func countOf(calls []string, name string) int {
	n := 0
	for _, call := range calls {
		if call == name {
			n++
		}
	}
	return n
}

// processors that race with the same events on the same rows, each in an
// order and in batches of its own, apply every event and commit every effect once.
func processorsRace(t *testing.T, b Backend) {
	const processors, instances, each = 4, 6, 5
	d := openDesks(t, b)
	keys := []string{"A", "B"}
	var records []event.Record
	want := map[string][]string{}
	for i := range instances {
		id := event.ID(fmt.Sprintf("o-%d", i))
		var orders []placed
		for n := range each {
			key := keys[(i+n)%len(keys)]
			orders = append(orders, placed{key, 1})
			want[key] = append(want[key], d.effectIDs(key, "order", id, int64(n+1))...)
		}
		records = append(records, d.place(t, id, orders...)...)
	}
	together(t, processors, func(i int) error {
		processor := d.processor(t, b.Store, func(c *projection.ProcessorConfig) { c.Attempts = 1000 })
		at := i * len(records) / processors
		mine := slices.Concat(records[at:], records[:at])
		for batch := range slices.Chunk(mine, 4+i) {
			result, err := processor.ProcessBatch(t.Context(), batch, projection.BatchOptions{})
			if err != nil {
				return err
			}
			for _, failure := range result.Failures {
				return failure
			}
		}
		return nil
	})
	for _, key := range keys {
		row := d.get(t, key)
		require.Equal(t, int64(len(want[key])), row.Total, key)
		require.Len(t, row.Checkpoints, instances, key)
		require.ElementsMatch(t, want[key], d.pending(t, key), key)
	}
}
