package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/rowfold/rowfold/examples/flights"
	"github.com/rowfold/rowfold/outbox"
)

const (
	defaultUIPort = 8233

	// lookEvery is how often the demo looks how far everything is.
	lookEvery = 500 * time.Millisecond

	// maxDifferences is how many airports that differ are told.
	maxDifferences = 10
)

// demoOptions are the flags of `rowfold-dev demo`.
type demoOptions struct {
	stackOptions

	flights int
	timeout time.Duration
	exit    bool
	keep    bool
}

func newDemoCommand() *cobra.Command {
	var options demoOptions

	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Fold 20,000 real flights into a board of airports and deliver its notices",
		Long: `Fold 20,000 real flights into a board of airports and deliver its notices.

Everything runs in this process: a real Temporal server with its web UI, SQLite, a worker. Events are
recorded while workflows follow them, fold them into rows, and deliver a notice for each late arrival, in
order for each airport. At the end rows and notices are compared with a count over the raw file that knows
nothing of rowfold; any difference is a failure.

On a terminal it stays up afterwards, so that you can look around in the UI, until you interrupt it.`,
		Example: `  rowfold-dev demo
  rowfold-dev demo --dir demo --exit
  rowfold-dev demo --flights 500`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runDemo(cmd.Context(), options, cmd.OutOrStdout())
		},
	}

	stackFlags(cmd, &options.stackOptions)
	cmd.Flags().IntVar(&options.flights, "flights", 0, "how many flights of the file to take; 0 takes all")
	cmd.Flags().DurationVar(&options.timeout, "timeout", 5*time.Minute, "how long the work may take")
	cmd.Flags().BoolVar(&options.exit, "exit", false, "exit at the end, also on a terminal")
	cmd.Flags().BoolVar(&options.keep, "keep", false, "stay up at the end until interrupted, also in a pipe")
	cmd.MarkFlagsMutuallyExclusive("exit", "keep")

	return cmd
}

func stackFlags(cmd *cobra.Command, options *stackOptions) {
	cmd.Flags().StringVar(&options.dir, "dir", "", "folder of the databases and the notices (default a new temporary one)")
	cmd.Flags().IntVar(&options.port, "port", 0, "port of Temporal's frontend; 0 picks a free one")
	cmd.Flags().IntVar(&options.uiPort, "ui-port", defaultUIPort, "port of the web UI; 0 picks a free one, as a taken default does")
}

// prepareDir makes the folder, a temporary one where none is named.
func prepareDir(options *stackOptions) error {
	if options.dir == "" {
		dir, err := os.MkdirTemp("", "rowfold-")
		if err != nil {
			return fmt.Errorf("make a folder: %w", err)
		}

		options.dir = dir

		return nil
	}

	if err := os.MkdirAll(options.dir, 0o750); err != nil {
		return fmt.Errorf("make the folder: %w", err)
	}

	return nil
}

func runDemo(ctx context.Context, options demoOptions, out io.Writer) (err error) {
	if options.flights < 0 {
		return fmt.Errorf("--flights: %d is negative; 0 takes all", options.flights)
	}

	if err := prepareDir(&options.stackOptions); err != nil {
		return err
	}

	recording, err := flights.NewRecording(options.flights)
	if err != nil {
		return err
	}

	want, err := flights.Count(options.flights)
	if err != nil {
		return err
	}

	s, err := startStack(ctx, options.stackOptions)
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, s.close()) }()

	if version, err := s.store.Version(ctx, flights.Airports.Name(), "JFK"); err != nil || version > 0 {
		return errors.Join(err, fmt.Errorf("--dir: %q holds a demo already: name another folder", options.dir))
	}

	show := newProgress(out)
	show.linef("Temporal UI   %s", s.server.UIURL())
	show.linef("rows          sqlite3 %s 'select code, city, arrivals, worst_delay from airport_board'", options.rowsPath())
	show.linef("notices       %s", options.noticesPath())
	show.linef("log           %s", options.logPath())
	show.linef("")

	d := &demo{stack: s, options: options, recording: recording, want: want, show: show, began: time.Now()}
	if err := d.run(ctx); err != nil {
		return err
	}

	if options.exit || !show.terminal && !options.keep {
		return nil
	}

	show.linef("\nLook around in %s; interrupt to stop.", s.server.UIURL())
	<-ctx.Done()

	return nil
}

// demo is one run.
type demo struct {
	*stack

	options   demoOptions
	recording *flights.Recording
	want      flights.Totals
	show      *progress
	began     time.Time

	recorded int
}

func (d *demo) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, d.options.timeout)
	defer cancel()

	if err := d.follow(ctx); err != nil {
		return err
	}

	recorded := make(chan int, 1)
	failed := make(chan error, 1)

	var writer sync.WaitGroup

	// The store must not be closed under the writer, whatever ends the run.
	defer writer.Wait()
	defer cancel()

	writer.Go(func() {
		failed <- d.recording.Record(ctx, d.store, func(events int) {
			select { // only the newest number matters
			case <-recorded:
			default:
			}
			recorded <- events
		})
	})

	got, err := d.watch(ctx, recorded, failed)
	if err != nil {
		return err
	}

	d.show.done()

	if err := d.compare(ctx, got); err != nil {
		return err
	}

	return d.unfollow(ctx)
}

// watch shows how far everything is, until all of it is done.
func (d *demo) watch(ctx context.Context, recorded <-chan int, failed <-chan error) (flights.Totals, error) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()

	recording := true

	for {
		select {
		case <-ctx.Done():
			late := context.WithoutCancel(ctx)

			got, err := d.look(late)
			if err == nil {
				err = d.compare(late, got)
			}

			return got, errors.Join(fmt.Errorf("not done after %v: %w", d.options.timeout, context.Cause(ctx)), err)
		case err := <-failed:
			recording, failed = false, nil

			if err != nil {
				return flights.Totals{}, fmt.Errorf("record the events: %w", err)
			}
		case d.recorded = <-recorded:
		case <-ticker.C:
			got, err := d.look(ctx)
			if err != nil {
				return got, err
			}

			if !recording && got == d.want {
				return got, nil
			}
		}
	}
}

// look adds up what is there now, and shows it.
func (d *demo) look(ctx context.Context) (flights.Totals, error) {
	notices, err := flights.ReadNotices(d.options.noticesPath())
	if err != nil {
		return flights.Totals{}, err
	}

	got, err := flights.Summarize(ctx, d.board, d.store, notices)
	if err != nil {
		return got, err
	}

	pending, err := d.store.Pending(ctx, outbox.PendingQuery{Projection: d.board.Name(), Limit: d.want.Rows})
	if err != nil {
		return got, err
	}

	d.show.updatef("%5.1f s  recorded %6d of %d events  applied %6d of %d flights  %3d rows  notices %4d of %d  %3d rows pending",
		time.Since(d.began).Seconds(), d.recorded, d.recording.Events, got.Arrivals, d.want.Arrivals, got.Rows,
		got.Notices, d.want.Notices, len(pending))

	return got, nil
}

// compare prints both counts side by side. A difference is an error.
func (d *demo) compare(ctx context.Context, got flights.Totals) error {
	notices, err := flights.ReadNotices(d.options.noticesPath())
	if err != nil {
		return err
	}

	var text strings.Builder

	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "\tboard\traw file\t")

	for _, line := range []struct {
		name      string
		got, want int64
	}{
		{"live rows", int64(got.Rows), int64(d.want.Rows)},
		{"tombstones", int64(got.Tombstones), int64(d.want.Tombstones)},
		{"departures", got.Departures, d.want.Departures},
		{"arrivals", got.Arrivals, d.want.Arrivals},
		{"minutes late, all", got.TotalDelay, d.want.TotalDelay},
		{"minutes late, worst", got.WorstDelay, d.want.WorstDelay},
		{"miles", got.Distance, d.want.Distance},
		{"notices", int64(got.Notices), int64(d.want.Notices)},
		{"airports notified", int64(got.Notified), int64(d.want.Notified)},
	} {
		mark := ""
		if line.got != line.want {
			mark = "  DIFFERENT"
		}

		fmt.Fprintf(table, "%s\t%d\t%d\t%s\n", line.name, line.got, line.want, mark)
	}

	if err := table.Flush(); err != nil {
		return fmt.Errorf("print the totals: %w", err)
	}

	d.show.linef("%s", text.String())

	if id := flights.OutOfOrder(notices); id != "" {
		return fmt.Errorf("notice %s came after a later one of its airport", id)
	}

	if got != d.want {
		return errors.New("the board and the raw file differ")
	}

	if err := d.compareEach(ctx, notices); err != nil {
		return err
	}

	d.show.linef("The board adds up, airport by airport, and each one's notices came once and in order. %.1f s.",
		time.Since(d.began).Seconds())

	return nil
}

// compareEach compares each airport: sums over all would hide an event that went to another one's row.
func (d *demo) compareEach(ctx context.Context, notices []flights.Notice) error {
	differences, err := flights.Differences(ctx, d.board, d.store, notices, d.options.flights)
	if err != nil || len(differences) == 0 {
		return err
	}

	for _, difference := range differences[:min(len(differences), maxDifferences)] {
		d.show.linef("%s", difference)
	}

	return fmt.Errorf("%d airports differ from the raw file", len(differences))
}
