package testsuite_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
	"github.com/rowfold/rowfold/store/sqlite"
	"github.com/rowfold/rowfold/testsuite"
)

// model is a row of a key and nothing else, with an outbox.
func model() *projection.Model {
	return &projection.Model{
		Projection: "Marks", Table: "marks", Columns: []projection.Column{{Name: "id", Kind: projection.KindText, Key: true}},
		Checkpoints: "checkpoints", Revision: "revision", HasOutbox: true,
	}
}

// write raises the revision of a row, with a number of effects.
func write(key string, revision int64, effects int) projection.Write {
	row := outbox.Row{Projection: "Marks", Key: key}
	w := projection.Write{
		Key: key, GuardStatus: projection.RowLive, Values: []any{key}, Books: projection.Bookkeeping{Revision: &revision}, ID: outbox.NewNonce(),
	}
	if revision == 1 {
		w.GuardStatus = projection.RowAbsent
	} else {
		before := revision - 1
		w.Guard.Revision = &before
	}
	for i := range effects {
		w.Effects = append(w.Effects, outbox.Item{
			Row: row, Sequence: outbox.SequenceOf(revision, i), ID: outbox.EffectID(row, "mark", "m", revision, i), Source: "mark", Stream: "Mark",
			StreamID: "m", Version: revision, Index: i, Type: "Marked", SchemaVersion: 1, Payload: []byte(`{}`), EnqueuedAt: time.Unix(0, 0).UTC(),
		})
	}
	return w
}

// commitOf returns the result of one write.
func commitOf(t *testing.T, store projection.Store, w projection.Write) error {
	t.Helper()
	results := store.Commit(t.Context(), model(), []projection.Write{w})
	require.Len(t, results, 1)
	return results[0]
}

func statusOf(t *testing.T, store projection.Store, key string) projection.RowStatus {
	t.Helper()
	rows, err := store.Load(t.Context(), model(), []string{key})
	require.NoError(t, err)
	return rows[0].Status
}

func prepared(t *testing.T) *sqlite.Store {
	t.Helper()
	store := openStore(t)
	require.NoError(t, store.Prepare(t.Context(), model()))
	return store
}

func TestFaultsOfACommit(t *testing.T) {
	t.Parallel()
	for fault, want := range map[testsuite.Fault]struct {
		class event.Class
		done  projection.RowStatus
		next  bool // the process goes on
	}{
		testsuite.FaultLostAnswer:  {event.ClassUnknownOutcome, projection.RowLive, true},
		testsuite.FaultLostRequest: {event.ClassUnknownOutcome, projection.RowAbsent, true},
		testsuite.FaultConflict:    {event.ClassStale, projection.RowAbsent, true},
		testsuite.FaultThrottle:    {event.ClassThrottled, projection.RowAbsent, true},
		testsuite.FaultCrashBefore: {event.ClassFenced, projection.RowAbsent, false},
		testsuite.FaultCrashAfter:  {event.ClassFenced, projection.RowLive, false},
	} {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			store := prepared(t)
			faulty := testsuite.NewFaulty(store, testsuite.Plan{At: map[int]testsuite.Fault{2: fault}})
			require.NoError(t, commitOf(t, faulty, write("before", 1, 0)))
			err := commitOf(t, faulty, write("A", 1, 0))
			require.Equal(t, want.class, event.Classify(err), "%v", err)
			require.Equal(t, want.done, statusOf(t, store, "A"), "what was done")
			require.Equal(t, projection.RowLive, statusOf(t, store, "before"))
			err = commitOf(t, faulty, write("after", 1, 0))
			require.Equal(t, want.next, err == nil, "%v", err)
			require.Equal(t, want.next, statusOf(t, store, "after") == projection.RowLive)
		})
	}
}

// A conflict of a commit is the error that the store itself would return.
func TestAConflictIsALostRace(t *testing.T) {
	t.Parallel()
	faulty := testsuite.NewFaulty(prepared(t), testsuite.Plan{At: map[int]testsuite.Fault{
		1: testsuite.FaultConflict, 2: testsuite.FaultConflict, 3: testsuite.FaultConflict,
	}})
	results := faulty.Commit(t.Context(), model(), []projection.Write{write("A", 1, 0), write("B", 1, 0)})
	require.Equal(t, []error{
		&projection.LostRace{Projection: "Marks", Key: "A"}, &projection.LostRace{Projection: "Marks", Key: "B"},
	}, results)
	err := faulty.CommitAll(t.Context(), []projection.ModelWrite{{Model: model(), Write: write("C", 1, 0)}})
	var failed *projection.WriteError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, "C", failed.Key)
	var race *projection.LostRace
	require.ErrorAs(t, err, &race)
	require.Equal(t, event.ClassStale, event.Classify(err))
	_, err = faulty.Load(t.Context(), model(), []string{"A"})
	require.Equal(t, event.ClassStale, event.Classify(err))
}

// callsOf calls every method of a store that is a call, and returns their errors.
func callsOf(ctx context.Context, store projection.Store) map[string]error {
	errs := map[string]error{}
	row, ref, in := outbox.Row{Projection: "Marks", Key: "A"}, outbox.Ref{}, projection.Instance{Source: "mark", StreamID: "m"}
	run := func(name string, call func() error) { errs[name] = call() }
	run("Prepare", func() error { return store.Prepare(ctx, model()) })
	run("Load", func() error { _, err := store.Load(ctx, model(), []string{"A"}); return err })
	run("Commit", func() error { return store.Commit(ctx, model(), []projection.Write{write("A", 1, 1)})[0] })
	run("CommitAll", func() error { return store.CommitAll(ctx, nil) })
	run("Rows", func() error { _, err := store.Rows(ctx, model(), projection.RowPage{Limit: 1}); return err })
	run("PurgeTombstones", func() error { _, err := store.PurgeTombstones(ctx, model(), time.Unix(0, 0), 1); return err })
	run("Head", func() error { _, err := store.Head(ctx, row, 1); return err })
	run("Claim", func() error { _, err := store.Claim(ctx, row, nil, outbox.Owner{Nonce: "n"}); return err })
	run("Release", func() error { return store.Release(ctx, row, nil, "n") })
	run("Delete", func() error { _, err := store.Delete(ctx, row, ref); return err })
	run("Defer", func() error { _, err := store.Defer(ctx, row, ref, outbox.Deferral{}); return err })
	run("Decide", func() error {
		_, err := store.Decide(ctx, row, ref, outbox.Decision{Verb: outbox.VerbSkip})
		return err
	})
	run("Decisions", func() error { _, err := store.Decisions(ctx, row); return err })
	run("Pending", func() error {
		_, err := store.Pending(ctx, outbox.PendingQuery{Projection: "Marks", Limit: 1})
		return err
	})
	run("HasPending", func() error { _, err := store.HasPending(ctx, "Marks", nil); return err })
	run("ExpireTombstone", func() error { _, err := store.ExpireTombstone(ctx, row, 1, time.Unix(0, 0)); return err })
	run("Parked", func() error { _, err := store.Parked(ctx, "Marks", nil); return err })
	run("Park", func() error {
		return store.Park(ctx, projection.Park{Projection: "Marks", Instance: in, From: 1, Newest: 1})
	})
	run("Unpark", func() error { _, err := store.Unpark(ctx, "Marks", in, 1); return err })
	run("Parks", func() error { _, err := store.Parks(ctx, "Marks", "", 1); return err })
	run("RecordSkip", func() error {
		return store.RecordSkip(ctx, projection.Skip{Projection: "Marks", Instance: in, Version: 1})
	})
	run("Skips", func() error { _, err := store.Skips(ctx, "Marks", nil); return err })
	run("Positions", func() error { _, err := store.Positions(ctx, "c", "Mark"); return err })
	run("SavePosition", func() error {
		return store.SavePosition(ctx, projection.PositionRecord{Consumer: "c", Stream: "Mark", Shard: "s", Position: "1"})
	})
	return errs
}

// Every method is a call that a plan can hit, and a crash ends all of them.
func TestEveryMethodIsACall(t *testing.T) {
	t.Parallel()
	faulty := testsuite.NewFaulty(openStore(t), testsuite.Plan{})
	errs := callsOf(t.Context(), faulty)
	names := faulty.Calls()
	require.Len(t, names, len(errs))
	for _, name := range names {
		require.NoError(t, errs[name], name)
	}
	crashed := testsuite.NewFaulty(openStore(t), testsuite.Plan{At: map[int]testsuite.Fault{1: testsuite.FaultCrashBefore}})
	for name, err := range callsOf(t.Context(), crashed) {
		var crash *testsuite.Crashed
		require.ErrorAs(t, err, &crash, name)
		require.Equal(t, testsuite.Crashed{Call: 1, Name: "Prepare"}, *crash)
	}
	require.Equal(t, []string{"Prepare"}, crashed.Calls(), "a process that is gone calls nothing")
	for at, name := range names {
		throttled := testsuite.NewFaulty(openStore(t), testsuite.Plan{At: map[int]testsuite.Fault{at + 1: testsuite.FaultThrottle}})
		errs := callsOf(t.Context(), throttled)
		require.Equal(t, event.ClassThrottled, event.Classify(errs[name]), name)
	}
}

// R-38 (iii): between the read of the revision and that of the effects a write commits, of
// which only a part is visible.
func TestOneByOne(t *testing.T) {
	t.Parallel()
	store, row := prepared(t), outbox.Row{Projection: "Marks", Key: "A"}
	require.NoError(t, commitOf(t, store, write("A", 1, 2)))
	revision := int64(1)
	faulty := testsuite.NewFaulty(store, testsuite.Plan{OneByOne: func(ctx context.Context, at outbox.Row) {
		revision++
		require.Equal(t, row, at)
		require.NoError(t, errors.Join(store.Commit(ctx, model(), []projection.Write{write("A", revision, 3)})...))
	}})
	look := func(limit int) (int64, []string) {
		view, err := faulty.Head(t.Context(), row, limit)
		require.NoError(t, err)
		var seen []string
		for _, item := range view.Items {
			seen = append(seen, fmt.Sprintf("%d.%d", item.Sequence.Revision(), item.Index))
		}
		return view.Revision, seen
	}
	at, seen := look(10)
	require.Equal(t, int64(1), at)
	require.Equal(t, []string{"1.0", "1.1", "2.2"}, seen, "the revision is from before the write, a part of its effects is there")
	at, seen = look(2)
	require.Equal(t, int64(2), at)
	require.Equal(t, []string{"1.0", "1.1"}, seen, "never more than were asked for")
	at, seen = look(100)
	require.Equal(t, int64(3), at)
	require.Equal(t, []string{"1.0", "1.1", "2.0", "2.1", "2.2", "3.0", "3.1", "3.2", "4.2"}, seen, "what was a part is whole by the next look")
	require.Equal(t, []string{"Head", "Head", "Head"}, faulty.Calls())
}

func TestPlanValidate(t *testing.T) {
	t.Parallel()
	plan := testsuite.Plan{At: map[int]testsuite.Fault{0: testsuite.FaultThrottle, 2: "typo", 3: testsuite.FaultConflict}}
	var faults *event.DefinitionError
	require.ErrorAs(t, plan.Validate(), &faults)
	require.Len(t, faults.Faults, 2)
	require.Contains(t, faults.Faults[0], "At[0]")
	require.Contains(t, faults.Faults[1], `At[2] is "typo"`)
	require.Panics(t, func() { testsuite.NewFaulty(nil, plan) })
	for _, fault := range testsuite.Faults() {
		require.NoError(t, testsuite.Plan{At: map[int]testsuite.Fault{1: fault}}.Validate())
	}
}
