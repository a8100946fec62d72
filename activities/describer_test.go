package activities_test

import (
	"context"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/grpc"

	"github.com/rowfold/rowfold/activities"
)

// describer knows runs by their workflow ids; the others are not found.
type describer map[string]described

type described struct {
	status   enumspb.WorkflowExecutionStatus
	progress *activities.Progress // that its FollowShard has told; nil = none runs
	err      error
}

// DescribeWorkflowExecution implements activities.Describer.
func (d describer) DescribeWorkflowExecution(
	_ context.Context, request *workflowservice.DescribeWorkflowExecutionRequest, _ ...grpc.CallOption,
) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	run, found := d[request.GetExecution().GetWorkflowId()]
	switch {
	case !found:
		return nil, serviceerror.NewNotFound("no such workflow")
	case run.err != nil:
		return nil, run.err
	}
	response := &workflowservice.DescribeWorkflowExecutionResponse{
		WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{Status: run.status},
	}
	if run.progress != nil {
		details, err := converter.GetDefaultDataConverter().ToPayloads(run.progress)
		if err != nil {
			return nil, err
		}
		response.PendingActivities = []*workflowpb.PendingActivityInfo{
			{ActivityType: &commonpb.ActivityType{Name: "Other"}, HeartbeatDetails: details},
			{ActivityType: &commonpb.ActivityType{Name: activities.FollowShard}, HeartbeatDetails: details},
		}
	}
	return response, nil
}
