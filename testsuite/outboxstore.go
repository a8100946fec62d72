package testsuite

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
)

// Outbox proves R-35 … R-38 on the outboxes of a row store.
func Outbox(t *testing.T, h Harness) {
	t.Helper()
	runCases(t, h, []testCase{
		{"AnEffectComesBackAsItWas", effectRoundTrip},
		{"TheHeadIsTheLowestSequences", headInOrder},
		{"TheHeadOfAnAbsentRowIsEmpty", headOfAbsent},
		{"AClaimIsConditionedOnTheClaimAsRead", claimAsRead},
		{"AClaimStopsAtTheFirstThatIsTaken", claimStops},
		{"OneOfManyClaimersWins", claimRace},
		{"BothKindsOfOwnerComeBack", ownersRoundTrip},
		{"AReleaseTakesOffItsOwnClaimsOnly", releaseOwn},
		{"ADeleteNamesSequenceAndEffect", deleteByID},
		{"ADeleteDoesNotAskWhoClaimed", deleteTellsClaim},
		{"ADeferralIsConditionedOnTheClaim", deferIfOwned},
		{"ADecisionRemovesAndRecords", decideRecords},
		{"PendingRowsAreListedOnce", pendingRows},
		{"HasPendingAnswersForManyRows", hasPending},
		{"OutboxesAreIndependent", independentOutboxes},
	})
	t.Run("AHeadNeverShowsPartOfAWrite", func(t *testing.T) {
		t.Parallel()
		headIsWhole(t, h.Open(t), h.Features)
	})
	t.Run("AWriteTakesItsLimitOfEffects", func(t *testing.T) {
		t.Parallel()
		effectLimit(t, h.Open(t), h.Features)
	})
}

func owner(nonce string) outbox.Owner {
	return outbox.Owner{Kind: outbox.OwnerProcess, Nonce: nonce, Until: noon.Add(time.Hour)}
}

func claim(t testing.TB, b Backend, key string, items []outbox.Item, nonce string) int {
	t.Helper()
	claimed, err := b.Store.Claim(t.Context(), boardRow(key), refs(items), owner(nonce))
	require.NoError(t, err)
	return claimed
}

//
func effectRoundTrip(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	write := boardWrite(load(t, b, model, "ZRH"), 1, 1, 2)
	plain := &write.Effects[1]
	plain.TraceParent, plain.StreamID, plain.SchemaVersion = "", "a#b|c%'ü🛫", 3
	plain.ID = outbox.EffectID(plain.Row, plain.Source, plain.StreamID, plain.Version, plain.Index)
	plain.Payload = []byte(`{"text":"Zürich \"x\"","list":[1,null]}`)
	commit(t, b, model, write)
	items := head(t, b, "ZRH", 10).Items
	require.Len(t, items, 2)
	for i, item := range items {
		sameItem(t, write.Effects[i], item)
		require.True(t, item.Claim.IsZero())
		require.True(t, item.Deferral.IsZero())
	}
}

//
func headInOrder(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	var want []outbox.Sequence
	for n := range 12 { // revisions of one and of two digits
		for _, effect := range enqueue(t, b, model, "ZRH", n, n, n).Effects {
			want = append(want, effect.Sequence)
		}
	}
	view := head(t, b, "ZRH", 100)
	require.Equal(t, want, sequences(view.Items))
	require.Equal(t, int64(12), view.Revision)
	require.False(t, view.More)
	require.False(t, view.Tombstone)
	require.False(t, head(t, b, "ZRH", 36).More)
	view = head(t, b, "ZRH", 5)
	require.Equal(t, want[:5], sequences(view.Items))
	require.True(t, view.More)
}

func headOfAbsent(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	view := head(t, b, "nobody", 5)
	require.Empty(t, view.Items)
	require.Zero(t, view.Revision)
	require.False(t, view.Tombstone)
	enqueue(t, b, model, "ZRH")
	view = head(t, b, "ZRH", 5)
	require.Empty(t, view.Items)
	require.Equal(t, int64(1), view.Revision)
	require.False(t, view.More)
}

// R-38 (iii): while writes of several effects commit, a head shows of each write up to its
// revision everything, and of later ones nothing.
func headIsWhole(t *testing.T, b Backend, features Features) {
	t.Helper()
	const writes, each = 40, 5
	model := prepare(t, b, boardModel())
	ctx, done := t.Context(), make(chan struct{})
	var writer sync.WaitGroup
	var failed error
	writer.Go(func() {
		defer close(done)
		read := projection.Stored{Key: "ZRH", Status: projection.RowAbsent}
		for range writes {
			write := boardWrite(read, 1, 1, 2, 3, 4, 5)
			if failed = b.Store.Commit(ctx, model, []projection.Write{write})[0]; failed != nil {
				return
			}
			read.Status, read.Books = projection.RowLive, write.Books
		}
	})
	for over := false; !over; {
		select {
		case <-done:
			over = true
		default:
		}
		view := head(t, b, "ZRH", writes*each+1)
		require.Len(t, view.Items, int(view.Revision)*each)
		for i, item := range view.Items {
			require.Equal(t, outbox.SequenceOf(int64(i/each+1), i%each), item.Sequence)
		}
	}
	writer.Wait()
	require.NoError(t, failed)
	require.Equal(t, int64(writes), head(t, b, "ZRH", 1).Revision)
	if features.SnapshotHead { // revision and effects are of one moment
		view := head(t, b, "ZRH", writes*each)
		require.Equal(t, view.Revision, view.Items[len(view.Items)-1].Sequence.Revision())
	}
}

func effectLimit(t *testing.T, b Backend, features Features) {
	t.Helper()
	n := features.MaxEffects
	if n == 0 {
		n = outbox.MaxIndex + 1
	}
	model := prepare(t, b, boardModel())
	write := boardWrite(load(t, b, model, "ZRH"), 1, make([]int, n)...)
	commit(t, b, model, write)
	view := head(t, b, "ZRH", n+1)
	require.Len(t, view.Items, n)
	require.Equal(t, outbox.SequenceOf(1, n-1), view.Items[n-1].Sequence)
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

//
func deleteByID(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	enqueue(t, b, model, "ZRH", 1, 2)
	ref := head(t, b, "ZRH", 1).Items[0].Ref()
	wrong := ref
	wrong.ID = "another effect"
	deleted, err := b.Store.Delete(t.Context(), boardRow("ZRH"), wrong)
	require.NoError(t, err)
	require.False(t, deleted.Found)
	require.Len(t, head(t, b, "ZRH", 5).Items, 2)
	deleted, err = b.Store.Delete(t.Context(), boardRow("ZRH"), ref)
	require.NoError(t, err)
	require.True(t, deleted.Found)
	require.Len(t, head(t, b, "ZRH", 5).Items, 1)
	deleted, err = b.Store.Delete(t.Context(), boardRow("ZRH"), ref)
	require.NoError(t, err, "deleting what is gone is no error")
	require.Equal(t, outbox.Deleted{}, deleted)
	require.Equal(t, new(int64(1)), load(t, b, model, "ZRH").Books.Revision, "a delete is no write of the row")
}

//
func deleteTellsClaim(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	enqueue(t, b, model, "ZRH", 1)
	items := head(t, b, "ZRH", 1).Items
	require.Equal(t, 1, claim(t, b, "ZRH", items, "mine"))
	mine := head(t, b, "ZRH", 1).Items
	require.Equal(t, 1, claim(t, b, "ZRH", mine, "other"))
	deleted, err := b.Store.Delete(t.Context(), boardRow("ZRH"), mine[0].Ref())
	require.NoError(t, err)
	require.Equal(t, outbox.Deleted{Found: true, Claim: outbox.Claim{Owner: owner("other"), Epoch: 2}}, deleted)
}

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

// R-38 (ii)
func decideRecords(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	write := enqueue(t, b, model, "ZRH", 1, 2, 3)
	items := head(t, b, "ZRH", 3).Items
	require.Equal(t, 1, claim(t, b, "ZRH", items[:1], "worker"))
	park := outbox.Decision{Verb: outbox.VerbPark, Who: "ann", Why: "broken ü", At: noon, Class: event.ClassPermanent, Error: "no such address"}
	skip := outbox.Decision{Verb: outbox.VerbSkip, Who: "bob", Why: "obsolete", At: noon.Add(time.Minute)}
	decide := func(item outbox.Item, decision outbox.Decision) bool {
		t.Helper()
		decided, err := b.Store.Decide(t.Context(), boardRow("ZRH"), item.Ref(), decision)
		require.NoError(t, err)
		return decided
	}
	wrong := items[0]
	wrong.ID = "another effect"
	require.False(t, decide(wrong, skip))
	require.True(t, decide(items[1], skip))
	require.True(t, decide(items[0], park), "whoever has claimed it")
	require.False(t, decide(items[0], skip), "once")
	require.Equal(t, []outbox.Sequence{write.Effects[2].Sequence}, sequences(head(t, b, "ZRH", 3).Items))
	decided, err := b.Store.Decisions(t.Context(), boardRow("ZRH"))
	require.NoError(t, err)
	require.Len(t, decided, 2)
	require.Equal(t, park, decided[0].Decision)
	require.Equal(t, skip, decided[1].Decision)
	require.Equal(t, write.Effects[0].ID, decided[0].Item.ID)
	require.JSONEq(t, string(write.Effects[0].Payload), string(decided[0].Item.Payload), "with its raw bytes")
	require.Equal(t, write.Effects[1].Sequence, decided[1].Item.Sequence)
	decided, err = b.Store.Decisions(t.Context(), boardRow("GVA"))
	require.NoError(t, err)
	require.Empty(t, decided)
}

// T-12
func pendingRows(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	var want []string
	for i := range 11 {
		key := fmt.Sprintf("K%02d", i)
		if i%3 == 0 {
			enqueue(t, b, model, key)
			continue
		}
		enqueue(t, b, model, key, 1, 2, 3)
		enqueue(t, b, model, key, 4)
		want = append(want, key)
	}
	for _, limit := range []int{1, 3, 100} {
		var got []string
		after := ""
		for {
			page, err := b.Store.Pending(t.Context(), outbox.PendingQuery{Projection: "Board", After: after, Limit: limit})
			require.NoError(t, err)
			require.LessOrEqual(t, len(page), limit)
			for _, pending := range page {
				require.Equal(t, boardRow(pending.Row.Key), pending.Row)
				sameItem(t, noticeItem(pending.Row, 1, 0, 1), pending.Head)
				got, after = append(got, pending.Row.Key), pending.Row.Key
			}
			if len(page) < limit {
				break
			}
		}
		require.Equal(t, want, got)
	}
	page, err := b.Store.Pending(t.Context(), outbox.PendingQuery{Projection: "Nothing", Limit: 10})
	require.NoError(t, err)
	require.Empty(t, page)
}

//
func hasPending(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	enqueue(t, b, model, "A", 1)
	enqueue(t, b, model, "B")
	remove(t, b, model, "C", 1)
	pending, err := b.Store.HasPending(t.Context(), "Board", []string{"A", "B", "C", "D"})
	require.NoError(t, err)
	require.True(t, pending["A"])
	require.False(t, pending["B"])
	require.True(t, pending["C"])
	require.False(t, pending["D"])
	pending, err = b.Store.HasPending(t.Context(), "Other", []string{"A"})
	require.NoError(t, err)
	require.False(t, pending["A"])
	pending, err = b.Store.HasPending(t.Context(), "Board", nil)
	require.NoError(t, err)
	require.Empty(t, pending)
}

func independentOutboxes(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	ctx := context.WithoutCancel(t.Context())
	keys := []string{"A", "A#", "A%23", "a", "AB", "ä"}
	for _, key := range keys {
		enqueue(t, b, model, key, 1, 2)
	}
	items := head(t, b, "A", 2).Items
	require.Equal(t, 2, claim(t, b, "A", items, "mine"))
	for _, ref := range refs(items) {
		_, err := b.Store.Delete(ctx, boardRow("A"), ref)
		require.NoError(t, err)
	}
	require.Empty(t, head(t, b, "A", 2).Items)
	for _, key := range keys[1:] {
		left := head(t, b, key, 3).Items
		require.Len(t, left, 2, key)
		require.True(t, left[0].Claim.IsZero(), key)
	}
}
