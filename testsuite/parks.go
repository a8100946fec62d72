package testsuite

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/projection"
)

// Parks proves R-45 on a row store: parked instances and skips.
func Parks(t *testing.T, h Harness) {
	t.Helper()
	runCases(t, h, []testCase{
		{"AParkComesBackAsItWas", parkRoundTrip},
		{"ParkingAgainMerges", parkMerges},
		{"ConcurrentNotesOnlyRaiseTheNewest", parkRace},
		{"AParkEndsOnlyIfNothingNewWasNoted", unparkConditional},
		{"ParksAreListedByInstance", parksListed},
		{"ASkipIsRecordedOnce", skipOnce},
	})
}

func parkOf(id event.ID, from, newest int64, rows ...string) projection.Park {
	return projection.Park{
		Projection: "Board", Instance: projection.Instance{Source: "day", StreamID: id}, Stream: "Day", Rows: rows,
		Reason: "evolve panicked: ü", Class: event.ClassPermanent, From: from, Newest: newest, ParkedAt: noon,
	}
}

func parkedNow(t testing.TB, b Backend, instances ...projection.Instance) []projection.Park {
	t.Helper()
	parks, err := b.Store.Parked(t.Context(), "Board", instances)
	require.NoError(t, err)
	return parks
}

//
func parkRoundTrip(t *testing.T, b Backend) {
	prepare(t, b, boardModel())
	park := parkOf("a#b|ü", 3, 5, "ZRH", "GVA")
	require.NoError(t, b.Store.Park(t.Context(), park))
	other := projection.Instance{Source: "scan", StreamID: "a#b|ü"}
	got := parkedNow(t, b, other, park.Instance)
	require.Len(t, got, 1)
	require.ElementsMatch(t, park.Rows, got[0].Rows)
	got[0].Rows = park.Rows
	require.Equal(t, park, got[0])
	require.Empty(t, parkedNow(t, b, other))
	require.Empty(t, parkedNow(t, b))
	parks, err := b.Store.Parked(t.Context(), "Other", []projection.Instance{park.Instance})
	require.NoError(t, err)
	require.Empty(t, parks)
}

// while an instance is parked, newer versions are noted and nothing else changes.
func parkMerges(t *testing.T, b Backend) {
	prepare(t, b, boardModel())
	require.NoError(t, b.Store.Park(t.Context(), parkOf("d-1", 3, 5, "ZRH")))
	again := parkOf("d-1", 4, 9, "GVA", "ZRH")
	again.Reason, again.Class, again.ParkedAt = "another", event.ClassRetry, noon.Add(time.Hour)
	require.NoError(t, b.Store.Park(t.Context(), again))
	require.NoError(t, b.Store.Park(t.Context(), parkOf("d-1", 2, 4)))
	got := parkedNow(t, b, again.Instance)
	require.Len(t, got, 1)
	require.ElementsMatch(t, []string{"ZRH", "GVA"}, got[0].Rows, "rows are added")
	require.Equal(t, int64(9), got[0].Newest, "it only rises")
	require.Equal(t, int64(2), got[0].From, "it only falls")
	require.Equal(t, parkOf("d-1", 0, 0).Reason, got[0].Reason, "the first reason stays")
	require.Equal(t, event.ClassPermanent, got[0].Class)
	require.Equal(t, noon, got[0].ParkedAt)
}

//
func parkRace(t *testing.T, b Backend) {
	prepare(t, b, boardModel())
	const writers, each = 8, 5
	version := func(i, n int) int64 { return int64(100 + (n*8+i*3)%40) }
	together(t, writers, func(i int) error {
		for n := range each {
			if err := b.Store.Park(t.Context(), parkOf("d-1", version(i, n), version(i, n), fmt.Sprint("row ", i))); err != nil {
				return err
			}
		}
		return nil
	})
	lowest, highest := version(0, 0), version(0, 0)
	for i := range writers {
		for n := range each {
			lowest, highest = min(lowest, version(i, n)), max(highest, version(i, n))
		}
	}
	got := parkedNow(t, b, projection.Instance{Source: "day", StreamID: "d-1"})
	require.Len(t, got, 1)
	require.Equal(t, highest, got[0].Newest)
	require.Equal(t, lowest, got[0].From)
	require.Len(t, got[0].Rows, writers)
}

// a version that a feed noted meanwhile is not forgotten.
func unparkConditional(t *testing.T, b Backend) {
	prepare(t, b, boardModel())
	park := parkOf("d-1", 3, 5, "ZRH")
	require.NoError(t, b.Store.Park(t.Context(), park))
	unpark := func(newest int64) bool {
		t.Helper()
		ended, err := b.Store.Unpark(t.Context(), "Board", park.Instance, newest)
		require.NoError(t, err)
		return ended
	}
	require.False(t, unpark(4))
	require.NoError(t, b.Store.Park(t.Context(), parkOf("d-1", 6, 6)))
	require.False(t, unpark(5), "a version was noted meanwhile")
	require.Len(t, parkedNow(t, b, park.Instance), 1)
	require.True(t, unpark(6))
	require.Empty(t, parkedNow(t, b, park.Instance))
	require.False(t, unpark(6), "it is gone")
	require.NoError(t, b.Store.Park(t.Context(), parkOf("d-1", 7, 7)))
	require.Equal(t, int64(7), parkedNow(t, b, park.Instance)[0].From, "a later park begins anew")
}

//
func parksListed(t *testing.T, b Backend) {
	prepare(t, b, boardModel())
	var want []string
	for i := range 7 {
		park := parkOf(event.ID(fmt.Sprintf("d-%d", i)), 1, 1)
		require.NoError(t, b.Store.Park(t.Context(), park))
		want = append(want, park.Instance.CheckpointKey())
	}
	for _, limit := range []int{1, 3, 100} {
		var got []string
		after := ""
		for {
			parks, err := b.Store.Parks(t.Context(), "Board", after, limit)
			require.NoError(t, err)
			require.LessOrEqual(t, len(parks), limit)
			if len(parks) == 0 {
				break
			}
			for _, park := range parks {
				after = park.Instance.CheckpointKey()
				got = append(got, after)
			}
		}
		require.Equal(t, want, got)
	}
}

//
func skipOnce(t *testing.T, b Backend) {
	prepare(t, b, boardModel())
	instance := projection.Instance{Source: "day", StreamID: "d-1"}
	skip := projection.Skip{Projection: "Board", Instance: instance, Version: 3, Who: "ann", Why: "broken ü", At: noon}
	require.NoError(t, b.Store.RecordSkip(t.Context(), skip))
	again := skip
	again.Who, again.Why, again.At = "bob", "me too", noon.Add(time.Hour)
	require.NoError(t, b.Store.RecordSkip(t.Context(), again))
	later := skip
	later.Version = 4
	require.NoError(t, b.Store.RecordSkip(t.Context(), later))
	skips, err := b.Store.Skips(t.Context(), "Board", []projection.Instance{{Source: "scan", StreamID: "d-1"}, instance})
	require.NoError(t, err)
	require.ElementsMatch(t, []projection.Skip{skip, later}, skips, "the first decision stays")
	skips, err = b.Store.Skips(t.Context(), "Other", []projection.Instance{instance})
	require.NoError(t, err)
	require.Empty(t, skips)
	skips, err = b.Store.Skips(t.Context(), "Board", nil)
	require.NoError(t, err)
	require.Empty(t, skips)
}
