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
	Row    outbox.Row
	Verb   string // retry, skip or park
	Type   string // of the workflow's error, such as workflows.ErrorInvalidInput
	Reason string
}

// Error implements error.
func (e *OrderRefused) Error() string { return fmt.Sprintf("%s row %s: %s", e.Verb, e.Row, e.Reason) }

// Retry lets a row's head be tried again now, whether it waits for its time or for an
// operator. Errors: *[OrderRefused], Temporal's.
func (s *Starter) Retry(ctx context.Context, row outbox.Row, who string) (workflows.Retried, error) {
	return order[workflows.Retried](ctx, s, row, workflows.UpdateRetry, workflows.Retry{Who: who})
}

// Skip drops the head of a row's queue without delivering it, on the record. Errors:
// *[OrderRefused] when the effect is not the head (any more), Temporal's.
func (s *Starter) Skip(ctx context.Context, row outbox.Row, decision workflows.Decision) (workflows.Decided, error) {
	return order[workflows.Decided](ctx, s, row, workflows.UpdateSkip, decision)
}

// Park moves the head of a row's queue to the parked store, on the record: later effects
// overtake it. Errors are those of [Starter.Skip].
func (s *Starter) Park(ctx context.Context, row outbox.Row, decision workflows.Decision) (workflows.Decided, error) {
	return order[workflows.Decided](ctx, s, row, workflows.UpdatePark, decision)
}

// order sends an update to the row's drain, which it starts where none is open.
func order[R any](ctx context.Context, s *Starter, row outbox.Row, verb string, input any) (R, error) {
	var result R
	what := s.drainOf(row)
	err := s.withoutAttributes(ctx, func() error {
		options, err := s.options(what)
		if err != nil {
			return err
		}
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
	var refused *temporal.ApplicationError
	switch {
	case errors.As(err, &refused):
		return result, &OrderRefused{Row: row, Verb: verb, Type: refused.Type(), Reason: refused.Message()}
	case err != nil:
		return result, fmt.Errorf("%s row %s: %w", verb, row, err)
	default:
		return result, nil
	}
}
