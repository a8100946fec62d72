package temporaltest

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.uber.org/goleak"
)

const (
	// Namespace is the namespace that every server has.
	Namespace = "default"

	// dialTimeout bounds the connection of a client to a server that is known to be up.
	dialTimeout = 30 * time.Second

	// prefixName is how much of the test's name a prefix shows: workflow ids are limited, and people read them.
	prefixName = 60
)

// shared is the server that the tests of this test binary share.
//
//nolint:gochecknoglobals // one server per test binary is what this package is for, and testing has no other place for it
var shared sharedServer

type sharedServer struct {
	mu      sync.Mutex
	started bool
	server  *child
	err     error
}

// Main runs the tests of a package, ends the shared server if one was started, and looks for goroutines that the tests
// left behind. It returns the exit code for os.Exit. The options are for goleak.
func Main(m *testing.M, options ...goleak.Option) int {
	code := m.Run()

	if err := shared.kill(); err != nil {
		fmt.Fprintf(os.Stderr, "temporaltest: %v\n", err)

		code = max(code, 1)
	}

	// A failed test may well leave goroutines behind; its failure is the news.
	if code == 0 {
		if err := goleak.Find(options...); err != nil {
			fmt.Fprintf(os.Stderr, "temporaltest: goroutines leaked: %v\n", err)

			return 1
		}
	}

	return code
}

// Address is the host and port of the shared server, which the first call starts.
func Address(tb testing.TB) string {
	tb.Helper()

	address, err := shared.address()
	if err != nil {
		tb.Fatalf("temporaltest: %v", err)
	}

	return address
}

// Client connects to the shared server, in [Namespace]. The end of the test closes the client. The functions may change
// the options before they are used, for example to set a data converter or interceptors.
func Client(tb testing.TB, change ...func(*client.Options)) client.Client {
	tb.Helper()

	return Dial(tb, Address(tb), change...)
}

// Dial connects to a server by its address, for example that of a [Process], as Client does to the shared one.
func Dial(tb testing.TB, address string, change ...func(*client.Options)) client.Client {
	tb.Helper()

	options := client.Options{
		HostPort:  address,
		Namespace: Namespace,
		// The SDK would log to standard error what tests provoke on purpose.
		Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
		// On the loopback interface compression costs more than it saves.
		ConnectionOptions: client.ConnectionOptions{GrpcCompression: &client.GrpcCompressionNone{}},
	}
	for _, f := range change {
		f(&options)
	}

	ctx, cancel := context.WithTimeout(tb.Context(), dialTimeout)
	defer cancel()

	temporal, err := client.DialContext(ctx, options)
	if err != nil {
		tb.Fatalf("temporaltest: connect to %s: %v", address, err)
	}

	tb.Cleanup(temporal.Close)

	return temporal
}

// Prefix returns a prefix for workflow ids, schedule ids and task queues that no other test uses: the test's name, cut,
// and random letters.
func Prefix(tb testing.TB) string {
	tb.Helper()

	// Quotes would have to be escaped in queries, slashes in URLs of the UI.
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-':
			return r
		default:
			return '_'
		}
	}, tb.Name())

	return name[:min(len(name), prefixName)] + "-" + strings.ToLower(rand.Text()[:10])
}

func (s *sharedServer) address() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if !s.started {
		s.started = true
		s.server, s.err = startShared()
	}

	if s.err != nil {
		return "", s.err
	}

	return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.server.port)), nil
}

func startShared() (*child, error) {
	binary, err := findBinary()
	if err != nil {
		return nil, err
	}

	return startChild(binary, Options{})
}

// kill ends the server. It has nothing to save, so the second that an orderly stop takes is spared.
func (s *sharedServer) kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.server == nil {
		return nil
	}

	server := s.server
	s.server = nil

	return server.kill()
}
