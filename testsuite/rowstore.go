package testsuite

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
)

// RowStore proves R-22 … on a row store.
func RowStore(t *testing.T, h Harness) {
	t.Helper()
	runCases(t, h, []testCase{
		{"PreparingAgainKeepsRows", prepareAgain},
		{"RowsAreLoadedInTheOrderOfTheirKeys", loadOrder},
		{"EveryKindOfValueComesBack", valuesRoundTrip},
		{"StrangeKeysAreToldApart", strangeKeys},
		{"BookkeepingComesBackAsItWas", bookkeepingRoundTrip},
		{"AbsentBookkeepingStaysAbsent", absentBookkeeping},
		{"TheRevisionGuardsAWrite", revisionGuard},
		{"ALegacyRowIsGuardedByTheAbsenceOfItsRevision", legacyGuard},
		{"WithoutRevisionTheCheckpointsGuard", checkpointGuard},
		{"ALostWriteLeavesNothing", lostWrite},
		{"EachRowOfABatchHasItsOwnResult", batchResults},
		{"CommitAllIsAllOrNothing", commitAll},
		{"ConcurrentWritersWinOneByOne", concurrentWriters},
		{"OneWriterWinsEachRevision", oneWinner},
		{"ConcurrentBatchesDoNotDeadlock", concurrentBatches},
		{"ATakenSequenceIsRefused", sequenceReused},
		{"RowsAreListedByKey", listRows},
		{"LargeBatches", largeBatch},
		{"ACancelledContextIsAnError", cancelledRows},
	})
	t.Run("ARowOverTheLimitIsRefused", func(t *testing.T) {
		t.Parallel()
		rowLimits(t, h.Open(t), h.Features)
	})
	t.Run("ForeignColumns", func(t *testing.T) {
		t.Parallel()
		foreignColumns(t, h.Open(t), h.Features)
	})
}

func prepareAgain(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel(), ledgerModel())
	enqueue(t, b, model, "ZRH", 1)
	prepare(t, b, boardModel(), kindsModel())
	together(t, 4, func(int) error { return b.Store.Prepare(t.Context(), boardModel(), ledgerModel()) })
	require.Equal(t, projection.RowLive, load(t, b, model, "ZRH").Status)
	require.Len(t, head(t, b, "ZRH", 10).Items, 1)
}

func loadOrder(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	for _, key := range []string{"B", "A", "C"} {
		enqueue(t, b, model, key)
	}
	remove(t, b, model, "C")
	rows, err := b.Store.Load(t.Context(), model, []string{"C", "none", "A", "B"})
	require.NoError(t, err)
	var got []string
	for _, row := range rows {
		got = append(got, row.Key+" "+string(row.Status))
	}
	require.Equal(t, []string{"C tombstone", "none absent", "A live", "B live"}, got)
	require.Nil(t, rows[1].Books.Revision)
	require.Nil(t, rows[1].Values)
	rows, err = b.Store.Load(t.Context(), model, nil)
	require.NoError(t, err)
	require.Empty(t, rows)
}

func strangeKeys(t *testing.T, b Backend) {
	model := prepare(t, b, kindsModel())
	texts := []string{"a", "A", "a#b", "a%23b", "a%", "ä", "🛫", "o'hare \"x\"", "a b", " a", strings.Repeat("k", 300), "1"}
	for _, text := range texts {
		for _, number := range []int64{0, -1, 1, 1<<63 - 1, -1 << 63} {
			values := zeroKinds(text, number)
			key, err := model.KeyText(model.KeyValues(values))
			require.NoError(t, err)
			commit(t, b, model, firstWrite(key, values))
			require.Equal(t, values, load(t, b, model, key).Values)
		}
	}
	rows, err := b.Store.Rows(t.Context(), model, projection.RowPage{Limit: 1000})
	require.NoError(t, err)
	require.Len(t, rows, len(texts)*5)
}

// firstWrite is a write of an absent row.
func firstWrite(key string, values []any) projection.Write {
	return projection.Write{
		Key: key, GuardStatus: projection.RowAbsent, Values: values,
		Books: projection.Bookkeeping{Revision: new(int64(1))}, ID: outbox.NewNonce(),
	}
}

// §12
func bookkeepingRoundTrip(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	write := boardWrite(load(t, b, model, "ZRH"), 3)
	write.Books = projection.Bookkeeping{
		Revision: new(int64(1<<53 + 1)),
		Checkpoints: map[string]int64{
			"day#2008-01-01": 1<<62 + 1, "order#a#b": 1, "scan#'\"$.[]\\%🛫": 2, "#closed#day#2007": 1700000000, "scan#": 0,
		},
		Scalars:    map[string]projection.ScalarCheckpoint{"survey": {Stored: new(int64(17)), Owner: "ZRH#ü"}},
		Definition: 4, Emits: new(false), EmitAbove: map[string]int64{"day#2008-01-01": 12},
	}
	commit(t, b, model, write)
	stored := load(t, b, model, "ZRH")
	require.Equal(t, write.Books, stored.Books)
	require.Equal(t, write.ID, stored.WriteID)
	require.Equal(t, projection.RowLive, stored.Status)
	require.Nil(t, stored.ExpiresAt)
	require.Equal(t, []any{"ZRH", int64(3), nil}, stored.Values)

	write = boardWrite(stored, 4)
	write.Books.Emits, write.Books.EmitAbove = nil, nil
	write.Books.Scalars = map[string]projection.ScalarCheckpoint{"survey": {Stored: new(int64(0))}}
	write.Books.Checkpoints = map[string]int64{"day#2008-01-01": 5}
	commit(t, b, model, write)
	stored = load(t, b, model, "ZRH")
	require.Equal(t, write.Books, stored.Books, "what is taken away is gone")
}

//
func absentBookkeeping(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	write := firstWrite("ZRH", []any{"ZRH", int64(1), "text"})
	commit(t, b, model, write)
	stored := load(t, b, model, "ZRH")
	require.Nil(t, stored.Books.Checkpoints, "a map that nothing landed in is not created")
	require.Nil(t, stored.Books.Emits)
	require.Nil(t, stored.Books.EmitAbove)
	require.Zero(t, stored.Books.Definition)
	for _, scalar := range stored.Books.Scalars {
		require.Equal(t, projection.ScalarCheckpoint{}, scalar, "a scalar that nobody set is unowned")
	}
}

// A write is all or nothing: one that loses leaves neither row nor effects.
func lostWrite(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	read := load(t, b, model, "ZRH")
	commit(t, b, model, boardWrite(read, 1, 10))
	err := b.Store.Commit(t.Context(), model, []projection.Write{boardWrite(read, 2, 20, 21)})[0]
	var race *projection.LostRace
	require.ErrorAs(t, err, &race)
	items := head(t, b, "ZRH", 10).Items
	require.Len(t, items, 1)
	sameItem(t, noticeItem(boardRow("ZRH"), 1, 0, 10), items[0])
}

func batchResults(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	stale := load(t, b, model, "B")
	enqueue(t, b, model, "B", 1)
	writes := []projection.Write{
		boardWrite(load(t, b, model, "A"), 1, 1),
		boardWrite(stale, 1, 2),
		boardWrite(load(t, b, model, "C"), 1, 3),
	}
	results := b.Store.Commit(t.Context(), model, writes)
	require.Len(t, results, 3)
	require.NoError(t, results[0])
	var race *projection.LostRace
	require.ErrorAs(t, results[1], &race)
	require.Equal(t, "B", race.Key)
	require.NoError(t, results[2])
	pending, err := b.Store.HasPending(t.Context(), "Board", []string{"A", "B", "C", "D"})
	require.NoError(t, err)
	require.True(t, pending["A"] && pending["B"] && pending["C"])
	require.False(t, pending["D"])
	require.Len(t, head(t, b, "B", 10).Items, 1)
	require.Empty(t, b.Store.Commit(t.Context(), model, nil))
}

func commitAll(t *testing.T, b Backend) {
	board, ledger := boardModel(), ledgerModel()
	prepare(t, b, board, ledger)
	writes := func() []projection.ModelWrite {
		return []projection.ModelWrite{
			{Model: board, Write: boardWrite(load(t, b, board, "ZRH"), 1, 1)},
			{Model: ledger, Write: ledgerWrite(load(t, b, ledger, "acc"), "a-1", load(t, b, board, "ZRH").Books.Checkpoints["day#d-1"]+1)},
			{Model: board, Write: boardWrite(load(t, b, board, "GVA"), 1, 2)},
		}
	}
	require.NoError(t, b.Store.CommitAll(t.Context(), writes()))
	require.NoError(t, b.Store.CommitAll(t.Context(), nil))
	for at := range 3 {
		batch := writes()
		batch[at].Write.Guard = projection.Bookkeeping{Revision: new(int64(77)), Scalars: map[string]projection.ScalarCheckpoint{"account": {Stored: new(int64(77))}}}
		err := b.Store.CommitAll(t.Context(), batch)
		var failed *projection.WriteError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, batch[at].Write.Key, failed.Key)
		require.Equal(t, batch[at].Model.Projection, failed.Projection)
		require.Equal(t, event.ClassStale, event.Classify(err))
		require.Equal(t, new(int64(1)), load(t, b, board, "ZRH").Books.Revision)
		require.Equal(t, new(int64(1)), load(t, b, board, "GVA").Books.Revision)
		require.Len(t, head(t, b, "ZRH", 10).Items, 1)
	}
	require.NoError(t, b.Store.CommitAll(t.Context(), writes()))
	require.Len(t, head(t, b, "GVA", 10).Items, 2)
}

// no increment is lost.
func concurrentWriters(t *testing.T, b Backend) {
	const writers, each = 8, 10
	model := prepare(t, b, boardModel())
	together(t, writers, func(int) error {
		for range each {
			err := untilWon(t.Context(), b.Store, model, "ZRH", func(read projection.Stored) projection.Write {
				total := int64(0)
				if read.Status == projection.RowLive {
					total, _ = read.Values[1].(int64)
				}
				return boardWrite(read, total+1, int(total))
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	stored := load(t, b, model, "ZRH")
	require.Equal(t, int64(writers*each), stored.Values[1])
	require.Equal(t, new(int64(writers*each)), stored.Books.Revision)
	items := head(t, b, "ZRH", writers*each+1).Items
	require.Len(t, items, writers*each)
	for i, item := range items {
		sameItem(t, noticeItem(boardRow("ZRH"), int64(i+1), 0, i), item)
	}
}

// of writers that have read the same row exactly one wins, live or absent.
func oneWinner(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	for round := range 10 {
		read := load(t, b, model, "ZRH")
		var won atomic.Int64
		together(t, 6, func(i int) error {
			err := b.Store.Commit(t.Context(), model, []projection.Write{boardWrite(read, int64(i), i)})[0]
			var race *projection.LostRace
			switch {
			case err == nil:
				won.Add(1)
			case errors.As(err, &race), event.Classify(err) == event.ClassThrottled:
			default:
				return err
			}
			return nil
		})
		require.Equal(t, int64(1), won.Load())
		require.Len(t, head(t, b, "ZRH", 100).Items, round+1)
	}
}

func concurrentBatches(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	keys := []string{"A", "B", "C", "D", "E", "F"}
	together(t, 4, func(i int) error {
		for range 5 {
			rows, err := b.Store.Load(t.Context(), model, keys)
			if err != nil {
				return err
			}
			writes := make([]projection.Write, 0, len(rows))
			for n := range rows { // each goroutine in another order
				row := rows[(n*(2*(i%2)+len(rows)-1)+i)%len(rows)]
				writes = append(writes, boardWrite(row, int64(n), n))
			}
			for _, err := range b.Store.Commit(t.Context(), model, writes) {
				if class := event.Classify(err); err != nil && class != event.ClassStale && class != event.ClassThrottled && class != event.ClassRetry {
					return err
				}
			}
		}
		return nil
	})
	for _, key := range keys {
		stored := load(t, b, model, key)
		require.Len(t, head(t, b, key, 100).Items, int(*stored.Books.Revision))
	}
}

//
func sequenceReused(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	enqueue(t, b, model, "ZRH", 1, 2)
	enqueue(t, b, model, "ZRH", 3)
	// Somebody sets the revision back by hand.
	back := boardWrite(load(t, b, model, "ZRH"), 9)
	back.Books.Revision = new(int64(0))
	commit(t, b, model, back)
	before := load(t, b, model, "ZRH")
	err := b.Store.Commit(t.Context(), model, []projection.Write{boardWrite(before, 5, 4)})[0]
	var reused *projection.SequenceReused
	require.ErrorAs(t, err, &reused)
	require.Equal(t, projection.SequenceReused{Row: boardRow("ZRH"), Sequence: outbox.SequenceOf(1, 0)}, *reused)
	require.Equal(t, event.ClassPermanent, event.Classify(err))
	require.Equal(t, before, load(t, b, model, "ZRH"), "the row is as it was")
	// The guard comes first: a stale write with such effects has lost a race.
	stale := boardWrite(before, 5, 4)
	stale.Guard.Revision = new(int64(44))
	err = b.Store.Commit(t.Context(), model, []projection.Write{stale})[0]
	var race *projection.LostRace
	require.ErrorAs(t, err, &race)
}

func listRows(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	var want []string
	for i := range 12 {
		key := fmt.Sprintf("K%02d", i)
		enqueue(t, b, model, key)
		if i%4 == 3 {
			remove(t, b, model, key)
			continue
		}
		want = append(want, key)
	}
	for _, limit := range []int{1, 5, 100} {
		var got []string
		after := ""
		for {
			rows, err := b.Store.Rows(t.Context(), model, projection.RowPage{After: after, Limit: limit})
			require.NoError(t, err)
			require.LessOrEqual(t, len(rows), limit)
			if len(rows) == 0 {
				break
			}
			for _, row := range rows {
				require.Equal(t, projection.RowLive, row.Status)
				require.Equal(t, row.Key, row.Values[0])
				got, after = append(got, row.Key), row.Key
			}
		}
		require.Equal(t, want, got)
	}
	rows, err := b.Store.Rows(t.Context(), model, projection.RowPage{Limit: 100, Tombstones: true})
	require.NoError(t, err)
	require.Len(t, rows, 12)
}

func largeBatch(t *testing.T, b Backend) {
	const n = 1200 // more than any store takes in one statement
	model := prepare(t, b, boardModel())
	keys := make([]string, 0, n)
	writes := make([]projection.Write, 0, n)
	for i := range n {
		key := fmt.Sprintf("K%04d", i)
		keys = append(keys, key)
		writes = append(writes, boardWrite(projection.Stored{Key: key, Status: projection.RowAbsent}, int64(i)))
	}
	commit(t, b, model, writes...)
	rows, err := b.Store.Load(t.Context(), model, keys)
	require.NoError(t, err)
	for i, row := range rows {
		require.Equal(t, keys[i], row.Key)
		require.Equal(t, int64(i), row.Values[1])
	}
	pending, err := b.Store.HasPending(t.Context(), "Board", keys)
	require.NoError(t, err)
	for _, key := range keys {
		require.False(t, pending[key])
	}
}

func cancelledRows(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.Store.Load(ctx, model, []string{"ZRH"})
	require.ErrorIs(t, err, context.Canceled)
	results := b.Store.Commit(ctx, model, []projection.Write{firstWrite("ZRH", []any{"ZRH", int64(1), nil})})
	require.Len(t, results, 1)
	require.ErrorIs(t, results[0], context.Canceled)
	require.Equal(t, projection.RowAbsent, load(t, b, model, "ZRH").Status)
}

//
func rowLimits(t *testing.T, b Backend, features Features) {
	t.Helper()
	require.Equal(t, projection.Limits{
		MaxEffects: features.MaxEffects, MaxBytes: features.MaxWriteBytes, MaxRowBytes: features.MaxRowBytes,
	}, b.Store.Limits(), "what the features claim")
	model := prepare(t, b, boardModel())
	size := features.MaxRowBytes
	if size == 0 {
		size = 4 << 20
	}
	write := firstWrite("ZRH", []any{"ZRH", int64(1), strings.Repeat("x", size)})
	other := firstWrite("GVA", []any{"GVA", int64(1), nil})
	results := b.Store.Commit(t.Context(), model, []projection.Write{write, other})
	require.NoError(t, results[1])
	if features.MaxRowBytes == 0 {
		require.NoError(t, results[0])
		require.Equal(t, write.Values, load(t, b, model, "ZRH").Values)
		return
	}
	var tooLarge *projection.RowTooLarge
	require.ErrorAs(t, results[0], &tooLarge)
	require.Equal(t, "ZRH", tooLarge.Key)
	require.Equal(t, features.MaxRowBytes, tooLarge.Limit)
	require.Greater(t, tooLarge.Size, tooLarge.Limit)
	require.Equal(t, event.ClassPermanent, event.Classify(results[0]))
	require.Equal(t, projection.RowAbsent, load(t, b, model, "ZRH").Status)
}

//
func foreignColumns(t *testing.T, b Backend, features Features) {
	t.Helper()
	if !features.ForeignColumns {
		require.Nil(t, b.PlantForeign, "Backend.PlantForeign is set: claim Features.ForeignColumns")
		return
	}
	model := prepare(t, b, boardModel())
	enqueue(t, b, model, "ZRH", 1)
	survived := b.PlantForeign(t, model, "ZRH")
	require.True(t, survived())
	enqueue(t, b, model, "ZRH", 2)
	require.True(t, survived())
	require.Equal(t, projection.RowLive, load(t, b, model, "ZRH").Status)
}
