package starter

import (
	"context"
	"errors"
	"fmt"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/workflows"
)

// OrderRefused is returned for an operator's order that was not carried out.
type OrderRefused struct {
	About  string // the row, instance or consumer
	Verb   string // such as retry, skip or park
	Type   string // of the workflow's error, such as workflows.ErrorInvalidInput
	Reason string
}

// Error implements error.
func (e *OrderRefused) Error() string { return fmt.Sprintf("%s %s: %s", e.Verb, e.About, e.Reason) }

// Retry lets a row's head be tried again now, whether it waits for its time or for an
// operator. Errors: *[OrderRefused], Temporal's.
func (s *Starter) Retry(ctx context.Context, row outbox.Row, who string) (workflows.Retried, error) {
	return order[workflows.Retried](ctx, s, s.drainOf(row), workflows.UpdateRetry, workflows.Retry{Who: who})
}

// Skip drops the head of a row's queue without delivering it, on the record. Errors:
// *[OrderRefused] when the effect is not the head (any more), Temporal's.
func (s *Starter) Skip(ctx context.Context, row outbox.Row, decision workflows.Decision) (workflows.Decided, error) {
	return order[workflows.Decided](ctx, s, s.drainOf(row), workflows.UpdateSkip, decision)
}

// Park moves the head of a row's queue to the parked store, on the record: later effects
// overtake it. Errors are those of [Starter.Skip].
func (s *Starter) Park(ctx context.Context, row outbox.Row, decision workflows.Decision) (workflows.Decided, error) {
	return order[workflows.Decided](ctx, s, s.drainOf(row), workflows.UpdatePark, decision)
}

// order sends an update to a workflow, which it starts where none is open.
func order[R any](ctx context.Context, s *Starter, what start, verb string, input any) (R, error) {
	var result R
	err := s.attempt(ctx, what, func(options client.StartWorkflowOptions) error {
		options.WorkflowIDConflictPolicy = enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING
		handle, err := s.config.Client.UpdateWithStartWorkflow(ctx, client.UpdateWithStartWorkflowOptions{
			StartWorkflowOperation: s.config.Client.NewWithStartWorkflowOperation(options, what.workflow, what.input),
			UpdateOptions: client.UpdateWorkflowOptions{
				UpdateName: verb, Args: []any{input}, WaitForStage: client.WorkflowUpdateStageCompleted,
			},
		})
		if err != nil {
			return err //nolint:wrapcheck // wrapped below
		}
		return handle.Get(ctx, &result)
	})
	return result, refusal(err, what.about, verb)
}

// refusal tells an order that was refused from one that did not arrive. refusal(nil) is nil.
func refusal(err error, about, verb string) error {
	if refused, ok := errors.AsType[*temporal.ApplicationError](err); ok {
		return &OrderRefused{About: about, Verb: verb, Type: refused.Type(), Reason: refused.Message()}
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", verb, about, err)
	}
	return nil
}
