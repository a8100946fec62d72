package outbox_test

import (
	"context"
	"errors"
	"time"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
)

// act is what happens to one step of a drainer.
type act string

const (
	proceed     act = "proceed"
	lostAnswer  act = "lost answer"  // it is done, and the caller does not learn it
	refuse      act = "refuse"       // it is not done: a passing fault
	crashBefore act = "crash before" // the process ends, and with it all of its later calls
	crashAfter  act = "crash after"
)

var (
	errCrashed = event.WithClass(errors.New("the process is gone"), event.ClassFenced)
	errLost    = event.WithClass(errors.New("the answer got lost"), event.ClassUnknownOutcome)
)

// drainer is a process whose every step is released one by one: at any time all but one
// stand still, so that an interleaving is what a test says and nothing else.
type drainer struct {
	store    outbox.Store
	row      outbox.Row
	received func(outbox.Delivery)
	judge    outbox.Judge

	waiting chan string
	release chan act
	ended   chan struct{} // closed when its drain has returned
	at      string        // the step that it stands before; empty = it has ended

	crashed   bool
	unsettled bool // it delivered something of which it did not see the delete
	result    outbox.Result
}

// start begins a drain that stands still before its first step.
func (d *drainer) start(ctx context.Context, opts outbox.Options) {
	d.waiting, d.release, d.ended = make(chan string), make(chan act), make(chan struct{})
	opts.Judge = d
	go func() {
		defer close(d.ended)
		d.result, _ = outbox.Drain(ctx, d, d.row, d.deliver, opts) // it may fail: what it did is what counts
	}()
	d.stand()
}

// stand waits until the drainer stands before its next step or has ended.
func (d *drainer) stand() {
	select {
	case d.at = <-d.waiting:
	case <-d.ended:
		d.at = ""
	}
}

// advance lets it do the step that it stands before.
func (d *drainer) advance(what act) {
	d.release <- what
	d.stand()
}

// step stands still until it is released, and then runs one call.
func step[R any](d *drainer, name string, run func() (R, error)) (R, error) {
	var none R
	if d.crashed {
		return none, errCrashed
	}
	d.waiting <- name
	switch <-d.release {
	case refuse:
		return none, errBroken
	case crashBefore:
		d.crashed = true
		return none, errCrashed
	case crashAfter:
		_, _ = run()
		d.crashed = true
		return none, errCrashed
	case lostAnswer:
		_, _ = run()
		return none, errLost
	case proceed:
	}
	return run()
}

func (d *drainer) deliver(_ context.Context, delivery outbox.Delivery) error {
	_, err := step(d, "deliver", func() (struct{}, error) {
		d.received(delivery)
		d.unsettled = true
		return struct{}{}, nil
	})
	if errors.Is(err, errLost) {
		d.unsettled = false // it knows of no delivery
	}
	return err
}

// Judge implements outbox.Judge.
func (d *drainer) Judge(ctx context.Context, claim outbox.Claim) (outbox.Verdict, error) {
	return step(d, "judge", func() (outbox.Verdict, error) { return d.judge.Judge(ctx, claim) })
}

func (d *drainer) Head(ctx context.Context, row outbox.Row, limit int) (outbox.Head, error) {
	return step(d, "head", func() (outbox.Head, error) { return d.store.Head(ctx, row, limit) })
}

func (d *drainer) Claim(ctx context.Context, row outbox.Row, refs []outbox.Ref, owner outbox.Owner) (int, error) {
	return step(d, "claim", func() (int, error) { return d.store.Claim(ctx, row, refs, owner) })
}

func (d *drainer) Release(ctx context.Context, row outbox.Row, refs []outbox.Ref, nonce string) error {
	_, err := step(d, "release", func() (struct{}, error) { return struct{}{}, d.store.Release(ctx, row, refs, nonce) })
	return err
}

func (d *drainer) Delete(ctx context.Context, row outbox.Row, ref outbox.Ref) (outbox.Deleted, error) {
	deleted, err := step(d, "delete", func() (outbox.Deleted, error) { return d.store.Delete(ctx, row, ref) })
	d.unsettled = err != nil
	return deleted, err
}

func (d *drainer) Defer(ctx context.Context, row outbox.Row, ref outbox.Ref, deferral outbox.Deferral) (bool, error) {
	return step(d, "defer", func() (bool, error) { return d.store.Defer(ctx, row, ref, deferral) })
}

func (d *drainer) ExpireTombstone(ctx context.Context, row outbox.Row, revision int64, at time.Time) (bool, error) {
	return step(d, "expire", func() (bool, error) { return d.store.ExpireTombstone(ctx, row, revision, at) })
}

// A drain does not call these.

func (d *drainer) Decide(ctx context.Context, row outbox.Row, ref outbox.Ref, decision outbox.Decision) (bool, error) {
	return d.store.Decide(ctx, row, ref, decision)
}

func (d *drainer) Decisions(ctx context.Context, row outbox.Row) ([]outbox.Decided, error) {
	return d.store.Decisions(ctx, row)
}

func (d *drainer) Pending(ctx context.Context, query outbox.PendingQuery) ([]outbox.PendingRow, error) {
	return d.store.Pending(ctx, query)
}

func (d *drainer) HasPending(ctx context.Context, projection string, keys []string) (map[string]bool, error) {
	return d.store.HasPending(ctx, projection, keys)
}
