package testsuite

import (
	"context"
	"strings"
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
		{"WithoutRevisionTheCheckpointMapGuards", mapGuard},
		{"WithoutRevisionOneWriterWins", checkpointRace},
		{"ALostWriteLeavesNothing", lostWrite},
		{"AWriteThatIsSentAgainIsDoneOnce", resentWrite},
		{"EachRowOfABatchHasItsOwnResult", batchResults},
		{"CommitAllIsAllOrNothing", commitAll},
		{"CommitAllIsRefusedWhole", commitAllRefused},
		{"ConcurrentTransfersLoseNothing", concurrentTransfers},
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

// projection.Store.Prepare: any process may call it, at any time.
func prepareAgain(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel(), ledgerModel())
	enqueue(t, b, model, "ZRH", 1)
	prepare(t, b, boardModel(), kindsModel())
	together(t, 4, func(int) error { return b.Store.Prepare(t.Context(), boardModel(), ledgerModel()) })
	require.Equal(t, projection.RowLive, load(t, b, model, "ZRH").Status)
	require.Len(t, head(t, b, "ZRH", 10).Items, 1)
}

//
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

// projection.Model.KeyText: keys that differ are rows that differ.
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
	seen := map[string]bool{}
	for after, left := "", true; left; {
		rows, err := b.Store.Rows(t.Context(), model, projection.RowPage{After: after, Limit: 7})
		require.NoError(t, err)
		left = len(rows) > 0
		for _, row := range rows {
			require.False(t, seen[row.Key], "%q is listed twice", row.Key)
			seen[row.Key], after = true, row.Key
		}
	}
	require.Len(t, seen, len(texts)*5, "paging leaves nothing out")
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

// projection.RowStore: a context that is over writes nothing.
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
	others := projection.ModelWrite{Model: model, Write: firstWrite("BSL", []any{"BSL", int64(1), nil})}
	err := b.Store.CommitAll(t.Context(), []projection.ModelWrite{others, {Model: model, Write: write}})
	require.ErrorAs(t, err, &tooLarge)
	require.Equal(t, projection.RowAbsent, load(t, b, model, "BSL").Status, "all or nothing")
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
