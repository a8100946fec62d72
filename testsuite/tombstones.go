package testsuite

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
)

// Tombstones proves R-30 … R-33 on a row store.
func Tombstones(t *testing.T, h Harness) {
	t.Helper()
	runCases(t, h, []testCase{
		{"ATombstoneKeepsTheBookkeepingOnly", tombstoneKeepsBooks},
		{"AnAbsentRowCanBeRemoved", tombstoneOfAbsent},
		{"ARowComesBackOverItsTombstone", rowComesBack},
		{"TheExpiryIsSetWhenNothingIsPending", tombstoneExpiry},
		{"APurgeRemovesWhatHasExpired", purgeExpired},
		{"APurgeSparesPendingEffectsAndParkedInstances", purgeSpares},
		{"APurgeSparesRowsWhoseCheckpointsKnowAParkedInstance", purgeSparesKnown},
		{"APurgeIsBounded", purgeBounded},
	})
}

//
func tombstoneKeepsBooks(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	first := enqueue(t, b, model, "ZRH", 1)
	write := remove(t, b, model, "ZRH", 2)
	stored := load(t, b, model, "ZRH")
	require.Equal(t, projection.RowTombstone, stored.Status)
	require.Empty(t, stored.Values)
	require.Equal(t, write.Books.Checkpoints, stored.Books.Checkpoints)
	require.Equal(t, new(int64(2)), stored.Books.Revision)
	require.Nil(t, stored.ExpiresAt)
	rows, err := b.Store.Rows(t.Context(), model, projection.RowPage{Limit: 10})
	require.NoError(t, err)
	require.Empty(t, rows, "readers do not see it")
	rows, err = b.Store.Rows(t.Context(), model, projection.RowPage{Limit: 10, Tombstones: true})
	require.NoError(t, err)
	require.Equal(t, []projection.Stored{stored}, rows)
	view := head(t, b, "ZRH", 10)
	require.True(t, view.Tombstone)
	require.False(t, view.Expires)
	require.Equal(t, int64(2), view.Revision)
	require.Equal(t, []outbox.Sequence{first.Effects[0].Sequence, write.Effects[0].Sequence}, sequences(view.Items))
}

//
func tombstoneOfAbsent(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	remove(t, b, model, "ZRH")
	require.Equal(t, projection.RowTombstone, load(t, b, model, "ZRH").Status)
	err := b.Store.Commit(t.Context(), model, []projection.Write{
		boardWrite(projection.Stored{Key: "ZRH", Status: projection.RowAbsent}, 1),
	})[0]
	var race *projection.LostRace
	require.ErrorAs(t, err, &race, "a tombstone is not absence")
}

//
func rowComesBack(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	enqueue(t, b, model, "ZRH")
	remove(t, b, model, "ZRH")
	expired, err := b.Store.ExpireTombstone(t.Context(), boardRow("ZRH"), 2, noon)
	require.NoError(t, err)
	require.True(t, expired)
	commit(t, b, model, boardWrite(load(t, b, model, "ZRH"), 7, 1))
	stored := load(t, b, model, "ZRH")
	require.Equal(t, projection.RowLive, stored.Status)
	require.Equal(t, []any{"ZRH", int64(7), nil}, stored.Values)
	require.Equal(t, new(int64(3)), stored.Books.Revision)
	require.Nil(t, stored.ExpiresAt, "a live row does not expire")
	purged, err := b.Store.PurgeTombstones(t.Context(), model, noon.Add(time.Hour), 10)
	require.NoError(t, err)
	require.Zero(t, purged.Removed)
	require.Equal(t, stored, load(t, b, model, "ZRH"))
}

//
func tombstoneExpiry(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	row := boardRow("ZRH")
	expire := func(revision int64) bool {
		t.Helper()
		expired, err := b.Store.ExpireTombstone(t.Context(), row, revision, noon)
		require.NoError(t, err)
		return expired
	}
	require.False(t, expire(0), "it is absent")
	enqueue(t, b, model, "ZRH")
	require.False(t, expire(1), "it is live")
	remove(t, b, model, "ZRH", 1)
	require.False(t, expire(2), "an effect is pending")
	item := head(t, b, "ZRH", 1).Items[0]
	_, err := b.Store.Delete(t.Context(), row, item.Ref())
	require.NoError(t, err)
	require.False(t, expire(1), "it was written since")
	require.True(t, expire(2))
	view := head(t, b, "ZRH", 1)
	require.True(t, view.Tombstone)
	require.True(t, view.Expires)
	stored := load(t, b, model, "ZRH")
	require.NotNil(t, stored.ExpiresAt)
	require.True(t, stored.ExpiresAt.Equal(noon))
	require.Equal(t, new(int64(2)), stored.Books.Revision, "an expiry is no write of the row")
}

func expiring(t testing.TB, b Backend, model *projection.Model, key string, at *time.Time, effects ...int) {
	t.Helper()
	write := tombstoneWrite(load(t, b, model, key), effects...)
	write.ExpiresAt = at
	commit(t, b, model, write)
}

//
func purgeExpired(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	expiring(t, b, model, "past", new(noon.Add(-time.Second)))
	expiring(t, b, model, "now", new(noon))
	expiring(t, b, model, "future", new(noon.Add(time.Second)))
	expiring(t, b, model, "missed", nil)
	enqueue(t, b, model, "live")
	purged, err := b.Store.PurgeTombstones(t.Context(), model, noon, 10)
	require.NoError(t, err)
	require.Equal(t, projection.Purged{Removed: 2, Dated: 1}, purged)
	for key, status := range map[string]projection.RowStatus{
		"past": projection.RowAbsent, "now": projection.RowAbsent, "future": projection.RowTombstone,
		"missed": projection.RowTombstone, "live": projection.RowLive,
	} {
		require.Equal(t, status, load(t, b, model, key).Status, key)
	}
	missed := load(t, b, model, "missed").ExpiresAt
	require.NotNil(t, missed)
	require.True(t, missed.Equal(noon.Add(tombstoneTTL)))
	purged, err = b.Store.PurgeTombstones(t.Context(), model, noon.Add(tombstoneTTL), 10)
	require.NoError(t, err)
	require.Equal(t, projection.Purged{Removed: 2}, purged)
	commit(t, b, model, boardWrite(load(t, b, model, "past"), 1)) // as new
}

//
func purgeSpares(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	past := new(noon.Add(-time.Hour))
	expiring(t, b, model, "pending", past, 1)
	expiring(t, b, model, "parked", past)
	expiring(t, b, model, "undated", nil, 1)
	instance := projection.Instance{Source: "day", StreamID: "d-9"}
	require.NoError(t, b.Store.Park(t.Context(), projection.Park{
		Projection: "Board", Instance: instance, Stream: "Day", Rows: []string{"parked", "other"},
		Reason: "fault", Class: event.ClassPermanent, From: 3, Newest: 3, ParkedAt: noon,
	}))
	purged, err := b.Store.PurgeTombstones(t.Context(), model, noon, 10)
	require.NoError(t, err)
	require.Zero(t, purged.Removed)
	require.Zero(t, purged.Dated)
	for _, key := range []string{"pending", "undated"} {
		item := head(t, b, key, 1).Items[0]
		_, err = b.Store.Delete(t.Context(), boardRow(key), item.Ref())
		require.NoError(t, err)
	}
	ended, err := b.Store.Unpark(t.Context(), "Board", instance, 3)
	require.NoError(t, err)
	require.True(t, ended)
	purged, err = b.Store.PurgeTombstones(t.Context(), model, noon, 10)
	require.NoError(t, err)
	require.Equal(t, projection.Purged{Removed: 2, Dated: 1}, purged)
}

// a purge works in steps and says when it has not come to the end.
func purgeBounded(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	for i := range 7 {
		expiring(t, b, model, fmt.Sprintf("K%d", i), new(noon))
	}
	removed := 0
	for range 10 {
		purged, err := b.Store.PurgeTombstones(t.Context(), model, noon, 3)
		require.NoError(t, err)
		require.LessOrEqual(t, purged.Removed, 3)
		removed += purged.Removed
		if !purged.More {
			break
		}
	}
	require.Equal(t, 7, removed)
}

// a park names its rows as far as they were known then. A row that has read of
// the instance before is waited for as well, whether the map or a scalar knows it.
func purgeSparesKnown(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	past := new(noon.Add(-time.Hour))
	byMap := tombstoneWrite(load(t, b, model, "map"))
	byMap.ExpiresAt, byMap.Books.Checkpoints = past, map[string]int64{"day#d-9": 4}
	byScalar := tombstoneWrite(load(t, b, model, "scalar"))
	byScalar.ExpiresAt = past
	byScalar.Books.Scalars = map[string]projection.ScalarCheckpoint{"survey": {Stored: new(int64(12)), Owner: "s-9"}}
	commit(t, b, model, byMap, byScalar)
	expiring(t, b, model, "neither", past)
	instances := []projection.Instance{{Source: "day", StreamID: "d-9"}, {Source: "survey", StreamID: "s-9"}}
	for _, instance := range instances {
		require.NoError(t, b.Store.Park(t.Context(), projection.Park{
			Projection: "Board", Instance: instance, Stream: "Day", Reason: "fault", Class: event.ClassPermanent,
			From: 5, Newest: 5, ParkedAt: noon,
		}))
	}
	purged, err := b.Store.PurgeTombstones(t.Context(), model, noon, 10)
	require.NoError(t, err)
	require.Equal(t, projection.Purged{Removed: 1}, purged)
	require.Equal(t, projection.RowAbsent, load(t, b, model, "neither").Status)
	for i, key := range []string{"map", "scalar"} {
		require.Equal(t, projection.RowTombstone, load(t, b, model, key).Status, key)
		ended, err := b.Store.Unpark(t.Context(), "Board", instances[i], 5)
		require.NoError(t, err)
		require.True(t, ended)
	}
	purged, err = b.Store.PurgeTombstones(t.Context(), model, noon, 10)
	require.NoError(t, err)
	require.Equal(t, projection.Purged{Removed: 2}, purged)
}
