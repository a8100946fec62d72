package workflows_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	sdk "go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/rowfold/rowfold/activities"
	"github.com/rowfold/rowfold/projection"
	"github.com/rowfold/rowfold/workflows"
)

// bench runs one workflow in the SDK's test environment, where activities take virtual time.
type bench struct {
	*sdk.TestWorkflowEnvironment

	t *testing.T
	// States are the states that were published, in order.
	States []workflows.StateMemo
}

const benchID = "test/run"

// newBench returns a bench. Workflows that replace others are registered by before: the
// environment takes none once it has mocks.
func newBench(t *testing.T, before ...func(*bench)) *bench {
	t.Helper()
	suite := &sdk.WorkflowTestSuite{}
	suite.SetLogger(silent{})
	b := &bench{TestWorkflowEnvironment: suite.NewTestWorkflowEnvironment(), t: t}
	b.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: benchID, TaskQueue: "test"})
	b.SetTestTimeout(time.Minute)
	b.SetWorkerOptions(patient())
	workflows.Register(b, workflows.Options{})
	registerStub[activities.FollowInput, activities.Followed](b, activities.FollowShard)
	registerStub[activities.DiscoverInput, activities.Discovered](b, activities.DiscoverShards)
	registerStub[activities.CloseInput, struct{}](b, activities.CloseShard)
	registerStub[activities.ApplyInput, activities.Applied](b, activities.ApplyEvents)
	registerStub[activities.CatchUpInput, activities.CaughtUp](b, activities.CatchUp)
	registerStub[activities.SkipInput, struct{}](b, activities.RecordSkip)
	registerStub[activities.PurgeInput, projection.Purged](b, activities.PurgeTombstones)
	for _, register := range before {
		register(b)
	}
	b.OnUpsertMemo(mock.Anything).Return(nil).Run(func(args mock.Arguments) {
		memo, is := args.Get(0).(map[string]any)
		require.True(t, is)
		state, is := memo[workflows.MemoState].(workflows.StateMemo)
		require.True(t, is)
		b.States = append(b.States, state)
	})
	return b
}

func registerStub[In, Out any](b *bench, name string) {
	b.RegisterActivityWithOptions(func(context.Context, In) (Out, error) {
		var none Out
		return none, temporal.NewNonRetryableApplicationError("the test does not expect the activity "+name, "test", nil)
	}, activity.RegisterOptions{Name: name})
}

// script lets an activity take some time and answer by its call, from 1 on.
func script[In, Out any](b *bench, name string, takes time.Duration, answer func(call int, in In) (Out, error)) {
	b.t.Helper()
	call := 0
	b.OnActivity(name, mock.Anything, mock.Anything).Return(func(_ context.Context, in In) (Out, error) {
		call++
		return answer(call, in)
	}).After(takes)
}

// outcome is what became of an update.
type outcome struct {
	rejected error
	done     bool
	err      error
	result   any
}

// update sends an update after a time from the start of the run.
func (b *bench) update(after time.Duration, name string, in any) *outcome {
	got := &outcome{}
	b.RegisterDelayedCallback(func() {
		b.UpdateWorkflow(name, fmt.Sprintf("%s-%s", name, after), &sdk.TestUpdateCallback{
			OnAccept: func() {},
			OnReject: func(err error) { got.rejected = err },
			OnComplete: func(result any, err error) {
				got.done, got.result, got.err = true, result, err
			},
		}, in)
	}, after)
	return got
}

// require requires that the update was done without an error.
func (o *outcome) require(t *testing.T) {
	t.Helper()
	require.NoError(t, o.rejected)
	require.NoError(t, o.err)
	require.True(t, o.done)
}

// at does something after a time from the start of the run.
func (b *bench) at(after time.Duration, do func()) { b.RegisterDelayedCallback(do, after) }

// ask queries the run.
func ask[T any](b *bench, query string) T {
	b.t.Helper()
	var state T
	value, err := b.QueryWorkflow(query)
	require.NoError(b.t, err)
	require.NoError(b.t, value.Get(&state))
	return state
}

// result requires that the run has completed, and returns its result.
func result[T any](b *bench) T {
	b.t.Helper()
	var value T
	require.True(b.t, b.IsWorkflowCompleted())
	require.NoError(b.t, b.GetWorkflowError())
	require.NoError(b.t, b.GetWorkflowResult(&value))
	return value
}

// continued requires that the run has continued as new, and returns the input of the next one.
func continued[T any](b *bench) T {
	b.t.Helper()
	require.True(b.t, b.IsWorkflowCompleted())
	next, is := errors.AsType[*workflow.ContinueAsNewError](b.GetWorkflowError())
	require.True(b.t, is, "%v", b.GetWorkflowError())
	var input T
	require.NoError(b.t, converter.GetDefaultDataConverter().FromPayloads(next.Input, &input))
	return input
}

// requireInvalid requires the error of a wrong input, which names the field.
func requireInvalid(t *testing.T, err error, field string) {
	t.Helper()
	application, is := errors.AsType[*temporal.ApplicationError](err)
	require.True(t, is, "%v", err)
	require.Equal(t, workflows.ErrorInvalidInput, application.Type())
	require.True(t, application.NonRetryable())
	require.Contains(t, application.Message(), field)
}

// names returns the states that were published, by name.
func (b *bench) names() []string {
	names := make([]string, 0, len(b.States))
	for _, state := range b.States {
		names = append(names, state.State)
	}
	return names
}

// patient are options of workers on a busy machine: where many tests share two cores, a workflow
// that waits for its turn longer than the SDK's second is no deadlock.
func patient() worker.Options { return worker.Options{DeadlockDetectionTimeout: time.Minute} }

// silent is a logger for what tests provoke on purpose.
type silent struct{}

func (silent) Debug(string, ...any) {}
func (silent) Info(string, ...any)  {}
func (silent) Warn(string, ...any)  {}
func (silent) Error(string, ...any) {}

// T-1: a wrong input fails at once, is not retried, and names the field.
func TestInvalidInput(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ workflow, input, field string }{
		"no consumer":          {workflows.TypeConsumeStream, `{"feed": "days"}`, "consumer: it is empty"},
		"no feed":              {workflows.TypeConsumeStream, `{"consumer": "c"}`, "feed: it is empty"},
		"an unknown field":     {workflows.TypeConsumeStream, `{"consumer": "c", "feed": "f", "pagesize ": 3}`, "pagesize : there is no such field"},
		"a page of nothing":    {workflows.TypeConsumeStream, `{"consumer": "c", "feed": "f", "pageSize": -1}`, "pageSize: -1 is too low"},
		"a bare number":        {workflows.TypeConsumeStream, `{"consumer": "c", "feed": "f", "discoverEvery": 3}`, "discoverEvery: 3 is no duration"},
		"a negative wait":      {workflows.TypeConsumeStream, `{"consumer": "c", "feed": "f", "discoverEvery": "-3s"}`, "discoverEvery: -3s is too short"},
		"too many shards":      {workflows.TypeConsumeStream, `{"consumer": "c", "feed": "f", "maxShards": 100000}`, "maxShards: 100000 is too high"},
		"no shard":             {workflows.TypeConsumeShard, `{"consumer": "c", "feed": "f"}`, "shard: it is empty"},
		"a wait upside down":   {workflows.TypeConsumeShard, `{"consumer": "c", "feed": "f", "shard": "s", "retryMin": "9s", "retryMax": "1s"}`, "retryMax: 1s is below retryMin"},
		"no events":            {workflows.TypeApplyBatch, `{}`, "events: there are none"},
		"no stream id":         {workflows.TypeApplyBatch, `{"events": [{"stream": "Day", "from": 1, "to": 2}]}`, "events[0].streamId: it is empty"},
		"versions upside down": {workflows.TypeApplyBatch, `{"events": [{"stream": "Day", "streamId": "d", "from": 3, "to": 2}]}`, "events[0].to: 2 is below from"},
		"version zero":         {workflows.TypeApplyBatch, `{"events": [{"stream": "Day", "streamId": "d", "from": 0, "to": 2}]}`, "events[0].from: 0 is too low"},
		"a text for a number":  {workflows.TypeApplyBatch, `{"pageSize": "many"}`, "pageSize: a JSON string does not fit"},
		"no source":            {workflows.TypeCatchUpInstance, `{"projection": "p", "streamId": "d"}`, "source: it is empty"},
		"no instance":          {workflows.TypeCatchUpInstance, `{"projection": "p", "source": "day"}`, "streamId: it is empty"},
		"no projection":        {workflows.TypePurgeTombstones, `{}`, "projection: it is empty"},
		"no rounds":            {workflows.TypePurgeTombstones, `{"projection": "p", "maxRounds": -1}`, "maxRounds: -1 is too low"},
		"a list":               {workflows.TypePurgeTombstones, `[1]`, "the input is no JSON object"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.ExecuteWorkflow(test.workflow, json.RawMessage(test.input))
			require.True(t, b.IsWorkflowCompleted())
			requireInvalid(t, b.GetWorkflowError(), test.field)
		})
	}
}

// encode returns a value as it stands in a history.
func encode(t *testing.T, value any) []byte {
	t.Helper()
	text, err := json.Marshal(value)
	require.NoError(t, err)
	return text
}
