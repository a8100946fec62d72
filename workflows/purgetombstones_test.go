package workflows_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/activities"
	"github.com/rowfold/rowfold/projection"
	"github.com/rowfold/rowfold/workflows"
)

// activities purge until nothing is left, or until the run has had its rounds.
func TestPurgeTombstones(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		rounds int
		want   projection.Purged
	}{
		"until nothing is left":  {0, projection.Purged{Removed: 9, Dated: 3}},
		"until the run is over":  {2, projection.Purged{Removed: 6, Dated: 2, More: true}},
		"just within its rounds": {3, projection.Purged{Removed: 9, Dated: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			script(b, activities.PurgeTombstones, time.Second, func(call int, in activities.PurgeInput) (projection.Purged, error) {
				require.Equal(t, activities.PurgeInput{Projection: "Tally", PageSize: 500, MaxPages: 100}, in)
				return projection.Purged{Removed: 3, Dated: 1, More: call < 3}, nil
			})
			b.ExecuteWorkflow(workflows.TypePurgeTombstones, workflows.PurgeTombstones{Projection: "Tally", MaxRounds: test.rounds})
			require.Equal(t, test.want, result[projection.Purged](b))
		})
	}
}

// T-6: faults of the store are tried again by Temporal; a worker that does not know the
// projection ends the run.
func TestPurgeTombstones_faults(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	calls := 0
	script(b, activities.PurgeTombstones, time.Second, func(call int, _ activities.PurgeInput) (projection.Purged, error) {
		calls = call
		if call < 3 {
			return projection.Purged{}, activities.Failure(errors.New("the database is away"))
		}
		return projection.Purged{}, activities.Failure(&activities.UnknownProjection{Projection: "Tally"})
	})
	b.ExecuteWorkflow(workflows.TypePurgeTombstones, workflows.PurgeTombstones{Projection: "Tally"})
	require.Equal(t, 3, calls)
	require.ErrorContains(t, b.GetWorkflowError(), "purge tombstones of projection Tally")
	require.ErrorContains(t, b.GetWorkflowError(), "type: permanent, retryable: false")
}
