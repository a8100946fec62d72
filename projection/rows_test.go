package projection_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
	"github.com/rowfold/rowfold/store/sqlite"
	"github.com/rowfold/rowfold/testsuite"
)

// tombstoned returns a lab in which c1 was loaded and scrapped, at revision 2.
func tombstoned(t *testing.T) (l *lab, past []event.Record) {
	t.Helper()
	l = newLab(t, setup{})
	past = l.record("Order", "o1", loaded{"c1", 2}, scrapped{"c1"})
	l.apply(past[:1])
	l.apply(past[1:])
	require.Equal(t, projection.RowTombstone, l.stored("c1").Status)
	return l, past
}

func requireNotFound(t *testing.T, err error) {
	t.Helper()
	var missing *projection.NotFound
	require.ErrorAs(t, err, &missing)
	require.Equal(t, projection.NotFound{Projection: "Crates", Key: "c1"}, *missing)
	require.Equal(t, event.ClassPermanent, event.Classify(err))
}

// to a reader a tombstone is an absent row.
func TestRowsReadNoTombstones(t *testing.T) {
	t.Parallel()
	l, _ := tombstoned(t)
	l.apply(l.record("Scale", "s1", weighed{"c0", 1}, weighed{"c2", 2}))
	_, err := l.rows.Get(t.Context(), "c1")
	requireNotFound(t, err)
	found, err := l.rows.GetAll(t.Context(), []string{"c2", "c1", "c9", "c0", "c2"})
	require.NoError(t, err)
	require.Equal(t, []*crate{new(l.row("c2")), nil, nil, new(l.row("c0")), new(l.row("c2"))}, found)
	require.Equal(t, []string{"c0", "c2"}, allKeys(t, l.rows))
	var incomplete *projection.IncompleteKey
	_, err = l.rows.Get(t.Context(), "")
	require.ErrorAs(t, err, &incomplete)
	_, err = l.rows.GetAll(t.Context(), []string{"c2", ""})
	require.ErrorAs(t, err, &incomplete)
}

func allKeys(t *testing.T, rows *projection.Rows[string, crate]) []string {
	t.Helper()
	var keys []string
	for row, err := range rows.All(t.Context()) {
		require.NoError(t, err)
		keys = append(keys, row.ID)
	}
	return keys
}

// the list is whole and in the order of the keys, over the border of its pages.
func TestRowsListEveryRow(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{})
	var records [][]event.Record
	var want []string
	for i := range 1001 {
		key := fmt.Sprintf("c%04d", i)
		records = append(records, recordsOf(t, "Scale", event.ID("s"+key), 1, weighed{key, 1}))
		want = append(want, key)
	}
	slices.Reverse(records)
	l.apply(records...)
	require.Equal(t, want, allKeys(t, l.rows))
	seen := 0
	for _, err := range l.rows.All(t.Context()) {
		require.NoError(t, err)
		seen++
		if seen == 3 {
			break
		}
	}
	require.Equal(t, 3, seen, "the caller may stop")
}

// The first error ends the list.
func TestRowsListFails(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	seen := 0
	for _, err := range l.rows.All(ctx) {
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "list the rows of projection Crates")
		seen++
	}
	require.Equal(t, 1, seen)
}

// create and put over a tombstone carry its checkpoints and raise its revision: a
// late redelivery cannot undo them, and the next event goes on.
func TestRowsWriteOverATombstone(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(*lab, crate) error{
		"create": func(l *lab, row crate) error { return l.rows.Create(l.tb.Context(), row) },
		"put":    func(l *lab, row crate) error { return l.rows.Put(l.tb.Context(), row) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, past := tombstoned(t)
			before := l.pending("c1")
			require.NoError(t, write(l, crate{ID: "c1", Count: 40, Place: "attic", Revision: 99, Checkpoints: map[string]int64{"order#o1": 77}}))
			want := crate{ID: "c1", Count: 40, Place: "attic", Revision: 3, Checkpoints: map[string]int64{"order#o1": 2}}
			require.Equal(t, want, l.row("c1"), "bookkeeping is not the caller's to write")
			require.Equal(t, before, l.pending("c1"), "a write by hand causes no effects")
			require.Empty(t, l.apply(past).Failures)
			require.Equal(t, want, l.row("c1"))
			l.apply(l.record("Order", "o1", loaded{"c1", 2}))
			require.EqualValues(t, 42, l.row("c1").Count)
			require.EqualValues(t, 4, l.row("c1").Revision)
		})
	}
}

// update and delete do not find a tombstone, nor a row that never was.
func TestRowsUpdateAndDeleteNothing(t *testing.T) {
	t.Parallel()
	gone, _ := tombstoned(t)
	for name, l := range map[string]*lab{"tombstone": gone, "absent": newLab(t, setup{})} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := l.stored("c1")
			requireNotFound(t, l.rows.Update(t.Context(), "c1", func(c crate) (crate, error) { return c, nil }))
			requireNotFound(t, l.rows.Delete(t.Context(), "c1"))
			require.Equal(t, before, l.stored("c1"))
		})
	}
}

// on live rows put, update and delete raise the revision and keep the rest.
func TestRowsWriteLiveRows(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{})
	past := l.record("Order", "o1", loaded{"c1", 1})
	l.apply(past)
	var exists *projection.AlreadyExists
	require.ErrorAs(t, l.rows.Create(t.Context(), crate{ID: "c1"}), &exists)
	require.Equal(t, "c1", exists.Key)
	require.Equal(t, event.ClassPermanent, event.Classify(exists))
	require.NoError(t, l.rows.Put(t.Context(), crate{ID: "c1", Count: 5}))
	require.Equal(t, crate{ID: "c1", Count: 5, Revision: 2, Checkpoints: map[string]int64{"order#o1": 1}}, l.row("c1"))
	require.NoError(t, l.rows.Update(t.Context(), "c1", func(c crate) (crate, error) {
		require.EqualValues(t, 2, c.Revision)
		c.Count++
		return c, nil
	}))
	require.EqualValues(t, 6, l.row("c1").Count)
	require.EqualValues(t, 3, l.row("c1").Revision)
	require.NoError(t, l.rows.Delete(t.Context(), "c1"))
	stored := l.stored("c1")
	require.Equal(t, projection.RowTombstone, stored.Status)
	require.EqualValues(t, 4, *stored.Books.Revision)
	require.Equal(t, map[string]int64{"order#o1": 1}, stored.Books.Checkpoints)
	require.Empty(t, l.apply(past).Failures)
	requireNotFound(t, l.rows.Delete(t.Context(), "c1"))

	l.apply(l.record("Order", "o1", loaded{"c1", 2}))
	require.Equal(t, crate{
		ID: "c1", Count: 2, Place: "unknown", History: []string{"order#o1@2"}, Revision: 5, Checkpoints: map[string]int64{"order#o1": 2},
	}, l.row("c1"))
}

// the first write of an absent row has the initial revision, without bookkeeping.
func TestRowsCreate(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{})
	require.NoError(t, l.rows.Create(t.Context(), crate{ID: "c1", Place: "attic"}))
	require.Equal(t, crate{ID: "c1", Place: "attic", Revision: 1}, l.row("c1"))
	require.NoError(t, l.rows.Put(t.Context(), crate{ID: "c2"}))
	l.apply(l.record("Order", "o1", loaded{"c1", 1}))
	require.Equal(t, "attic", l.row("c1").Place, "events fold onto what was written by hand")
}

// what an update must not do.
func TestRowsUpdateFaults(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{store: sqlite.Config{MaxRowBytes: 300}})
	l.apply(l.record("Order", "o1", loaded{"c1", 1}))
	update := func(change func(*crate) error) error {
		return l.rows.Update(t.Context(), "c1", func(c crate) (crate, error) {
			err := change(&c)
			return c, err
		})
	}
	require.ErrorIs(t, update(func(*crate) error { return errBroken }), errBroken)
	var changed *projection.RowKeyChanged
	err := l.rows.Update(t.Context(), "c1", func(c crate) (crate, error) { c.ID = "c2"; return c, nil })
	require.ErrorAs(t, err, &changed)
	require.Equal(t, projection.RowKeyChanged{Projection: "Crates", From: "c1", To: "c2"}, *changed)
	var large *projection.RowTooLarge
	err = l.rows.Put(t.Context(), crate{ID: "c1", Place: string(make([]byte, 400))})
	require.ErrorAs(t, err, &large)
	require.Equal(t, 300, large.Limit)
	var incomplete *projection.IncompleteKey
	require.ErrorAs(t, l.rows.Put(t.Context(), crate{}), &incomplete)
	var value *projection.ValueError
	zero := 0.0
	require.ErrorAs(t, l.rows.Put(t.Context(), crate{ID: "c1", Grams: 1 / zero}), &value)
	require.Equal(t, "grams", value.Column)
	require.EqualValues(t, 1, l.row("c1").Revision)
}

// without removal, a row with pending effects is not deleted; drained, it is.
func TestRowsDeleteWithPendingEffects(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{definition: func(c *projection.Config[string, crate]) { c.Removal = nil }})
	l.apply(l.record("Order", "o1", loaded{"c1", 2}))
	err := l.rows.Delete(t.Context(), "c1")
	var pending *projection.EffectsPending
	require.ErrorAs(t, err, &pending)
	require.Equal(t, outbox.Row{Projection: "Crates", Key: "c1"}, pending.Row)
	require.Equal(t, event.ClassRetry, event.Classify(err))
	require.EqualValues(t, 2, l.row("c1").Count)
	box := &postbox{}
	_, err = outbox.Drain(t.Context(), l.store, pending.Row, box.deliver, outbox.Options{Types: l.p.EffectTypes()})
	require.NoError(t, err)
	require.NoError(t, l.rows.Delete(t.Context(), "c1"))
	require.Equal(t, projection.RowTombstone, l.stored("c1").Status)
}

// with removal, the effects of a deleted row stay, and are delivered.
func TestRowsDeleteKeepsEffects(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{})
	l.apply(l.record("Order", "o1", loaded{"c1", 2}))
	require.NoError(t, l.rows.Delete(t.Context(), "c1"))
	require.Len(t, l.pending("c1"), 1)
}

// without an outbox a delete dates the tombstone by itself.
func TestRowsDeleteDatesTheTombstone(t *testing.T) {
	t.Parallel()
	const ttl = 60 * 24 * time.Hour
	source := scaleSource()
	l := newLab(t, setup{definition: func(c *projection.Config[string, crate]) {
		c.Sources, c.Outbox = []projection.AnySource[string, crate]{source}, nil
		c.Removal = &projection.Removal{TTL: ttl}
	}})
	l.apply(l.record("Scale", "s1", weighed{"c1", 2}))
	before := time.Now()
	require.NoError(t, l.rows.Delete(t.Context(), "c1"))
	require.WithinRange(t, *l.stored("c1").ExpiresAt, before.Add(ttl).Add(-time.Second), time.Now().Add(ttl))
}

// without a revision the checkpoints as read are the guard of a write by hand.
func TestRowsWithoutRevision(t *testing.T) {
	t.Parallel()
	l, singles := mixedLab(t)
	weights := l.record("Scale", "s1", weighed{"c1", 1}, weighed{"c1", 1})
	l.apply(weights[:1])
	tries := 0
	require.NoError(t, singles.Update(t.Context(), "s1", func(w weighings) (weighings, error) {
		tries++
		if tries == 1 {
			l.apply(weights[1:])
		}
		w.Count += 10
		return w, nil
	}))
	require.Equal(t, 2, tries)
	got, err := singles.Get(t.Context(), "s1")
	require.NoError(t, err)
	require.EqualValues(t, 12, got.Count)
}

// a write by hand that loses its race is computed again on what the winner left.
func TestRowsUpdateLosesARace(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{})
	l.apply(l.record("Order", "o1", loaded{"c1", 1}))
	tries := 0
	require.NoError(t, l.rows.Update(t.Context(), "c1", func(c crate) (crate, error) {
		tries++
		if tries == 1 {
			l.apply(l.record("Order", "o1", loaded{"c1", 2}))
		}
		c.Count *= 10
		return c, nil
	}))
	require.Equal(t, 2, tries)
	require.EqualValues(t, 30, l.row("c1").Count)
	require.EqualValues(t, 3, l.row("c1").Revision)
}

// several rows, of several projections, in one transaction: all or none.
func TestRowsTransact(t *testing.T) {
	t.Parallel()
	l, singles := mixedLab(t)
	l.apply(l.record("Order", "o1", loaded{"c1", 1}, loaded{"c2", 1}))
	raise := func(c crate) (crate, error) { c.Count += 10; return c, nil }
	require.NoError(t, projection.Transact(t.Context(), l.store,
		l.rows.Updating("c1", raise), l.rows.Deleting("c2"), l.rows.Creating(crate{ID: "c3"}), singles.Putting(weighings{Session: "s1", Count: 7})))
	require.EqualValues(t, 11, l.row("c1").Count)
	require.Equal(t, []string{"c1", "c3"}, allKeys(t, l.rows))

	var exists *projection.AlreadyExists
	require.ErrorAs(t, projection.Transact(t.Context(), l.store, l.rows.Updating("c1", raise), l.rows.Creating(crate{ID: "c3"})), &exists)
	require.EqualValues(t, 11, l.row("c1").Count)
	tries := 0
	require.NoError(t, projection.Transact(t.Context(), l.store, l.rows.Updating("c1", raise), l.rows.Updating("c3", func(c crate) (crate, error) {
		tries++
		if tries == 1 {
			require.NoError(t, l.rows.Put(t.Context(), crate{ID: "c3", Place: "attic"}))
		}
		c.Count++
		return c, nil
	})))
	require.EqualValues(t, 21, l.row("c1").Count, "the lost race took both back")
	require.Equal(t, "attic", l.row("c3").Place)
	require.NoError(t, projection.Transact(t.Context(), l.store))
}

// commitAllFails loses the answers of a store, or answers in its place.
type commitAllFails struct {
	projection.Store

	calls int
	do    bool   // the writes are done all the same
	until int    // the last call that fails; 0 = all do
	then  func() // what happens after a call that fails
	err   error
}

func (s *commitAllFails) CommitAll(ctx context.Context, writes []projection.ModelWrite) error {
	s.calls++
	fails := s.until == 0 || s.calls <= s.until
	if s.do || !fails {
		if err := s.Store.CommitAll(ctx, writes); err != nil {
			return err
		}
	}
	if !fails {
		return nil
	}
	if s.then != nil {
		s.then()
	}
	return s.err
}

// races have an end, which names the row.
func TestRowsLoseEveryRace(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{})
	store := &commitAllFails{Store: l.store, err: &projection.LostRace{Projection: "Crates", Key: "c1"}}
	err := projection.NewRows(l.p, store).Put(t.Context(), crate{ID: "c1"})
	var conflict *projection.ProjectionConflict
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, "Crates", conflict.Projection)
	require.Equal(t, "c1", conflict.Key)
	require.Equal(t, 10, conflict.Attempts)
	require.Equal(t, 10, store.calls)
	require.ErrorContains(t, err, "row c1 of projection Crates lost 10 races in a row")
}

// of several rows it is the one that lost.
func TestRowsLoseEveryRaceTogether(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{})
	lost := &projection.LostRace{Projection: "Crates", Key: "c2"}
	store := &commitAllFails{Store: l.store, err: &projection.WriteError{Projection: "Crates", Key: "c2", Err: lost}}
	err := projection.Transact(t.Context(), store, l.rows.Putting(crate{ID: "c1"}), l.rows.Putting(crate{ID: "c2"}))
	var conflict *projection.ProjectionConflict
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, "c2", conflict.Key)
	require.ErrorIs(t, err, lost)
}

// throttling is no lost race, however long it lasts.
func TestRowsAreThrottled(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{})
	store := &commitAllFails{Store: l.store, err: event.WithClass(errDown, event.ClassThrottled), until: 11}
	require.NoError(t, projection.NewRows(l.p, store).Put(t.Context(), crate{ID: "c1"}))
	require.Equal(t, 12, store.calls)
}

// when the answer got lost and others have written since, nobody knows: the change is
// not made twice, and the error says so.
func TestRowsUnknownOutcomeThenOverwritten(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{})
	l.apply(l.record("Order", "o1", loaded{"c1", 1}))
	store := &commitAllFails{Store: l.store, do: true, err: event.WithClass(errDown, event.ClassUnknownOutcome), then: func() {
		l.apply(l.record("Order", "o1", loaded{"c1", 2}))
	}}
	raise := func(c crate) (crate, error) { c.Count += 10; return c, nil }
	err := projection.NewRows(l.p, store).Update(t.Context(), "c1", raise)
	require.ErrorIs(t, err, errDown)
	require.Equal(t, event.ClassUnknownOutcome, event.Classify(err))
	require.EqualValues(t, 13, l.row("c1").Count)

	raise2 := projection.NewRows(l.p, store).Updating("c1", raise)
	require.NoError(t, projection.Transact(t.Context(), store, raise2, l.rows.Putting(crate{ID: "c2"})), "c2 tells that both were done")
	require.EqualValues(t, 13+10+2, l.row("c1").Count)
}

// what was certainly not done is done again.
func TestRowsUnknownOutcomeOfNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{})
	l.apply(l.record("Order", "o1", loaded{"c1", 1}))
	store := &commitAllFails{Store: l.store, err: event.WithClass(errDown, event.ClassUnknownOutcome), until: 1, then: func() {
		l.apply(l.record("Order", "o1", loaded{"c1", 2})) // in the place of ours
	}}
	require.NoError(t, projection.NewRows(l.p, store).Update(t.Context(), "c1", func(c crate) (crate, error) { c.Count += 10; return c, nil }))
	require.EqualValues(t, 13, l.row("c1").Count)
	store = &commitAllFails{Store: l.store, err: event.WithClass(errDown, event.ClassUnknownOutcome)}
	require.ErrorIs(t, projection.NewRows(l.p, store).Put(t.Context(), crate{ID: "c1"}), errDown)
	require.Equal(t, 10, store.calls, "not for ever")
}

// A fault that no repetition mends is told at once.
func TestRowsPermanentFault(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{})
	store := &commitAllFails{Store: l.store, err: event.Permanent(errDown)}
	require.ErrorIs(t, projection.NewRows(l.p, store).Put(t.Context(), crate{ID: "c1"}), errDown)
	require.Equal(t, 1, store.calls)
}

// whatever happens to any call of a write by hand, it is done once or an error.
func TestRowsUnderEveryFault(t *testing.T) {
	t.Parallel()
	for call := 1; call <= 2; call++ {
		for _, fault := range testsuite.Faults() {
			t.Run(fmt.Sprintf("%s at %d", fault, call), func(t *testing.T) {
				t.Parallel()
				l := newLab(t, setup{})
				l.apply(l.record("Order", "o1", loaded{"c1", 1}))
				rows := projection.NewRows(l.p, testsuite.NewFaulty(l.store, testsuite.Plan{At: map[int]testsuite.Fault{call: fault}}))
				err := rows.Update(t.Context(), "c1", func(c crate) (crate, error) { c.Count += 10; return c, nil })
				want := int64(11)
				var crashed *testsuite.Crashed
				switch {
				case errors.As(err, &crashed):
					if fault == testsuite.FaultCrashBefore || call == 1 {
						want = 1
					}
				case call == 1: // a read that failed is the caller's to repeat
					require.Error(t, err)
					want = 1
				default:
					require.NoError(t, err)
				}
				require.Equal(t, want, l.row("c1").Count)
			})
		}
	}
}

// No further try is made for a context that has ended.
func TestRowsAreCancelled(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{})
	ctx, cancel := context.WithCancel(t.Context())
	store := &cancelling{Store: l.store, cancel: cancel}
	err := projection.NewRows(l.p, store).Put(ctx, crate{ID: "c1"})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, projection.RowAbsent, l.stored("c1").Status)
}

// cancelling ends the caller's context when a write loses its race.
type cancelling struct {
	projection.Store

	cancel context.CancelFunc
}

func (s *cancelling) CommitAll(context.Context, []projection.ModelWrite) error {
	s.cancel()
	return &projection.LostRace{Projection: "Crates", Key: "c1"}
}
