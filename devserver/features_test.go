package devserver_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/rowfold/rowfold/devserver"
)

// TestFeatures holds, on one server, what rowfold needs of it.
func TestFeatures(t *testing.T) {
	t.Parallel()

	server := start(t, devserver.Config{UIPort: devserver.NoPort})
	c := dial(t, server)

	const queue = "features"

	runWorker(t, c, queue)

	for name, test := range map[string]func(*testing.T, client.Client, string){
		"search attributes":   testSearchAttributes,
		"update with start":   testUpdateWithStart,
		"schedule":            testSchedule,
		"standalone activity": testStandaloneActivity,
		"fairness":            testFairness,
		"capabilities":        testCapabilities,
		"eager start":         testEagerStart,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, c, queue)
		})
	}
}

func testSearchAttributes(t *testing.T, c client.Client, queue string) {
	t.Helper()

	ctx := timeout(t)
	row := temporal.NewSearchAttributeKeyKeyword(devserver.AttributeRow)
	projection := temporal.NewSearchAttributeKeyKeyword(devserver.AttributeProjection)

	_, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID:                    "attributes",
		TaskQueue:             queue,
		TypedSearchAttributes: temporal.NewSearchAttributes(row.ValueSet("order-7"), projection.ValueSet("orders")),
	}, "State")
	require.NoError(t, err)
	update(t, c, "attributes", "parked")

	query := fmt.Sprintf(`%s = "orders" AND %s = "order-7" AND %s = "parked" AND ExecutionStatus = "Running"`,
		devserver.AttributeProjection, devserver.AttributeRow, devserver.AttributeState)
	requireListed(t, c, query, "attributes")

	update(t, c, "attributes", "done")
}

func testUpdateWithStart(t *testing.T, c client.Client, queue string) {
	t.Helper()

	ctx := timeout(t)

	for _, state := range []string{"draining", "done"} { // the first starts the workflow, the second finds it
		start := c.NewWithStartWorkflowOperation(client.StartWorkflowOptions{
			ID:                       "update-with-start",
			TaskQueue:                queue,
			WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		}, "State")

		handle, err := c.UpdateWithStartWorkflow(ctx, client.UpdateWithStartWorkflowOptions{
			StartWorkflowOperation: start,
			UpdateOptions: client.UpdateWorkflowOptions{
				UpdateName:   "set",
				Args:         []any{state},
				WaitForStage: client.WorkflowUpdateStageCompleted,
			},
		})
		require.NoError(t, err)

		var answer string

		require.NoError(t, handle.Get(ctx, &answer))
		require.Equal(t, state, answer)
	}

	var states string

	require.NoError(t, c.GetWorkflow(ctx, "update-with-start", "").Get(ctx, &states))
	require.Equal(t, "draining,done", states)
}

func testSchedule(t *testing.T, c client.Client, queue string) {
	t.Helper()

	ctx := timeout(t)

	handle, err := c.ScheduleClient().Create(ctx, client.ScheduleOptions{
		ID:   "sweep",
		Spec: client.ScheduleSpec{Intervals: []client.ScheduleIntervalSpec{{Every: time.Hour}}},
		Action: &client.ScheduleWorkflowAction{
			ID: "scheduled", Workflow: "Echo", Args: []any{"swept"}, TaskQueue: queue,
		},
		TriggerImmediately: true,
	})
	require.NoError(t, err)

	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		description, err := handle.Describe(ctx)
		require.NoError(collect, err)
		require.NotEmpty(collect, description.Info.RecentActions)

		id := description.Info.RecentActions[0].StartWorkflowResult.WorkflowID

		var answer string

		require.NoError(collect, c.GetWorkflow(ctx, id, "").Get(ctx, &answer))
		require.Equal(collect, "swept", answer)
	}, testTimeout, 50*time.Millisecond)

	require.NoError(t, handle.Delete(ctx))
}

func testStandaloneActivity(t *testing.T, c client.Client, queue string) {
	t.Helper()

	ctx := timeout(t)
	options := client.StartActivityOptions{
		ID:                       "effect-1",
		TaskQueue:                queue,
		ScheduleToCloseTimeout:   testTimeout,
		ActivityIDConflictPolicy: enumspb.ACTIVITY_ID_CONFLICT_POLICY_USE_EXISTING,
		ActivityIDReusePolicy:    enumspb.ACTIVITY_ID_REUSE_POLICY_ALLOW_DUPLICATE_FAILED_ONLY,
	}

	handle, err := c.ExecuteActivity(ctx, options, "echo", "delivered")
	require.NoError(t, err)

	var answer string

	require.NoError(t, handle.Get(ctx, &answer))
	require.Equal(t, "delivered", answer)

	// A delivery that has succeeded is not repeated.
	_, err = c.ExecuteActivity(ctx, options, "echo", "delivered again")
	require.Error(t, err)
	require.ErrorContains(t, err, "already")
}

func testFairness(t *testing.T, c client.Client, queue string) {
	t.Helper()

	ctx := timeout(t)

	run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID:        "fair",
		TaskQueue: queue,
		Priority:  temporal.Priority{PriorityKey: 1, FairnessKey: "tenant-1", FairnessWeight: 2},
	}, "Echo", "fair")
	require.NoError(t, err)
	require.NoError(t, run.Get(ctx, nil))
}

func testCapabilities(t *testing.T, c client.Client, _ string) {
	t.Helper()

	namespace, err := c.WorkflowService().DescribeNamespace(timeout(t),
		&workflowservice.DescribeNamespaceRequest{Namespace: "default"})
	require.NoError(t, err)

	capabilities := namespace.GetNamespaceInfo().GetCapabilities()
	require.True(t, capabilities.GetPollerAutoscaling())
	require.True(t, capabilities.GetPollerAutoscalingAutoEnroll())
	require.True(t, capabilities.GetStandaloneActivities())
	require.True(t, capabilities.GetWorkflowPause())
	require.Equal(t, 72*time.Hour, namespace.GetConfig().GetWorkflowExecutionRetentionTtl().AsDuration())
}

func testEagerStart(t *testing.T, c client.Client, queue string) {
	t.Helper()

	ctx := timeout(t)

	run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: "eager", TaskQueue: queue, EnableEagerStart: true,
	}, "Echo", "eager")
	require.NoError(t, err)
	require.NoError(t, run.Get(ctx, nil))
}

// update sends the update "set" to a State workflow and waits for it.
func update(t *testing.T, c client.Client, id, state string) {
	t.Helper()

	ctx := timeout(t)

	handle, err := c.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		WorkflowID: id, UpdateName: "set", Args: []any{state}, WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	require.NoError(t, err)
	require.NoError(t, handle.Get(ctx, nil))
}

// requireListed waits until the query finds the workflow: visibility follows a moment later.
func requireListed(t *testing.T, c client.Client, query, id string) {
	t.Helper()

	ctx := timeout(t)

	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		found, err := listIDs(ctx, c, query)
		require.NoError(collect, err)
		require.Equal(collect, []string{id}, found)
	}, testTimeout, 20*time.Millisecond)
}

func listIDs(ctx context.Context, c client.Client, query string) ([]string, error) {
	response, err := c.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{Query: query})
	if err != nil {
		return nil, err
	}

	ids := make([]string, 0, len(response.GetExecutions()))
	for _, execution := range response.GetExecutions() {
		ids = append(ids, execution.GetExecution().GetWorkflowId())
	}

	return ids, nil
}
