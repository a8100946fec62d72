package temporaltest_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/rowfold/rowfold/internal/temporaltest"
)

func TestClient(t *testing.T) {
	t.Parallel()

	temporal, prefix := temporaltest.Client(t), temporaltest.Prefix(t)
	startEcho(t, temporal, prefix)

	run, err := temporal.ExecuteWorkflow(t.Context(),
		client.StartWorkflowOptions{ID: prefix + "/echo", TaskQueue: prefix}, echo, "hello")
	require.NoError(t, err)

	var answer string

	require.NoError(t, run.Get(t.Context(), &answer))
	require.Equal(t, "hello", answer)
}

func TestAddress_isShared(t *testing.T) {
	t.Parallel()

	first := temporaltest.Address(t)
	require.Equal(t, first, temporaltest.Address(t))
}

func TestPrefix(t *testing.T) {
	t.Parallel()

	t.Run("sub/test with 'quotes' and a name that is much longer than anybody would want to read in a list", func(t *testing.T) {
		t.Parallel()

		first, second := temporaltest.Prefix(t), temporaltest.Prefix(t)

		require.NotEqual(t, first, second)
		require.Regexp(t, `^TestPrefix_sub_test_with__quotes__[a-z_]+-[a-z2-7]{10}$`, first)
		require.LessOrEqual(t, len(first), 75)
	})
}

// echo returns its input, after a signal if it asks for one.
func echo(ctx workflow.Context, input string) (string, error) {
	if input == "" {
		workflow.GetSignalChannel(ctx, "input").Receive(ctx, &input)
	}

	return input, nil
}

// startEcho runs a worker with the workflow echo until the end of the test.
func startEcho(t *testing.T, temporal client.Client, queue string) {
	t.Helper()

	w := worker.New(temporal, queue, worker.Options{})
	w.RegisterWorkflow(echo)
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
}
