package activities_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	sdk "go.temporal.io/sdk/testsuite"

	"github.com/rowfold/rowfold/activities"
	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/internal/tallytest"
	"github.com/rowfold/rowfold/projection"
	"github.com/rowfold/rowfold/store/sqlite"
)

// consuming is what the activities of consumers are tested on.
type consuming struct {
	*tallytest.Lab

	feed      *tallytest.Feed
	waker     *tallytest.Waker
	catchUps  *tallytest.CatchUps
	processor activities.Processor
	positions *positions
}

const feedName = "days"

func newConsuming(tb testing.TB) *consuming {
	tb.Helper()
	lab := tallytest.New(tb, sqlite.Config{})
	waker := &tallytest.Waker{}
	return &consuming{
		Lab: lab, feed: &tallytest.Feed{}, waker: waker, catchUps: &tallytest.CatchUps{},
		processor: lab.Processor(tb, waker.Wake), positions: &positions{PositionStore: lab.Store},
	}
}

func (c *consuming) applier() activities.Applier {
	return activities.Applier{Processor: c.processor, Waker: c.waker, CatchUps: c.catchUps}
}

func (c *consuming) consumers() *activities.Consumers {
	return &activities.Consumers{
		Applier: c.applier(), Feeds: map[string]event.Feed{feedName: c.feed}, Positions: c.positions,
		Temporal: describer{},
	}
}

func (c *consuming) parked() *activities.Parked {
	return &activities.Parked{Processor: c.processor, Store: c.Store, Events: c.Store, Waker: c.waker}
}

// put appends entries of a day, and shows them in a shard.
func (c *consuming) put(tb testing.TB, shard string, day event.ID, entries ...tallytest.Entry) {
	tb.Helper()
	last := c.Append(tb, day, entries...)
	c.feed.Put(shard, c.Records(tb, day)[int(last)-len(entries):]...)
}

// positions notes what is saved.
type positions struct {
	projection.PositionStore

	mu    sync.Mutex
	saved []event.Position
}

func (p *positions) SavePosition(ctx context.Context, record projection.PositionRecord) error {
	p.mu.Lock()
	p.saved = append(p.saved, record.Position)
	p.mu.Unlock()
	return p.PositionStore.SavePosition(ctx, record)
}

func (p *positions) last() event.Position {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.saved) == 0 {
		return "none"
	}
	return p.saved[len(p.saved)-1]
}

// processor does what a test says, around a real one.
type processor struct {
	activities.Processor

	before func(call int, records []event.Record) error
	calls  int
}

func (p *processor) ProcessBatch(ctx context.Context, records []event.Record, options projection.BatchOptions) (projection.BatchResult, error) {
	p.calls++
	if err := p.before(p.calls, records); err != nil {
		return projection.BatchResult{}, err
	}
	return p.Processor.ProcessBatch(ctx, records, options)
}

// follow is the input of most tests: pages of 2, and no waiting.
func follow() activities.FollowInput {
	return activities.FollowInput{
		Consumer: tallytest.Consumer, Feed: feedName, Shard: "s", PageSize: 2, StopAtHead: true,
		PollInterval: activities.Duration(time.Millisecond), SaveEvery: activities.Duration(time.Hour),
		RunFor: activities.Duration(time.Hour), Attempts: 3,
		RetryMin: activities.Duration(time.Microsecond), RetryMax: activities.Duration(time.Microsecond),
	}
}

// run runs an activity as a worker does.
func run[Out any](env *sdk.TestActivityEnvironment, function, in any) (Out, error) {
	env.RegisterActivityWithOptions(function, activity.RegisterOptions{Name: "activity"})
	var out Out
	value, err := env.ExecuteActivity("activity", in)
	if err == nil && value.HasValue() {
		err = value.Get(&out)
	}
	return out, err
}

func environment() *sdk.TestActivityEnvironment {
	suite := &sdk.WorkflowTestSuite{}
	suite.SetLogger(silent{})
	return suite.NewTestActivityEnvironment()
}

// silent is a logger for what tests provoke on purpose.
type silent struct{}

func (silent) Debug(string, ...any) {}
func (silent) Info(string, ...any)  {}
func (silent) Warn(string, ...any)  {}
func (silent) Error(string, ...any) {}

// requireClass requires an application error of a class, retried or not.
func requireClass(tb testing.TB, err error, class event.Class, retried bool) {
	tb.Helper()
	application, is := errors.AsType[*temporal.ApplicationError](err)
	require.True(tb, is, "%v", err)
	require.Equal(tb, string(class), application.Type())
	require.Equal(tb, retried, !application.NonRetryable())
}

// heartbeats notes the progress that an activity reports.
func heartbeats(env *sdk.TestActivityEnvironment) func() []activities.Progress {
	var mu sync.Mutex
	var told []activities.Progress
	env.SetOnActivityHeartbeatListener(func(_ *activity.Info, details converter.EncodedValues) {
		var progress activities.Progress
		if details.Get(&progress) == nil {
			mu.Lock()
			told = append(told, progress)
			mu.Unlock()
		}
	})
	return func() []activities.Progress {
		mu.Lock()
		defer mu.Unlock()
		return told
	}
}
