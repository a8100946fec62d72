package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/rowfold/rowfold/activities"
	"github.com/rowfold/rowfold/devserver"
	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/examples/flights"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
	"github.com/rowfold/rowfold/starter"
	"github.com/rowfold/rowfold/store/sqlite"
	"github.com/rowfold/rowfold/worker"
	"github.com/rowfold/rowfold/workflows"
)

const (
	// consumer is whose positions the example keeps.
	consumer = "board"

	// partitions is how many parts the stream of days is followed in.
	partitions = 2

	// pageSize is how many events are applied at a time: a large page writes a row once for many of its events.
	pageSize = 2000

	// wakeTimeout bounds one wake.
	wakeTimeout = 5 * time.Second

	// sweepEvery is how often rows are looked for whose wake got lost.
	sweepEvery = 10 * time.Second

	// sweepGrace is how long a row may wait for its wake.
	sweepGrace = 5 * time.Second
)

// stackOptions are the flags that demo and dev share.
type stackOptions struct {
	dir    string
	port   int
	uiPort int
	log    *slog.Logger // set by the stack: a file, so that the screen stays readable
}

// stack is everything that the example needs, in one process: Temporal with its UI, the store, a worker.
type stack struct {
	server  *devserver.Server
	store   *sqlite.Store
	board   *projection.Projection[string, flights.BoardRow]
	notices *flights.Notices
	starter *starter.Starter
	worker  *worker.Worker

	closers []func() error
}

func (o stackOptions) noticesPath() string { return filepath.Join(o.dir, "notices.jsonl") }
func (o stackOptions) logPath() string     { return filepath.Join(o.dir, "log.txt") }
func (o stackOptions) rowsPath() string    { return filepath.Join(o.dir, "rows.db") }

// startStack starts everything. What was started is closed when a later part fails.
func startStack(ctx context.Context, options stackOptions) (*stack, error) {
	s := &stack{}

	if err := s.start(ctx, options); err != nil {
		return nil, errors.Join(err, s.close())
	}

	return s, nil
}

func (s *stack) start(ctx context.Context, options stackOptions) (err error) {
	logFile, err := os.OpenFile(options.logPath(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}

	s.closers = append(s.closers, logFile.Close)
	options.log = slog.New(slog.NewTextHandler(logFile, &slog.HandlerOptions{Level: slog.LevelWarn}))

	if s.server, err = startServer(ctx, options); err != nil {
		return err
	}

	s.closers = append(s.closers, s.server.Stop)

	if s.board, err = flights.NewBoard(); err != nil {
		return err
	}

	s.store, err = sqlite.Open(ctx, sqlite.Config{Path: options.rowsPath(), Synchronous: sqlite.SynchronousNormal})
	if err != nil {
		return err
	}

	s.closers = append(s.closers, s.store.Close)

	if err := s.store.Prepare(ctx, s.board.Model()); err != nil {
		return err
	}

	if s.notices, err = flights.OpenNotices(options.noticesPath()); err != nil {
		return err
	}

	s.closers = append(s.closers, s.notices.Close)

	return s.startWorker(ctx, options)
}

// startServer starts Temporal. The UI's usual port is a wish: where it is taken, a free one does.
func startServer(ctx context.Context, options stackOptions) (*devserver.Server, error) {
	config := devserver.Config{
		Port: options.port, UIPort: options.uiPort, Database: filepath.Join(options.dir, "temporal.db"), Log: options.log,
	}

	server, err := devserver.Start(ctx, config)

	var taken *devserver.PortError
	if errors.As(err, &taken) && taken.Field == "UIPort" && options.uiPort == defaultUIPort {
		config.UIPort = 0
		server, err = devserver.Start(ctx, config)
	}

	return server, err
}

func (s *stack) startWorker(ctx context.Context, options stackOptions) error {
	client, namespace, err := starter.Dial(ctx, starter.DialOptions{
		Address: s.server.HostPort(), Namespace: "default", Log: options.log,
	})
	if err != nil {
		return err
	}

	s.closers = append(s.closers, func() error {
		client.Close()

		return nil
	})

	s.starter, err = starter.New(starter.Config{
		Client: client, Namespace: namespace, Deployment: "flights", TaskQueue: "flights", Log: options.log,
		// Server and worker share the machine here: a wake may wait a little longer.
		WakeTimeout: wakeTimeout,
	})
	if err != nil {
		return err
	}

	s.closers = append(s.closers, func() error {
		s.starter.Close()

		return nil
	})

	days, err := s.store.Feed(flights.Days.Name(), partitions)
	if err != nil {
		return err
	}

	airports, err := s.store.Feed(flights.Airports.Name(), 1)
	if err != nil {
		return err
	}

	s.worker, err = worker.New(worker.Config{
		Starter: s.starter, Store: s.store, Events: s.store,
		Projections: []projection.Definition{s.board},
		Feeds:       map[string]event.Feed{flights.Days.Name(): days, flights.Airports.Name(): airports},
		Deliver:     map[string]outbox.Deliverer{s.board.Name(): s.notices.Deliverer()},
		Log:         options.log,
	})
	if err != nil {
		return err
	}

	if err := s.worker.Start(); err != nil {
		return err
	}

	s.closers = append(s.closers, func() error {
		s.worker.Stop()

		return nil
	})

	return nil
}

// follow starts the consumers, and the schedule that heals lost wakes.
func (s *stack) follow(ctx context.Context) error {
	for _, feed := range feeds() {
		_, err := s.starter.ConsumeStream(ctx, workflows.ConsumeStream{
			Following: workflows.Following{Consumer: consumer, Feed: feed, PageSize: pageSize},
		})
		if err != nil {
			return err
		}
	}

	return s.starter.ScheduleSweep(ctx, sweepEvery, workflows.SweepOutbox{
		Projection: s.board.Name(), Grace: activities.Duration(sweepGrace),
	})
}

// unfollow lets the consumers finish their pages and complete. All are told before any is waited for: each takes up to a
// heartbeat to notice.
func (s *stack) unfollow(ctx context.Context) error {
	for _, feed := range feeds() {
		if err := s.starter.StopConsumer(ctx, consumer, feed); err != nil {
			return err
		}
	}

	for _, feed := range feeds() {
		run := s.starter.Client().GetWorkflow(ctx, s.starter.IDs().ConsumeStream(consumer, feed), "")
		if err := run.Get(ctx, nil); err != nil {
			return fmt.Errorf("wait for the consumer of %s: %w", feed, err)
		}
	}

	return nil
}

func feeds() []string { return []string{flights.Days.Name(), flights.Airports.Name()} }

// close closes what was started, the last first.
func (s *stack) close() error {
	faults := make([]error, 0, len(s.closers))

	for i := range s.closers {
		faults = append(faults, s.closers[len(s.closers)-1-i]())
	}

	s.closers = nil

	return errors.Join(faults...)
}
