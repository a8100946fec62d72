package sqlite_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/projection"
	"github.com/rowfold/rowfold/store/sqlite"
)

// a park keeps the tombstones that its record names, and those whose checkpoints know its
// instance, in the map or in a scalar.
func TestAParkedInstanceKeepsTheTombstonesThatKnowIt(t *testing.T) {
	t.Parallel()
	store, model := desks(t, sqlite.Config{})
	expired := func(key string, change func(books *projection.Bookkeeping)) {
		t.Helper()
		write := tombstoneOver(projection.Stored{Key: key, Status: projection.RowAbsent})
		write.ExpiresAt, write.Books.Checkpoints = new(noon), nil
		change(&write.Books)
		committed(t, store, model, write)
	}
	expired("in the map", func(books *projection.Bookkeeping) {
		books.Checkpoints = map[string]int64{"day#d-8": 1, "day#d-9": 3}
	})
	expired("in a scalar", func(books *projection.Bookkeeping) {
		books.Scalars = map[string]projection.ScalarCheckpoint{"survey": {Stored: new(int64(12)), Owner: "s-9"}}
	})
	expired("named", func(*projection.Bookkeeping) {})
	expired("similar", func(books *projection.Bookkeeping) {
		books.Checkpoints = map[string]int64{"day#d-90": 1, "#closed#day#d-9": 3}
		books.Scalars = map[string]projection.ScalarCheckpoint{"survey": {Stored: new(int64(12)), Owner: "s-99"}}
	})
	expired("unknown", func(*projection.Bookkeeping) {})
	park := func(name, source string, id event.ID, rows ...string) {
		t.Helper()
		require.NoError(t, store.Park(t.Context(), projection.Park{
			Projection: name, Instance: projection.Instance{Source: source, StreamID: id}, Stream: "Day", Rows: rows,
			Reason: "fault", Class: event.ClassPermanent, From: 3, Newest: 3, ParkedAt: noon,
		}))
	}
	park("Desk", "day", "d-9", "named")
	park("Desk", "survey", "s-9")
	park("Chair", "day", "d-90", "unknown", "similar") // of another projection
	park("Chair", "survey", "s-99")

	purged, err := store.PurgeTombstones(t.Context(), model, noon, 10)
	require.NoError(t, err)
	require.Equal(t, projection.Purged{Removed: 2}, purged)
	rows, _ := keys(t, store)
	require.Equal(t, []string{"in a scalar", "in the map", "named"}, rows)
	for _, instance := range []projection.Instance{{Source: "day", StreamID: "d-9"}, {Source: "survey", StreamID: "s-9"}} {
		ended, err := store.Unpark(t.Context(), "Desk", instance, 3)
		require.NoError(t, err)
		require.True(t, ended)
	}
	purged, err = store.PurgeTombstones(t.Context(), model, noon, 10)
	require.NoError(t, err)
	require.Equal(t, projection.Purged{Removed: 3}, purged)
}

func TestAPurgeDatesWhatMissedItsExpiry(t *testing.T) {
	t.Parallel()
	store, model := desks(t, sqlite.Config{})
	for _, key := range []string{"A", "B", "C"} {
		committed(t, store, model, tombstoneOver(projection.Stored{Key: key, Status: projection.RowAbsent}))
	}
	for _, want := range []projection.Purged{{Dated: 2, More: true}, {Dated: 1}, {}} {
		purged, err := store.PurgeTombstones(t.Context(), model, noon, 2)
		require.NoError(t, err)
		require.Equal(t, want, purged)
	}
	require.True(t, load(t, store, model, "C").ExpiresAt.Equal(noon.Add(time.Hour)))

	forever := deskModel() // tombstones without a time to live
	forever.TombstoneTTL = 0
	committed(t, store, model, tombstoneOver(projection.Stored{Key: "D", Status: projection.RowAbsent}))
	purged, err := store.PurgeTombstones(t.Context(), forever, noon, 10)
	require.NoError(t, err)
	require.Zero(t, purged)
	require.Nil(t, load(t, store, model, "D").ExpiresAt)

	_, err = store.PurgeTombstones(t.Context(), model, noon, 0)
	require.ErrorContains(t, err, "limit 0")
}
