package worker_test

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/rowfold/rowfold/activities"
	"github.com/rowfold/rowfold/internal/tallytest"
	"github.com/rowfold/rowfold/internal/temporaltest"
	"github.com/rowfold/rowfold/starter"
	"github.com/rowfold/rowfold/workflows"
)

// T-13, T-12, T-8: an outage of Temporal fails no commit and holds none up beyond its bound; the wakes are counted as
// dropped, and the sweep heals them.
func TestOutage(t *testing.T) {
	t.Parallel()
	server := temporaltest.StartProcess(t, temporaltest.Options{Database: filepath.Join(t.TempDir(), "temporal.db")})
	s := newSite(t, temporaltest.Dial(t, server.Address()))
	short := s.start(t, s.starter.Client(), func(config *starter.Config) { config.WakeTimeout = 200 * time.Millisecond })
	s.work(t)
	s.commit(t, "before", 1)
	s.starter.Flush(t.Context())
	s.finished(t, "before")
	server.Kill()

	// Each batch commits though nobody answers; the first ones wait for their bound, then the breaker is open.
	dropped := 0
	for i := range 12 {
		s.commitBy(t, short, string(rune('a'+i)), 2)
		began := time.Now()
		wakes := short.Flush(t.Context())
		require.Zero(t, wakes.Sent)
		dropped += wakes.Dropped
		if i > 6 {
			require.Less(t, time.Since(began), 150*time.Millisecond, "the breaker is not open")
		}
	}
	require.Equal(t, 12, dropped)
	require.EqualValues(t, 2, s.Tally(t, "a").Total)
	require.Empty(t, s.mailbox.of("a"))

	server.Restart()
	// An effect that the sweep finds is older than its grace time; a drain that runs by then is met by one more wake.
	input := workflows.SweepOutbox{Projection: tallytest.Projection, Grace: activities.Duration(time.Nanosecond)}
	var counts activities.SweepCounts
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		run, err := s.starter.Sweep(ctx, input)
		return err == nil && run.Get(ctx, &counts) == nil
	}, patience, tick)
	require.Equal(t, 12, counts.Pending)
	require.Equal(t, 12, counts.Woken)
	for i := range 12 {
		s.mailbox.await(t, string(rune('a'+i)), 2)
		s.finished(t, string(rune('a'+i)))
		require.Equal(t, upTo(2), s.mailbox.of(string(rune('a'+i))))
	}
}

// T-12: a schedule sweeps by itself, and can be changed.
func TestScheduleSweep(t *testing.T) {
	t.Parallel()
	s := newSite(t, temporaltest.Client(t))
	s.work(t)
	s.Append(t, "day-a", tallytest.Entries("a", 2)...)
	_, err := s.Processor(t, nil).ProcessBatch(t.Context(), s.Records(t, "day-a"), batchOptions())
	require.NoError(t, err) // nobody has woken the drain
	input := workflows.SweepOutbox{Projection: tallytest.Projection}
	require.NoError(t, s.starter.ScheduleSweep(t.Context(), time.Hour, input))
	input.Grace = activities.Duration(time.Nanosecond)
	require.NoError(t, s.starter.ScheduleSweep(t.Context(), time.Second, input))
	id := s.starter.IDs().SweepOutbox(tallytest.Projection)
	handle := s.starter.Client().ScheduleClient().GetHandle(t.Context(), id)
	t.Cleanup(func() { require.NoError(t, handle.Delete(context.WithoutCancel(t.Context()))) })
	s.mailbox.await(t, "a", 2)
	s.finished(t, "a")
	require.Equal(t, upTo(2), s.mailbox.of("a"))
	require.ErrorContains(t, s.starter.ScheduleSweep(t.Context(), 0, input), "too short")
}

// T-19: where the search attributes are not registered everything goes on without them, with one warning.
func TestWorker_withoutSearchAttributes(t *testing.T) {
	t.Parallel()
	temporal, namespace := bareNamespace(t)
	log := &lockedBuffer{}
	s := newSite(t, temporal, func(config *starter.Config) {
		config.Namespace, config.Log = namespace, slog.New(slog.NewTextHandler(log, nil))
	})
	s.work(t)
	s.mailbox.fail(permanent())
	s.commit(t, "a", 2)
	s.commit(t, "b", 1)
	wakes := s.starter.Flush(t.Context())
	require.Equal(t, activities.Wakes{Sent: 2}, wakes)
	require.Equal(t, 1, bytes.Count(log.Bytes(), []byte("does not know rowfold's search attributes")))
	report := s.inState(t, "a", workflows.StateParked) // the memo says it all the same
	require.NotEmpty(t, report.Run.State.About)
	s.mailbox.fail(nil)
	other := s.start(t, temporal, func(config *starter.Config) { config.Namespace = namespace })
	retried, err := other.Retry(t.Context(), row("a"), "ada") // an order is the first thing that this one starts
	require.NoError(t, err)
	require.True(t, retried.Waited)
	s.finished(t, "a")
	require.Equal(t, upTo(2), s.mailbox.of("a"))
	third := s.start(t, temporal, func(config *starter.Config) { config.Namespace = namespace })
	_, err = third.Retry(t.Context(), row("nobody"), "ada") // and here with a start
	require.NoError(t, err)
}

// bareNamespace returns a client in a namespace of its own, which has no search attributes.
func bareNamespace(t *testing.T) (temporal client.Client, name string) {
	t.Helper()
	name = temporaltest.Prefix(t)
	service := temporaltest.Client(t).WorkflowService()
	_, err := service.RegisterNamespace(t.Context(), &workflowservice.RegisterNamespaceRequest{
		Namespace: name, WorkflowExecutionRetentionPeriod: durationpb.New(24 * time.Hour),
	})
	require.NoError(t, err)
	temporal = temporaltest.Client(t, func(options *client.Options) { options.Namespace = name })
	require.Eventually(t, func() bool { // caches of the server
		_, err := temporal.DescribeTaskQueue(t.Context(), name, 1)
		return err == nil
	}, patience, tick)
	return temporal, name
}

type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) Bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Clone(b.buffer.Bytes())
}
