package starter

import (
	"context"
	"errors"
	"fmt"
	"slices"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/rowfold/rowfold/activities"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
	"github.com/rowfold/rowfold/workflows"
)

var _ activities.CatchUps = (*Starter)(nil)

// ConsumeStream starts a consumer of a feed, or joins the one that is running with the same
// input. Errors: *[AlreadyRunning], the input's, and Temporal's.
func (s *Starter) ConsumeStream(ctx context.Context, input workflows.ConsumeStream) (client.WorkflowRun, error) {
	input = input.WithDefaults()
	if err := input.Validate(); err != nil {
		return nil, err
	}
	return s.start(ctx, start{
		id: s.ids.ConsumeStream(input.Consumer, input.Feed), workflow: workflows.TypeConsumeStream, input: input,
		summary: fmt.Sprintf("follow %s for %s", input.Feed, input.Consumer),
		state:   workflows.StateFollowing, priority: priorityApply,
	})
}

// StopConsumer lets a consumer finish its pages and complete. Its positions stay.
func (s *Starter) StopConsumer(ctx context.Context, consumer, feed string) error {
	return s.control(ctx, consumer, feed, workflows.UpdateStop)
}

// PauseConsumer lets a consumer finish its pages and wait for [Starter.ResumeConsumer].
func (s *Starter) PauseConsumer(ctx context.Context, consumer, feed string) error {
	return s.control(ctx, consumer, feed, workflows.UpdatePause)
}

// ResumeConsumer ends a pause.
func (s *Starter) ResumeConsumer(ctx context.Context, consumer, feed string) error {
	return s.control(ctx, consumer, feed, workflows.UpdateResume)
}

func (s *Starter) control(ctx context.Context, consumer, feed, verb string) error {
	id := s.ids.ConsumeStream(consumer, feed)
	handle, err := s.config.Client.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		WorkflowID: id, UpdateName: verb, Args: []any{workflows.NoInput{}}, WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err == nil {
		err = handle.Get(ctx, nil)
	}
	if err != nil {
		return fmt.Errorf("%s consumer %s: %w", verb, id, err)
	}
	return nil
}

// EnsureCatchUp starts the catch-up of a parked instance unless one is running.
func (s *Starter) EnsureCatchUp(ctx context.Context, name string, instance projection.Instance) error {
	input := s.config.CatchUp
	input.Projection, input.Source, input.StreamID = name, instance.Source, instance.StreamID
	input.Name = s.ids.InstanceName(name, instance)
	what := start{
		id: s.ids.CatchUpInstance(name, instance), workflow: workflows.TypeCatchUpInstance, input: input.WithDefaults(),
		summary: fmt.Sprintf("catch up %s, %s#%s", name, instance.Source, input.Name),
		state:   workflows.StateCatchingUp, projection: name, priority: priorityApply,
	}
	err := s.withoutAttributes(ctx, func() error {
		options, err := s.options(what)
		if err != nil {
			return err
		}
		options.WorkflowIDConflictPolicy = enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING
		_, err = s.config.Client.ExecuteWorkflow(ctx, options, what.workflow, what.input)
		return err //nolint:wrapcheck // wrapped below
	})
	var started *serviceerror.WorkflowExecutionAlreadyStarted
	if err != nil && !errors.As(err, &started) {
		return fmt.Errorf("start %s: %w", what.id, err)
	}
	return nil
}

// ApplyBatch applies events that are given by reference, in as many workflows as their
// number needs. Each run's id is made from its input, so repeating a call that failed
// joins what is running. Errors: the input's, and Temporal's.
func (s *Starter) ApplyBatch(ctx context.Context, input workflows.ApplyBatch) ([]client.WorkflowRun, error) {
	var runs []client.WorkflowRun
	for part := range slices.Chunk(input.Events, workflows.MaxRanges) {
		batch := input
		batch.Events = part
		batch = batch.WithDefaults()
		if err := batch.Validate(); err != nil {
			return runs, err
		}
		digest, err := digestOf(batch)
		if err != nil {
			return runs, err
		}
		run, err := s.start(ctx, start{
			id: s.ids.ApplyBatch(digest), workflow: workflows.TypeApplyBatch, input: batch,
			summary: fmt.Sprintf("apply %d ranges of events", len(part)), priority: priorityApply,
		})
		if err != nil {
			return runs, err
		}
		runs = append(runs, run)
	}
	return runs, nil
}

// Sweep starts a sweep of a projection's pending rows now, or joins the one that is running
// with the same input. Errors: *[AlreadyRunning], the input's, and Temporal's.
func (s *Starter) Sweep(ctx context.Context, input workflows.SweepOutbox) (client.WorkflowRun, error) {
	what, err := s.sweepOf(input)
	if err != nil {
		return nil, err
	}
	return s.start(ctx, what)
}

func (s *Starter) sweepOf(input workflows.SweepOutbox) (start, error) {
	input = input.WithDefaults()
	if err := input.Validate(); err != nil {
		return start{}, err
	}
	return start{
		id: s.ids.SweepOutbox(input.Projection), workflow: workflows.TypeSweepOutbox, input: input,
		summary: "sweep " + input.Projection, projection: input.Projection, priority: priorityBackground,
	}, nil
}

// Drain wakes the drain of a row and returns its run. The error is Temporal's.
func (s *Starter) Drain(ctx context.Context, row outbox.Row) (client.WorkflowRun, error) {
	run, err := s.signalDrain(ctx, row)
	if err != nil {
		return nil, fmt.Errorf("wake the drain of row %s: %w", row, err)
	}
	return run, nil
}
