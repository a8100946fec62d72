package worker_test

import (
	"errors"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

	"github.com/rowfold/rowfold/activities"
	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/internal/tallytest"
	"github.com/rowfold/rowfold/internal/temporaltest"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/starter"
	"github.com/rowfold/rowfold/worker"
	"github.com/rowfold/rowfold/workflows"
)

// T-8, T-9: a commit with effects wakes the row's drain, which delivers them in order and completes.
func TestWorker_drains(t *testing.T) {
	t.Parallel()
	s := newSite(t, temporaltest.Client(t))
	s.work(t)
	s.commit(t, "a", 25)
	s.commit(t, "b", 3)
	require.Equal(t, activities.Wakes{Sent: 2}, s.starter.Flush(t.Context()))
	require.EqualValues(t, 25, s.finished(t, "a").Delivered)
	require.EqualValues(t, 3, s.finished(t, "b").Delivered)
	require.Equal(t, upTo(25), s.mailbox.of("a"))
	require.Equal(t, upTo(3), s.mailbox.of("b"))

	// T-19: what a run was about can be seen without asking a worker.
	report, err := s.starter.Row(t.Context(), row("a"), patience)
	require.NoError(t, err)
	require.False(t, report.Open)
	require.Equal(t, "Completed", report.Run.Status)
	require.Contains(t, report.Explain().Waits, "no drain is open")
	attributes, err := s.starter.Client().DescribeWorkflow(t.Context(), report.Run.WorkflowID, report.Run.RunID)
	require.NoError(t, err)
	require.Equal(t, map[string]string{
		workflows.AttributeProjection: tallytest.Projection, workflows.AttributeRow: "a", workflows.AttributeState: workflows.StateDraining,
	}, keywords(attributes.TypedSearchAttributes))

	// After the end a new run starts.
	s.commit(t, "a", 2)
	s.starter.Flush(t.Context())
	require.EqualValues(t, 2, s.finished(t, "a").Delivered)
	require.Equal(t, upTo(27), s.mailbox.of("a"))
}

// T-8: whatever commits race with the end of a drain, no effect is left behind and none is delivered twice.
func TestWorker_wakesRace(t *testing.T) {
	t.Parallel()
	s := newSite(t, temporaltest.Client(t))
	s.work(t)
	const rows, commits = 4, 15
	var all sync.WaitGroup
	for i := range rows {
		all.Go(func() {
			for n := range commits {
				s.commit(t, strconv.Itoa(i), 1)
				if n%4 == i { // sometimes the drain is idle, sometimes it is not
					s.mailbox.await(t, strconv.Itoa(i), int64(n+1))
				}
			}
		})
	}
	all.Wait()
	wakes := s.starter.Flush(t.Context())
	require.Zero(t, wakes.Dropped)
	require.LessOrEqual(t, wakes.Sent, rows*commits)
	for i := range rows {
		s.mailbox.await(t, strconv.Itoa(i), commits)
		s.finished(t, strconv.Itoa(i))
		require.Equal(t, upTo(commits), s.mailbox.of(strconv.Itoa(i)))
	}
}

// T-11: a head that fails keeps its own row, and no other; it is tried again by itself.
func TestWorker_retries(t *testing.T) {
	t.Parallel()
	s := newSite(t, temporaltest.Client(t))
	s.work(t)
	s.mailbox.fail(errors.New("mailbox full"))
	s.commit(t, "a", 3)
	report := s.inState(t, "a", workflows.StateRetrying)
	require.True(t, report.Open)
	require.Equal(t, "mailbox full", report.Run.State.Error)
	require.Equal(t, event.ClassRetry, report.Run.State.Class)
	require.NotZero(t, report.Run.State.Since)
	require.NotNil(t, report.Drain)
	require.Equal(t, report.Run.State.About, report.Drain.Head.ID)
	require.Contains(t, report.Explain().Waits, "mailbox full")
	require.Contains(t, report.Explain().Next, "rowfold retry Tally a")
	s.mailbox.fail(nil)
	result := s.finished(t, "a")
	require.EqualValues(t, 3, result.Delivered)
	require.Greater(t, result.Rounds, int64(1))
	require.Equal(t, upTo(3), s.mailbox.of("a"))
}

// T-11: an operator answers a parked queue by update-with-start: retry, skip, or set aside.
func TestWorker_orders(t *testing.T) {
	t.Parallel()
	s := newSite(t, temporaltest.Client(t))
	s.work(t)
	s.mailbox.fail(event.Permanent(errors.New("no such address")))
	s.commit(t, "a", 4)
	report := s.inState(t, "a", workflows.StateParked)
	first := report.Run.State.About
	require.Equal(t, []string{"rowfold retry Tally a", "rowfold skip Tally a", "rowfold park Tally a"}, report.Explain().Next)

	// What the operator has seen is not the head any more.
	_, err := s.starter.Skip(t.Context(), row("a"), workflows.Decision{EffectID: "other", Who: "ada", Why: "test"})
	requireRefused(t, err, activities.ErrorHeadMoved)
	_, err = s.starter.Skip(t.Context(), row("a"), workflows.Decision{EffectID: first, Who: "ada"})
	requireRefused(t, err, workflows.ErrorInvalidInput)
	require.ErrorContains(t, err, "why")

	skipped, err := s.starter.Skip(t.Context(), row("a"), workflows.Decision{EffectID: first, Who: "ada", Why: "she has moved"})
	require.NoError(t, err)
	require.Equal(t, workflows.Decided{EffectID: first, Verb: outbox.VerbSkip}, skipped)
	var second string
	require.Eventually(t, func() bool {
		second = s.inState(t, "a", workflows.StateParked).Drain.Head.ID
		return second != first
	}, patience, tick)
	parked, err := s.starter.Park(t.Context(), row("a"), workflows.Decision{EffectID: second, Who: "bob", Why: "later"})
	require.NoError(t, err)
	require.Equal(t, workflows.Decided{EffectID: second, Verb: outbox.VerbPark}, parked)
	require.Eventually(t, func() bool {
		return s.inState(t, "a", workflows.StateParked).Drain.Head.ID != second
	}, patience, tick)

	s.mailbox.fail(nil)
	retried, err := s.starter.Retry(t.Context(), row("a"), "ada")
	require.NoError(t, err)
	require.True(t, retried.Waited)
	result := s.finished(t, "a")
	require.EqualValues(t, 2, result.Delivered)
	require.EqualValues(t, 2, result.Decided)
	require.Equal(t, []int64{3, 4}, s.mailbox.of("a"))
	decided, err := s.Store.Decisions(t.Context(), row("a"))
	require.NoError(t, err)
	require.Len(t, decided, 2)
	require.Equal(t, "she has moved", decided[0].Decision.Why)
	require.Equal(t, "bob", decided[1].Decision.Who)

	// Where no drain is open an order starts one.
	retried, err = s.starter.Retry(t.Context(), row("a"), "ada")
	require.NoError(t, err)
	require.False(t, retried.Waited)
}

// T-24: deliveries can have a task queue, and workers, of their own.
func TestWorker_deliveryTaskQueue(t *testing.T) {
	t.Parallel()
	s := newSite(t, temporaltest.Client(t))
	s.work(t, func(config *worker.Config) { config.DeliveryTaskQueue = s.prefix + "-mail" })
	s.commit(t, "a", 2)
	s.starter.Flush(t.Context())
	s.finished(t, "a")
	id := s.starter.IDs().DrainRow(row("a"))
	history := s.starter.Client().GetWorkflowHistory(t.Context(), id, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	queues := 0
	for history.HasNext() {
		happened, err := history.Next()
		require.NoError(t, err)
		if scheduled := happened.GetActivityTaskScheduledEventAttributes(); scheduled != nil {
			require.Equal(t, s.prefix+"-mail", scheduled.GetTaskQueue().GetName())
			queues++
		}
	}
	require.Positive(t, queues)
}

// T-2: personal keys appear in no id and no attribute, and orders find their row all the same.
func TestWorker_hmacRowNames(t *testing.T) {
	t.Parallel()
	s := newSite(t, temporaltest.Client(t), func(config *starter.Config) {
		config.RowNames, config.RowNamesKey = workflows.RowNamesHMAC, []byte("0123456789abcdef")
	})
	s.work(t)
	s.mailbox.fail(event.Permanent(errors.New("no such address")))
	s.commit(t, "ada@example.org", 1)
	report := s.inState(t, "ada@example.org", workflows.StateParked)
	require.NotContains(t, report.Run.WorkflowID, "ada")
	described, err := s.starter.Client().DescribeWorkflow(t.Context(), report.Run.WorkflowID, report.Run.RunID)
	require.NoError(t, err)
	require.NotContains(t, keywords(described.TypedSearchAttributes)[workflows.AttributeRow], "ada")
	summary, err := described.GetStaticSummary()
	require.NoError(t, err)
	require.NotContains(t, summary, "ada")
	s.mailbox.fail(nil)
	retried, err := s.starter.Retry(t.Context(), row("ada@example.org"), "bob")
	require.NoError(t, err)
	require.True(t, retried.Waited)
	s.finished(t, "ada@example.org")
}
