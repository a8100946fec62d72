package testsuite

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
)

//
func revisionGuard(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	absent := load(t, b, model, "ZRH")
	first := boardWrite(absent, 1)
	commit(t, b, model, first)
	stored := load(t, b, model, "ZRH")
	lost := func(write projection.Write) {
		t.Helper()
		err := b.Store.Commit(t.Context(), model, []projection.Write{write})[0]
		var race *projection.LostRace
		require.ErrorAs(t, err, &race)
		require.Equal(t, event.ClassStale, event.Classify(err))
		require.Equal(t, projection.LostRace{Projection: "Board", Key: "ZRH"}, *race)
		require.Equal(t, stored, load(t, b, model, "ZRH"))
	}
	second := boardWrite(absent, 2)
	lost(second) // it is there by now
	for _, wrong := range []int64{0, 2, -1} {
		write := boardWrite(stored, 3)
		write.Guard.Revision = new(wrong)
		lost(write)
	}
	other := boardWrite(load(t, b, model, "GVA"), 1)
	other.Guard.Revision = new(int64(1))
	err := b.Store.Commit(t.Context(), model, []projection.Write{other})[0]
	var race *projection.LostRace
	require.ErrorAs(t, err, &race, "an absent row has no revision 1")
	require.Equal(t, projection.RowAbsent, load(t, b, model, "GVA").Status)

	commit(t, b, model, boardWrite(stored, 4))
	require.Equal(t, int64(2), *load(t, b, model, "ZRH").Books.Revision)

	zero := firstWrite("BSL", []any{"BSL", int64(1), nil}) // an initial revision of 0 is a revision
	zero.Books.Revision = new(int64(0))
	commit(t, b, model, zero)
	require.Equal(t, new(int64(0)), load(t, b, model, "BSL").Books.Revision)
	err = b.Store.Commit(t.Context(), model, []projection.Write{zero})[0]
	require.ErrorAs(t, err, &race)
}

// a row from before there was a revision.
func legacyGuard(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	legacy := firstWrite("ZRH", []any{"ZRH", int64(1), nil})
	legacy.Books.Revision = nil
	commit(t, b, model, legacy)
	stored := load(t, b, model, "ZRH")
	require.Nil(t, stored.Books.Revision)
	require.Equal(t, projection.RowLive, stored.Status)
	commit(t, b, model, boardWrite(stored, 2))
	require.Equal(t, new(int64(1)), load(t, b, model, "ZRH").Books.Revision)
	err := b.Store.Commit(t.Context(), model, []projection.Write{boardWrite(stored, 3)})[0]
	var race *projection.LostRace
	require.ErrorAs(t, err, &race)
	require.Equal(t, int64(2), load(t, b, model, "ZRH").Values[1])
}

func ledgerWrite(read projection.Stored, owner string, version int64) projection.Write {
	books := read.Books.Clone()
	books.Scalars = map[string]projection.ScalarCheckpoint{"account": {Stored: new(version), Owner: owner}}
	return projection.Write{
		Key: read.Key, Guard: read.Books, GuardStatus: read.Status,
		Values: []any{read.Key, version}, Books: books, ID: outbox.NewNonce(),
	}
}

// of a single source, the guard is the checkpoint itself.
func checkpointGuard(t *testing.T, b Backend) {
	model := prepare(t, b, ledgerModel())
	absent := load(t, b, model, "acc")
	commit(t, b, model, ledgerWrite(absent, "a-1", 3))
	stored := load(t, b, model, "acc")
	require.Nil(t, stored.Books.Revision)
	require.Equal(t, projection.ScalarCheckpoint{Stored: new(int64(3)), Owner: "a-1"}, stored.Books.Scalars["account"])
	var race *projection.LostRace
	lost := func(read projection.Stored) {
		t.Helper()
		err := b.Store.Commit(t.Context(), model, []projection.Write{ledgerWrite(read, "a-1", 9)})[0]
		require.ErrorAs(t, err, &race)
		require.Equal(t, stored, load(t, b, model, "acc"))
	}
	lost(absent)
	for _, checkpoint := range []projection.ScalarCheckpoint{
		{Stored: new(int64(2)), Owner: "a-1"}, {Stored: new(int64(3)), Owner: "a-2"}, {Stored: new(int64(3))}, {},
	} {
		read := stored
		read.Books = projection.Bookkeeping{Scalars: map[string]projection.ScalarCheckpoint{"account": checkpoint}}
		lost(read)
	}
	commit(t, b, model, ledgerWrite(stored, "a-1", 4))
	require.Equal(t, int64(4), load(t, b, model, "acc").Values[1])
}

// of a single source whose instances are in the map, the guard is the whole map.
func mapGuard(t *testing.T, b Backend) {
	model := prepare(t, b, journalModel())
	write := func(read projection.Stored, checkpoints map[string]int64) projection.Write {
		books := read.Books.Clone()
		books.Checkpoints = checkpoints
		return projection.Write{
			Key: read.Key, Guard: read.Books, GuardStatus: read.Status,
			Values: []any{read.Key, int64(len(checkpoints))}, Books: books, ID: outbox.NewNonce(),
		}
	}
	absent := load(t, b, model, "acc")
	commit(t, b, model, write(absent, map[string]int64{"account#a-1": 3, "account#a-2": 1}))
	stored := load(t, b, model, "acc")
	lost := func(read projection.Stored) {
		t.Helper()
		err := b.Store.Commit(t.Context(), model, []projection.Write{write(read, map[string]int64{"account#a-1": 9})})[0]
		var race *projection.LostRace
		require.ErrorAs(t, err, &race)
		require.Equal(t, stored, load(t, b, model, "acc"))
	}
	lost(absent)
	for _, checkpoints := range []map[string]int64{
		nil,
		{},
		{"account#a-1": 3},
		{"account#a-1": 2, "account#a-2": 1},
		{"account#a-1": 3, "account#a-3": 1},
		{"account#a-1": 3, "account#a-2": 1, "account#a-3": 1},
	} {
		read := stored
		read.Books = projection.Bookkeeping{Checkpoints: checkpoints}
		lost(read)
	}
	commit(t, b, model, write(stored, map[string]int64{"account#a-1": 4, "account#a-2": 1, "account#a-3": 1}))
	require.Equal(t, int64(3), load(t, b, model, "acc").Values[1])
}

// of writers that have read the same checkpoints exactly one wins.
func checkpointRace(t *testing.T, b Backend) {
	model := prepare(t, b, ledgerModel())
	for round := range 8 {
		read := load(t, b, model, "acc")
		won := make([]bool, 6)
		together(t, len(won), func(i int) error {
			err := b.Store.Commit(t.Context(), model, []projection.Write{ledgerWrite(read, "a-1", int64(round*10+i+1))})[0]
			class := event.Classify(err)
			if won[i] = err == nil; won[i] || class == event.ClassStale || class == event.ClassThrottled {
				return nil
			}
			return err
		})
		winner := slices.Index(won, true)
		require.GreaterOrEqual(t, winner, 0)
		require.NotContains(t, won[winner+1:], true)
		require.Equal(t, int64(round*10+winner+1), load(t, b, model, "acc").Values[1])
	}
}

// a write is all or nothing, and one that loses leaves neither row nor effects.
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

// R-35, R-38 (iii)
func sequenceReused(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	enqueue(t, b, model, "ZRH", 1, 2)
	enqueue(t, b, model, "ZRH", 3)
	// Somebody sets the revision back by hand.
	back := boardWrite(load(t, b, model, "ZRH"), 9)
	back.Books.Revision = new(int64(0))
	commit(t, b, model, back)
	before := load(t, b, model, "ZRH")
	require.Empty(t, head(t, b, "ZRH", 10).Items, "a head ends at the row's revision")
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

// a write whose answer was lost may be sent again as it is. Whether the store knows it
// again or finds the guard moved, nothing is done twice.
func resentWrite(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	write := boardWrite(load(t, b, model, "ZRH"), 7, 1, 2)
	commit(t, b, model, write)
	stored := load(t, b, model, "ZRH")
	err := b.Store.Commit(t.Context(), model, []projection.Write{write})[0]
	if class := event.Classify(err); err != nil && class != event.ClassUnknownOutcome {
		require.Equal(t, event.ClassStale, class, "%v", err)
	}
	require.Equal(t, stored, load(t, b, model, "ZRH"))
	require.Equal(t, write.ID, stored.WriteID)
	require.Len(t, head(t, b, "ZRH", 10).Items, 2)
}
