package sqlite_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
	"github.com/rowfold/rowfold/store/sqlite"
)

// a row whose effects are refused is taken back by itself, and the others of its batch
// are committed once.
func TestARowWhoseEffectsAreRefusedTouchesNoOther(t *testing.T) {
	t.Parallel()
	store, model := desks(t, sqlite.Config{})
	committed(t, store, model, deskWrite("B", "", "before"))
	run(t, store, `UPDATE rowfold_rows_desk SET revision = 0, total = 7`)
	stale := deskWrite("B", "", "stale")
	stale.Key = "C"
	stale.Guard.Revision = new(int64(4))

	results := store.Commit(t.Context(), model, []projection.Write{
		deskWrite("A", "", "a1", "a2"), deskWriteOver(load(t, store, model, "B"), "1"), deskWrite("D", "", "d1"), stale,
	})
	require.NoError(t, results[0])
	require.NoError(t, results[1], "without effects there is nothing to refuse")
	require.NoError(t, results[2])
	race := &projection.LostRace{}
	require.ErrorAs(t, results[3], &race)

	run(t, store, `UPDATE rowfold_rows_desk SET revision = 0 WHERE code = 'B'`)
	before := load(t, store, model, "B")
	results = store.Commit(t.Context(), model, []projection.Write{
		deskWriteOver(load(t, store, model, "A"), "", "a3"), deskWriteOver(before, "2", "taken"), deskWrite("E", "", "e1"), stale,
	})
	require.NoError(t, results[0])
	reused := &projection.SequenceReused{}
	require.ErrorAs(t, results[1], &reused)
	require.Equal(t, projection.SequenceReused{Row: outbox.Row{Projection: "Desk", Key: "B"}, Sequence: outbox.SequenceOf(1, 0)}, *reused)
	require.NoError(t, results[2])
	require.ErrorAs(t, results[3], &race)
	require.Equal(t, "C", race.Key)

	require.Equal(t, before, load(t, store, model, "B"))
	rows, effects := keys(t, store)
	require.Equal(t, []string{"A", "B", "D", "E"}, rows)
	require.Equal(t, []string{"A a1", "A a2", "A a3", "B before", "D d1", "E e1"}, effects)
}

func TestAUniqueColumnRefusesOneRow(t *testing.T) {
	t.Parallel()
	store, model := desks(t, sqlite.Config{})
	committed(t, store, model, deskWrite("A", "1"))
	results := store.Commit(t.Context(), model, []projection.Write{
		deskWrite("B", "2", "b"), deskWrite("C", "1", "c"), deskWrite("D", "3"), deskWrite("E", "2"),
	})
	require.NoError(t, results[0])
	require.NoError(t, results[2])
	for at, key := range map[int]string{1: "C", 3: "E"} {
		violation := &sqlite.UniqueViolation{}
		require.ErrorAs(t, results[at], &violation)
		require.Equal(t, key, violation.Key)
		require.ErrorContains(t, results[at], "phone", "it names the column")
		require.Equal(t, event.ClassPermanent, event.Classify(results[at]))
	}
	rows, effects := keys(t, store)
	require.Equal(t, []string{"A", "B", "D"}, rows)
	require.Equal(t, []string{"B b"}, effects)

	committed(t, store, model, tombstoneOver(load(t, store, model, "A")))
	committed(t, store, model, deskWrite("C", "1", "c"))
	violation := &sqlite.UniqueViolation{}
	back := deskWriteOver(load(t, store, model, "A"), "1")
	require.ErrorAs(t, store.Commit(t.Context(), model, []projection.Write{back})[0], &violation, "the tombstone gave its value away")
}

// Constraints and triggers that somebody added to the table are one row's fault, too.
func TestAnyConstraintRefusesOneRow(t *testing.T) {
	t.Parallel()
	for name, trigger := range map[string]string{
		"constraint": `ALTER TABLE rowfold_rows_desk ADD COLUMN guarded TEXT CHECK (code <> 'B')`,
		"trigger": `CREATE TRIGGER mine BEFORE INSERT ON rowfold_rows_desk WHEN NEW.code = 'B'
			BEGIN SELECT RAISE(ABORT, 'not this one'); END`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, model := desks(t, sqlite.Config{})
			run(t, store, trigger)
			results := store.Commit(t.Context(), model, []projection.Write{
				deskWrite("A", "", "a"), deskWrite("B", "", "b"), deskWrite("C", ""),
			})
			require.NoError(t, results[0])
			violation := &sqlite.ConstraintViolation{}
			require.ErrorAs(t, results[1], &violation)
			require.Equal(t, "B", violation.Key)
			require.Equal(t, event.ClassPermanent, event.Classify(results[1]))
			require.NoError(t, results[2])
			rows, effects := keys(t, store)
			require.Equal(t, []string{"A", "C"}, rows)
			require.Equal(t, []string{"A a"}, effects)
		})
	}
}

// A trigger may end the transaction: no row of the batch is written outside of one, where its
// effects might be lost.
func TestATriggerThatEndsTheTransactionFailsTheBatch(t *testing.T) {
	t.Parallel()
	store, model := desks(t, sqlite.Config{})
	run(t, store, `CREATE TRIGGER mine BEFORE INSERT ON rowfold_rows_desk WHEN NEW.code = 'B' BEGIN SELECT RAISE(ROLLBACK, 'stop'); END`)
	for _, err := range store.Commit(t.Context(), model, []projection.Write{
		deskWrite("A", "", "a"), deskWrite("B", ""), deskWrite("C", "", "c"),
	}) {
		require.ErrorContains(t, err, "stop")
	}
	rows, effects := keys(t, store)
	require.Empty(t, rows)
	require.Empty(t, effects)
	committed(t, store, model, deskWrite("A", "", "a")) // the store goes on
}

//
func TestWritesOverTheLimitsAreRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	size := deskModel().Size(deskWrite("A", "12345").Values, deskWrite("A", "12345").Books)
	store, model := desks(t, sqlite.Config{MaxRowBytes: size, MaxEffects: 2, MaxBytes: size + 8})
	results := store.Commit(t.Context(), model, []projection.Write{
		deskWrite("A", "12345", "123456"), // 8 bytes with its quotes
		deskWrite("B", "123456"),
		deskWrite("C", "", "1", "2", "3"),
		deskWrite("D", "54321", "1234567"),
		deskWrite("E", "", "1", "2"),
	})
	require.NoError(t, results[0])
	row := &projection.RowTooLarge{}
	require.ErrorAs(t, results[1], &row)
	require.Equal(t, projection.RowTooLarge{Projection: "Desk", Key: "B", Size: size + 1, Limit: size}, *row)
	large := &sqlite.WriteTooLarge{}
	require.ErrorAs(t, results[2], &large)
	require.Equal(t, 3, large.Effects)
	require.ErrorAs(t, results[3], &large)
	require.Equal(t, size+9, large.Bytes)
	require.Equal(t, store.Limits(), large.Limits)
	require.Equal(t, event.ClassPermanent, event.Classify(results[3]))
	require.NoError(t, results[4])
	rows, _ := keys(t, store)
	require.Equal(t, []string{"A", "E"}, rows)

	failed := &projection.WriteError{}
	err := store.CommitAll(t.Context(), []projection.ModelWrite{{Model: model, Write: deskWrite("F", "")}, {Model: model, Write: deskWrite("G", "123456")}})
	require.ErrorAs(t, err, &failed)
	require.Equal(t, "G", failed.Key)
	require.ErrorAs(t, err, &row)
	rows, _ = keys(t, store)
	require.Equal(t, []string{"A", "E"}, rows)
}

// A transaction that fails as a whole is the fault of every write that was sent; what was
// refused for itself stays refused.
func TestABusyDatabaseThrottlesEveryWrite(t *testing.T) {
	t.Parallel()
	config := inFile(t)
	config.MaxRowBytes = 1000
	store, model := desks(t, config)
	release := lock(t, config.Path)
	writes := []projection.Write{deskWrite("A", "", "a"), deskWrite("B", strings.Repeat("x", 1000)), deskWrite("C", "")}
	results := store.Commit(t.Context(), model, writes)
	require.Equal(t, event.ClassThrottled, event.Classify(results[0]))
	require.Equal(t, event.ClassPermanent, event.Classify(results[1]))
	require.Equal(t, event.ClassThrottled, event.Classify(results[2]))
	err := store.CommitAll(t.Context(), []projection.ModelWrite{{Model: model, Write: writes[0]}, {Model: model, Write: writes[2]}})
	failed := &projection.WriteError{}
	require.ErrorAs(t, err, &failed)
	require.Equal(t, event.ClassThrottled, event.Classify(err))

	release()
	results = store.Commit(t.Context(), model, writes)
	require.NoError(t, results[0])
	require.NoError(t, results[2])
}

func TestAFailureOfTheDatabaseIsThatOfEveryWrite(t *testing.T) {
	t.Parallel()
	store, model := desks(t, sqlite.Config{})
	run(t, store, `DROP TABLE rowfold_outbox`)
	for _, err := range store.Commit(t.Context(), model, []projection.Write{deskWrite("A", ""), deskWrite("B", "", "b"), deskWrite("C", "")}) {
		require.ErrorContains(t, err, "sqlite: commit 3 rows of projection Desk: ")
		require.ErrorContains(t, err, "rowfold_outbox")
		require.Equal(t, event.ClassPermanent, event.Classify(err))
	}
	require.Empty(t, texts(t, store, `SELECT code FROM desk`))
}

// stopAfter is a context that ends when it was asked a number of times.
type stopAfter struct {
	context.Context //nolint:containedctx // it is one

	left int
}

func (c *stopAfter) Err() error {
	c.left--
	if c.left < 0 {
		return context.Canceled
	}
	return nil
}

func TestABatchEndsWithItsContext(t *testing.T) {
	t.Parallel()
	store, model := desks(t, sqlite.Config{})
	results := store.Commit(&stopAfter{Context: t.Context(), left: 1}, model, []projection.Write{
		deskWrite("A", "", "a"), deskWrite("B", ""), deskWrite("C", ""),
	})
	for _, err := range results {
		require.ErrorIs(t, err, context.Canceled)
	}
	rows, effects := keys(t, store)
	require.Empty(t, rows)
	require.Empty(t, effects)
}

// nobody knows what became of a commit whose answer is no answer.
func TestACommitThatFailsHasAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	store, _ := desks(t, sqlite.Config{})
	err := store.Exec(t.Context(), `COMMIT`) // the transaction is gone when its own commit comes
	require.Error(t, err)
	require.Equal(t, event.ClassUnknownOutcome, event.Classify(err))
	run(t, store, `DELETE FROM rowfold_rows_desk`) // the store goes on
}

// of two processes that have read the same row, one loses, and nothing of it remains.
func TestTwoProcessesRaceForARow(t *testing.T) {
	t.Parallel()
	config := inFile(t)
	one, model := desks(t, config)
	two := open(t, config)
	for range 3 {
		read := load(t, one, model, "A")
		require.Equal(t, read, load(t, two, model, "A"))
		committed(t, two, model, deskWriteOver(read, "2", "two"))
		race := &projection.LostRace{}
		require.ErrorAs(t, one.Commit(t.Context(), model, []projection.Write{deskWriteOver(read, "1", "one")})[0], &race)
	}
	_, effects := keys(t, one)
	require.Equal(t, []string{"A two", "A two", "A two"}, effects)
}

func TestCommitAllNamesTheRowThatFailed(t *testing.T) {
	t.Parallel()
	store, model := desks(t, sqlite.Config{})
	committed(t, store, model, deskWrite("A", "1", "a"))
	run(t, store, `UPDATE rowfold_rows_desk SET revision = 0`)
	for want, write := range map[string]projection.Write{
		"C": deskWrite("C", "1"), "A": deskWriteOver(load(t, store, model, "A"), "", "taken"),
	} {
		err := store.CommitAll(t.Context(), []projection.ModelWrite{{Model: model, Write: deskWrite("B", "2", "b")}, {Model: model, Write: write}})
		failed := &projection.WriteError{}
		require.ErrorAs(t, err, &failed)
		require.Equal(t, want, failed.Key)
		require.Equal(t, event.ClassPermanent, event.Classify(err))
		rows, effects := keys(t, store)
		require.Equal(t, []string{"A"}, rows)
		require.Equal(t, []string{"A a"}, effects)
	}
}

// a row of another program, which knows less or more, is updated and not replaced.
func TestForeignColumnsSurviveATombstoneAndItsReturn(t *testing.T) {
	t.Parallel()
	store, model := desks(t, sqlite.Config{})
	run(t, store, `ALTER TABLE rowfold_rows_desk ADD COLUMN colour TEXT`)
	committed(t, store, model, deskWrite("A", "1"))
	run(t, store, `UPDATE rowfold_rows_desk SET colour = 'red'`)
	committed(t, store, model, tombstoneOver(load(t, store, model, "A")))
	committed(t, store, model, deskWriteOver(load(t, store, model, "A"), "2"))
	require.Equal(t, []string{"red"}, texts(t, store, `SELECT colour FROM rowfold_rows_desk`))
}

// without a revision a write is guarded by the checkpoints and the status as read.
func TestWithoutARevisionTheWholeCheckpointMapGuards(t *testing.T) {
	t.Parallel()
	store, model := open(t, sqlite.Config{}), deskModel()
	model.Revision, model.HasOutbox = "", false
	require.NoError(t, store.Prepare(t.Context(), model))
	write := func(read projection.Stored, checkpoints map[string]int64) projection.Write {
		write := deskWriteOver(read, "")
		write.Books.Revision, write.Books.Checkpoints = nil, checkpoints
		return write
	}
	committed(t, store, model, write(load(t, store, model, "A"), map[string]int64{"day#d-1": 1, "day#d-2": 1}))
	stored := load(t, store, model, "A")
	lost := func(change func(read *projection.Stored)) {
		t.Helper()
		read := stored
		read.Books = stored.Books.Clone()
		change(&read)
		race := &projection.LostRace{}
		require.ErrorAs(t, store.Commit(t.Context(), model, []projection.Write{write(read, map[string]int64{"day#d-1": 9})})[0], &race)
		require.Equal(t, stored, load(t, store, model, "A"))
	}
	lost(func(read *projection.Stored) { read.Books.Checkpoints["day#d-1"] = 2 })
	lost(func(read *projection.Stored) { delete(read.Books.Checkpoints, "day#d-2") })
	lost(func(read *projection.Stored) { read.Books.Checkpoints = nil })
	lost(func(read *projection.Stored) { read.Status = projection.RowTombstone })
	lost(func(read *projection.Stored) { read.Status = projection.RowAbsent })
	lost(func(read *projection.Stored) {
		read.Books.Scalars = map[string]projection.ScalarCheckpoint{"survey": {Owner: "s-1"}}
	})
	lost(func(read *projection.Stored) { read.Books = projection.Bookkeeping{} })
	committed(t, store, model, write(stored, map[string]int64{"day#d-1": 2}))
	require.Equal(t, map[string]int64{"day#d-1": 2}, load(t, store, model, "A").Books.Checkpoints)
}

// What is enqueued with a claim is claimed.
func TestAnEffectIsCommittedWithItsClaim(t *testing.T) {
	t.Parallel()
	store, model := desks(t, sqlite.Config{})
	write := deskWrite("A", "", "claimed", "free")
	write.Effects[0].Claim = outbox.Claim{Epoch: 1, Owner: outbox.Owner{Kind: outbox.OwnerProcess, Nonce: "n-1", Until: noon}}
	committed(t, store, model, write)
	head, err := store.Head(t.Context(), outbox.Row{Projection: "Desk", Key: "A"}, 10)
	require.NoError(t, err)
	require.Equal(t, write.Effects, head.Items)
}

// An effect that the database refuses is the fault of its row.
func TestAnEffectWithoutAPayloadRefusesOneRow(t *testing.T) {
	t.Parallel()
	store, model := desks(t, sqlite.Config{})
	bad := deskWrite("B", "", "1", "2")
	bad.Effects[1].Payload = nil
	results := store.Commit(t.Context(), model, []projection.Write{deskWrite("A", "", "a"), bad, deskWrite("C", "", "c")})
	require.NoError(t, results[0])
	violation := &sqlite.ConstraintViolation{}
	require.ErrorAs(t, results[1], &violation)
	require.ErrorContains(t, results[1], "payload")
	require.NoError(t, results[2])
	rows, effects := keys(t, store)
	require.Equal(t, []string{"A", "C"}, rows)
	require.Equal(t, []string{"A a", "C c"}, effects)
}
