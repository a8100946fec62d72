package devserver

import (
	"fmt"
	"net"
	"strconv"
	"time"

	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/membership/static"
	"go.temporal.io/server/common/metrics"
	"go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	"go.temporal.io/server/common/primitives"
	"go.temporal.io/server/temporal"
)

// internalAddress is where the services behind the frontend listen, whatever Config.Address says.
const internalAddress = "127.0.0.1"

// archivalOff is Temporal's word for no archive: a run is gone when its retention is over.
const archivalOff = "disabled"

// services are the four parts of a Temporal server, all of them in this process.
func services() []primitives.ServiceName {
	return []primitives.ServiceName{
		primitives.FrontendService,
		primitives.HistoryService,
		primitives.MatchingService,
		primitives.WorkerService,
	}
}

// newTemporal builds the Temporal server over a prepared database, without starting it.
func newTemporal(cfg Config, ports ports, store *config.SQL, logger *logger) (temporal.Server, error) {
	settings, err := dynamicSettings(cfg.Settings)
	if err != nil {
		return nil, fmt.Errorf("settings: %w", err)
	}

	handler, err := metrics.MetricsHandlerFromConfig(logger, metricsConfig(cfg, ports))
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}

	server, err := temporal.NewServer(
		temporal.ForServices(temporal.DefaultServices),
		temporal.WithConfig(temporalConfig(cfg, ports, store)),
		temporal.WithStaticHosts(staticHosts(cfg, ports)),
		temporal.WithDynamicConfigClient(settings),
		temporal.WithLogger(logger),
		// Temporal stops a handler that it was given, and forgets one that it made itself.
		temporal.WithCustomMetricsHandler(handler),
		temporal.WithAuthorizer(authorization.NewNoopAuthorizer()),
		temporal.WithClaimMapper(func(*config.Config) authorization.ClaimMapper {
			return authorization.NewNoopClaimMapper()
		}),
	)
	if err != nil {
		handler.Stop(logger)

		return nil, fmt.Errorf("assemble the Temporal server: %w", err)
	}

	return server, nil
}

func temporalConfig(cfg Config, ports ports, store *config.SQL) *config.Config {
	frontend := hostPort(cfg.dialAddress(), ports.frontend)

	return &config.Config{
		Global: config.Global{
			Membership: config.Membership{
				MaxJoinDuration:  30 * time.Second,
				BroadcastAddress: internalAddress,
			},
		},
		Persistence: config.Persistence{
			DefaultStore:     sqlite.PluginName,
			VisibilityStore:  sqlite.PluginName,
			NumHistoryShards: 1,
			DataStores:       map[string]config.DataStore{sqlite.PluginName: {SQL: store}},
		},
		Log: log.Config{Level: "warn"},
		ClusterMetadata: &cluster.Config{
			FailoverVersionIncrement: 10,
			MasterClusterName:        clusterName,
			CurrentClusterName:       clusterName,
			ClusterInformation: map[string]cluster.ClusterInformation{
				clusterName: {Enabled: true, InitialFailoverVersion: 1, RPCAddress: frontend},
			},
		},
		DCRedirectionPolicy: config.DCRedirectionPolicy{Policy: "noop"},
		Services:            serviceConfigs(cfg, ports),
		Archival: config.Archival{
			History:    config.HistoryArchival{State: archivalOff},
			Visibility: config.VisibilityArchival{State: archivalOff},
		},
		NamespaceDefaults: config.NamespaceDefaults{
			Archival: config.ArchivalNamespaceDefaults{
				History:    config.HistoryArchivalNamespaceDefaults{State: archivalOff},
				Visibility: config.VisibilityArchivalNamespaceDefaults{State: archivalOff},
			},
		},
		PublicClient: config.PublicClient{HostPort: frontend},
	}
}

func serviceConfigs(cfg Config, ports ports) map[string]config.Service {
	configs := make(map[string]config.Service, len(services()))

	for _, service := range services() {
		rpc := config.RPC{BindOnIP: internalAddress, GRPCPort: ports.of(service)}
		if service == primitives.FrontendService {
			rpc.BindOnIP = cfg.Address
			// The HTTP API, which Nexus callbacks from outside need.
			rpc.HTTPPort = ports.http
		}

		configs[string(service)] = config.Service{RPC: rpc}
	}

	return configs
}

// staticHosts replaces the gossip by which the services of a real cluster find each other.
func staticHosts(cfg Config, ports ports) map[primitives.ServiceName]static.Hosts {
	hosts := make(map[primitives.ServiceName]static.Hosts, len(services()))

	for _, service := range services() {
		address := internalAddress
		if service == primitives.FrontendService {
			address = cfg.dialAddress()
		}

		hosts[service] = static.SingleLocalHost(hostPort(address, ports.of(service)))
	}

	return hosts
}

// metricsConfig returns nil, which means no metrics, when no port is wanted. The names are those of Temporal's
// documentation, without the suffixes that OpenTelemetry would add.
func metricsConfig(cfg Config, ports ports) *metrics.Config {
	if ports.metrics == 0 {
		return nil
	}

	return &metrics.Config{
		ClientConfig: metrics.ClientConfig{
			WithoutUnitSuffix:    true,
			WithoutCounterSuffix: true,
			RecordTimerInSeconds: true,
		},
		Prometheus: &metrics.PrometheusConfig{
			Framework:     metrics.FrameworkOpentelemetry,
			ListenAddress: hostPort(cfg.Address, ports.metrics),
			HandlerPath:   metricsPath,
		},
	}
}

func hostPort(host string, port int) string {
	return net.JoinHostPort(host, strconv.Itoa(port))
}
