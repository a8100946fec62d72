package starter

import (
	"context"
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/rowfold/rowfold/workflows"
)

// ScheduleSweep makes a schedule that sweeps a projection's pending rows, or changes the one
// that is there. A run that is still under way lets the next one wait for its turn.
func (s *Starter) ScheduleSweep(ctx context.Context, every time.Duration, input workflows.SweepOutbox) error {
	what, err := s.sweepOf(input)
	if err != nil {
		return err
	}
	return s.schedule(ctx, every, what)
}

// SchedulePurge makes a schedule that removes a projection's expired tombstones, or changes
// the one that is there.
func (s *Starter) SchedulePurge(ctx context.Context, every time.Duration, input workflows.PurgeTombstones) error {
	input = input.WithDefaults()
	if err := input.Validate(); err != nil {
		return err
	}
	return s.schedule(ctx, every, start{
		id: s.ids.PurgeTombstones(input.Projection), workflow: workflows.TypePurgeTombstones, input: input,
		summary: "purge tombstones of " + input.Projection, projection: input.Projection, priority: priorityBackground,
	})
}

func (s *Starter) schedule(ctx context.Context, every time.Duration, what start) error {
	if every <= 0 {
		return &InvalidSchedule{ID: what.id, Every: every}
	}
	options, err := s.options(what)
	if err != nil {
		return err
	}
	action := &client.ScheduleWorkflowAction{
		ID: what.id, Workflow: what.workflow, Args: []any{what.input}, TaskQueue: options.TaskQueue,
		Memo: options.Memo, StaticSummary: options.StaticSummary, Priority: options.Priority,
	}
	spec := client.ScheduleSpec{Intervals: []client.ScheduleIntervalSpec{{Every: every}}}
	_, err = s.config.Client.ScheduleClient().Create(ctx, client.ScheduleOptions{
		ID: what.id, Spec: spec, Action: action, Overlap: enumspb.SCHEDULE_OVERLAP_POLICY_SKIP,
	})
	if errors.Is(err, temporal.ErrScheduleAlreadyRunning) {
		err = s.config.Client.ScheduleClient().GetHandle(ctx, what.id).Update(ctx, client.ScheduleUpdateOptions{
			DoUpdate: func(found client.ScheduleUpdateInput) (*client.ScheduleUpdate, error) {
				changed := found.Description.Schedule
				changed.Spec, changed.Action = &spec, action
				return &client.ScheduleUpdate{Schedule: &changed}, nil
			},
		})
	}
	if err != nil {
		return fmt.Errorf("schedule %s: %w", what.id, err)
	}
	return nil
}

// InvalidSchedule is returned for an interval that is not above zero.
type InvalidSchedule struct {
	ID    string
	Every time.Duration
}

// Error implements error.
func (e *InvalidSchedule) Error() string {
	return fmt.Sprintf("schedule %s: the interval %v is too short: use a second or more", e.ID, e.Every)
}
