package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestServer_readyJSON(t *testing.T) {
	t.Parallel()

	stdinRead, stdinWrite := io.Pipe()
	stdoutRead, stdoutWrite := io.Pipe()

	var stderr bytes.Buffer

	cmd := newRootCommand()
	cmd.SetArgs([]string{"server", "--port", "0", "--ui-port", "0", "--ready-json", "--stop-with-stdin"})
	cmd.SetIn(stdinRead)
	cmd.SetOut(stdoutWrite)
	cmd.SetErr(&stderr)

	ended := make(chan error, 1)

	go func() { ended <- cmd.ExecuteContext(t.Context()) }()

	line, err := bufio.NewReader(stdoutRead).ReadBytes('\n')
	require.NoError(t, err)

	var addresses map[string]string

	require.NoError(t, json.Unmarshal(line, &addresses))
	require.Len(t, addresses, 2)
	requireOpen(t, addresses["address"])

	ui, err := url.Parse(addresses["ui"])
	require.NoError(t, err)
	requireOpen(t, ui.Host)

	require.NoError(t, stdinWrite.Close())

	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		t.Fatal("the server does not end with its standard input")
	}

	require.Empty(t, stderr.String(), "a start and a stop give no cause for a warning")
}

func TestServer_stopsWithItsContext(t *testing.T) {
	t.Parallel()

	ctx, cancel := context.WithCancel(t.Context())
	stdoutRead, stdoutWrite := io.Pipe()

	cmd := newRootCommand()
	cmd.SetArgs([]string{"server", "--port", "0", "--ui-port", "-1"})
	cmd.SetOut(stdoutWrite)

	ended := make(chan error, 1)

	go func() {
		ended <- cmd.ExecuteContext(ctx)

		_ = stdoutWrite.Close()
	}()

	reader := bufio.NewReader(stdoutRead)
	line, err := reader.ReadString('\n')
	require.NoError(t, err)
	require.Regexp(t, `^Temporal  127\.0\.0\.1:\d+\n$`, line)

	cancel()

	rest, err := io.ReadAll(reader)
	require.NoError(t, err)
	require.Equal(t, "Database  in memory\n", string(rest))
	require.NoError(t, <-ended)
}

func TestServer_faults(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"bad port":   {[]string{"server", "--port", "-7"}, "Port -7"},
		"bad flag":   {[]string{"server", "--nonsense"}, "--nonsense"},
		"bad folder": {[]string{"server", "--db", "/no/such/folder/dev.db"}, "its folder"},
		"argument":   {[]string{"server", "now"}, "now"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			cmd := newRootCommand()
			cmd.SetArgs(test.args)
			cmd.SetOut(io.Discard)
			cmd.SetErr(io.Discard)

			require.ErrorContains(t, cmd.ExecuteContext(t.Context()), test.want)
		})
	}
}

func requireOpen(t *testing.T, address string) {
	t.Helper()

	connection, err := net.DialTimeout("tcp", address, time.Second)
	require.NoError(t, err)
	require.NoError(t, connection.Close())
}
