package workflows

import (
	"encoding/json"
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/rowfold/rowfold/activities"
	"github.com/rowfold/rowfold/internal/clip"
	"github.com/rowfold/rowfold/outbox"
)

// drain is one run of DrainRow.
type drain struct {
	in    DrainRow
	queue string // the task queue of deliveries; empty = the workflow's own
	state DrainState

	wake    workflow.ReceiveChannel
	nudge   workflow.Channel // an operator's order was carried out
	orders  int              // orders that are being carried out
	counted int              // rounds, wakes and updates of this run
}

func drainRow(ctx workflow.Context, raw json.RawMessage, options Options) (DrainResult, error) {
	in, err := decode[DrainRow](TypeDrainRow, raw)
	if err != nil {
		return DrainResult{}, err
	}
	d := &drain{
		in: in, queue: options.DeliveryTaskQueue,
		wake: workflow.GetSignalChannel(ctx, SignalWake), nudge: workflow.NewBufferedChannel(ctx, 1),
	}
	if in.Carried != nil {
		d.state = *in.Carried // a queue that waits goes on waiting, since when it did
		d.state.Runs++
	} else {
		d.state.enter(StateDraining, workflow.Now(ctx))
	}
	if err := d.handle(ctx); err != nil {
		return DrainResult{}, err
	}
	d.show(ctx)
	result, err := d.run(ctx)
	if err != nil && !workflow.IsContinueAsNewError(err) {
		return result, finish(ctx, err)
	}
	return result, err
}

// run drains until an activity that was scheduled after the last wake has found the
// outbox empty.
func (d *drain) run(ctx workflow.Context) (DrainResult, error) {
	for {
		// An order about the head comes before its next delivery.
		if err := workflow.Await(ctx, func() bool { return d.orders == 0 }); err != nil {
			return DrainResult{}, err
		}
		d.drainWakes()
		d.nudge.ReceiveAsync(nil)
		if full(ctx, d.counted, d.in.ContinueAfter) {
			return DrainResult{}, d.continueAsNew(ctx)
		}
		result, err := d.round(ctx)
		if err != nil {
			return DrainResult{}, err
		}
		switch {
		case result.Empty:
			done, err := d.complete(ctx)
			if done || err != nil {
				return d.state.result(), err
			}
		case result.Failed != nil && result.Failed.Parked:
			err = d.wait(ctx, 0, "")
		case result.Failed != nil:
			// It may have become due while that was recorded.
			err = d.wait(ctx, max(result.Failed.NextDelay, time.Millisecond), "next attempt of "+result.Failed.ID)
		case result.Blocked != nil:
			err = d.wait(ctx, d.state.blockedFor(d.in.BlockedMin.Std(), d.in.BlockedMax.Std()), "look again whether the owner has ended")
		}
		if err != nil {
			return DrainResult{}, err
		}
	}
}

// round runs one drain activity.
func (d *drain) round(ctx workflow.Context) (outbox.Result, error) {
	d.counted++
	d.state.Rounds++
	summary := "drain " + d.in.Projection + " " + d.in.RowName
	ctx = workflow.WithActivityOptions(ctx, long(d.queue, summary, d.in.ActivityTimeout, d.in.HeartbeatTimeout))
	var result outbox.Result
	if err := workflow.ExecuteActivity(ctx, activities.DrainOutbox, d.in.activity()).Get(ctx, &result); err != nil {
		d.state.Error = err.Error()
		d.show(ctx)
		return result, fmt.Errorf("drain row %s of projection %s: %w", d.in.RowName, d.in.Projection, err)
	}
	d.state.Error = ""
	before := d.state.State
	d.state.take(result, workflow.Now(ctx))
	d.show(ctx)
	if d.state.State != before {
		return result, publish(ctx, d.state.memo())
	}
	return result, nil
}

// wait returns after the delay — never for 0 —, when an operator's order was carried out,
// or when the run has counted enough. Wakes do not end it: the head is still in the way.
func (d *drain) wait(ctx workflow.Context, delay time.Duration, summary string) error {
	timerCtx, cancel := workflow.WithCancel(ctx)
	defer cancel()
	done := false
	selector := workflow.NewSelector(ctx)
	if delay > 0 {
		timer := workflow.NewTimerWithOptions(timerCtx, delay, workflow.TimerOptions{Summary: clip.Text(summary, maxSummary)})
		selector.AddFuture(timer, func(workflow.Future) { done = true })
	}
	selector.AddReceive(d.nudge, func(channel workflow.ReceiveChannel, _ bool) {
		channel.Receive(ctx, nil)
		done = true
	})
	selector.AddReceive(d.wake, func(workflow.ReceiveChannel, bool) {
		d.drainWakes()
		done = d.counted >= d.in.ContinueAfter
	})
	selector.AddReceive(ctx.Done(), func(workflow.ReceiveChannel, bool) { done = true })
	for !done {
		selector.Select(ctx)
	}
	return ctx.Err()
}

// complete reports whether the run may end: no wake has come since the activity was
// scheduled that found the outbox empty, and every update is answered.
func (d *drain) complete(ctx workflow.Context) (bool, error) {
	if d.drainWakes() > 0 || d.nudge.ReceiveAsync(nil) {
		return false, nil
	}
	if !workflow.AllHandlersFinished(ctx) {
		if err := answerUpdates(ctx); err != nil {
			return false, err
		}
		if d.drainWakes() > 0 || d.nudge.ReceiveAsync(nil) {
			return false, nil
		}
	}
	return true, nil
}

// continueAsNew hands the state to a new run, which begins with a drain: wakes that
// came until now are answered by that.
func (d *drain) continueAsNew(ctx workflow.Context) error {
	if err := answerUpdates(ctx); err != nil {
		return err
	}
	d.drainWakes()
	next := d.in
	next.Carried = &d.state
	return workflow.NewContinueAsNewError(ctx, TypeDrainRow, next)
}

// drainWakes takes the wakes that have come and returns how many.
func (d *drain) drainWakes() int {
	n := 0
	for d.wake.ReceiveAsync(nil) {
		n++
	}
	d.state.Wakes += int64(n)
	d.counted += n
	return n
}

func (d *drain) show(ctx workflow.Context) {
	workflow.SetCurrentDetails(ctx, d.state.details(d.in.Projection, d.in.RowName))
}
