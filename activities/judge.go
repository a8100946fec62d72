package activities

import (
	"context"
	"errors"
	"fmt"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"

	"github.com/rowfold/rowfold/outbox"
)

// sameStart is how far two readings of one start may be apart: stores keep less of a
// second than Temporal does, and two attempts never start that close to one another.
const sameStart = time.Millisecond

// Describer describes a run. Every Temporal client's WorkflowService is one.
type Describer interface {
	DescribeWorkflowExecution(ctx context.Context, request *workflowservice.DescribeWorkflowExecutionRequest,
		options ...grpc.CallOption) (*workflowservice.DescribeWorkflowExecutionResponse, error)
}

// Judge decides about foreign claims: those of Temporal executions by describing the
// owner's run, never by visibility, which lags behind; those of processes by their end.
type Judge struct {
	// Temporal describes runs. Required.
	Temporal Describer
	// Clock judges the claims of processes.
	Clock outbox.ClockJudge
}

var _ outbox.Judge = Judge{}

// Judge implements [outbox.Judge]. An owner is gone when its run is closed or not
// found, when its activity is not pending or waits for its next attempt, or when the
// attempt that runs started at another time: attempt numbers repeat after a reset, the
// time of the start does not. When Temporal cannot be reached the owner counts as
// working, and the error says why.
func (j Judge) Judge(ctx context.Context, claim outbox.Claim) (outbox.Verdict, error) {
	if claim.Kind != outbox.OwnerTemporal {
		return j.Clock.Judge(ctx, claim)
	}
	described, err := j.Temporal.DescribeWorkflowExecution(ctx, &workflowservice.DescribeWorkflowExecutionRequest{
		Namespace: claim.Namespace,
		Execution: &commonpb.WorkflowExecution{WorkflowId: claim.WorkflowID, RunId: claim.RunID},
	})
	var notFound *serviceerror.NotFound
	switch {
	case errors.As(err, &notFound):
		return outbox.VerdictGone, nil
	case err != nil:
		return outbox.VerdictWorking, fmt.Errorf("describe the owner's run %s/%s: %w", claim.WorkflowID, claim.RunID, err)
	}
	if !isOpen(described.GetWorkflowExecutionInfo().GetStatus()) {
		return outbox.VerdictGone, nil
	}
	for _, pending := range described.GetPendingActivities() {
		if pending.GetActivityId() == claim.ActivityID {
			return judgePending(pending, claim), nil
		}
	}
	return outbox.VerdictGone, nil
}

// isOpen reports whether a run of a status has not ended: one that is paused goes on later.
func isOpen(status enumspb.WorkflowExecutionStatus) bool {
	return status == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING || status == enumspb.WORKFLOW_EXECUTION_STATUS_PAUSED
}

func judgePending(pending *workflowpb.PendingActivityInfo, claim outbox.Claim) outbox.Verdict {
	switch pending.GetState() {
	case enumspb.PENDING_ACTIVITY_STATE_SCHEDULED, enumspb.PENDING_ACTIVITY_STATE_PAUSED:
		return outbox.VerdictGone // its last attempt has failed or timed out, and no other one runs
	case enumspb.PENDING_ACTIVITY_STATE_UNSPECIFIED, enumspb.PENDING_ACTIVITY_STATE_STARTED,
		enumspb.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED, enumspb.PENDING_ACTIVITY_STATE_PAUSE_REQUESTED:
	}
	started := pending.GetLastStartedTime()
	if started == nil || started.AsTime().Sub(claim.StartedAt).Abs() >= sameStart {
		return outbox.VerdictGone
	}
	return outbox.VerdictWorking
}
