package workflows_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/activities"
	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/workflows"
)

// newSweepBench returns a bench whose sweeps find what the answer says.
func newSweepBench(t *testing.T, answer func(call int, in activities.SweepInput) (activities.SweepCounts, error)) *bench {
	t.Helper()
	b := newBench(t)
	registerStub[activities.SweepInput, activities.SweepCounts](b, activities.SweepRows)
	script(b, activities.SweepRows, time.Second, answer)
	return b
}

// T-12: one run sweeps once, and returns its counts.
func TestSweepOutbox(t *testing.T) {
	t.Parallel()
	counts := activities.SweepCounts{Pending: 9, Woken: 4, Dropped: 1, Young: 2, Waiting: 1, Parked: 1, Next: "LHR"}
	b := newSweepBench(t, func(_ int, in activities.SweepInput) (activities.SweepCounts, error) {
		require.Equal(t, activities.SweepInput{
			Projection: "board", Grace: activities.Duration(30 * time.Second), MaxWakes: 1000, PageSize: 200,
		}, in)
		return counts, nil
	})
	b.ExecuteWorkflow(workflows.TypeSweepOutbox, workflows.SweepOutbox{Projection: "board"})
	require.Equal(t, counts, result[activities.SweepCounts](b))
}

// T-12: a run of a schedule goes on where the one before it has used up its wakes, unless it is told where to begin.
func TestSweepOutbox_cursor(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ after, begins string }{
		"where the last run stopped": {"", "LHR"},
		"where it is told":           {"CDG", "CDG"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begins := "nowhere"
			b := newSweepBench(t, func(_ int, in activities.SweepInput) (activities.SweepCounts, error) {
				begins = in.After
				return activities.SweepCounts{Pending: 1}, nil
			})
			b.SetLastCompletionResult(activities.SweepCounts{Pending: 1000, Woken: 1000, Next: "LHR"})
			b.ExecuteWorkflow(workflows.TypeSweepOutbox, workflows.SweepOutbox{Projection: "board", After: test.after})
			require.Equal(t, activities.SweepCounts{Pending: 1}, result[activities.SweepCounts](b)) // of this run only
			require.Equal(t, test.begins, begins)
		})
	}
}

// T-6: a store that is away is asked again; one that refuses ends the run.
func TestSweepOutbox_faults(t *testing.T) {
	t.Parallel()
	b := newSweepBench(t, func(call int, _ activities.SweepInput) (activities.SweepCounts, error) {
		if call == 1 {
			return activities.SweepCounts{}, activities.Failure(errors.New("the database is away"))
		}
		return activities.SweepCounts{}, activities.Failure(event.Permanent(errors.New("there is no such table")))
	})
	b.ExecuteWorkflow(workflows.TypeSweepOutbox, workflows.SweepOutbox{Projection: "board"})
	require.ErrorContains(t, b.GetWorkflowError(), "sweep projection board")
	require.ErrorContains(t, b.GetWorkflowError(), "no such table")
	require.Equal(t, event.ClassPermanent, activities.ClassOf(b.GetWorkflowError()))
}

// T-1: a wrong input fails at once, is not retried, and names the field.
func TestSweepOutbox_invalidInput(t *testing.T) {
	t.Parallel()
	for input, field := range map[string]string{
		`{}`:                                   "projection: it is empty",
		`{"projection": "p", "grace": "-1s"}`:  "grace: -1s is too short",
		`{"projection": "p", "maxWakes": -1}`:  "maxWakes: -1 is too low",
		`{"projection": "p", "pageSize": 1.5}`: "pageSize: a JSON number 1.5 does not fit",
	} {
		t.Run(field, func(t *testing.T) {
			t.Parallel()
			b := newSweepBench(t, func(int, activities.SweepInput) (activities.SweepCounts, error) { return activities.SweepCounts{}, nil })
			b.ExecuteWorkflow(workflows.TypeSweepOutbox, json.RawMessage(input))
			require.True(t, b.IsWorkflowCompleted())
			requireInvalid(t, b.GetWorkflowError(), field)
		})
	}
}
