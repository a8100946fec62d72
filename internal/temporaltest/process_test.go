package temporaltest_test

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/rowfold/rowfold/internal/temporaltest"
)

func TestProcess_workflowSurvivesKill(t *testing.T) {
	t.Parallel()

	server := temporaltest.StartProcess(t, temporaltest.Options{Database: filepath.Join(t.TempDir(), "temporal.db")})
	address := server.Address()
	temporal, prefix := temporaltest.Dial(t, address), temporaltest.Prefix(t)
	startEcho(t, temporal, prefix)

	run, err := temporal.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{
		ID:        prefix + "/echo",
		TaskQueue: prefix,
		// The kill may hit a workflow task; by default the server would wait ten seconds for its answer.
		WorkflowTaskTimeout: time.Second,
	}, echo, "")
	require.NoError(t, err)

	server.Kill()
	requireClosed(t, address)

	server.Restart()
	require.Equal(t, address, server.Address())

	// The same client and worker go on: the address is the same.
	require.NoError(t, temporal.SignalWorkflow(t.Context(), run.GetID(), "", "input", "still here"))

	var answer string

	require.NoError(t, run.Get(t.Context(), &answer))
	require.Equal(t, "still here", answer)
}

func TestProcess_Stop(t *testing.T) {
	t.Parallel()

	server := temporaltest.StartProcess(t, temporaltest.Options{})

	server.Stop()
	requireClosed(t, server.Address())
	server.Stop()
	server.Kill()
}

func requireClosed(t *testing.T, address string) {
	t.Helper()

	connection, err := net.DialTimeout("tcp", address, time.Second)
	if err == nil {
		_ = connection.Close()
	}

	require.Error(t, err, "%s should be closed", address)
}
