package starter

import (
	"context"
	"fmt"
	"slices"

	"go.temporal.io/sdk/client"

	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/workflows"
)

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
	return refusal(s.update(ctx, id, verb, workflows.NoInput{}, nil), "consumer "+id, verb)
}

// update sends an update to an open run and waits for its answer.
func (s *Starter) update(ctx context.Context, id, verb string, input, answer any) error {
	handle, err := s.config.Client.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		WorkflowID: id, UpdateName: verb, Args: []any{input}, WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err != nil {
		return err //nolint:wrapcheck // the callers wrap it
	}
	return handle.Get(ctx, answer) //nolint:wrapcheck // as above
}

// AcceptGap lets a consumer go on without what a shard has lost, on the record. Errors:
// *[OrderRefused] when the shard has no gap, Temporal's.
func (s *Starter) AcceptGap(ctx context.Context, consumer, feed string, gap workflows.AcceptGap) (workflows.Accepted, error) {
	var accepted workflows.Accepted
	id := s.ids.ConsumeStream(consumer, feed)
	err := s.update(ctx, id, workflows.UpdateAcceptGap, gap, &accepted)
	return accepted, refusal(err, "consumer "+id, workflows.UpdateAcceptGap)
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
