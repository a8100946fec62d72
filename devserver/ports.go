package devserver

import (
	"context"
	"fmt"
	"net"
	"runtime"

	"go.temporal.io/server/common/primitives"
)

// PortError says that a port which the configuration names cannot be listened on, usually because another process does.
type PortError struct {
	// Field is the field of Config that names the port.
	Field string
	// Address is the address with the port.
	Address string
	// Err is the error of the operating system.
	Err error
}

// Error names the field, the address and the cause.
func (e *PortError) Error() string {
	return fmt.Sprintf("%s: cannot listen on %s: %v", e.Field, e.Address, e.Err)
}

// Unwrap returns the error of the operating system.
func (e *PortError) Unwrap() error { return e.Err }

// ports are the TCP ports of a server; 0 stands for a service that is left out.
type ports struct {
	frontend, http, history, matching, worker, ui, metrics int
}

// of returns the port of one of Temporal's services.
func (p ports) of(service primitives.ServiceName) int {
	switch service {
	case primitives.FrontendService:
		return p.frontend
	case primitives.HistoryService:
		return p.history
	case primitives.MatchingService:
		return p.matching
	default:
		return p.worker
	}
}

// choosePorts checks the ports that the configuration names and picks free ones for the rest. The check is not just for
// the message: both Temporal and its UI end the whole process when they cannot listen.
func choosePorts(ctx context.Context, cfg Config) (ports, error) {
	var (
		chosen ports
		err    error
	)

	for _, p := range []struct {
		target *int
		field  string
		host   string
		port   int
		wanted bool
	}{
		{&chosen.frontend, "Port", cfg.Address, cfg.Port, true},
		{&chosen.ui, "UIPort", cfg.Address, cfg.UIPort, cfg.UIPort != NoPort},
		{&chosen.metrics, "MetricsPort", cfg.Address, cfg.MetricsPort, cfg.MetricsPort > 0},
		{&chosen.http, "HTTP API", cfg.Address, 0, true},
		{&chosen.history, "history service", internalAddress, 0, true},
		{&chosen.matching, "matching service", internalAddress, 0, true},
		{&chosen.worker, "worker service", internalAddress, 0, true},
	} {
		if !p.wanted {
			continue
		}

		if *p.target, err = reservePort(ctx, p.host, p.port); err != nil {
			return ports{}, &PortError{Field: p.field, Address: hostPort(p.host, p.port), Err: err}
		}
	}

	return chosen, nil
}

// reservePort makes sure that the port can be listened on; with port 0 it finds a free one.
//
// Nothing holds the port until the server listens on it. On Linux a port that was found is kept from other processes
// meanwhile: a connection which the listening side closes first leaves the port in TIME_WAIT for a minute, in which the
// system hands it out to nobody, while a listener that asks for it by number still gets it. Temporal's freeport package
// has the idea.
func reservePort(ctx context.Context, host string, port int) (reserved int, err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", hostPort(host, port))
	if err != nil {
		return 0, fmt.Errorf("look for a free port: %w", err)
	}

	defer func() {
		if closeErr := listener.Close(); err == nil {
			err = closeErr
		}
	}()

	address, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		return 0, fmt.Errorf("unexpected address type %T", listener.Addr())
	}

	if port == 0 && runtime.GOOS == "linux" {
		if err := leaveInTimeWait(listener, address); err != nil {
			return 0, err
		}
	}

	return address.Port, nil
}

func leaveInTimeWait(listener net.Listener, address *net.TCPAddr) error {
	target := *address
	if target.IP.IsUnspecified() {
		target.IP = nil // the dialer's word for this machine
	}

	client, err := net.DialTCP("tcp", nil, &target)
	if err != nil {
		return fmt.Errorf("connect to the reserved port: %w", err)
	}

	accepted, err := listener.Accept()
	if err != nil {
		_ = client.Close()

		return fmt.Errorf("accept on the reserved port: %w", err)
	}

	// The order matters: the side that closes first keeps the port in TIME_WAIT.
	if err := accepted.Close(); err != nil {
		return fmt.Errorf("close the reserved port: %w", err)
	}

	if err := client.Close(); err != nil {
		return fmt.Errorf("close the connection to the reserved port: %w", err)
	}

	return nil
}
