package workflows_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/temporalproto"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/rowfold/rowfold/workflows"
)

// update records the histories anew: go test ./workflows -run OnServer -update.
var update = flag.Bool("update", false, "record the histories of testsuite/histories anew")

const histories = "../testsuite/histories"

// recordHistory writes the history of a closed run to <name>.json when the flag -update is
// given. A name begins with the workflow's type: "ConsumeShard-gap".
func recordHistory(t *testing.T, temporal client.Client, name, workflowID, runID string) {
	t.Helper()
	if !*update {
		return
	}
	recorded := fetchHistory(t, temporal, workflowID, runID)
	for _, one := range recorded.GetEvents() {
		// A sticky queue is named after the machine.
		if queue := one.GetWorkflowTaskScheduledEventAttributes().GetTaskQueue(); queue.GetKind() == enumspb.TASK_QUEUE_KIND_STICKY {
			queue.Name = "sticky"
		}
	}
	text, err := temporalproto.CustomJSONMarshalOptions{Indent: " "}.Marshal(recorded)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(histories, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(histories, name+".json"), append(text, '\n'), 0o644))
}

func fetchHistory(t *testing.T, temporal client.Client, workflowID, runID string) *historypb.History {
	t.Helper()
	history := &historypb.History{}
	events := temporal.GetWorkflowHistory(t.Context(), workflowID, runID, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		next, err := events.Next()
		require.NoError(t, err)
		history.Events = append(history.Events, next)
	}
	return history
}

func readHistory(t *testing.T, file string) *historypb.History {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	history, err := client.HistoryFromJSON(bytes.NewReader(text), client.HistoryJSONOptions{})
	require.NoError(t, err)
	return history
}

// replay replays a history under its own workflow id, from which a consumer makes those of its
// followers.
func replay(history *historypb.History) error {
	replayer := worker.NewWorkflowReplayer()
	workflows.Register(replayer, workflows.Options{})
	started := history.GetEvents()[0].GetWorkflowExecutionStartedEventAttributes()
	return replayer.ReplayWorkflowHistoryWithOptions(silent{}, history, worker.ReplayWorkflowHistoryOptions{
		OriginalExecution: workflow.Execution{ID: started.GetWorkflowId(), RunID: started.GetOriginalExecutionRunId()},
	})
}

// T-5: every recorded history replays.
func TestReplay(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(histories, "*.json"))
	require.NoError(t, err)
	recorded := map[string]bool{}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		typeName, _, _ := strings.Cut(name, "-")
		recorded[typeName] = true
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, replay(readHistory(t, file)))
		})
	}
	for _, typeName := range []string{
		workflows.TypeApplyBatch, workflows.TypeCatchUpInstance, workflows.TypeConsumeStream, workflows.TypeConsumeShard,
		workflows.TypePurgeTombstones,
	} {
		require.True(t, recorded[typeName], "no history of %s is recorded", typeName)
	}
}

// T-5: a history whose commands come in another order does not replay.
func TestReplay_otherCommands(t *testing.T) {
	t.Parallel()
	history := readHistory(t, filepath.Join(histories, "ApplyBatch-applied.json"))
	for _, one := range history.GetEvents() {
		if scheduled := one.GetActivityTaskScheduledEventAttributes(); scheduled != nil {
			scheduled.ActivityType.Name = "SomethingElse"
		}
	}
	require.ErrorContains(t, replay(history), "nondeterministic workflow")
}
