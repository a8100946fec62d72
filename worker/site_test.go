package worker_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"

	"github.com/rowfold/rowfold/activities"
	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/internal/tallytest"
	"github.com/rowfold/rowfold/internal/temporaltest"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
	"github.com/rowfold/rowfold/starter"
	"github.com/rowfold/rowfold/store/sqlite"
	"github.com/rowfold/rowfold/worker"
	"github.com/rowfold/rowfold/workflows"
)

// patience bounds every wait of these tests; a machine under load needs some.
const patience = time.Minute

// site is an installation: a store, a starter, and as many workers as a test starts.
type site struct {
	*tallytest.Lab

	prefix  string
	starter *starter.Starter
	mailbox *mailbox
}

// newSite returns a site on a Temporal server.
func newSite(t *testing.T, temporal client.Client, change ...func(*starter.Config)) *site {
	t.Helper()
	s := &site{Lab: tallytest.New(t, sqlite.Config{}), prefix: temporaltest.Prefix(t), mailbox: &mailbox{changed: make(chan struct{})}}
	s.starter = s.start(t, temporal, change...)
	return s
}

// start returns one more starter of the site, as another process has it.
func (s *site) start(t *testing.T, temporal client.Client, change ...func(*starter.Config)) *starter.Starter {
	t.Helper()
	config := starter.Config{
		Client: temporal, Deployment: s.prefix, TaskQueue: s.prefix, WakeTimeout: patience,
		Drain: workflows.DrainRow{
			Attempts: 1, RetryMin: activities.Duration(10 * time.Millisecond), RetryMax: activities.Duration(50 * time.Millisecond),
			BlockedMin: activities.Duration(20 * time.Millisecond), BlockedMax: activities.Duration(100 * time.Millisecond),
			HeartbeatTimeout: activities.Duration(time.Second), ClaimAhead: 4,
		},
	}
	for _, f := range change {
		f(&config)
	}
	started, err := starter.New(config)
	require.NoError(t, err)
	t.Cleanup(started.Close)
	return started
}

// config is that of a worker of the site.
func (s *site) config(deliver outbox.Deliverer) worker.Config {
	return worker.Config{
		Starter: s.starter, Store: s.Store, Events: s.Store, Projections: []projection.Definition{s.Definition},
		Deliver: map[string]outbox.Deliverer{tallytest.Projection: deliver}, Grace: 100 * time.Millisecond,
	}
}

// work runs a worker until the end of the test.
func (s *site) work(t *testing.T, change ...func(*worker.Config)) {
	t.Helper()
	config := s.config(s.mailbox.deliverer())
	for _, f := range change {
		f(&config)
	}
	w, err := worker.New(config)
	require.NoError(t, err)
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
}

// commit gives a tally n more effects, in as many events, and wakes its drain.
func (s *site) commit(t *testing.T, tally string, n int) {
	t.Helper()
	s.commitBy(t, s.starter, tally, n)
}

func (s *site) commitBy(t *testing.T, by *starter.Starter, tally string, n int) {
	t.Helper()
	s.Append(t, event.ID("day-"+tally), tallytest.Entries(tally, n)...)
	_, err := s.Processor(t, by.Wake).ProcessBatch(t.Context(), s.Records(t, event.ID("day-"+tally)), projection.BatchOptions{})
	require.NoError(t, err)
}

func row(tally string) outbox.Row { return outbox.Row{Projection: tallytest.Projection, Key: tally} }

// finished waits for the end of the row's open drain, and of those that follow, until nothing
// is pending.
func (s *site) finished(t *testing.T, tally string) workflows.DrainResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var result workflows.DrainResult
	require.NoError(t, s.starter.Client().GetWorkflow(ctx, s.starter.IDs().DrainRow(row(tally)), "").Get(ctx, &result))
	head, err := s.Store.Head(ctx, row(tally), 1)
	require.NoError(t, err)
	require.Empty(t, head.Items)
	return result
}

// inState waits until the memo of the row's drain, which needs no worker, tells a state.
func (s *site) inState(t *testing.T, tally, state string) starter.RowReport {
	t.Helper()
	var report starter.RowReport
	require.Eventually(t, func() bool {
		var err error
		report, err = s.starter.Row(t.Context(), row(tally), patience)
		return err == nil && report.Run != nil && report.Run.State.State == state
	}, patience, 20*time.Millisecond)
	return report
}

// mailbox takes effects, and does with each what a test says.
type mailbox struct {
	mu      sync.Mutex
	taken   []mail
	changed chan struct{} // closed at every change
	fault   error
}

type mail struct {
	row   string
	total int64
}

func (m *mailbox) deliverer() outbox.Deliverer {
	return outbox.Handle(func(_ context.Context, effect tallytest.Added, delivery outbox.Delivery) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.fault != nil {
			return m.fault
		}
		m.taken = append(m.taken, mail{delivery.Row.Key, effect.Total})
		close(m.changed)
		m.changed = make(chan struct{})
		return nil
	})
}

func (m *mailbox) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault = err
}

// of returns what was delivered for a row.
func (m *mailbox) of(tally string) []int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.totals(tally)
}

func (m *mailbox) totals(tally string) []int64 {
	var totals []int64
	for _, got := range m.taken {
		if got.row == tally {
			totals = append(totals, got.total)
		}
	}
	return totals
}

// await waits until a row's total was delivered.
func (m *mailbox) await(t *testing.T, tally string, total int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		m.mu.Lock()
		got, changed := m.totals(tally), m.changed
		m.mu.Unlock()
		if slices.Contains(got, total) {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			require.FailNow(t, "it was not delivered", "%s %d: there are only %v", tally, total, got)
		}
	}
}

// upTo is 1, 2, … n.
func upTo(n int) []int64 {
	totals := make([]int64, n)
	for i := range totals {
		totals[i] = int64(i + 1)
	}
	return totals
}

// line is a connection to Temporal that can be cut: calls that are under way end then, and
// others do not begin.
type line struct {
	mu   sync.Mutex
	up   context.Context //nolint:containedctx // it ends with the line and not with a call
	down context.CancelFunc
}

func newLine() *line {
	l := &line{}
	l.mend()
	return l
}

func (l *line) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.up, l.down = context.WithCancel(context.Background())
}

func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down()
}

func (l *line) intercept(
	ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption,
) error {
	l.mu.Lock()
	up := l.up
	l.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(up, cancel) //nolint:contextcheck // the line outlives the call
	defer stop()
	if up.Err() == nil {
		if err := invoke(ctx, method, request, reply, conn, options...); up.Err() == nil {
			return err
		}
	}
	return serviceerror.NewUnavailable("the line is cut")
}

// client connects over the line.
func (l *line) client(t *testing.T) client.Client {
	t.Helper()
	return temporaltest.Client(t, func(options *client.Options) {
		options.ConnectionOptions.DialOptions = append(options.ConnectionOptions.DialOptions, grpc.WithChainUnaryInterceptor(l.intercept))
	})
}
