package projection_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
	"github.com/rowfold/rowfold/store/sqlite"
	"github.com/rowfold/rowfold/testsuite"
)

// every write raises the revision by one; the first has the initial one.
func TestApplyRevision(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		initial *int64
		want    []int64
	}{
		"by default": {nil, []int64{1, 2, 3}},
		"zero":       {new(int64(0)), []int64{0, 1, 2}},
		"forty":      {new(int64(40)), []int64{40, 41, 42}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, setup{definition: func(c *projection.Config[string, crate]) { c.Revision.Initial = test.initial }})
			for _, want := range test.want {
				outcome := outcomeOf(t, l.apply(l.record("Order", "o1", loaded{"c1", 2})), "c1")
				require.Equal(t, want, outcome.Revision)
				require.Equal(t, want, l.row("c1").Revision)
			}
			require.Equal(t, outbox.SequenceOf(test.want[0], 0), l.pending("c1")[0].Sequence)
		})
	}
}

// a row that lost its race is read and folded again, on what the winner left.
func TestApplyLostRace(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{})
	mine, theirs := l.record("Order", "o1", loaded{"c1", 2}), l.record("Order", "o2", loaded{"c1", 5})
	rival, err := projection.NewProcessor(projection.ProcessorConfig{Definitions: []projection.Definition{l.p}, Store: l.store, Events: l.store})
	require.NoError(t, err)
	l.spy.beforeCommit = func(call int, _ []projection.Write) []error {
		if call == 1 {
			_, err := rival.ProcessBatch(t.Context(), batch(theirs, mine), projection.BatchOptions{})
			require.NoError(t, err)
		}
		return nil
	}
	more := l.record("Order", "o1", loaded{"c1", 3})
	result := l.apply(mine, more, l.record("Order", "o3", loaded{"c2", 1}))
	require.Empty(t, result.Failures)
	in := instance(t, outcomeOf(t, result, "c1"), "order", "o1")
	require.Equal(t, []int64{1}, in.AlreadyApplied, "the rival has applied it")
	require.Equal(t, []int64{2}, in.Applied)
	require.EqualValues(t, 10, l.row("c1").Count)
	require.EqualValues(t, 2, l.row("c1").Revision)
	require.EqualValues(t, 1, l.metrics.of("rowfold.lost_races").Load())
	require.Equal(t, [][]string{{"c1", "c2"}, {"c1"}}, l.spy.loads, "rows that won are not read again")
	require.Equal(t, []string{"Crates|c1|order|o1|1|0", "Crates|c1|order|o2|1|0", "Crates|c1|order|o1|2|0"}, itemIDs(l.pending("c1")))
}

func itemIDs(items []outbox.Item) []string {
	ids := make([]string, len(items))
	for i := range items {
		ids[i] = items[i].ID
	}
	return ids
}

// after the attempts are used up the row fails, as something that may pass.
func TestApplyLosesEveryRace(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{processor: func(c *projection.ProcessorConfig) { c.Attempts = 3 }})
	l.spy.beforeCommit = func(_ int, writes []projection.Write) []error {
		results := make([]error, len(writes))
		for i := range writes {
			if writes[i].Key == "c1" {
				results[i] = &projection.LostRace{Projection: "Crates", Key: "c1"}
			}
		}
		if len(writes) > 1 {
			results[1] = l.store.Commit(t.Context(), l.p.Model(), writes[1:])[0]
		}
		return results
	}
	result := l.apply(l.record("Order", "o1", loaded{"c1", 1}), l.record("Order", "o2", loaded{"c2", 1}))
	require.Len(t, result.Failures, 1)
	var conflict *projection.ProjectionConflict
	require.ErrorAs(t, result.Failures[0], &conflict)
	require.Equal(t, 3, conflict.Attempts)
	require.Equal(t, "c1", conflict.Key)
	require.Equal(t, event.ClassRetry, result.Failures[0].Class())
	var lost *projection.LostRace
	require.ErrorAs(t, conflict, &lost)
	require.Len(t, l.spy.commits, 3)
	require.EqualValues(t, 3, l.metrics.of("rowfold.lost_races").Load())
	require.EqualValues(t, 1, l.row("c2").Count)
}

// a throttled write is the same write again, under its id, and no lost race.
func TestApplyThrottled(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{processor: func(c *projection.ProcessorConfig) { c.Attempts = 1 }})
	throttled := event.WithClass(errDown, event.ClassThrottled)
	l.spy.beforeCommit = func(call int, _ []projection.Write) []error {
		if call <= 15 {
			return []error{throttled}
		}
		return nil
	}
	require.Empty(t, l.apply(l.record("Order", "o1", loaded{"c1", 1})).Failures)
	require.Len(t, l.spy.loads, 1)
	require.Len(t, l.spy.commits, 16)
	for _, writes := range l.spy.commits {
		require.Equal(t, l.spy.commits[0][0].ID, writes[0].ID)
	}
	require.Zero(t, l.metrics.of("rowfold.lost_races").Load())
}

// an answer that got lost is decided by what is stored: the write is done, once.
func TestApplyUnknownOutcome(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{})
	unknown := event.WithClass(errDown, event.ClassUnknownOutcome)
	l.spy.afterCommit = func(call int, results []error) []error {
		if call == 1 {
			return []error{unknown}
		}
		return results
	}
	result := l.apply(l.record("Order", "o1", loaded{"c1", 2}))
	require.Empty(t, result.Failures)
	outcome := outcomeOf(t, result, "c1")
	require.Equal(t, []int64{1}, instance(t, outcome, "order", "o1").Applied)
	require.True(t, outcome.Written)
	require.Equal(t, 1, outcome.Enqueued)
	require.Len(t, l.spy.commits, 1)
	require.EqualValues(t, 1, l.row("c1").Revision)
	require.Zero(t, l.metrics.of("rowfold.lost_races").Load(), "nobody else wrote")
}

// when somebody has written since, the checkpoints still say that it was done.
func TestApplyUnknownOutcomeThenOverwritten(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{})
	l.spy.afterCommit = func(call int, results []error) []error {
		if call > 1 {
			return results
		}
		require.NoError(t, l.rows.Update(t.Context(), "c1", func(c crate) (crate, error) {
			c.Place = "by hand"
			return c, nil
		}))
		return []error{event.WithClass(errDown, event.ClassUnknownOutcome)}
	}
	result := l.apply(l.record("Order", "o1", loaded{"c1", 2}))
	require.Empty(t, result.Failures)
	require.EqualValues(t, 2, l.row("c1").Count)
	require.EqualValues(t, 2, l.row("c1").Revision)
	require.Len(t, l.pending("c1"), 1)
	require.Equal(t, []int64{1}, instance(t, outcomeOf(t, result, "c1"), "order", "o1").AlreadyApplied)
}

// an unknown outcome that was no outcome is computed again, under a new id.
func TestApplyUnknownOutcomeOfNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{})
	l.spy.beforeCommit = func(call int, _ []projection.Write) []error {
		if call == 1 {
			return []error{event.WithClass(errDown, event.ClassUnknownOutcome)}
		}
		return nil
	}
	require.Empty(t, l.apply(l.record("Order", "o1", loaded{"c1", 2})).Failures)
	require.Len(t, l.spy.commits, 2)
	require.NotEqual(t, l.spy.commits[0][0].ID, l.spy.commits[1][0].ID)
	require.EqualValues(t, 2, l.row("c1").Count)
	require.Len(t, l.pending("c1"), 1)
}

// a sequence that is taken is permanent: the instance is to be parked.
func TestApplySequenceReused(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{})
	l.apply(l.record("Order", "o1", loaded{"c1", 2}))
	stored := l.stored("c1")
	write := projection.Write{Key: "c1", Guard: stored.Books, GuardStatus: stored.Status, Values: stored.Values, Books: stored.Books.Clone(), ID: "by a restore"}
	write.Books.Revision = new(int64(0)) // the next write takes revision 1 again, whose effect is pending
	require.NoError(t, l.store.Commit(t.Context(), l.p.Model(), []projection.Write{write})[0])
	result := l.apply(l.record("Order", "o1", loaded{"c1", 3}))
	require.Len(t, result.Failures, 1)
	var reused *projection.SequenceReused
	require.ErrorAs(t, result.Failures[0], &reused)
	require.Equal(t, outbox.SequenceOf(1, 0), reused.Sequence)
	require.Equal(t, event.ClassPermanent, result.Failures[0].Class())
	require.EqualValues(t, 2, l.row("c1").Count)
}

// manyEffects makes an order's events have as many effects as they load parcels.
func manyEffects(c *projection.Config[string, crate]) {
	source := orderSource()
	source.Effects = func(_ *crate, e event.Event[orderEvent], in projection.Instance) ([]any, error) {
		data, _ := e.Data.(loaded)
		effects := make([]any, data.Count)
		for i := range effects {
			effects[i] = note{fmt.Sprintf("%s@%d:%d", in, e.Version, i)}
		}
		return effects, nil
	}
	c.Sources[0] = source
}

// a batch is folded whole and cut at event borders; each write has its revision.
func TestApplyCuts(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{definition: manyEffects, store: sqlite.Config{MaxEffects: 5}})
	result := l.apply(l.record("Order", "o1", loaded{"c1", 3}, loaded{"c1", 2}, loaded{"c1", 1}), l.record("Order", "o2", loaded{"c1", 5}), l.record("Scale", "s1", weighed{"c1", 4}))
	require.Empty(t, result.Failures)
	outcome := outcomeOf(t, result, "c1")
	require.Equal(t, 11, outcome.Enqueued)
	require.EqualValues(t, 3, outcome.Revision)
	require.Equal(t, []int64{1, 2, 3}, instance(t, outcome, "order", "o1").Applied)
	require.Equal(t, l.row("c1"), outcome.State)
	require.Equal(t, 3, l.spy.writes())
	var sequences []string
	for _, item := range l.pending("c1") {
		sequences = append(sequences, fmt.Sprintf("%d/%s", item.Sequence.Revision(), string(item.Payload)))
	}
	require.Len(t, sequences, 11)
	require.Equal(t, `1/{"text":"order#o1@1:0"}`, sequences[0])
	require.Equal(t, `1/{"text":"order#o1@2:1"}`, sequences[4])
	require.Equal(t, `2/{"text":"order#o1@3:0"}`, sequences[5])
	require.Equal(t, `3/{"text":"order#o2@1:0"}`, sequences[6])
	require.Equal(t, `3/{"text":"order#o2@1:4"}`, sequences[10])
}

// one event with more effects than a write takes fails its instance, and no other.
func TestApplyTooManyEffects(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{definition: manyEffects, store: sqlite.Config{MaxEffects: 5}})
	result := l.apply(l.record("Order", "o1", loaded{"c1", 6}), l.record("Order", "o2", loaded{"c1", 1}))
	require.Len(t, result.Failures, 1)
	var many *projection.TooManyEffects
	require.ErrorAs(t, result.Failures[0], &many)
	require.Equal(t, 6, many.Effects)
	require.Equal(t, 5, many.Limits.MaxEffects)
	require.EqualValues(t, 1, l.row("c1").Count)
}

// bytes are a limit, too: what the fold cuts is what the store takes.
func TestApplyCutsByBytes(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{definition: manyEffects, store: sqlite.Config{MaxBytes: 8000, MaxRowBytes: 2000}})
	result := l.apply(l.record("Order", "o1", loaded{"c1", 6}, loaded{"c1", 6}, loaded{"c1", 6}))
	require.Empty(t, result.Failures)
	require.Equal(t, 3, l.spy.writes())
	require.Len(t, l.pending("c1"), 18)
}

// a race lost between two writes of a cut row keeps what the first has done.
func TestApplyLostRaceInACut(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{definition: manyEffects, store: sqlite.Config{MaxEffects: 2}})
	l.spy.beforeCommit = func(call int, _ []projection.Write) []error {
		if call == 2 {
			require.NoError(t, l.rows.Update(t.Context(), "c1", func(c crate) (crate, error) {
				c.Place = "by hand"
				return c, nil
			}))
		}
		return nil
	}
	result := l.apply(l.record("Order", "o1", loaded{"c1", 2}, loaded{"c1", 1}, loaded{"c1", 2}))
	require.Empty(t, result.Failures)
	outcome := outcomeOf(t, result, "c1")
	in := instance(t, outcome, "order", "o1")
	require.Equal(t, []int64{1, 2, 3}, in.Applied, "all three were applied by this batch")
	require.Empty(t, in.AlreadyApplied)
	require.Equal(t, 5, outcome.Enqueued)
	require.EqualValues(t, 4, outcome.Revision)
	require.Equal(t, "by hand", l.row("c1").Place)
	require.EqualValues(t, 5, l.row("c1").Count)
	require.Len(t, l.pending("c1"), 5)
}

// when a later write of a cut row fails, the report says where the first has left it.
func TestApplyFailsInACut(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{definition: manyEffects, store: sqlite.Config{MaxEffects: 2}})
	l.spy.beforeCommit = func(call int, _ []projection.Write) []error {
		if call == 2 {
			return []error{event.Permanent(errDown)}
		}
		return nil
	}
	result := l.apply(l.record("Order", "o1", loaded{"c1", 2}, loaded{"c1", 1}), l.record("Order", "o2", loaded{"c1", 2}))
	outcome := outcomeOf(t, result, "c1")
	require.ErrorIs(t, outcome.Err, errDown)
	require.Equal(t, 2, outcome.Enqueued)
	o1 := instance(t, outcome, "order", "o1")
	require.EqualValues(t, 1, o1.Version)
	require.EqualValues(t, 1, outcome.Revision)
	require.ErrorIs(t, o1.Err, errDown)
	require.Equal(t, []int64{1}, o1.Applied, "it is committed")
	require.Len(t, result.Failures, 2)
	require.Equal(t, 1, result.Failures[0].Record, "the first record was applied")
	require.EqualValues(t, 2, result.Failures[0].From)
	require.Equal(t, 2, result.Failures[1].Record)
	require.EqualValues(t, 2, l.row("c1").Count)
	require.Len(t, l.pending("c1"), 2)
}

// RowTooLarge names the row, its size and the limit, before anything is sent.
func TestApplyRowTooLarge(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{store: sqlite.Config{MaxRowBytes: 500}})
	var failure error
	for i := range 40 {
		result := l.apply(l.record("Scale", event.ID(fmt.Sprintf("s%d", i)), weighed{"c1", 1}))
		if len(result.Failures) > 0 {
			failure = result.Failures[0]
			break
		}
	}
	var large *projection.RowTooLarge
	require.ErrorAs(t, failure, &large, "checkpoints grow with every instance")
	require.Equal(t, "c1", large.Key)
	require.Greater(t, large.Size, large.Limit)
	require.Len(t, l.spy.commits, len(l.row("c1").Checkpoints), "the failing one was not sent")
}

// a closed instance's entry leaves after the replay window, from the store, too.
func TestApplyCloses(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	l := newLab(t, setup{
		definition: func(c *projection.Config[string, crate]) {
			source := scaleSource()
			source.Closes = func(e event.Event[weighed]) bool { return e.Data.Grams == 99 }
			c.Sources[2], c.ReplayWindow = source, time.Hour
		},
		processor: func(c *projection.ProcessorConfig) { c.Now = func() time.Time { return now } },
	})
	closed := l.record("Scale", "s1", weighed{"c1", 1}, weighed{"c1", 99})
	l.apply(closed)
	require.Equal(t, map[string]int64{"scale#s1": 2, "#closed#scale#s1": now.Unix()}, l.row("c1").Checkpoints)
	now = now.Add(time.Hour)
	l.apply(closed, l.record("Order", "o1", loaded{"c1", 1}))
	require.EqualValues(t, 2, l.row("c1").Checkpoints["scale#s1"], "within the window a redelivery is recognised")
	require.InDelta(t, 100, l.row("c1").Grams, 0)
	now = now.Add(time.Second)
	l.apply(l.record("Order", "o1", loaded{"c1", 1}))
	require.Equal(t, map[string]int64{"order#o1": 2}, l.row("c1").Checkpoints)
}

// A context that ends while a row waits for its next try ends the batch.
func TestApplyIsCancelledBetweenTries(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{processor: func(c *projection.ProcessorConfig) { c.BackoffMin, c.BackoffMax = time.Hour, time.Hour }})
	ctx, cancel := context.WithCancel(t.Context())
	l.spy.beforeCommit = func(int, []projection.Write) []error {
		time.AfterFunc(time.Millisecond, cancel)
		return []error{event.WithClass(errDown, event.ClassThrottled)}
	}
	_, err := l.processor.ProcessBatch(ctx, l.record("Order", "o1", loaded{"c1", 1}), projection.BatchOptions{})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "projection Crates")
}

// whatever happens to any one call of a batch, and if the process
// ends there, the batch given again leaves the row, the checkpoints and each effect once.
func TestApplyUnderEveryFault(t *testing.T) {
	t.Parallel()
	calls := faultyRun(t, testsuite.Plan{})
	require.Contains(t, calls, "Commit")
	require.Contains(t, calls, "HasPending")
	for call := range calls {
		for _, fault := range testsuite.Faults() {
			t.Run(fmt.Sprintf("%s at %d, %s", strings.ReplaceAll(string(fault), " ", "-"), call+1, calls[call]), func(t *testing.T) {
				t.Parallel()
				faultyRun(t, testsuite.Plan{At: map[int]testsuite.Fault{call + 1: fault}})
			})
		}
	}
}

// faultyRun applies a batch that is cut, on a store with faults, until it succeeds, and
// returns the calls of the first try.
func faultyRun(t *testing.T, plan testsuite.Plan) []string {
	t.Helper()
	l := newLab(t, setup{definition: manyEffects, store: sqlite.Config{MaxEffects: 3}})
	faulty := testsuite.NewFaulty(l.store, plan)
	woken := 0
	config := projection.ProcessorConfig{
		Definitions: []projection.Definition{l.p}, Store: faulty, Events: l.store, BackoffMax: time.Millisecond,
		Wake: func(_ context.Context, rows []outbox.Row) { woken += len(rows) },
	}
	processor, err := projection.NewProcessor(config)
	require.NoError(t, err)
	records := batch(
		l.record("Order", "o1", loaded{"c1", 2}, loaded{"c2", 1}, loaded{"c1", 3}), l.record("Order", "o2", loaded{"c1", 1}, scrapped{"c3"}),
		l.record("Track", "c1", moved{"dock"}), l.record("Scale", "s1", weighed{"c2", 0}, weighed{"c2", 7}, weighed{"c4", 0}))
	result, err := processor.ProcessBatch(t.Context(), records, projection.BatchOptions{})
	calls := faulty.Calls()
	if err != nil || len(result.Failures) > 0 {
		config.Store = l.store
		again, newErr := projection.NewProcessor(config)
		require.NoError(t, newErr)
		result, err = again.ProcessBatch(t.Context(), records, projection.BatchOptions{})
	}
	require.NoError(t, err)
	require.Empty(t, result.Failures)
	require.GreaterOrEqual(t, woken, 2, "whoever drains is told of c1 and c2")
	c1, c2 := l.row("c1"), l.row("c2")
	require.EqualValues(t, 6, c1.Count)
	require.Equal(t, "dock", c1.Place)
	require.Equal(t, map[string]int64{"order#o1": 3, "order#o2": 1, "track#c1": 1}, c1.Checkpoints)
	require.InDelta(t, 7, c2.Grams, 0)
	require.Equal(t, map[string]int64{"order#o1": 2, "scale#s1": 2}, c2.Checkpoints)
	require.Equal(t, projection.RowTombstone, l.stored("c3").Status)
	require.Equal(t, []string{
		"Crates|c1|order|o1|1|0", "Crates|c1|order|o1|1|1", "Crates|c1|order|o1|3|0", "Crates|c1|order|o1|3|1", "Crates|c1|order|o1|3|2",
		"Crates|c1|order|o2|1|0", "Crates|c1|track|c1|1|0",
	}, itemIDs(l.pending("c1")))
	require.Equal(t, []string{"Crates|c2|order|o1|2|0"}, itemIDs(l.pending("c2")))
	require.True(t, slices.IsSortedFunc(l.pending("c1"), func(a, b outbox.Item) int { return strings.Compare(string(a.Sequence), string(b.Sequence)) }))
	return calls
}
