package workflows_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/activities"
	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/workflows"
)

func batch(ranges int) workflows.ApplyBatch {
	in := workflows.ApplyBatch{Projections: []string{"Tally"}}
	for i := range ranges {
		in.Events = append(in.Events, activities.EventRange{
			Stream: "Day", StreamID: event.ID(fmt.Sprintf("d-%d", i)), From: 1, To: 2,
		})
	}
	return in
}

// T-14: a batch is applied by one activity, which Temporal tries again until it has succeeded.
func TestApplyBatch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	calls := 0
	want := activities.Applied{Events: 4, Rows: 2, Written: 2, Enqueued: 4, Wakes: activities.Wakes{Sent: 2}}
	script(b, activities.ApplyEvents, time.Second, func(call int, in activities.ApplyInput) (activities.Applied, error) {
		require.Equal(t, activities.ApplyInput{
			Events: batch(2).Events, Projections: []string{"Tally"}, PageSize: 500, Attempts: 5,
			RetryMin: activities.Duration(200 * time.Millisecond), RetryMax: activities.Duration(5 * time.Second),
		}, in)
		calls = call
		if call < 4 {
			return activities.Applied{}, activities.Failure(&activities.MissingEvent{Range: in.Events[0], Missing: 2})
		}
		return want, nil
	})
	b.ExecuteWorkflow(workflows.TypeApplyBatch, batch(2))
	require.Equal(t, want, result[activities.Applied](b))
	require.Equal(t, 4, calls)
}

// T-6: what fails for good is not tried again, and the run says what it was.
func TestApplyBatch_fails(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	calls := 0
	script(b, activities.ApplyEvents, time.Second, func(call int, _ activities.ApplyInput) (activities.Applied, error) {
		calls = call
		return activities.Applied{}, activities.Failure(event.Permanent(errors.New("no such stream")))
	})
	b.ExecuteWorkflow(workflows.TypeApplyBatch, batch(1))
	require.ErrorContains(t, b.GetWorkflowError(), "apply 1 ranges of events")
	require.ErrorContains(t, b.GetWorkflowError(), "no such stream (type: permanent, retryable: false)")
	require.Equal(t, 1, calls)
}

// T-3: a batch holds references only, stays below 64 KB, and a larger one is refused.
func TestApplyBatch_bound(t *testing.T) {
	t.Parallel()
	in := batch(workflows.MaxRanges)
	for i := range in.Events {
		in.Events[i].StreamID = event.ID(strings.Repeat("d", 100))
	}
	require.NoError(t, in.WithDefaults().Validate())
	require.Less(t, len(encode(t, in)), 64<<10)
	requireInvalid(t, batch(workflows.MaxRanges+1).WithDefaults().Validate(), "events: there are 201: start several batches of at most 200")
}
