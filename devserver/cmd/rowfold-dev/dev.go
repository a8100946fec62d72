package main

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/rowfold/rowfold/examples/flights"
)

func newDevCommand() *cobra.Command {
	var options stackOptions

	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run Temporal with its web UI and a worker of the flights example",
		Long: `Run Temporal with its web UI and a worker of the flights example, until interrupted.

It follows the example's streams and sweeps on a schedule, so that the CLI and the UI have something to work
with. In a new folder it records the example's events first.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runDev(cmd.Context(), options, cmd.OutOrStdout())
		},
	}

	stackFlags(cmd, &options)

	return cmd
}

func runDev(ctx context.Context, options stackOptions, out io.Writer) (err error) {
	if err := prepareDir(&options); err != nil {
		return err
	}

	s, err := startStack(ctx, options)
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, s.close()) }()

	if err := s.follow(ctx); err != nil {
		return err
	}

	show := newProgress(out)
	show.linef("Temporal UI   %s", s.server.UIURL())
	show.linef("frontend      %s, namespace default", s.server.HostPort())
	show.linef("worker        task queue flights, deployment flights")
	show.linef("folder        %s", options.dir)

	version, err := s.store.Version(ctx, flights.Airports.Name(), "JFK")
	if err != nil {
		return err
	}

	if version == 0 {
		recording, err := flights.NewRecording(0)
		if err != nil {
			return err
		}

		if err := recording.Record(ctx, s.store, nil); err != nil {
			return err
		}

		show.linef("recorded      %d events", recording.Events)
	}

	show.linef("Interrupt to stop.")
	<-ctx.Done()

	return nil
}
