package worker_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/activities"
	"github.com/rowfold/rowfold/internal/tallytest"
	"github.com/rowfold/rowfold/internal/temporaltest"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/worker"
)

// stuck is a deliverer that hangs in its first delivery until it is released, or forced to end.
type stuck struct {
	next    outbox.Deliverer
	begun   chan struct{} // closed when the delivery hangs
	ended   chan struct{} // closed when its context has ended
	release chan struct{}

	begin, end sync.Once
}

func newStuck(next outbox.Deliverer) *stuck {
	return &stuck{next: next, begun: make(chan struct{}), ended: make(chan struct{}), release: make(chan struct{})}
}

// deliver ignores the end of its context, as a zombie does.
func (s *stuck) deliver(ctx context.Context, delivery outbox.Delivery) error {
	s.begin.Do(func() { close(s.begun) })
	select {
	case <-s.release:
	case <-ctx.Done():
		s.end.Do(func() { close(s.ended) })
		<-s.release
	}
	return s.next(context.WithoutCancel(ctx), delivery)
}

func (s *stuck) wait(t *testing.T, signal <-chan struct{}) {
	t.Helper()
	select {
	case <-signal:
	case <-time.After(patience):
		require.FailNow(t, "it did not happen")
	}
}

// T-10, T-7: when a worker is cut off in the middle of a delivery, its attempt ends by the heartbeat time-out, another
// worker takes over its claim, and the zombie repeats one effect at most.
func TestTakeOver_fromDeadWorker(t *testing.T) {
	t.Parallel()
	s := newSite(t, temporaltest.Client(t))
	cut := newLine()
	zombie := newStuck(s.mailbox.deliverer())
	far := s.start(t, cut.client(t))
	s.work(t, func(config *worker.Config) {
		config.Starter = far
		config.Deliver = map[string]outbox.Deliverer{tallytest.Projection: zombie.deliver}
	})
	t.Cleanup(func() { // before its worker stops, which waits for it
		cut.mend()
		close(zombie.release)
	})
	s.commit(t, "a", 3)
	s.starter.Flush(t.Context())
	zombie.wait(t, zombie.begun)
	cut.cut()
	s.work(t)
	s.mailbox.await(t, "a", 3)
	require.Equal(t, upTo(3), s.mailbox.of("a"))
	// T-6: it is told to end when its heartbeats fail for one time-out.
	zombie.wait(t, zombie.ended)
	result := s.finished(t, "a")
	require.EqualValues(t, 3, result.Delivered)
	require.Len(t, s.mailbox.of("a"), 3)
}

// T-10: while the owner of a claim is at work nobody takes over; when its run is terminated the next one does.
func TestTakeOver_fromTerminatedRun(t *testing.T) {
	t.Parallel()
	temporal := temporaltest.Client(t)
	s := newSite(t, temporal)
	zombie := newStuck(s.mailbox.deliverer())
	release := sync.OnceFunc(func() { close(zombie.release) })
	t.Cleanup(release)
	first := true
	var mu sync.Mutex
	s.work(t, func(config *worker.Config) {
		config.Deliver = map[string]outbox.Deliverer{tallytest.Projection: func(ctx context.Context, delivery outbox.Delivery) error {
			mu.Lock()
			hangs := first
			first = false
			mu.Unlock()
			if hangs {
				return zombie.deliver(ctx, delivery)
			}
			return s.mailbox.deliverer()(ctx, delivery)
		}}
	})
	s.commit(t, "a", 3)
	s.starter.Flush(t.Context())
	zombie.wait(t, zombie.begun)

	// A process that drains by itself asks Temporal about the claim.
	byHand := func() outbox.Result {
		result, err := outbox.Drain(t.Context(), s.Store, row("a"), s.mailbox.deliverer(), outbox.Options{
			Types: s.Definition.EffectTypes(), Judge: activities.Judge{Temporal: temporal.WorkflowService()}, MaxEffects: 1,
		})
		require.NoError(t, err)
		return result
	}
	blocked := byHand().Blocked
	require.NotNil(t, blocked)
	require.Equal(t, s.starter.IDs().DrainRow(row("a")), blocked.Claim.WorkflowID)
	require.Empty(t, blocked.Reason)
	// T-19: `why` says who works at it.
	report, err := s.starter.Row(t.Context(), row("a"), patience)
	require.NoError(t, err)
	require.Contains(t, report.Explain().Waits, "activity DrainOutbox on worker")
	require.Positive(t, report.Pollers)

	require.NoError(t, temporal.TerminateWorkflow(t.Context(), blocked.Claim.WorkflowID, "", "test"))
	require.Equal(t, 1, byHand().Delivered)
	require.NoError(t, s.starterWake(t, "a"))
	s.mailbox.await(t, "a", 3)
	require.Equal(t, upTo(3), s.mailbox.of("a"))
	s.finished(t, "a")

	// The zombie repeats its one effect, and finds that it was overtaken.
	release()
	require.Eventually(t, func() bool { return len(s.mailbox.of("a")) == 4 }, patience, tick)
	require.Equal(t, append(upTo(3), 1), s.mailbox.of("a"))
	s.commit(t, "a", 1)
	s.mailbox.await(t, "a", 4)
	s.finished(t, "a")
	require.Equal(t, append(upTo(3), 1, 4), s.mailbox.of("a"))
}

// T-6: a worker that stops finishes the delivery that runs, within its grace time, and leaves the rest to another one.
func TestTakeOver_fromStoppingWorker(t *testing.T) {
	t.Parallel()
	s := newSite(t, temporaltest.Client(t))
	slow := newStuck(s.mailbox.deliverer())
	config := s.config(slow.deliver)
	config.Grace = patience
	stopping, err := worker.New(config)
	require.NoError(t, err)
	require.NoError(t, stopping.Start())
	s.commit(t, "a", 10)
	s.starter.Flush(t.Context())
	slow.wait(t, slow.begun)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		stopping.Stop()
	}()
	select {
	case <-stopped:
		require.FailNow(t, "it has not waited for the delivery")
	case <-time.After(50 * time.Millisecond):
	}
	close(slow.release)
	slow.wait(t, stopped)
	require.Less(t, len(s.mailbox.of("a")), 10)
	require.NotEmpty(t, s.mailbox.of("a"))
	s.work(t)
	s.mailbox.await(t, "a", 10)
	s.finished(t, "a")
	require.Equal(t, upTo(10), s.mailbox.of("a"))
}

// T-6, T-19: a long drain tells by heartbeats that it is alive, for longer than their time-out.
func TestDrain_heartbeats(t *testing.T) {
	t.Parallel()
	s := newSite(t, temporaltest.Client(t))
	slow := newStuck(s.mailbox.deliverer())
	s.work(t, func(config *worker.Config) {
		config.Deliver = map[string]outbox.Deliverer{tallytest.Projection: slow.deliver}
	})
	s.commit(t, "a", 2)
	s.starter.Flush(t.Context())
	slow.wait(t, slow.begun)
	id := s.starter.IDs().DrainRow(row("a"))
	var beats []time.Time
	require.Eventually(t, func() bool {
		described, err := s.starter.Client().DescribeWorkflowExecution(t.Context(), id, "")
		if err != nil || len(described.GetPendingActivities()) == 0 {
			return false
		}
		pending := described.GetPendingActivities()[0]
		require.EqualValues(t, 1, pending.GetAttempt())
		if pending.GetLastHeartbeatTime() == nil {
			return false
		}
		if at := pending.GetLastHeartbeatTime().AsTime(); len(beats) == 0 || at.After(beats[len(beats)-1]) {
			beats = append(beats, at)
		}
		return beats[len(beats)-1].Sub(beats[0]) > 1500*time.Millisecond // the time-out is a second
	}, patience, tick)
	close(slow.release)
	s.finished(t, "a")
	require.Equal(t, upTo(2), s.mailbox.of("a"))
}

// T-6: a cancelled drain ends its delivery, and leaves no claim behind.
func TestDrain_cancelled(t *testing.T) {
	t.Parallel()
	s := newSite(t, temporaltest.Client(t))
	begun := make(chan struct{}, 1)
	s.work(t, func(config *worker.Config) {
		config.Deliver = map[string]outbox.Deliverer{tallytest.Projection: func(ctx context.Context, _ outbox.Delivery) error {
			begun <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}}
	})
	s.commit(t, "a", 2)
	s.starter.Flush(t.Context())
	<-begun
	run := s.starter.Client().GetWorkflow(t.Context(), s.starter.IDs().DrainRow(row("a")), "")
	require.NoError(t, s.starter.Client().CancelWorkflow(t.Context(), run.GetID(), ""))
	require.ErrorContains(t, run.Get(t.Context(), nil), "cancel")
	head, err := s.Store.Head(t.Context(), row("a"), 2)
	require.NoError(t, err)
	require.Len(t, head.Items, 2)
	for _, item := range head.Items {
		require.Empty(t, item.Claim.Nonce)
	}
}

// starterWake wakes a row, and returns whether Temporal has answered.
func (s *site) starterWake(t *testing.T, tally string) error {
	t.Helper()
	_, err := s.starter.Drain(t.Context(), row(tally))
	return err
}
