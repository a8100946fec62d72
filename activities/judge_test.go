package activities_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rowfold/rowfold/activities"
	"github.com/rowfold/rowfold/outbox"
)

// describes answers every question in one way.
type describes struct {
	asked  *workflowservice.DescribeWorkflowExecutionRequest
	answer *workflowservice.DescribeWorkflowExecutionResponse
	err    error
}

func (d *describes) DescribeWorkflowExecution(
	_ context.Context, request *workflowservice.DescribeWorkflowExecutionRequest, _ ...grpc.CallOption,
) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	d.asked = request
	return d.answer, d.err
}

func pendingRun(status enumspb.WorkflowExecutionStatus, pending ...*workflowpb.PendingActivityInfo) *workflowservice.DescribeWorkflowExecutionResponse {
	return &workflowservice.DescribeWorkflowExecutionResponse{
		WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{Status: status}, PendingActivities: pending,
	}
}

// T-10: an owner is gone exactly when Temporal says that its execution has ended.
func TestJudge(t *testing.T) {
	t.Parallel()
	const running = enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
	started := time.Date(2026, 1, 1, 12, 0, 0, 123_456_789, time.UTC)
	claim := outbox.Claim{Owner: outbox.Owner{
		Kind: outbox.OwnerTemporal, Nonce: "n", Namespace: "ns", WorkflowID: "w", RunID: "r", ActivityID: "5",
		StartedAt: started.Truncate(time.Microsecond), // as a store keeps it
	}}
	activity := func(state enumspb.PendingActivityState, at time.Time) *workflowpb.PendingActivityInfo {
		return &workflowpb.PendingActivityInfo{ActivityId: "5", State: state, LastStartedTime: timestamppb.New(at)}
	}
	const (
		begun     = enumspb.PENDING_ACTIVITY_STATE_STARTED
		scheduled = enumspb.PENDING_ACTIVITY_STATE_SCHEDULED
	)
	for name, test := range map[string]struct {
		answer *workflowservice.DescribeWorkflowExecutionResponse
		want   outbox.Verdict
	}{
		"closed":                      {pendingRun(enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED), outbox.VerdictGone},
		"terminated in the middle":    {pendingRun(enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED, activity(begun, started)), outbox.VerdictGone},
		"continued as new":            {pendingRun(enumspb.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW), outbox.VerdictGone},
		"not pending":                 {pendingRun(running), outbox.VerdictGone},
		"another one is pending":      {pendingRun(running, &workflowpb.PendingActivityInfo{ActivityId: "6", State: begun, LastStartedTime: timestamppb.New(started)}), outbox.VerdictGone},
		"at work":                     {pendingRun(running, activity(begun, started)), outbox.VerdictWorking},
		"at work in a paused run":     {pendingRun(enumspb.WORKFLOW_EXECUTION_STATUS_PAUSED, activity(begun, started)), outbox.VerdictWorking},
		"about to be cancelled":       {pendingRun(running, activity(enumspb.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED, started)), outbox.VerdictWorking},
		"about to be paused":          {pendingRun(running, activity(enumspb.PENDING_ACTIVITY_STATE_PAUSE_REQUESTED, started)), outbox.VerdictWorking},
		"paused":                      {pendingRun(running, activity(enumspb.PENDING_ACTIVITY_STATE_PAUSED, started)), outbox.VerdictGone},
		"waits for the next attempt":  {pendingRun(running, activity(scheduled, started)), outbox.VerdictGone},
		"in its next attempt":         {pendingRun(running, activity(begun, started.Add(time.Second))), outbox.VerdictGone},
		"reset to an earlier attempt": {pendingRun(running, activity(begun, started.Add(2*time.Millisecond))), outbox.VerdictGone},
		"never started":               {pendingRun(running, &workflowpb.PendingActivityInfo{ActivityId: "5", State: begun}), outbox.VerdictGone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			temporal := &describes{answer: test.answer}
			verdict, err := activities.Judge{Temporal: temporal}.Judge(t.Context(), claim)
			require.NoError(t, err)
			require.Equal(t, test.want, verdict)
			require.Equal(t, "ns", temporal.asked.GetNamespace())
			require.Equal(t, "w", temporal.asked.GetExecution().GetWorkflowId())
			require.Equal(t, "r", temporal.asked.GetExecution().GetRunId())
		})
	}
}

// T-10: a run that is not there has ended; a Temporal that does not answer tells nothing.
func TestJudge_faults(t *testing.T) {
	t.Parallel()
	claim := outbox.Claim{Owner: outbox.Owner{Kind: outbox.OwnerTemporal, WorkflowID: "w", RunID: "r"}}
	verdict, err := activities.Judge{Temporal: &describes{err: serviceerror.NewNotFound("no such run")}}.Judge(t.Context(), claim)
	require.NoError(t, err)
	require.Equal(t, outbox.VerdictGone, verdict)
	away := serviceerror.NewUnavailable("away")
	verdict, err = activities.Judge{Temporal: &describes{err: away}}.Judge(t.Context(), claim)
	require.ErrorIs(t, err, away)
	require.ErrorContains(t, err, "w/r")
	require.Equal(t, outbox.VerdictWorking, verdict)
}

// The claims of processes are judged by the clock, without asking Temporal.
func TestJudge_processes(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	judge := activities.Judge{
		Temporal: &describes{err: errors.New("it must not be asked")},
		Clock:    outbox.ClockJudge{Now: func() time.Time { return now }},
	}
	for until, want := range map[time.Time]outbox.Verdict{now.Add(time.Second): outbox.VerdictWorking, now.Add(-time.Second): outbox.VerdictGone} {
		verdict, err := judge.Judge(t.Context(), outbox.Claim{Owner: outbox.Owner{Kind: outbox.OwnerProcess, Until: until}})
		require.NoError(t, err)
		require.Equal(t, want, verdict)
	}
}
