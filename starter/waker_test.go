package starter_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"pgregory.net/rapid"

	"github.com/rowfold/rowfold/activities"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/starter"
)

// temporalOf is a Temporal that only takes wakes, and answers when a test lets it.
type temporalOf struct {
	client.Client

	answer func(ctx context.Context, id string, nth int) error // nth wake of the workflow, from 1 on

	mu   sync.Mutex
	sent map[string]int
	most int // at a time
	now  int
}

func (f *temporalOf) SignalWithStartWorkflow(
	ctx context.Context, id, _ string, _ any, _ client.StartWorkflowOptions, _ any, _ ...any,
) (client.WorkflowRun, error) {
	f.mu.Lock()
	if f.sent == nil {
		f.sent = map[string]int{}
	}
	f.sent[id]++
	nth := f.sent[id]
	f.now++
	f.most = max(f.most, f.now)
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.now--
		f.mu.Unlock()
	}()
	if f.answer == nil {
		return nil, nil //nolint:nilnil // nobody looks at the run
	}
	return nil, f.answer(ctx, id, nth)
}

func (f *temporalOf) count(id string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sent[id]
}

// fakeStarter returns a starter on a temporalOf.
func fakeStarter(tb testing.TB, temporal *temporalOf, change ...func(*starter.Config)) *starter.Starter {
	tb.Helper()
	config := starter.Config{Client: temporal, WakeTimeout: time.Minute}
	for _, f := range change {
		f(&config)
	}
	s, err := starter.New(config)
	require.NoError(tb, err)
	tb.Cleanup(s.Close)
	return s
}

func rowOf(key string) outbox.Row { return outbox.Row{Projection: "p", Key: key} }

const idOfA = "rowfold/drain/p/a"

// T-8: a wake that is asked for while one of its row is in flight is sent after the answer to that, and all that are asked
// for meanwhile join it; other rows do not wait.
func TestWake_coalesces(t *testing.T) {
	t.Parallel()
	inFlight, answer := make(chan struct{}), make(chan struct{})
	temporal := &temporalOf{answer: func(_ context.Context, id string, nth int) error {
		if id == idOfA && nth == 1 {
			close(inFlight)
			<-answer
		}
		return nil
	}}
	s := fakeStarter(t, temporal)
	s.Wake(t.Context(), []outbox.Row{rowOf("a")})
	<-inFlight
	for range 10 {
		s.Wake(t.Context(), []outbox.Row{rowOf("a")})
	}
	s.Wake(t.Context(), []outbox.Row{rowOf("b")})
	require.Eventually(t, func() bool { return temporal.count("rowfold/drain/p/b") == 1 }, time.Minute, time.Millisecond)
	require.Equal(t, 1, temporal.count(idOfA))
	close(answer)
	require.Equal(t, activities.Wakes{Sent: 3}, s.Flush(t.Context()))
	require.Equal(t, 2, temporal.count(idOfA))
	require.Equal(t, activities.Wakes{}, s.Flush(t.Context()))
}

// T-8: a flush waits for what was asked for before it, and not for what others ask for meanwhile.
func TestFlush_underLoad(t *testing.T) {
	t.Parallel()
	var s *starter.Starter
	temporal := &temporalOf{}
	stop := make(chan struct{})
	temporal.answer = func(ctx context.Context, id string, _ int) error {
		select {
		case <-stop:
		default:
			if id == idOfA {
				s.Wake(ctx, []outbox.Row{rowOf("a")}) // this row never comes to rest
			}
		}
		return nil
	}
	s = fakeStarter(t, temporal)
	s.Wake(t.Context(), []outbox.Row{rowOf("a"), rowOf("b")})
	counts := s.Flush(t.Context())
	require.GreaterOrEqual(t, counts.Sent, 2)
	require.Equal(t, 1, temporal.count("rowfold/drain/p/b"))
	close(stop)
}

// T-8: a flush ends with its context.
func TestFlush_cancelled(t *testing.T) {
	t.Parallel()
	answer := make(chan struct{})
	s := fakeStarter(t, &temporalOf{answer: func(context.Context, string, int) error { <-answer; return nil }})
	ctx, cancel := context.WithCancel(t.Context())
	s.Wake(ctx, []outbox.Row{rowOf("a")})
	cancel()
	require.Zero(t, s.Flush(ctx).Sent)
	close(answer) // the wake itself outlives the call that asked for it
	require.Equal(t, activities.Wakes{Sent: 1}, s.Flush(t.Context()))
}

// T-8: a wake has a bound; beyond it, it is dropped and counted.
func TestWake_bound(t *testing.T) {
	t.Parallel()
	s := fakeStarter(t, &temporalOf{answer: func(ctx context.Context, _ string, _ int) error {
		<-ctx.Done()
		return serviceerror.NewDeadlineExceeded("too late")
	}}, func(config *starter.Config) { config.WakeTimeout = time.Millisecond })
	s.Wake(t.Context(), []outbox.Row{rowOf("a"), rowOf("b")})
	require.Equal(t, activities.Wakes{Dropped: 2}, s.Flush(t.Context()))
	s.Wake(t.Context(), []outbox.Row{rowOf("a")}) // and the row can be woken again
	require.Equal(t, activities.Wakes{Dropped: 1}, s.Flush(t.Context()))
}

// T-8: one circuit breaker: while Temporal is away, wakes are dropped without asking.
func TestWake_breaker(t *testing.T) {
	t.Parallel()
	temporal := &temporalOf{answer: func(context.Context, string, int) error { return serviceerror.NewUnavailable("away") }}
	s := fakeStarter(t, temporal)
	for range 50 {
		s.Wake(t.Context(), []outbox.Row{rowOf("a")})
		require.Equal(t, activities.Wakes{Dropped: 1}, s.Flush(t.Context()))
	}
	require.Equal(t, 5, temporal.count(idOfA))
}

// One row's bad wake does not hold up those of the others.
func TestWake_refused(t *testing.T) {
	t.Parallel()
	temporal := &temporalOf{answer: func(_ context.Context, id string, _ int) error {
		if id == idOfA {
			return serviceerror.NewInvalidArgument("no")
		}
		return nil
	}}
	s := fakeStarter(t, temporal)
	for range 20 {
		s.Wake(t.Context(), []outbox.Row{rowOf("a")})
		require.Equal(t, activities.Wakes{Dropped: 1}, s.Flush(t.Context()))
	}
	s.Wake(t.Context(), []outbox.Row{rowOf("b")})
	require.Equal(t, activities.Wakes{Sent: 1}, s.Flush(t.Context()))
}

// No more wakes are in flight than there are wakers, and a slow one does not hold up the others.
func TestWake_wakers(t *testing.T) {
	t.Parallel()
	slow := make(chan struct{})
	temporal := &temporalOf{answer: func(_ context.Context, id string, _ int) error {
		if id == idOfA {
			<-slow
		}
		return nil
	}}
	s := fakeStarter(t, temporal, func(config *starter.Config) { config.Wakers = 2 })
	s.Wake(t.Context(), []outbox.Row{rowOf("a")})
	for _, key := range []string{"b", "c", "d", "e", "f"} {
		s.Wake(t.Context(), []outbox.Row{rowOf(key)})
	}
	require.Eventually(t, func() bool { return temporal.count("rowfold/drain/p/f") == 1 }, time.Minute, time.Millisecond)
	close(slow)
	require.Equal(t, 6, s.Flush(t.Context()).Sent)
	require.LessOrEqual(t, temporal.most, 2)
}

// T-8: whatever the order of commits and answers, after each commit one wake is sent or counted as dropped.
func TestWake_property(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		fails := rapid.SliceOfN(rapid.Bool(), 8, 8).Draw(t, "fails")
		var mu sync.Mutex
		committed, seen, dropped := map[string]int{}, map[string]int{}, map[string]bool{}
		temporal := &temporalOf{answer: func(_ context.Context, id string, nth int) error {
			mu.Lock()
			defer mu.Unlock()
			if fails[nth%len(fails)] {
				dropped[id] = true
				return serviceerror.NewInvalidArgument("no")
			}
			seen[id], dropped[id] = committed[id], false
			return nil
		}}
		s, err := starter.New(starter.Config{Client: temporal, WakeTimeout: time.Minute, Wakers: rapid.IntRange(1, 3).Draw(t, "wakers")})
		require.NoError(t, err)
		var commits sync.WaitGroup
		for _, key := range []string{"a", "b"} {
			n := rapid.IntRange(1, 20).Draw(t, "commits")
			commits.Go(func() {
				for range n {
					mu.Lock()
					committed["rowfold/drain/p/"+key]++
					mu.Unlock()
					s.Wake(t.Context(), []outbox.Row{rowOf(key)})
				}
			})
		}
		commits.Wait()
		counts := s.Flush(t.Context())
		s.Close()
		mu.Lock()
		defer mu.Unlock()
		for id, n := range committed {
			if seen[id] != n {
				require.True(t, dropped[id], "the last commit of %s was not told, and no wake was dropped", id)
				require.Positive(t, counts.Dropped)
			}
		}
	})
}

// Close waits for the wakes that are under way.
func TestClose(t *testing.T) {
	t.Parallel()
	begun, answer := make(chan struct{}), make(chan struct{})
	s, err := starter.New(starter.Config{WakeTimeout: time.Minute, Client: &temporalOf{answer: func(context.Context, string, int) error {
		close(begun)
		<-answer
		return errors.New("no")
	}}})
	require.NoError(t, err)
	s.Wake(t.Context(), []outbox.Row{rowOf("a")})
	<-begun
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		s.Close()
	}()
	select {
	case <-closed:
		require.FailNow(t, "it has not waited")
	case <-time.After(20 * time.Millisecond):
	}
	close(answer)
	<-closed
}
