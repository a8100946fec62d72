package starter

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/workflows"
)

// Run is a workflow of the deployment, as Temporal tells it without a worker.
type Run struct {
	WorkflowID string              `json:"workflowId"`
	RunID      string              `json:"runId"`
	Type       string              `json:"type"`
	Status     string              `json:"status"` // Running, Completed, Failed …
	Started    time.Time           `json:"started"`
	State      workflows.StateMemo `json:"state"` // the zero value = it has not said anything yet
}

// Pending is an activity of a run that has not completed.
type Pending struct {
	Activity string    `json:"activity"`
	State    string    `json:"state"` // Scheduled, Started …
	Attempt  int       `json:"attempt"`
	Since    time.Time `json:"since,omitzero"` // when its last attempt started, or was to
	Worker   string    `json:"worker,omitempty"`
	Error    string    `json:"error,omitempty"` // why the attempt before failed
}

// RowReport says what a row's drain does or waits for.
type RowReport struct {
	Row outbox.Row `json:"row"`
	// Run is the last run of the drain; nil = there was none, or its retention is over.
	Run     *Run      `json:"run,omitempty"`
	Open    bool      `json:"open"`
	Pending []Pending `json:"pending,omitempty"`
	Pollers int       `json:"pollers"` // workers that poll the task queue for activities
	// Drain is what the drain itself says; nil = no worker answered in time.
	Drain *workflows.DrainState `json:"drain,omitempty"`
}

// Row reports what a row waits for. It answers without workers; Drain is filled in when one
// answers within the patience. The error is Temporal's.
func (s *Starter) Row(ctx context.Context, row outbox.Row, patience time.Duration) (RowReport, error) {
	report := RowReport{Row: row}
	var err error
	if report.Pollers, err = s.Pollers(ctx); err != nil {
		return report, err
	}
	id := s.ids.DrainRow(row)
	described, err := s.config.Client.DescribeWorkflowExecution(ctx, id, "")
	if _, ok := errors.AsType[*serviceerror.NotFound](err); ok {
		return report, nil
	}
	if err != nil {
		return report, fmt.Errorf("describe %s: %w", id, err)
	}
	run := s.runOf(described.GetWorkflowExecutionInfo())
	report.Run = &run
	report.Open = described.GetWorkflowExecutionInfo().GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
	for _, pending := range described.GetPendingActivities() {
		report.Pending = append(report.Pending, pendingOf(pending))
	}
	if report.Open && report.Pollers > 0 {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		if answer, err := s.config.Client.QueryWorkflow(ctx, id, "", workflows.QueryState); err == nil {
			state := &workflows.DrainState{}
			if answer.Get(state) == nil {
				report.Drain = state
			}
		}
	}
	return report, nil
}

// Pollers returns how many workers poll the task queue for activities. The error is
// Temporal's.
func (s *Starter) Pollers(ctx context.Context) (int, error) {
	described, err := s.config.Client.DescribeTaskQueue(ctx, s.config.TaskQueue, enumspb.TASK_QUEUE_TYPE_ACTIVITY)
	if err != nil {
		return 0, fmt.Errorf("describe task queue %s: %w", s.config.TaskQueue, err)
	}
	return len(described.GetPollers()), nil
}

// Runs lists the open runs of the deployment, at most limit, newest first; of one projection
// if it is not empty. It needs no worker. The error is Temporal's.
func (s *Starter) Runs(ctx context.Context, projection string, limit int) ([]Run, error) {
	query := fmt.Sprintf("ExecutionStatus = 'Running' AND WorkflowId STARTS_WITH '%s/'", quoted(s.config.Deployment))
	var runs []Run
	var page []byte
	for {
		answer, err := s.config.Client.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
			Namespace: s.config.Namespace, Query: query, NextPageToken: page,
			PageSize: int32(min(limit, 1000)), //nolint:gosec // G115: bounded
		})
		if err != nil {
			return nil, fmt.Errorf("list workflows: %w", err)
		}
		for _, info := range answer.GetExecutions() {
			run := s.runOf(info)
			if projection != "" && !ofProjection(run, projection) {
				continue
			}
			if runs = append(runs, run); len(runs) == limit {
				return runs, nil
			}
		}
		if page = answer.GetNextPageToken(); len(page) == 0 {
			return runs, nil
		}
	}
}

// ofProjection reports whether a run is about a projection, by the third part of its id.
func ofProjection(run Run, projection string) bool {
	parts := strings.Split(run.WorkflowID, "/")
	return len(parts) > 2 && parts[2] == workflows.EscapeID(projection)
}

func quoted(text string) string { return strings.ReplaceAll(text, "'", "''") }

func (s *Starter) runOf(info *workflowpb.WorkflowExecutionInfo) Run {
	run := Run{
		WorkflowID: info.GetExecution().GetWorkflowId(), RunID: info.GetExecution().GetRunId(),
		Type: info.GetType().GetName(), Status: info.GetStatus().String(), Started: info.GetStartTime().AsTime(),
	}
	if payload, found := info.GetMemo().GetFields()[workflows.MemoState]; found {
		_ = s.config.DataConverter.FromPayload(payload, &run.State) // of another converter: it stays empty
	}
	return run
}

func pendingOf(info *workflowpb.PendingActivityInfo) Pending {
	pending := Pending{
		Activity: info.GetActivityType().GetName(), State: info.GetState().String(), Attempt: int(info.GetAttempt()),
		Worker: info.GetLastWorkerIdentity(), Error: info.GetLastFailure().GetMessage(),
	}
	if started := info.GetLastStartedTime(); started != nil {
		pending.Since = started.AsTime()
	} else if scheduled := info.GetScheduledTime(); scheduled != nil {
		pending.Since = scheduled.AsTime()
	}
	return pending
}

// Progress asks a consumer how far it is. The error is Temporal's, and that of a worker that
// does not answer.
func (s *Starter) Progress(ctx context.Context, consumer, feed string) (workflows.StreamState, error) {
	var state workflows.StreamState
	id := s.ids.ConsumeStream(consumer, feed)
	answer, err := s.config.Client.QueryWorkflow(ctx, id, "", workflows.QueryProgress)
	if err == nil {
		err = answer.Get(&state)
	}
	if err != nil {
		return state, fmt.Errorf("ask %s for its progress: %w", id, err)
	}
	return state, nil
}
