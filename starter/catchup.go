package starter

import (
	"context"
	"errors"
	"fmt"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/rowfold/rowfold/activities"
	"github.com/rowfold/rowfold/projection"
	"github.com/rowfold/rowfold/workflows"
)

var _ activities.CatchUps = (*Starter)(nil)

// EnsureCatchUp starts the catch-up of a parked instance unless one is running. The error is
// Temporal's.
func (s *Starter) EnsureCatchUp(ctx context.Context, name string, instance projection.Instance) error {
	_, err := s.CatchUp(ctx, name, instance)
	return err
}

// CatchUp is [Starter.EnsureCatchUp] that returns the run.
func (s *Starter) CatchUp(ctx context.Context, name string, instance projection.Instance) (run client.WorkflowRun, err error) {
	what := s.catchUpOf(name, instance)
	err = s.attempt(ctx, what, func(options client.StartWorkflowOptions) (err error) {
		options.WorkflowIDConflictPolicy = enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING
		run, err = s.config.Client.ExecuteWorkflow(ctx, options, what.workflow, what.input)
		return err //nolint:wrapcheck // wrapped below
	})
	if started, ok := errors.AsType[*serviceerror.WorkflowExecutionAlreadyStarted](err); ok {
		return s.config.Client.GetWorkflow(ctx, what.id, started.RunId), nil
	}
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", what.id, err)
	}
	return run, nil
}

// RetryInstance lets a parked instance be tried again now. Errors: *[OrderRefused],
// Temporal's.
func (s *Starter) RetryInstance(ctx context.Context, name string, instance projection.Instance, who string) (workflows.Retried, error) {
	return order[workflows.Retried](ctx, s, s.catchUpOf(name, instance), workflows.UpdateRetry, workflows.Retry{Who: who})
}

// SkipEvent passes over one event of a parked instance, on the record. Errors:
// *[OrderRefused] when the event is not the one in the way, Temporal's.
func (s *Starter) SkipEvent(
	ctx context.Context, name string, instance projection.Instance, skip workflows.SkipEvent,
) (workflows.SkipEvent, error) {
	return order[workflows.SkipEvent](ctx, s, s.catchUpOf(name, instance), workflows.UpdateSkip, skip)
}

// catchUpOf describes the catch-up of an instance.
func (s *Starter) catchUpOf(name string, instance projection.Instance) start {
	input := s.config.CatchUp
	input.Projection, input.Source, input.StreamID = name, instance.Source, instance.StreamID
	input.Name = s.ids.InstanceName(name, instance)
	return start{
		id: s.ids.CatchUpInstance(name, instance), workflow: workflows.TypeCatchUpInstance, input: input.WithDefaults(),
		about:   fmt.Sprintf("instance %s#%s of projection %s", instance.Source, input.Name, name),
		summary: fmt.Sprintf("catch up %s, %s#%s", name, instance.Source, input.Name),
		state:   workflows.StateCatchingUp, projection: name, priority: priorityApply,
	}
}
