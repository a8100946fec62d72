package devserver

import (
	"context"
	"fmt"
	"net/http"

	"github.com/temporalio/ui-server/v2/server"
	"github.com/temporalio/ui-server/v2/server/config"
	"github.com/temporalio/ui-server/v2/server/server_options"
)

// ui is the web UI, a second HTTP server in the process that talks to the frontend over gRPC.
type ui struct {
	server *server.Server
	done   chan struct{}
	url    string
}

// startUI starts the UI and waits until it answers.
func startUI(ctx context.Context, cfg Config, port int, frontend string) (*ui, error) {
	u := &ui{
		server: server.NewServer(server_options.WithConfigProvider(&config.Config{
			TemporalGRPCAddress: frontend,
			Host:                uiHost(cfg.Address),
			Port:                port,
			EnableUI:            true,
			DefaultNamespace:    cfg.Namespaces[0],
			// Without TLS a browser would not send a cookie that is marked secure.
			CORS: config.CORS{CookieInsecure: true},
			// No logs of its own, and no calls to the world outside.
			HideLogs:           true,
			DisableNewsFetch:   true,
			NotifyOnNewVersion: false,
		})),
		done: make(chan struct{}),
		url:  "http://" + hostPort(cfg.dialAddress(), port),
	}

	go func() {
		defer close(u.done)

		// Start returns nil after Stop and ends the process on any other error; choosePorts has excluded the likely one.
		_ = u.server.Start()
	}()

	if err := waitUntil(ctx, u.healthy); err != nil {
		u.stop()

		return nil, fmt.Errorf("start the UI on %s: %w", u.url, err)
	}

	return u, nil
}

func (u *ui) healthy(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.url+"/healthz", http.NoBody)
	if err != nil {
		return fmt.Errorf("build the request: %w", err)
	}

	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("health check: %w", err)
	}

	defer func() { _ = response.Body.Close() }()

	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("health check: %s", response.Status)
	}

	return nil
}

func (u *ui) stop() {
	u.server.Stop()
	<-u.done
}

// uiHost brackets an IPv6 address: the UI server joins host and port without doing it.
func uiHost(address string) string {
	for _, c := range address {
		if c == ':' {
			return "[" + address + "]"
		}
	}

	return address
}
