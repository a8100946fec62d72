package testsuite

import (
	"fmt"
	"slices"
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
		{"AnEffectCanBeCommittedClaimed", committedClaimed},
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

// T-22: a process that is going to deliver what it commits claims it in the same write.
func committedClaimed(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel())
	write := boardWrite(load(t, b, model, "ZRH"), 1, 1, 2)
	write.Effects[0].Claim = outbox.Claim{Owner: owner("mine"), Epoch: 1}
	commit(t, b, model, write)
	items := head(t, b, "ZRH", 10).Items
	require.Equal(t, write.Effects[0].Claim, items[0].Claim)
	require.True(t, items[1].Claim.IsZero())
	unclaimed := write.Effects[0]
	unclaimed.Claim = outbox.Claim{}
	require.Zero(t, claim(t, b, "ZRH", []outbox.Item{unclaimed}, "other"), "it has never been free")
	require.NoError(t, b.Store.Release(t.Context(), boardRow("ZRH"), refs(items[:1]), "mine"))
	require.True(t, head(t, b, "ZRH", 10).Items[0].Claim.IsZero())
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

// R-38 (iii): revision 0, as nothing was written.
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

// a write of as many effects as the store claims to take is taken.
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
		require.Equal(t, want, pendingKeys(t, b, "Board", limit))
	}
	page, err := b.Store.Pending(t.Context(), outbox.PendingQuery{Projection: "Nothing", Limit: 10})
	require.NoError(t, err)
	require.Empty(t, page)
}

// pendingKeys pages through the rows that have pending effects, the first of which each is of
// the row's first write.
func pendingKeys(t testing.TB, b Backend, name string, limit int) []string {
	t.Helper()
	var keys []string
	for after := ""; ; {
		page, err := b.Store.Pending(t.Context(), outbox.PendingQuery{Projection: name, After: after, Limit: limit})
		require.NoError(t, err)
		require.LessOrEqual(t, len(page), limit)
		for _, pending := range page {
			require.Equal(t, outbox.Row{Projection: name, Key: pending.Row.Key}, pending.Row)
			sameItem(t, noticeItem(pending.Row, 1, 0, 1), pending.Head)
			keys, after = append(keys, pending.Row.Key), pending.Row.Key
		}
		if len(page) < limit {
			return keys
		}
	}
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

// rows are independent, of one projection and of several.
func independentOutboxes(t *testing.T, b Backend) {
	model := prepare(t, b, boardModel(), mirrorModel())
	keys := []string{"A", "A#", "A%23", "a", "AB", "ä"}
	for _, key := range keys {
		enqueue(t, b, model, key, 1, 2)
	}
	mirrored := outbox.Row{Projection: "Mirror", Key: "A"}
	mirror := boardWrite(load(t, b, mirrorModel(), "A"), 1)
	mirror.Effects = []outbox.Item{noticeItem(mirrored, 1, 0, 1)}
	commit(t, b, mirrorModel(), mirror)
	items := head(t, b, "A", 2).Items
	require.Equal(t, 2, claim(t, b, "A", items, "mine"))
	for _, ref := range refs(items) {
		_, err := b.Store.Delete(t.Context(), boardRow("A"), ref)
		require.NoError(t, err)
	}
	require.Empty(t, head(t, b, "A", 2).Items)
	require.ElementsMatch(t, keys[1:], pendingKeys(t, b, "Board", 1))
	require.Equal(t, []string{"A"}, pendingKeys(t, b, "Mirror", 1))
	for name, own := range map[string][]string{"Board": keys[1:], "Mirror": keys[:1]} {
		pending, err := b.Store.HasPending(t.Context(), name, keys)
		require.NoError(t, err)
		for _, key := range keys {
			require.Equal(t, slices.Contains(own, key), pending[key], "%s of %s", key, name)
		}
	}
	for _, key := range keys[1:] {
		left := head(t, b, key, 3).Items
		require.Len(t, left, 2, key)
		require.True(t, left[0].Claim.IsZero(), key)
	}
	view, err := b.Store.Head(t.Context(), mirrored, 3)
	require.NoError(t, err)
	require.Len(t, view.Items, 1)
	require.True(t, view.Items[0].Claim.IsZero())
	sameItem(t, mirror.Effects[0], view.Items[0])
}
