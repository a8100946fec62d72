package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/rowfold/rowfold/devserver"
)

// serverOptions are the flags of `rowfold-dev server`.
type serverOptions struct {
	config        devserver.Config
	readyJSON     bool
	stopWithStdin bool
}

// ready is the line that --ready-json prints.
type ready struct {
	// Address is the host and port of the frontend.
	Address string `json:"address"`
	// UI is the URL of the web UI, empty without one.
	UI string `json:"ui"`
	// Metrics is the URL of the Prometheus metrics, left out without them.
	Metrics string `json:"metrics,omitempty"`
}

func newServerCommand() *cobra.Command {
	var options serverOptions

	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run a Temporal server with its web UI",
		Long: `Run a Temporal server with its web UI in this process, until interrupted.

It keeps its state in memory, or with --db in a SQLite file that survives stops and kills.
The namespaces exist and have rowfold's search attributes when it is ready.`,
		Example: `  rowfold-dev server
  rowfold-dev server --db dev.db --namespace orders --namespace billing
  rowfold-dev server --port 0 --ui-port -1 --ready-json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runServer(cmd.Context(), options, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}

	flags := cmd.Flags()
	flags.StringVar(&options.config.Address, "address", "127.0.0.1", "IP address to listen on")
	flags.IntVar(&options.config.Port, "port", 7233, "port of the frontend; 0 picks a free one")
	flags.IntVar(&options.config.UIPort, "ui-port", 8233, "port of the web UI; 0 picks a free one, -1 starts none")
	flags.IntVar(&options.config.MetricsPort, "metrics-port", 0, "port of the Prometheus metrics; 0 serves none")
	flags.StringVar(&options.config.Database, "db", "", "SQLite file that keeps the state (default in memory)")
	flags.StringSliceVar(&options.config.Namespaces, "namespace", []string{"default"}, "namespace to create; may be repeated")
	flags.BoolVar(&options.readyJSON, "ready-json", false, "print one line of JSON with the addresses when ready, and nothing else")
	flags.BoolVar(&options.stopWithStdin, "stop-with-stdin", false,
		"stop when standard input ends, so that the server dies with its parent")

	return cmd
}

func runServer(ctx context.Context, options serverOptions, stdin io.Reader, stdout, stderr io.Writer) error {
	if options.stopWithStdin {
		var cancel context.CancelFunc

		ctx, cancel = context.WithCancel(ctx)
		defer cancel()

		// A blocked read cannot be interrupted, so nobody waits for this goroutine: it ends with the input or the process.
		go func() {
			defer cancel()

			_, _ = io.Copy(io.Discard, stdin)
		}()
	}

	options.config.Log = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))

	server, err := devserver.Start(ctx, options.config)
	if err != nil {
		return err
	}

	if err := announce(stdout, server, options); err != nil {
		_ = server.Stop()

		return err
	}

	<-ctx.Done()

	return server.Stop()
}

// announce tells the caller where the server is.
func announce(out io.Writer, server *devserver.Server, options serverOptions) error {
	if options.readyJSON {
		err := json.NewEncoder(out).Encode(ready{
			Address: server.HostPort(),
			UI:      server.UIURL(),
			Metrics: server.MetricsURL(),
		})
		if err != nil {
			return fmt.Errorf("print the addresses: %w", err)
		}

		return nil
	}

	database := options.config.Database
	if database == "" {
		database = "in memory"
	}

	for _, line := range []struct{ name, value string }{
		{"Temporal", server.HostPort()},
		{"Web UI", server.UIURL()},
		{"Metrics", server.MetricsURL()},
		{"Database", database},
	} {
		if line.value == "" {
			continue
		}

		if _, err := fmt.Fprintf(out, "%-9s %s\n", line.name, line.value); err != nil {
			return fmt.Errorf("print the addresses: %w", err)
		}
	}

	return nil
}
