package testsuite

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
)

func owner(nonce string) outbox.Owner {
	return outbox.Owner{Kind: outbox.OwnerProcess, Nonce: nonce, Until: noon.Add(time.Hour)}
}

func claim(t testing.TB, b Backend, key string, items []outbox.Item, nonce string) int {
	t.Helper()
	claimed, err := b.Store.Claim(t.Context(), boardRow(key), refs(items), owner(nonce))
	require.NoError(t, err)
	return claimed
}

// R-38, T-10
func claimAsRead(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	enqueue(t, b, model, "ZRH", 1, 2)
	unclaimed := head(t, b, "ZRH", 2).Items
	require.Equal(t, 2, claim(t, b, "ZRH", unclaimed, "first"))
	first := head(t, b, "ZRH", 2).Items
	for _, item := range first {
		require.Equal(t, outbox.Claim{Owner: owner("first"), Epoch: 1}, item.Claim)
	}
	require.Zero(t, claim(t, b, "ZRH", unclaimed, "second"), "it is not as read")
	require.Equal(t, 2, claim(t, b, "ZRH", first, "second"), "a takeover")
	require.Zero(t, claim(t, b, "ZRH", first, "first"), "the old owner is fenced")
	second := head(t, b, "ZRH", 2).Items
	require.Equal(t, outbox.Claim{Owner: owner("second"), Epoch: 2}, second[0].Claim)
	require.Equal(t, 2, claim(t, b, "ZRH", second, "second"), "a renewal")
	require.Zero(t, claim(t, b, "ZRH", second, "second"), "each claim raises the epoch")
	require.Equal(t, int64(3), head(t, b, "ZRH", 1).Items[0].Claim.Epoch)
}

// claims are of the head and without holes, so a claim ends at the first item that is not as read.
func claimStops(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	enqueue(t, b, model, "ZRH", 1, 2, 3, 4)
	items := head(t, b, "ZRH", 4).Items
	require.Equal(t, 1, claim(t, b, "ZRH", items[2:3], "other"))
	require.Equal(t, 2, claim(t, b, "ZRH", items, "mine"))
	after := head(t, b, "ZRH", 4).Items
	for i, nonce := range []string{"mine", "mine", "other", ""} {
		require.Equal(t, nonce, after[i].Claim.Nonce, "item %d", i)
	}
	_, err := b.Store.Delete(t.Context(), boardRow("ZRH"), after[0].Ref())
	require.NoError(t, err)
	require.Zero(t, claim(t, b, "ZRH", after, "late"), "the first one is gone")
	require.Equal(t, "mine", head(t, b, "ZRH", 1).Items[0].Claim.Nonce)
	require.Zero(t, claim(t, b, "ZRH", nil, "nobody"))
	wrong := after[1:2]
	wrong[0].ID = "another effect"
	require.Zero(t, claim(t, b, "ZRH", wrong, "late"), "a claim names the effect")
}

// R-38, T-10: of many that claim what they have read alike, one gets each item, and each is told what it got.
func claimRace(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	enqueue(t, b, model, "ZRH", 1, 2, 3)
	items := head(t, b, "ZRH", 3).Items
	claimed := make([]int, 8)
	together(t, len(claimed), func(i int) (err error) {
		claimed[i], err = b.Store.Claim(t.Context(), boardRow("ZRH"), refs(items), owner(fmt.Sprint(i)))
		return err
	})
	winners := map[string]int{}
	for _, item := range head(t, b, "ZRH", 3).Items {
		require.Equal(t, int64(1), item.Claim.Epoch)
		winners[item.Claim.Nonce]++
	}
	total := 0
	for i, n := range claimed {
		require.Equal(t, winners[fmt.Sprint(i)], n, "what claimer %d was told", i)
		total += n
	}
	require.Equal(t, 3, total)
}

//
func ownersRoundTrip(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	enqueue(t, b, model, "ZRH", 1)
	for _, owner := range []outbox.Owner{
		{Kind: outbox.OwnerProcess, Nonce: "n-1", Until: noon.Add(time.Microsecond)},
		{
			Kind: outbox.OwnerTemporal, Nonce: "n-2", Namespace: "default", WorkflowID: "dev/drain/Board/ZRH",
			RunID: "0191-ab", ActivityID: "7", StartedAt: noon.Add(123456 * time.Microsecond),
		},
	} {
		claimed, err := b.Store.Claim(t.Context(), boardRow("ZRH"), refs(head(t, b, "ZRH", 1).Items), owner)
		require.NoError(t, err)
		require.Equal(t, 1, claimed)
		require.Equal(t, owner, head(t, b, "ZRH", 1).Items[0].Claim.Owner)
	}
}

// T-10
func releaseOwn(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	enqueue(t, b, model, "ZRH", 1, 2, 3)
	items := head(t, b, "ZRH", 3).Items
	require.Equal(t, 2, claim(t, b, "ZRH", items[:2], "mine"))
	require.Equal(t, 1, claim(t, b, "ZRH", items[2:], "other"))
	claimedItems := head(t, b, "ZRH", 3).Items
	require.NoError(t, b.Store.Release(t.Context(), boardRow("ZRH"), refs(claimedItems), "mine"))
	after := head(t, b, "ZRH", 3).Items
	require.True(t, after[0].Claim.IsZero())
	require.True(t, after[1].Claim.IsZero())
	require.Equal(t, "other", after[2].Claim.Nonce)
	require.Equal(t, int64(1), after[0].Claim.Epoch, "epochs stay")
	require.Equal(t, outbox.Owner{}, after[0].Claim.Owner, "nothing of the owner is left")
	require.Zero(t, claim(t, b, "ZRH", items[:1], "late"), "so a claim as read before cannot come late")
	require.NoError(t, b.Store.Release(t.Context(), boardRow("ZRH"), refs(claimedItems), "mine"), "it may be repeated")
	require.NoError(t, b.Store.Release(t.Context(), boardRow("ZRH"), nil, "mine"))
}

// T-7, T-11
func deferIfOwned(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	enqueue(t, b, model, "ZRH", 1)
	deferral := outbox.Deferral{
		Attempts: 3, Until: noon.Add(90 * time.Second), Class: event.ClassThrottled, Error: "too many requests: ü \"x\"",
	}
	set := func(item outbox.Item, deferral outbox.Deferral) bool {
		t.Helper()
		kept, err := b.Store.Defer(t.Context(), boardRow("ZRH"), item.Ref(), deferral)
		require.NoError(t, err)
		return kept
	}
	unclaimed := head(t, b, "ZRH", 1).Items
	require.Equal(t, 1, claim(t, b, "ZRH", unclaimed, "mine"))
	require.False(t, set(unclaimed[0], deferral), "it is claimed since")
	mine := head(t, b, "ZRH", 1).Items[0]
	require.True(t, mine.Deferral.IsZero())
	require.True(t, set(mine, deferral))
	require.Equal(t, deferral, head(t, b, "ZRH", 1).Items[0].Deferral)
	require.Equal(t, mine.Claim, head(t, b, "ZRH", 1).Items[0].Claim, "the claim stays")
	require.NoError(t, b.Store.Release(t.Context(), boardRow("ZRH"), []outbox.Ref{mine.Ref()}, "mine"))
	released := head(t, b, "ZRH", 1).Items[0]
	require.Equal(t, deferral, released.Deferral, "the deferral outlives the claim")
	require.False(t, set(mine, outbox.Deferral{}))
	require.True(t, set(released, outbox.Deferral{Attempts: 4, Parked: true, Class: event.ClassPermanent, Error: "no"}))
	require.True(t, head(t, b, "ZRH", 1).Items[0].Deferral.Parked)
	require.True(t, set(released, outbox.Deferral{}))
	require.True(t, head(t, b, "ZRH", 1).Items[0].Deferral.IsZero())
	wrong := released
	wrong.ID = "another effect"
	require.False(t, set(wrong, deferral))
}
