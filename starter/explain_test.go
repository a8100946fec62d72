package starter_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/starter"
	"github.com/rowfold/rowfold/workflows"
)

// T-20: `why` says what a row waits for, since when, and which command helps.
func TestExplain(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	memo := func(state string) starter.Run {
		return starter.Run{Started: since.Add(-time.Hour), State: workflows.StateMemo{
			State: state, Since: since, About: "e1", Attempts: 3, Class: event.ClassRetry, Error: "full",
		}}
	}
	blocked := func(claim outbox.Claim, reason string) *workflows.DrainState {
		return &workflows.DrainState{State: workflows.StateDraining, Blocked: &outbox.Blocked{ID: "e1", Since: since, Claim: claim, Reason: reason}}
	}
	run := memo("")
	orders := []string{"rowfold retry p a", "rowfold skip p a", "rowfold park p a"}
	for name, test := range map[string]struct {
		report starter.RowReport
		want   starter.Explanation
	}{
		"parked, by the memo": {starter.RowReport{Run: new(memo(workflows.StateParked))}, starter.Explanation{
			Waits: `an operator has to decide: effect e1 failed 3 times, at last with "full" (retry)`, Since: since, Next: orders,
		}},
		"retrying, by the drain": {starter.RowReport{Run: &run, Drain: &workflows.DrainState{
			State: workflows.StateRetrying, Since: since.Add(time.Minute), Head: &outbox.Failure{ID: "e2", Attempts: 6, Error: "closed", Class: event.ClassThrottled},
		}}, starter.Explanation{
			Waits: `the next attempt: effect e2 failed 6 times, at last with "closed" (throttled)`, Since: since.Add(time.Minute), Next: orders,
		}},
		"blocked by a workflow": {starter.RowReport{Run: &run, Drain: blocked(outbox.Claim{Owner: outbox.Owner{
			Kind: outbox.OwnerTemporal, WorkflowID: "w", RunID: "r", ActivityID: "5",
		}}, "away")}, starter.Explanation{
			Waits: "activity 5 of workflow w, run r, which has claimed effect e1, and it is not known whether that works: away",
			Since: since, Next: []string{"rowfold why p a"},
		}},
		"blocked by a process": {starter.RowReport{Run: &run, Drain: blocked(outbox.Claim{Owner: outbox.Owner{
			Kind: outbox.OwnerProcess, Until: since.Add(time.Minute),
		}}, "")}, starter.Explanation{
			Waits: "a process that has claimed effect e1, until 2026-01-01T00:01:00Z", Since: since, Next: []string{"rowfold why p a"},
		}},
		"an attempt that failed": {
			starter.RowReport{Run: &run, Pending: []starter.Pending{{Activity: "DrainOutbox", Attempt: 4, Since: since, Error: "no database"}}},
			starter.Explanation{Waits: `attempt 4 of activity DrainOutbox, because of "no database"`, Since: since},
		},
		"at work": {
			starter.RowReport{Run: &run, Pending: []starter.Pending{{Activity: "DrainOutbox", Since: since, Worker: "1@host"}}},
			starter.Explanation{Waits: "activity DrainOutbox on worker 1@host", Since: since},
		},
		"nobody takes it": {
			starter.RowReport{Run: &run, Pending: []starter.Pending{{Activity: "DrainOutbox", Since: since}}},
			starter.Explanation{Waits: "a worker that takes activity DrainOutbox", Since: since},
		},
		"between two activities": {starter.RowReport{Run: &run}, starter.Explanation{Waits: "its drain is under way", Since: run.Started}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.report.Row, test.report.Open, test.report.Pollers = outbox.Row{Projection: "p", Key: "a"}, true, 1
			require.Equal(t, test.want, test.report.Explain())
		})
	}
}
