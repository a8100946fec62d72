package starter

import (
	"context"
	"fmt"
	"log/slog"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"go.temporal.io/sdk/log"
)

// DialOptions say where Temporal is. What is empty comes from Temporal's own environment
// configuration: the TEMPORAL_… variables, then the profile of its configuration file, with
// TLS and API key. So the same program runs on a dev server, a cluster, or Temporal Cloud.
type DialOptions struct {
	Address   string // host:port
	Namespace string
	Profile   string // of the configuration file
	// Log gets the client's logs at warn and above. Defaults to discarding.
	Log *slog.Logger
}

// Dial connects to Temporal and returns the client with the namespace that it is connected
// to. The error is that of the configuration or of the connection.
func Dial(ctx context.Context, options DialOptions) (connected client.Client, namespace string, err error) {
	load := envconfig.LoadClientOptionsRequest{ConfigFileProfile: options.Profile}
	found, err := envconfig.LoadClientOptions(load)
	if err != nil {
		return nil, "", fmt.Errorf("read Temporal's environment configuration: %w", err)
	}
	if options.Address != "" {
		found.HostPort = options.Address
	}
	if options.Namespace != "" {
		found.Namespace = options.Namespace
	}
	if found.Namespace == "" {
		found.Namespace = client.DefaultNamespace
	}
	logger := options.Log
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	found.Logger = log.NewStructuredLogger(logger)
	connected, err = client.DialContext(ctx, found)
	if err != nil {
		return nil, "", fmt.Errorf("connect to Temporal at %q, namespace %q: %w", found.HostPort, found.Namespace, err)
	}
	return connected, found.Namespace, nil
}
