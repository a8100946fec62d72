package testsuite

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/projection"
)

// a row that loses touches no other row of its batch.
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

// R-31, §12 of the rules: writes of several rows that belong together.
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

// batches that meet in the opposite order get on.
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

//
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

// CommitAll with a write that can never be done leaves nothing of the others.
func commitAllRefused(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	enqueue(t, b, model, "ZRH", 1)
	back := boardWrite(load(t, b, model, "ZRH"), 1)
	back.Books.Revision = new(int64(0))
	commit(t, b, model, back) // somebody sets the revision back by hand
	before := load(t, b, model, "ZRH")
	err := b.Store.CommitAll(t.Context(), []projection.ModelWrite{
		{Model: model, Write: boardWrite(load(t, b, model, "GVA"), 1, 1)},
		{Model: model, Write: boardWrite(load(t, b, model, "ZRH"), 2, 2)},
		{Model: model, Write: boardWrite(load(t, b, model, "BSL"), 3, 3)},
	})
	var failed *projection.WriteError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, "ZRH", failed.Key)
	var reused *projection.SequenceReused
	require.ErrorAs(t, err, &reused)
	require.Equal(t, event.ClassPermanent, event.Classify(err))
	for _, key := range []string{"GVA", "BSL"} {
		require.Equal(t, projection.RowAbsent, load(t, b, model, key).Status, key)
		require.Empty(t, head(t, b, key, 10).Items, key)
	}
	require.Equal(t, before, load(t, b, model, "ZRH"))
}

// writes of two rows that belong together, from many at a time and in both
// orders, keep the sum.
func concurrentTransfers(t *testing.T, b Backend) {
	const writers, each, sum = 4, 6, 1000
	model := prepare(t, b, boardModel())
	commit(t, b, model, boardWrite(load(t, b, model, "A"), sum), boardWrite(load(t, b, model, "B"), 0))
	together(t, writers, func(i int) error {
		keys := [][]string{{"A", "B"}, {"B", "A"}}[i%2]
		for done := 0; done < each; {
			rows, err := b.Store.Load(t.Context(), model, keys)
			if err != nil {
				return err
			}
			from, _ := rows[0].Values[1].(int64)
			to, _ := rows[1].Values[1].(int64)
			err = b.Store.CommitAll(t.Context(), []projection.ModelWrite{
				{Model: model, Write: boardWrite(rows[0], from-1, 1)}, {Model: model, Write: boardWrite(rows[1], to+1)},
			})
			switch class := event.Classify(err); {
			case err == nil:
				done++
			case class == event.ClassStale, class == event.ClassThrottled, class == event.ClassRetry:
			default:
				return err
			}
		}
		return nil
	})
	a, z := load(t, b, model, "A"), load(t, b, model, "B")
	require.Equal(t, []any{int64(sum), int64(0)}, []any{a.Values[1], z.Values[1]}, "as many each way")
	require.Equal(t, new(int64(1+writers*each)), a.Books.Revision, "no write is lost")
	require.Equal(t, new(int64(1+writers*each)), z.Books.Revision)
	require.Len(t, head(t, b, "A", 100).Items, writers*each/2)
	require.Len(t, head(t, b, "B", 100).Items, writers*each/2)
}
