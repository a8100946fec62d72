package devserver_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/rowfold/rowfold/devserver"
)

// testTimeout bounds everything that a test waits for.
const testTimeout = time.Minute

// start starts a server that the end of the test stops.
func start(t *testing.T, cfg devserver.Config) *devserver.Server {
	t.Helper()

	server, err := devserver.Start(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })

	return server
}

func dial(t *testing.T, server *devserver.Server) client.Client {
	t.Helper()

	c, err := client.DialContext(t.Context(), client.Options{
		HostPort:          server.HostPort(),
		Namespace:         server.Namespaces()[0],
		Logger:            sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)),
		ConnectionOptions: client.ConnectionOptions{GrpcCompression: &client.GrpcCompressionNone{}},
	})
	require.NoError(t, err)
	t.Cleanup(c.Close)

	return c
}

// runWorker runs a worker with the workflows and activities of the tests. Its pollers have the defaults, as a user's
// would.
func runWorker(t *testing.T, c client.Client, queue string) {
	t.Helper()

	w := worker.New(c, queue, worker.Options{})
	w.RegisterWorkflowWithOptions(echoWorkflow, workflow.RegisterOptions{Name: "Echo"})
	w.RegisterWorkflowWithOptions(stateWorkflow, workflow.RegisterOptions{Name: "State"})
	w.RegisterActivityWithOptions(echoActivity, activity.RegisterOptions{Name: "echo"})
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
}

func timeout(t *testing.T) context.Context {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)

	return ctx
}

// echoWorkflow passes its input through an activity.
func echoWorkflow(ctx workflow.Context, input string) (output string, err error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: testTimeout})
	err = workflow.ExecuteActivity(ctx, "echo", input).Get(ctx, &output)

	return output, err
}

func echoActivity(_ context.Context, input string) (string, error) { return input, nil }

// stateWorkflow is in the state that its last update set, until one sets "done".
func stateWorkflow(ctx workflow.Context) (string, error) {
	var states []string

	err := workflow.SetUpdateHandler(ctx, "set", func(ctx workflow.Context, state string) (string, error) {
		states = append(states, state)

		return state, workflow.UpsertTypedSearchAttributes(ctx, attributeState().ValueSet(state))
	})
	if err != nil {
		return "", err
	}

	err = workflow.Await(ctx, func() bool {
		return len(states) > 0 && states[len(states)-1] == "done" && workflow.AllHandlersFinished(ctx)
	})

	return strings.Join(states, ","), err
}

func attributeState() temporal.SearchAttributeKeyKeyword {
	return temporal.NewSearchAttributeKeyKeyword(devserver.AttributeState)
}

func get(t *testing.T, url string) string {
	t.Helper()

	request, err := http.NewRequestWithContext(timeout(t), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)

	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)

	defer func() { require.NoError(t, response.Body.Close()) }()

	require.Equal(t, http.StatusOK, response.StatusCode)

	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)

	return string(body)
}
