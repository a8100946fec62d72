package workflows_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	sdkpb "go.temporal.io/api/sdk/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

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

// site is a service on a real Temporal server: a store, a starter, and workers as a test wants.
type site struct {
	*tallytest.Lab

	t         *testing.T
	temporal  client.Client
	starter   *starter.Starter
	feeds     map[string]event.Feed
	delivered atomic.Int64 // effects
}

func newSite(t *testing.T, feeds map[string]event.Feed) *site {
	t.Helper()
	temporal := temporaltest.Client(t, func(options *client.Options) { options.Identity = "test" })
	prefix := temporaltest.Prefix(t)
	s, err := starter.New(starter.Config{
		Client: temporal, Deployment: prefix, TaskQueue: prefix, WakeTimeout: 10 * time.Second,
		CatchUp: workflows.CatchUpInstance{HeartbeatTimeout: activities.Duration(2 * time.Second)},
	})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return &site{Lab: tallytest.New(t, sqlite.Config{}), t: t, temporal: temporal, starter: s, feeds: feeds}
}

// work starts a worker; the end of the test stops it unless stop has.
func (s *site) work() (stop func()) {
	s.t.Helper()
	w, err := worker.New(worker.Config{
		Starter: s.starter, Store: s.Store, Events: s.Store, Projections: []projection.Definition{s.Definition}, Feeds: s.feeds,
		Options: patient(),
		Deliver: map[string]outbox.Deliverer{tallytest.Projection: func(context.Context, outbox.Delivery) error {
			s.delivered.Add(1)
			return nil
		}},
	})
	require.NoError(s.t, err)
	require.NoError(s.t, w.Start())
	stop = sync.OnceFunc(w.Stop)
	s.t.Cleanup(stop)
	return stop
}

// consume starts a consumer of a feed. Its activities hear of orders within a second.
func (s *site) consume(feed string, change ...func(*workflows.ConsumeStream)) client.WorkflowRun {
	s.t.Helper()
	in := workflows.ConsumeStream{
		Following: workflows.Following{
			Consumer: tallytest.Consumer, Feed: feed, PageSize: 2, PollInterval: activities.Duration(10 * time.Millisecond),
			RetryMin: activities.Duration(time.Millisecond), RetryMax: activities.Duration(time.Millisecond), Attempts: 2,
			HeartbeatTimeout: activities.Duration(time.Second),
		},
		DiscoverEvery: activities.Duration(50 * time.Millisecond),
	}
	for _, f := range change {
		f(&in)
	}
	run, err := s.starter.ConsumeStream(s.t.Context(), in)
	require.NoError(s.t, err)
	return run
}

func stopAtHead(in *workflows.ConsumeStream) { in.StopAtHead = true }

// follower is the workflow id of a shard's follower.
func (s *site) follower(feed, shard string) string {
	return workflows.ShardID(s.starter.IDs().ConsumeStream(tallytest.Consumer, feed), shard)
}

// order sends an update and waits for its answer.
func (s *site) order(workflowID, name string, in any) error {
	s.t.Helper()
	handle, err := s.temporal.UpdateWorkflow(s.t.Context(), client.UpdateWorkflowOptions{
		WorkflowID: workflowID, UpdateName: name, Args: []any{in}, WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err != nil {
		return err
	}
	return handle.Get(s.t.Context(), nil)
}

// eventually waits for a condition.
func (s *site) eventually(condition func() bool, what string) {
	s.t.Helper()
	require.Eventually(s.t, condition, time.Minute, 20*time.Millisecond, what)
}

// total waits for the total of a tally.
func (s *site) total(tally string, want int64) {
	s.t.Helper()
	s.eventually(func() bool {
		row, err := s.Find(s.t.Context(), tally)
		return err == nil && row.Total == want
	}, "the total of "+tally)
}

// query asks a run for its state; false = it does not answer.
func query[T any](s *site, workflowID, name string) (T, bool) {
	s.t.Helper()
	var state T
	answer, err := s.temporal.QueryWorkflow(s.t.Context(), workflowID, "", name)
	return state, err == nil && answer.Get(&state) == nil
}

// shown is what can be seen of a run without a worker: its state attribute and its memo.
func (s *site) shown(workflowID string) (attribute string, memo workflows.StateMemo, open bool) {
	s.t.Helper()
	described, err := s.temporal.DescribeWorkflowExecution(s.t.Context(), workflowID, "")
	if err != nil {
		return "", memo, false
	}
	info := described.GetWorkflowExecutionInfo()
	decode := converter.GetDefaultDataConverter()
	if payload := info.GetSearchAttributes().GetIndexedFields()[workflows.AttributeState]; payload != nil {
		require.NoError(s.t, decode.FromPayload(payload, &attribute))
	}
	if payload := info.GetMemo().GetFields()[workflows.MemoState]; payload != nil {
		require.NoError(s.t, decode.FromPayload(payload, &memo))
	}
	return attribute, memo, info.GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
}

// details returns the current details of a run, as the UI shows them; none when it does not
// answer.
func (s *site) details(workflowID string) string {
	s.t.Helper()
	metadata := &sdkpb.WorkflowMetadata{}
	answer, err := s.temporal.QueryWorkflow(s.t.Context(), workflowID, "", "__temporal_workflow_metadata")
	if err != nil || answer.Get(metadata) != nil {
		return ""
	}
	return metadata.GetCurrentDetails()
}

// gate is a feed on which reads after a position wait until the activity has to end: until it
// is cancelled, or until its worker stops.
type gate struct {
	event.Feed

	at      event.Position
	reached chan struct{} // closed at the first read that waits
	once    sync.Once
}

func newGate(feed event.Feed, at event.Position) *gate {
	return &gate{Feed: feed, at: at, reached: make(chan struct{})}
}

// Read implements event.Feed.
func (g *gate) Read(ctx context.Context, shard string, after event.Position, limit int) (event.Page, error) {
	if after == g.at {
		g.once.Do(func() { close(g.reached) })
		select {
		case <-activity.GetWorkerStopChannel(ctx):
		case <-ctx.Done():
			return event.Page{}, ctx.Err()
		}
	}
	return g.Feed.Read(ctx, shard, after, limit)
}

// await waits for a signal.
func await(t *testing.T, signal <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-signal:
	case <-time.After(time.Minute):
		require.Fail(t, "it never happened", what)
	}
}
