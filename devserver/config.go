package devserver

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// NoPort is a port in [Config] that leaves the service out.
const NoPort = -1

const (
	defaultAddress      = "127.0.0.1"
	defaultNamespace    = "default"
	defaultRetention    = 72 * time.Hour
	defaultStartTimeout = 60 * time.Second

	// minRetention is Temporal's own floor for a namespace.
	minRetention = time.Hour

	// systemNamespace is created by Temporal itself.
	systemNamespace = "temporal-system"
)

// Config says where a [Server] listens and what it keeps. The zero value is a server in memory on free loopback ports.
type Config struct {
	// Address is the IP address on which the frontend, the UI and the metrics listen. The other services of the server
	// always stay on 127.0.0.1. Defaults to 127.0.0.1.
	Address string

	// Port is the TCP port of the frontend, to which clients and workers connect. 0 picks a free one.
	Port int

	// UIPort is the TCP port of the web UI. 0 picks a free one, NoPort (-1) starts no UI.
	UIPort int

	// MetricsPort is the TCP port of the server's Prometheus metrics, at /metrics. 0 and NoPort serve none: metrics cost a
	// few per cent of the throughput.
	MetricsPort int

	// Database is the path of the SQLite file that keeps the state. The file is created when it is missing, its folder is
	// not. Defaults to "", which keeps the state in memory, until Stop or the end of the process.
	Database string

	// Namespaces are created before the server starts, unless the database has them. Defaults to "default".
	Namespaces []string

	// Retention is how long the namespaces created here keep closed workflows; at least an hour. Defaults to 72 hours.
	Retention time.Duration

	// Settings overrides Temporal's dynamic configuration, by key, for example {"limit.maxIDLength": 500}. A key that
	// Temporal does not have, or a value of the wrong type, is a fault; Temporal itself would ignore it without a word.
	Settings map[string]any

	// StartTimeout bounds Start. Defaults to one minute.
	StartTimeout time.Duration

	// Log gets the server's warnings and errors. Defaults to a logger that discards them.
	Log *slog.Logger
}

// Validate returns every fault of the configuration at once, joined, or nil.
func (c Config) Validate() error {
	var faults []error

	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }

	if c.Address != "" && net.ParseIP(c.Address) == nil {
		fault("Address %q is not an IP address", c.Address)
	}

	c.validatePorts(fault)
	c.validateDatabase(fault)

	for i, namespace := range c.Namespaces {
		switch {
		case namespace == "":
			fault("Namespaces[%d] is empty", i)
		case namespace == systemNamespace:
			fault("Namespaces[%d] is %q, which Temporal creates for itself", i, namespace)
		case slices.Contains(c.Namespaces[:i], namespace):
			fault("Namespaces[%d] repeats %q", i, namespace)
		}
	}

	if c.Retention != 0 && c.Retention < minRetention {
		fault("Retention %s is below Temporal's minimum of %s", c.Retention, minRetention)
	}

	if _, err := parseSettings(c.Settings); err != nil {
		fault("Settings: %w", err)
	}

	if c.StartTimeout < 0 {
		fault("StartTimeout %s is negative", c.StartTimeout)
	}

	return errors.Join(faults...)
}

func (c Config) validatePorts(fault func(format string, args ...any)) {
	ports := []struct {
		name string
		port int
		min  int
	}{
		{"Port", c.Port, 0},
		{"UIPort", c.UIPort, NoPort},
		{"MetricsPort", c.MetricsPort, NoPort},
	}

	for i, p := range ports {
		if p.port < p.min || p.port > 65535 {
			fault("%s %d is not between %d and 65535", p.name, p.port, p.min)

			continue
		}

		for _, other := range ports[:i] {
			if p.port > 0 && p.port == other.port {
				fault("%s and %s are both %d", other.name, p.name, p.port)
			}
		}
	}
}

func (c Config) validateDatabase(fault func(format string, args ...any)) {
	if c.Database == "" {
		return
	}

	if info, err := os.Stat(filepath.Dir(c.Database)); err != nil {
		fault("Database %q: its folder: %w", c.Database, err)
	} else if !info.IsDir() {
		fault("Database %q: %q is not a folder", c.Database, filepath.Dir(c.Database))
	}

	if info, err := os.Stat(c.Database); err == nil && info.IsDir() {
		fault("Database %q is a folder", c.Database)
	}
}

// withDefaults returns a copy in which every field that was left out has its documented default.
func (c Config) withDefaults() Config {
	if c.Address == "" {
		c.Address = defaultAddress
	}

	if len(c.Namespaces) == 0 {
		c.Namespaces = []string{defaultNamespace}
	}

	if c.Retention == 0 {
		c.Retention = defaultRetention
	}

	if c.StartTimeout == 0 {
		c.StartTimeout = defaultStartTimeout
	}

	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}

	return c
}

// dialAddress is the address under which this process reaches what listens on Address.
func (c Config) dialAddress() string {
	if ip := net.ParseIP(c.Address); ip != nil && ip.IsUnspecified() {
		if ip.To4() == nil {
			return "::1"
		}

		return defaultAddress
	}

	return c.Address
}
