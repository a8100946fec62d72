package projection_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/projection"
)

var order1 = projection.Instance{Source: "order", StreamID: "o1"}

// what a batch lacks is read once per instance, consistently and never beyond the
// newest version at hand; rows share the read.
func TestGapIsReadOnceForAllRows(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{})
	first := l.record("Order", "o1", loaded{"c1", 1}, loaded{"c2", 2}, loaded{"c1", 3}, loaded{"c3", 4}, loaded{"c2", 5}, loaded{"c1", 6}, loaded{"c1", 7})
	other := l.record("Order", "o2", loaded{"c1", 10}, loaded{"c1", 20})
	result := l.apply(first[4:6], other[1:])
	require.Empty(t, result.Failures)
	require.Equal(t, []event.Range{
		{After: 0, UpTo: 4, Consistent: true}, // of o1, for c1 and c2
		{After: 0, UpTo: 1, Consistent: true}, // of o2
	}, l.events.reads)
	require.EqualValues(t, 5, l.metrics.of("rowfold.gap_events_read").Load())
	require.EqualValues(t, 1+3+6+10+20, l.row("c1").Count)
	require.EqualValues(t, 7, l.row("c2").Count)
	require.Equal(t, map[string]int64{"order#o1": 5}, l.row("c2").Checkpoints)
	require.Equal(t, []int64{1, 3, 6}, instance(t, outcomeOf(t, result, "c1"), "order", "o1").Applied)
	require.Equal(t, projection.RowAbsent, l.stored("c3").Status, "a gap read applies nothing to rows that are not in the batch")
}

// versions of the batch that belong to other rows are known.
func TestGapKnowsTheBatch(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{})
	all := l.record("Order", "o1", loaded{"c1", 1}, loaded{"c2", 2}, loaded{"", 3}, loaded{"c1", 4})
	require.Empty(t, l.apply(all).Failures)
	require.Empty(t, l.events.reads)
	require.EqualValues(t, 5, l.row("c1").Count)
}

// the latest mode needs no version below the newest.
func TestGapOfLatestModeIsNotRead(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{})
	all := l.record("Track", "c1", moved{"a"}, moved{"b"}, moved{"c"})
	require.Empty(t, l.apply(all[2:]).Failures)
	require.Empty(t, l.events.reads)
	require.Equal(t, "c", l.row("c1").Place)
}

// the checkpoint covers what is below it, and the read begins above it.
func TestGapBeginsAtTheCheckpoint(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{})
	all := l.record("Order", "o1", loaded{"c1", 1}, loaded{"c1", 2}, loaded{"c1", 3}, loaded{"c1", 4}, loaded{"c1", 5})
	l.apply(all[:2])
	l.apply(all[4:])
	require.Equal(t, []event.Range{{After: 2, UpTo: 4, Consistent: true}}, l.events.reads)
	require.EqualValues(t, 15, l.row("c1").Count)
}

// a version that is not readable yet keeps its instance, as transient, and nobody else.
func TestGapThatIsNotReadableYet(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{})
	all := l.record("Order", "o1", loaded{"c1", 1}, loaded{"c1", 2}, loaded{"c1", 3}, loaded{"c1", 4})
	other := l.record("Order", "o2", loaded{"c1", 10})
	l.events.hidden = func(env event.Envelope) bool { return env.StreamID == "o1" && env.Version == 3 }
	l.apply(all[:1])
	result := l.apply(all[3:], other)
	require.Len(t, result.Failures, 1)
	failure := result.Failures[0]
	var gap *projection.Gap
	require.ErrorAs(t, failure, &gap)
	require.Equal(t, projection.Gap{Instance: order1, Missing: 3, Before: 4}, *gap)
	require.Equal(t, event.ClassRetry, failure.Class())
	require.Equal(t, projection.InstanceFailure{
		Projection: "Crates", Instance: order1, Stream: "Order", Record: 0, From: 4, Newest: 4, Rows: []string{"c1"}, Err: failure.Err,
	}, failure)
	require.NoError(t, outcomeOf(t, result, "c1").Err)
	require.Equal(t, map[string]int64{"order#o1": 1, "order#o2": 1}, l.row("c1").Checkpoints)

	l.events.hidden = nil
	require.Empty(t, l.apply(all[3:], other).Failures)
	require.EqualValues(t, 20, l.row("c1").Count)
}

// a history that was trimmed is a permanent fault, of which only that instance dies.
func TestGapOfTrimmedHistory(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{})
	all := l.record("Order", "o1", loaded{"c1", 1}, loaded{"c1", 2}, loaded{"c1", 3}, loaded{"c1", 4})
	l.events.hidden = below(3)
	result := l.apply(all[3:])
	require.Len(t, result.Failures, 1)
	var trimmed *projection.HistoryTrimmed
	require.ErrorAs(t, result.Failures[0], &trimmed)
	require.Equal(t, projection.HistoryTrimmed{Instance: order1, Missing: 1, Oldest: 3}, *trimmed)
	require.Equal(t, event.ClassPermanent, result.Failures[0].Class())
	require.Error(t, outcomeOf(t, result, "c1").Err, "R-16: it was the row's only instance")
	require.Equal(t, projection.RowAbsent, l.stored("c1").Status)
}

// FromOldest begins at what the store still holds, and still passes no other hole.
func TestGapFromOldest(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{definition: func(c *projection.Config[string, crate]) {
		source := orderSource()
		source.FromOldest = true
		c.Sources[0] = source
	}})
	all := l.record("Order", "o1", loaded{"c1", 1}, loaded{"c1", 2}, loaded{"c1", 3}, loaded{"c1", 4}, loaded{"c1", 5})
	l.events.hidden = func(env event.Envelope) bool { return env.Version < 3 || env.Version == 4 }
	var gap *projection.Gap
	require.ErrorAs(t, l.apply(all[4:]).Failures[0], &gap)
	require.EqualValues(t, 4, gap.Missing)
	l.events.hidden = below(3)
	result := l.apply(all[4:])
	require.Empty(t, result.Failures)
	require.Equal(t, []int64{3, 4, 5}, instance(t, outcomeOf(t, result, "c1"), "order", "o1").Applied)
	require.EqualValues(t, 12, l.row("c1").Count)
}

// an event of a gap that does not decode keeps its instance; a skip passes it.
func TestGapWithAnUndecodableEvent(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{})
	all := l.record("Order", "o1", loaded{"c1", 1})
	bad := envelope(t, "Order", "o1", 2, loaded{"c1", 2})
	bad.Type = "Unheard"
	recordEnvelope(t, l.store, bad)
	all = append(all, l.record("Order", "o1", loaded{"c1", 3})...)
	l.apply(all[:1])
	result := l.apply(all[1:], l.record("Scale", "s1", weighed{"c1", 5}))
	require.Len(t, result.Failures, 1)
	var unknown *event.UnknownType
	require.ErrorAs(t, result.Failures[0], &unknown)
	require.InDelta(t, 5, l.row("c1").Grams, 0, "the other instance applies")
	require.NoError(t, l.store.RecordSkip(t.Context(), projection.Skip{
		Projection: "Crates", Instance: order1, Version: 2, Who: "ann", Why: "never meant", At: time.Now(),
	}))
	require.Empty(t, l.apply(all[1:]).Failures)
	require.Equal(t, map[string]int64{"order#o1": 3, "scale#s1": 1}, l.row("c1").Checkpoints)
	require.EqualValues(t, 4, l.row("c1").Count)
}

// a gap's event that cannot be keyed is an error of its instance.
func TestGapWithAPanickingKey(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{definition: func(c *projection.Config[string, crate]) {
		source := scaleSource()
		source.Key = func(e event.Event[weighed]) (string, bool) {
			if e.Version == 1 {
				panic("no key")
			}
			return e.Data.Crate, true
		}
		c.Sources[2] = source
	}})
	all := l.record("Scale", "s1", weighed{"c1", 1}, weighed{"c1", 2})
	result := l.apply(all[1:])
	require.Len(t, result.Failures, 1)
	var panicked *projection.EvolvePanic
	require.ErrorAs(t, result.Failures[0], &panicked)
	require.Equal(t, "key", panicked.Func)
}

var errDown = errors.New("the store is down")

// An event store that cannot be read says nothing about the batch.
func TestGapReadFails(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{})
	all := l.record("Order", "o1", loaded{"c1", 1}, loaded{"c1", 2})
	l.events.fails = errDown
	_, err := l.processor.ProcessBatch(t.Context(), all[1:], projection.BatchOptions{})
	require.ErrorIs(t, err, errDown)
	require.ErrorContains(t, err, "projection Crates: read the gap of instance order#o1 from version 1 to 1")
	require.Equal(t, projection.RowAbsent, l.stored("c1").Status)
}

// eventIndex is an index in memory: versions by row.
type eventIndex struct {
	versions map[string][]int64
	asked    []string
	err      error
}

func (i *eventIndex) Versions(_ context.Context, _ projection.Instance, rowKey string, after, before int64) ([]int64, error) {
	i.asked = append(i.asked, rowKey)
	var found []int64
	for _, version := range i.versions[rowKey] {
		if version > after && version < before {
			found = append(found, version)
		}
	}
	return found, i.err
}

func indexedLab(t *testing.T, index *eventIndex) *lab {
	t.Helper()
	return newLab(t, setup{definition: func(c *projection.Config[string, crate]) {
		source := orderSource()
		source.Index = index
		c.Sources[0] = source
	}})
}

// an index spares the events of other rows.
func TestGapByIndex(t *testing.T) {
	t.Parallel()
	index := &eventIndex{versions: map[string][]int64{"c1": {1, 3}, "c2": {2, 4}}}
	l := indexedLab(t, index)
	all := l.record("Order", "o1", loaded{"c1", 1}, loaded{"c2", 2}, loaded{"c1", 3}, loaded{"c2", 4}, loaded{"c1", 5})
	require.Empty(t, l.apply(all[4:]).Failures)
	require.Equal(t, []string{"c1"}, index.asked)
	require.Equal(t, []event.Range{{After: 0, UpTo: 1, Consistent: true}, {After: 2, UpTo: 3, Consistent: true}}, l.events.reads)
	require.EqualValues(t, 2, l.metrics.of("rowfold.gap_events_read").Load())
	require.EqualValues(t, 9, l.row("c1").Count)
	require.Equal(t, map[string]int64{"order#o1": 5}, l.row("c1").Checkpoints)
}

// a version that the index names and the store does not show yet is a gap.
func TestGapByIndexIsNotReadableYet(t *testing.T) {
	t.Parallel()
	l := indexedLab(t, &eventIndex{versions: map[string][]int64{"c1": {1, 3}}})
	all := l.record("Order", "o1", loaded{"c1", 1}, loaded{"c2", 2}, loaded{"c1", 3}, loaded{"c1", 4})
	l.events.hidden = func(env event.Envelope) bool { return env.Version == 3 }
	result := l.apply(all[3:])
	require.Len(t, result.Failures, 1)
	var gap *projection.Gap
	require.ErrorAs(t, result.Failures[0], &gap)
	require.EqualValues(t, 3, gap.Missing)
	l.events.hidden = below(4)
	var trimmed *projection.HistoryTrimmed
	require.ErrorAs(t, l.apply(all[3:]).Failures[0], &trimmed)
	require.Equal(t, projection.HistoryTrimmed{Instance: order1, Missing: 1, Oldest: 4}, *trimmed)
	l.events.hidden = nil
	require.Empty(t, l.apply(all[3:]).Failures)
	require.EqualValues(t, 8, l.row("c1").Count)
}

// An index that cannot be asked says nothing about the batch.
func TestGapByIndexFails(t *testing.T) {
	t.Parallel()
	l := indexedLab(t, &eventIndex{err: errDown})
	all := l.record("Order", "o1", loaded{"c1", 1}, loaded{"c1", 2})
	_, err := l.processor.ProcessBatch(t.Context(), all[1:], projection.BatchOptions{})
	require.ErrorIs(t, err, errDown)
	require.ErrorContains(t, err, "event index of source order")
}

// what was read for a row that then lost its race is not read again.
func TestGapIsNotReadAgainAfterALostRace(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{})
	all := l.record("Order", "o1", loaded{"c1", 1}, loaded{"c1", 2}, loaded{"c1", 3})
	l.spy.beforeCommit = func(call int, writes []projection.Write) []error {
		if call > 1 {
			return nil
		}
		return []error{&projection.LostRace{Projection: "Crates", Key: writes[0].Key}}
	}
	require.Empty(t, l.apply(all[2:]).Failures)
	require.Len(t, l.events.reads, 1)
	require.EqualValues(t, 6, l.row("c1").Count)
}
