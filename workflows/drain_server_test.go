package workflows_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

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

// drainSite is a service on a real Temporal server whose deliveries and whose store do what a test says.
type drainSite struct {
	*tallytest.Lab

	t        *testing.T
	temporal client.Client
	starter  *starter.Starter

	mu        sync.Mutex
	fault     error
	delivered []int64
	hold      chan struct{} // while it is open, the store does not answer; nil = it does
}

func newDrainSite(t *testing.T, drain workflows.DrainRow) *drainSite {
	t.Helper()
	temporal := temporaltest.Client(t, func(options *client.Options) { options.Identity = "test" })
	prefix := temporaltest.Prefix(t)
	drain.Attempts, drain.HeartbeatTimeout = 1, activities.Duration(time.Second)
	drain.RetryMin, drain.RetryMax = activities.Duration(10*time.Millisecond), activities.Duration(10*time.Millisecond)
	s := &drainSite{Lab: tallytest.New(t, sqlite.Config{}), t: t, temporal: temporal}
	var err error
	s.starter, err = starter.New(starter.Config{Client: temporal, Deployment: prefix, TaskQueue: prefix, WakeTimeout: time.Minute, Drain: drain})
	require.NoError(t, err)
	t.Cleanup(s.starter.Close)
	w, err := worker.New(worker.Config{
		Starter: s.starter, Store: heldStore{s.Store, s}, Events: s.Store, Projections: []projection.Definition{s.Definition},
		Deliver: map[string]outbox.Deliverer{tallytest.Projection: outbox.Handle(s.deliver)},
	})
	require.NoError(t, err)
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	return s
}

// heldStore is a store that can be made to wait.
type heldStore struct {
	projection.Store

	site *drainSite
}

func (h heldStore) Head(ctx context.Context, row outbox.Row, limit int) (outbox.Head, error) {
	h.site.mu.Lock()
	hold := h.site.hold
	h.site.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return outbox.Head{}, ctx.Err()
		}
	}
	return h.Store.Head(ctx, row, limit)
}

func (s *drainSite) deliver(_ context.Context, effect tallytest.Added, _ outbox.Delivery) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault != nil {
		return s.fault
	}
	s.delivered = append(s.delivered, effect.Total)
	return nil
}

func (s *drainSite) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = err
}

var drained = outbox.Row{Projection: tallytest.Projection, Key: "a"}

// commit gives the row n more effects without a wake.
func (s *drainSite) commit(n int) {
	s.t.Helper()
	s.Append(s.t, "d-1", tallytest.Entries("a", n)...)
	_, err := s.Processor(s.t, nil).ProcessBatch(s.t.Context(), s.Records(s.t, "d-1"), projection.BatchOptions{})
	require.NoError(s.t, err)
}

func (s *drainSite) wake() client.WorkflowRun {
	s.t.Helper()
	run, err := s.starter.Drain(s.t.Context(), drained)
	require.NoError(s.t, err)
	return run
}

// await waits until the drain is in a state, about a head that is not another.
func (s *drainSite) await(state, other string) workflows.DrainState {
	s.t.Helper()
	var report starter.RowReport
	require.Eventually(s.t, func() bool {
		var err error
		report, err = s.starter.Row(s.t.Context(), drained, time.Minute)
		return err == nil && report.Drain != nil && report.Drain.State == state && (report.Drain.Head == nil || report.Drain.Head.ID != other)
	}, time.Minute, 10*time.Millisecond)
	return *report.Drain
}

func (s *drainSite) record(name string, run client.WorkflowRun) {
	s.t.Helper()
	recordHistory(s.t, s.temporal, name, run.GetID(), run.GetRunID())
}

// T-3, T-5: the happy path; its history holds no effect.
func TestDrainRowOnServer(t *testing.T) {
	t.Parallel()
	s := newDrainSite(t, workflows.DrainRow{MaxEffects: 3})
	s.commit(7)
	run := s.wake()
	var result workflows.DrainResult
	require.NoError(t, run.Get(t.Context(), &result))
	require.EqualValues(t, 7, result.Delivered)
	require.EqualValues(t, 3, result.Rounds)
	require.NotContains(t, fetchHistory(t, s.temporal, run.GetID(), "").String(), `"total"`)
	s.record("DrainRow-drained", run)
}

// T-5, T-11: retries by a timer, also by an order that ends it.
func TestDrainRowOnServer_retried(t *testing.T) {
	t.Parallel()
	s := newDrainSite(t, workflows.DrainRow{})
	s.fail(errors.New("mailbox full"))
	s.commit(2)
	run := s.wake()
	require.Eventually(t, func() bool {
		return s.await(workflows.StateRetrying, "").Head.Attempts >= 3
	}, time.Minute, 10*time.Millisecond)
	_, err := s.starter.Retry(t.Context(), drained, "ada")
	require.NoError(t, err)
	s.fail(nil)
	require.NoError(t, run.Get(t.Context(), nil))
	require.Equal(t, []int64{1, 2}, s.delivered)
	s.record("DrainRow-retried", run)
}

// T-5, T-11: a parked queue, a head skipped, a head set aside, and a retry.
func TestDrainRowOnServer_parked(t *testing.T) {
	t.Parallel()
	s := newDrainSite(t, workflows.DrainRow{})
	s.fail(event.Permanent(errors.New("no such address")))
	s.commit(4)
	run := s.wake()
	first := s.await(workflows.StateParked, "").Head.ID
	_, err := s.starter.Skip(t.Context(), drained, workflows.Decision{EffectID: first, Who: "ada", Why: "moved"})
	require.NoError(t, err)
	second := s.await(workflows.StateParked, first).Head.ID
	_, err = s.starter.Skip(t.Context(), drained, workflows.Decision{EffectID: first, Who: "bob", Why: "moved"})
	require.ErrorContains(t, err, second) // it names what the head is now
	_, err = s.starter.Park(t.Context(), drained, workflows.Decision{EffectID: second, Who: "ada", Why: "later"})
	require.NoError(t, err)
	s.await(workflows.StateParked, second)
	s.fail(nil)
	_, err = s.starter.Retry(t.Context(), drained, "ada")
	require.NoError(t, err)
	var result workflows.DrainResult
	require.NoError(t, run.Get(t.Context(), &result))
	require.EqualValues(t, 2, result.Decided)
	require.Equal(t, []int64{3, 4}, s.delivered)
	s.record("DrainRow-parked-skipped", run)
}

// T-4, T-5: a parked drain that is woken again and again continues as new, with the memo and attributes as they were.
func TestDrainRowOnServer_continued(t *testing.T) {
	t.Parallel()
	s := newDrainSite(t, workflows.DrainRow{ContinueAfter: 5})
	s.fail(event.Permanent(errors.New("no such address")))
	s.commit(3)
	first := s.wake()
	firstRun := first.GetRunID()
	before := s.await(workflows.StateParked, "")
	for range 5 {
		s.wake()
	}
	var then workflows.DrainState
	require.Eventually(t, func() bool {
		then = s.await(workflows.StateParked, "")
		return then.Runs > 0
	}, time.Minute, 10*time.Millisecond)
	require.True(t, before.Since.Equal(then.Since))
	report, err := s.starter.Row(t.Context(), drained, time.Minute)
	require.NoError(t, err)
	require.Equal(t, workflows.StateParked, report.Run.State.State)
	require.NotEqual(t, firstRun, report.Run.RunID)
	s.fail(nil)
	_, err = s.starter.Retry(t.Context(), drained, "ada")
	require.NoError(t, err)
	var result workflows.DrainResult
	require.NoError(t, first.Get(t.Context(), &result)) // it follows the chain
	require.EqualValues(t, 3, result.Delivered)
	require.EqualValues(t, 6, result.Wakes)
	recordHistory(t, s.temporal, "DrainRow-continued", first.GetID(), firstRun)
	recordHistory(t, s.temporal, "DrainRow-continued-last", first.GetID(), "")
}

// T-4, T-5: a run that is aborted in the middle of an operator's order answers that before it ends.
func TestDrainRowOnServer_aborted(t *testing.T) {
	t.Parallel()
	s := newDrainSite(t, workflows.DrainRow{})
	s.fail(event.Permanent(errors.New("no such address")))
	s.commit(1)
	run := s.wake()
	s.await(workflows.StateParked, "")
	hold := make(chan struct{})
	s.mu.Lock()
	s.hold = hold
	s.mu.Unlock()
	order, err := s.temporal.UpdateWorkflow(t.Context(), client.UpdateWorkflowOptions{
		WorkflowID: run.GetID(), UpdateName: workflows.UpdateRetry, Args: []any{workflows.Retry{}}, WaitForStage: client.WorkflowUpdateStageAccepted,
	})
	require.NoError(t, err)
	require.NoError(t, s.temporal.CancelWorkflow(t.Context(), run.GetID(), ""))
	require.ErrorContains(t, run.Get(t.Context(), nil), "cancel")
	require.ErrorContains(t, order.Get(t.Context(), nil), "cancel")
	close(hold)
	s.record("DrainRow-aborted", run)
}

// T-5, T-10: a head that a process has claimed is looked at again when its claim has ended.
func TestDrainRowOnServer_blocked(t *testing.T) {
	t.Parallel()
	s := newDrainSite(t, workflows.DrainRow{})
	s.commit(2)
	head, err := s.Store.Head(t.Context(), drained, 1)
	require.NoError(t, err)
	claimed, err := s.Store.Claim(t.Context(), drained, []outbox.Ref{head.Items[0].Ref()}, outbox.ProcessOwner(time.Now(), 2*time.Second))
	require.NoError(t, err)
	require.Equal(t, 1, claimed)
	run := s.wake()
	var result workflows.DrainResult
	require.NoError(t, run.Get(t.Context(), &result))
	require.EqualValues(t, 2, result.Delivered)
	require.Greater(t, result.Rounds, int64(1))
	s.record("DrainRow-blocked", run)
}

// T-1, T-5: a run that somebody starts from a form with a wrong input fails at once.
func TestDrainRowOnServer_invalid(t *testing.T) {
	t.Parallel()
	s := newDrainSite(t, workflows.DrainRow{})
	run, err := s.temporal.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{
		ID: s.starter.IDs().DrainRow(drained), TaskQueue: s.starter.TaskQueue(),
	}, workflows.TypeDrainRow, map[string]any{"projection": tallytest.Projection, "rwo": "a"})
	require.NoError(t, err)
	require.ErrorContains(t, run.Get(t.Context(), nil), "rwo: there is no such field")
	s.record("DrainRow-invalid", run)
}

// T-5, T-12: a sweep wakes a drain whose wake was lost; run by cron, the next one begins where this one stopped.
func TestSweepOutboxOnServer(t *testing.T) {
	t.Parallel()
	s := newDrainSite(t, workflows.DrainRow{})
	s.commit(2)
	sweep, err := s.starter.Sweep(t.Context(), workflows.SweepOutbox{Projection: tallytest.Projection, Grace: activities.Duration(time.Nanosecond)})
	require.NoError(t, err)
	var counts activities.SweepCounts
	require.NoError(t, sweep.Get(t.Context(), &counts))
	require.Equal(t, activities.SweepCounts{Pending: 1, Woken: 1}, counts)
	require.NoError(t, s.temporal.GetWorkflow(t.Context(), s.starter.IDs().DrainRow(drained), "").Get(t.Context(), nil))
	require.Equal(t, []int64{1, 2}, s.delivered)
	s.record("SweepOutbox-swept", sweep)
}

// T-5: the histories of drains and sweeps that TestReplay replays are there.
func TestReplay_drains(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"DrainRow-drained", "DrainRow-retried", "DrainRow-parked-skipped", "DrainRow-continued", "DrainRow-continued-last",
		"DrainRow-aborted", "DrainRow-blocked", "DrainRow-invalid", "SweepOutbox-swept",
	} {
		require.FileExists(t, filepath.Join(histories, name+".json"))
	}
}
