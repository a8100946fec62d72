package devserver_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/rowfold/rowfold/devserver"
)

func TestStart_inMemory(t *testing.T) {
	t.Parallel()

	metricsPort := freePort(t)
	server := start(t, devserver.Config{
		Namespaces:  []string{"orders", "billing"},
		MetricsPort: metricsPort,
	})

	require.Equal(t, []string{"orders", "billing"}, server.Namespaces())

	script := regexp.MustCompile(`/_app/immutable/entry/start\.[^"]+\.js`).FindString(get(t, server.UIURL()))
	require.NotEmpty(t, script, "the page loads the application")
	require.Contains(t, get(t, server.UIURL()+script), "import")
	require.Contains(t, get(t, server.UIURL()+"/api/v1/namespaces"), `"billing"`)

	c := dial(t, server)
	runWorker(t, c, "memory")

	run, err := c.ExecuteWorkflow(timeout(t), client.StartWorkflowOptions{TaskQueue: "memory"}, "Echo", "hello")
	require.NoError(t, err)

	var answer string

	require.NoError(t, run.Get(timeout(t), &answer))
	require.Equal(t, "hello", answer)

	metrics := get(t, server.MetricsURL())
	require.Regexp(t, `(?m)^action\{action="start_workflow"|^action\{.*command_ScheduleActivity`, metrics)

	require.NoError(t, server.Stop())
	require.NoError(t, server.Stop(), "a second stop does nothing")

	for _, port := range []int{metricsPort, portOf(t, server.HostPort())} {
		_, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		require.Error(t, err)
	}
}

func TestStart_onAFile(t *testing.T) {
	t.Parallel()

	// The characters mean something in an SQLite URI.
	database := filepath.Join(t.TempDir(), "100% of #1?.db")
	cfg := devserver.Config{Database: database, UIPort: devserver.NoPort, Port: freePort(t)}

	first, err := devserver.Start(t.Context(), cfg)
	require.NoError(t, err)

	c := dial(t, first)
	_, err = c.ExecuteWorkflow(timeout(t), client.StartWorkflowOptions{ID: "survivor", TaskQueue: "file"}, "State")
	require.NoError(t, err)

	require.NoError(t, first.Stop())
	require.FileExists(t, database)

	wal, err := os.Stat(database + "-wal")
	require.NoError(t, err)
	require.Zero(t, wal.Size(), "a stop leaves everything in the database file")

	// The same port, and a namespace more.
	cfg.Namespaces = []string{"default", "added"}
	second := start(t, cfg)
	require.Equal(t, first.HostPort(), second.HostPort())

	c = dial(t, second)
	runWorker(t, c, "file")
	update(t, c, "survivor", "parked")
	requireListed(t, c, devserver.AttributeState+` = "parked"`, "survivor")
	update(t, c, "survivor", "done")

	var states string

	require.NoError(t, c.GetWorkflow(timeout(t), "survivor", "").Get(timeout(t), &states))
	require.Equal(t, "parked,done", states)
}

func TestStart_onATakenPort(t *testing.T) {
	t.Parallel()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)

	defer func() { require.NoError(t, listener.Close()) }()

	taken := portOf(t, listener.Addr().String())

	for field, cfg := range map[string]devserver.Config{
		"Port":        {Port: taken},
		"UIPort":      {UIPort: taken},
		"MetricsPort": {MetricsPort: taken},
	} {
		_, err := devserver.Start(t.Context(), cfg)

		var portError *devserver.PortError

		require.ErrorAs(t, err, &portError)
		require.Equal(t, field, portError.Field)
		require.Equal(t, listener.Addr().String(), portError.Address)
	}
}

func TestStart_refuses(t *testing.T) {
	t.Parallel()

	_, err := devserver.Start(t.Context(), devserver.Config{Port: -5})
	require.ErrorContains(t, err, "Port -5")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	_, err = devserver.Start(ctx, devserver.Config{})
	require.ErrorIs(t, err, context.Canceled)

	notADatabase := filepath.Join(t.TempDir(), "text.db")
	require.NoError(t, os.WriteFile(notADatabase, []byte("this is a text file, and a long enough one at that"), 0o600))

	_, err = devserver.Start(t.Context(), devserver.Config{Database: notADatabase})
	require.ErrorContains(t, err, "text.db")
}

func freePort(t *testing.T) int {
	t.Helper()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())

	return portOf(t, listener.Addr().String())
}

func portOf(t *testing.T, address string) int {
	t.Helper()

	_, text, err := net.SplitHostPort(address)
	require.NoError(t, err)

	port, err := strconv.Atoi(text)
	require.NoError(t, err)

	return port
}
