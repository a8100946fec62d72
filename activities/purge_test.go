package activities_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/activities"
	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/internal/tallytest"
	"github.com/rowfold/rowfold/projection"
)

func purge() activities.PurgeInput {
	return activities.PurgeInput{Projection: tallytest.Projection, PageSize: 2, MaxPages: 2}
}

// tombstones get their expiry, and are removed after it, page by page; that there is
// more than one activity may do is told.
func TestPurgeTombstones(t *testing.T) {
	t.Parallel()
	c := newConsuming(t)
	for i := range 5 {
		day, tally := event.ID(fmt.Sprintf("d-%d", i)), fmt.Sprintf("t-%d", i)
		c.Append(t, day, tallytest.Entry{Tally: tally, Removes: true})
		_, err := run[activities.Applied](environment(), c.applies().ApplyEvents, apply(days(day, 1, 1)))
		require.NoError(t, err)
	}
	model := c.Definition.Model()
	tombstones := func() int {
		rows, err := c.Store.Rows(t.Context(), model, projection.RowPage{Limit: 10, Tombstones: true})
		require.NoError(t, err)
		return len(rows)
	}
	purges := &activities.Purges{Store: c.Store, Models: map[string]*projection.Model{tallytest.Projection: model}}
	for _, want := range []projection.Purged{{Dated: 4, More: true}, {Dated: 1}, {}} {
		got, err := run[projection.Purged](environment(), purges.PurgeTombstones, purge())
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.Equal(t, 5, tombstones(), "none has expired")
	}

	purges.Now = func() time.Time { return time.Now().Add(365 * 24 * time.Hour) }
	for _, want := range []projection.Purged{{Removed: 4, More: true}, {Removed: 1}} {
		got, err := run[projection.Purged](environment(), purges.PurgeTombstones, purge())
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	require.Zero(t, tombstones())
}

type purger func(call int) (projection.Purged, error)

func (p purger) PurgeTombstones(_ context.Context, _ *projection.Model, _ time.Time, limit int) (projection.Purged, error) {
	return p(limit)
}

// T-6: a worker that stops ends the purge after its page, and faults have their class.
func TestPurgeTombstones_stopAndFaults(t *testing.T) {
	t.Parallel()
	models := map[string]*projection.Model{tallytest.Projection: {}}
	env, stop := environment(), make(chan struct{})
	env.SetWorkerStopChannel(stop)
	purges := &activities.Purges{Models: models, Store: purger(func(int) (projection.Purged, error) {
		close(stop)
		return projection.Purged{Removed: 2, Dated: 1, More: true}, nil
	})}
	got, err := run[projection.Purged](env, purges.PurgeTombstones, purge())
	require.NoError(t, err)
	require.Equal(t, projection.Purged{Removed: 2, Dated: 1, More: true}, got)

	purges.Store = purger(func(limit int) (projection.Purged, error) {
		require.Equal(t, 2, limit)
		return projection.Purged{}, errors.New("the database is away")
	})
	_, err = run[projection.Purged](environment(), purges.PurgeTombstones, purge())
	requireClass(t, err, event.ClassRetry, true)

	in := purge()
	in.Projection = "Other"
	_, err = run[projection.Purged](environment(), purges.PurgeTombstones, in)
	requireClass(t, err, event.ClassPermanent, false)
	require.ErrorContains(t, err, `projection "Other" is not among this worker's [Tally]`)
}
