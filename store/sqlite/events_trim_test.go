package sqlite_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/store/sqlite"
)

func trim(tb testing.TB, store *sqlite.Store, stream string, before time.Time, want int64) {
	tb.Helper()
	removed, err := store.TrimEvents(tb.Context(), stream, before)
	require.NoError(tb, err)
	require.Equal(tb, want, removed)
}

func requireHeld(tb testing.TB, store *sqlite.Store, id event.ID, oldest, version int64) {
	tb.Helper()
	gotOldest, err := store.Oldest(tb.Context(), "Order", id)
	require.NoError(tb, err)
	gotVersion, err := store.Version(tb.Context(), "Order", id)
	require.NoError(tb, err)
	require.Equal(tb, []int64{oldest, version}, []int64{gotOldest, gotVersion})
}

// a trim takes events away, not versions or commands.
func TestATrimLeavesVersionsAndCommandsAlone(t *testing.T) {
	t.Parallel()
	store := open(t, sqlite.Config{})
	command := event.Append{Stream: "Order", StreamID: "o-1", Events: counted(2, dawn()), CommandID: "c-1"}
	_, err := store.Append(t.Context(), command)
	require.NoError(t, err)
	record(t, store, "Cart", "o-1", 0, counted(1, dawn()))
	record(t, store, "Order", "o-1", 2, counted(1, dawn().Add(time.Hour)))

	trim(t, store, "Order", dawn(), 0)
	requireHeld(t, store, "o-1", 1, 3)
	trim(t, store, "Order", dawn().Add(time.Hour), 2)
	requireHeld(t, store, "o-1", 3, 3)
	trim(t, store, "Order", dawn().Add(2*time.Hour), 1)
	requireHeld(t, store, "o-1", 0, 3)
	trim(t, store, "Order", dawn().Add(2*time.Hour), 0)
	trim(t, store, "unknown", dawn().Add(2*time.Hour), 0)

	record(t, store, "Order", "o-1", 3, counted(1, dawn()))
	requireHeld(t, store, "o-1", 4, 4)
	_, err = store.Append(t.Context(), command)
	require.ErrorAs(t, err, new(*event.DuplicateCommand))
	left, err := store.Version(t.Context(), "Cart", "o-1")
	require.NoError(t, err)
	require.Equal(t, int64(1), left)
	for envelope, err := range store.Read(t.Context(), "Cart", "o-1", event.Range{}) {
		require.NoError(t, err)
		require.Equal(t, int64(1), envelope.Version)
	}
}

// What is left of a feed has no hole: an old event behind a young one stays.
func TestATrimStopsAtTheFirstYoungEvent(t *testing.T) {
	t.Parallel()
	store := open(t, sqlite.Config{})
	record(t, store, "Order", "o-1", 0, counted(1, dawn()))
	record(t, store, "Order", "o-2", 0, counted(1, dawn().Add(time.Hour)))
	record(t, store, "Order", "o-1", 1, counted(1, dawn()))
	trim(t, store, "Order", dawn().Add(time.Minute), 1)
	requireHeld(t, store, "o-1", 2, 2)
}

// Writers do not wait for a long trim, and what was removed is told when it fails half-way.
func TestALongTrimTakesSeveralTransactions(t *testing.T) {
	t.Parallel()
	const events = 2_100
	store := open(t, sqlite.Config{})
	record(t, store, "Order", "o-1", 0, counted(events, dawn()))
	feed, err := store.Feed("Order", 1)
	require.NoError(t, err)
	require.NoError(t, store.Exec(t.Context(), `CREATE TRIGGER refuse BEFORE UPDATE ON rowfold_trims
		WHEN NEW.position > 2000 BEGIN SELECT RAISE(ABORT, 'enough'); END`))

	removed, err := store.TrimEvents(t.Context(), "Order", dawn().Add(time.Hour))
	require.ErrorContains(t, err, "enough")
	require.Equal(t, int64(2_000), removed)
	requireHeld(t, store, "o-1", 2_001, events)
	_, err = feed.Read(t.Context(), "0of1", "", 1)
	trimmed, is := errors.AsType[*event.Trimmed](err)
	require.True(t, is, "%v", err)
	require.Equal(t, event.Position("00000000000000002000"), trimmed.Oldest)

	require.NoError(t, store.Exec(t.Context(), `DROP TRIGGER refuse`))
	trim(t, store, "Order", dawn().Add(time.Hour), events-2_000)
	requireHeld(t, store, "o-1", 0, events)
}

// A follower learns that it missed something; one that had read it all does not.
func TestFollowersMeetATrim(t *testing.T) {
	t.Parallel()
	const partitions = 4
	store := open(t, sqlite.Config{})
	feed, err := store.Feed("Order", partitions)
	require.NoError(t, err)
	for i := range 20 {
		record(t, store, "Order", event.ID(fmt.Sprintf("o-%d", i)), 0, counted(1, dawn()))
	}
	ahead := map[string]event.Position{}
	for i := range partitions {
		shard := fmt.Sprintf("%dof%d", i, partitions)
		page, err := feed.Read(t.Context(), shard, "", 100)
		require.NoError(t, err)
		ahead[shard] = page.Next
	}
	record(t, store, "Cart", "c-1", 0, counted(1, dawn()))
	record(t, store, "Order", "young", 0, counted(1, dawn().Add(time.Hour)))
	trim(t, store, "Order", dawn().Add(time.Hour), 20)

	found := 0
	for shard, position := range ahead {
		page, err := feed.Read(t.Context(), shard, position, 100)
		require.NoError(t, err)
		found += len(page.Records)
		for _, behind := range []event.Position{"", "00000000000000000019"} {
			_, err = feed.Read(t.Context(), shard, behind, 100)
			trimmed, is := errors.AsType[*event.Trimmed](err)
			require.True(t, is, "%v", err)
			require.Equal(t, event.Trimmed{Shard: shard, After: behind, Oldest: "00000000000000000020"}, *trimmed)
			page, err = feed.Read(t.Context(), shard, trimmed.Oldest, 100)
			require.NoError(t, err)
			found += len(page.Records)
		}
	}
	require.Equal(t, 3, found, "the young event, once from each position that it was looked for")
	trim(t, store, "Order", dawn().Add(2*time.Hour), 1)
	page, err := feed.Read(t.Context(), "0of4", "00000000000000000022", 100)
	require.NoError(t, err, "everything was read, then removed")
	require.Equal(t, event.Page{Next: "00000000000000000022"}, page)
}
