package devserver

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.temporal.io/server/common/config"
	"go.temporal.io/server/temporal"
)

// metricsPath is where Prometheus expects metrics.
const metricsPath = "/metrics"

// Server is a running Temporal server. Its methods may be called from any goroutine.
type Server struct {
	temporal   temporal.Server
	logger     *logger
	store      *config.SQL
	ui         *ui
	hostPort   string
	metricsURL string
	namespaces []string

	stop sync.Once
	err  error
}

// Start starts a server and returns when it is ready: clients can connect to [Server.HostPort] and run workflows in
// every namespace of the configuration, and the UI answers. The context bounds the start only; [Server.Stop] ends the
// server.
//
// It returns the faults of the configuration, a *[PortError] for a port that is taken, or what Temporal reports, for
// example that another process has the database open.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("devserver: %w", err)
	}

	cfg = cfg.withDefaults()

	ctx, cancel := context.WithTimeoutCause(ctx, cfg.StartTimeout,
		fmt.Errorf("not ready within StartTimeout %s: %w", cfg.StartTimeout, context.DeadlineExceeded))
	defer cancel()

	server, err := start(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("devserver: %w", err)
	}

	return server, nil
}

func start(ctx context.Context, cfg Config) (*Server, error) {
	chosen, err := choosePorts(ctx, cfg)
	if err != nil {
		return nil, err
	}

	store := sqlConfig(cfg.Database)
	if err := prepareDatabase(cfg, store); err != nil {
		return nil, fmt.Errorf("database %q: %w", cfg.Database, err)
	}

	// Temporal's part of the start takes no context.
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}

	logger := newLogger(cfg.Log)

	inner, err := newTemporal(cfg, chosen, store, logger)
	if err != nil {
		return nil, err
	}

	server := &Server{
		temporal:   inner,
		logger:     logger,
		store:      store,
		hostPort:   hostPort(cfg.dialAddress(), chosen.frontend),
		namespaces: cfg.Namespaces,
	}

	if chosen.metrics != 0 {
		server.metricsURL = "http://" + hostPort(cfg.dialAddress(), chosen.metrics) + metricsPath
	}

	if err := server.run(ctx, cfg, chosen); err != nil {
		return nil, errors.Join(err, server.Stop())
	}

	return server, nil
}

func (s *Server) run(ctx context.Context, cfg Config, chosen ports) error {
	if err := s.temporal.Start(); err != nil {
		return fmt.Errorf("start the Temporal server: %w", err)
	}

	if err := waitReady(ctx, cfg, s.hostPort); err != nil {
		return err
	}

	if chosen.ui == 0 {
		return nil
	}

	var err error

	s.ui, err = startUI(ctx, cfg, chosen.ui, s.hostPort)

	return err
}

// HostPort is the address of the frontend for client.Options.HostPort, for example "127.0.0.1:7233".
func (s *Server) HostPort() string { return s.hostPort }

// UIURL is the address of the web UI, for example "http://127.0.0.1:8233", or "" without a UI.
func (s *Server) UIURL() string {
	if s.ui == nil {
		return ""
	}

	return s.ui.url
}

// MetricsURL is the address of the Prometheus metrics, for example "http://127.0.0.1:9233/metrics", or "" without them.
// The counter "action" counts Temporal actions.
func (s *Server) MetricsURL() string { return s.metricsURL }

// Namespaces returns the namespaces that the configuration asked for, the default one first.
func (s *Server) Namespaces() []string { return append([]string(nil), s.namespaces...) }

// Stop ends the UI and the server and returns when both are down. Workers and clients should be closed before, else they
// retry against a closed port. Further calls return the result of the first.
func (s *Server) Stop() error {
	s.stop.Do(func() {
		s.logger.stopping.Store(true)

		if s.ui != nil {
			s.ui.stop()
		}

		if err := s.temporal.Stop(); err != nil {
			s.err = fmt.Errorf("devserver: stop the Temporal server: %w", err)
		}

		if err := checkpoint(s.store); err != nil {
			s.err = errors.Join(s.err, fmt.Errorf("devserver: %w", err))
		}
	})

	return s.err
}
