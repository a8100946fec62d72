package activities

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
)

// Names of the activities of [Consumers].
const (
	FollowShard    = "FollowShard"
	DiscoverShards = "DiscoverShards"
	CloseShard     = "CloseShard"
)

// Consumers are the activities that follow feeds.
type Consumers struct {
	Applier

	Feeds     map[string]event.Feed    // by name; required
	Positions projection.PositionStore // required
	Temporal  Describer                // required
	// Converter reads the heartbeats of followers; it is the client's. Defaults to the
	// SDK's own.
	Converter converter.DataConverter
	// Now defaults to time.Now.
	Now func() time.Time
}

// FollowInput asks for a shard to be followed for a while.
type FollowInput struct {
	Consumer     string   `json:"consumer"`
	Feed         string   `json:"feed"`
	Shard        string   `json:"shard"`
	Child        bool     `json:"child,omitempty"` // its parents were read to their end: the oldest record is a known start
	Projections  []string `json:"projections,omitempty"`
	PageSize     int      `json:"pageSize"`
	PollInterval Duration `json:"pollInterval"`
	SaveEvery    Duration `json:"saveEvery"`
	RunFor       Duration `json:"runFor"`
	Attempts     int      `json:"attempts"`
	RetryMin     Duration `json:"retryMin"`
	RetryMax     Duration `json:"retryMax"`
	// StopAtHead ends it where nothing is left to read now.
	StopAtHead bool `json:"stopAtHead,omitempty"`
	// AcceptGap is the position that an operator allows to jump to; nil = none.
	AcceptGap *event.Position `json:"acceptGap,omitempty"`
}

// Progress says how far a shard has been followed. It is also what the running activity
// reports by its heartbeats. Its counts are for people: an attempt that is cut off takes
// what it has counted since its last heartbeat with it.
type Progress struct {
	Applied

	Position event.Position `json:"position"`
	// Behind is how many records are known to be left; -1 = unknown.
	Behind int64     `json:"behind"`
	Pages  int64     `json:"pages"` // pages with records
	At     time.Time `json:"at"`    // of the last read
	// UnknownStart says that there was no position record, so that the shard was read
	// from its oldest record: what was trimmed before is missing.
	UnknownStart bool `json:"unknownStart,omitempty"`
}

// Gap is a part of a shard that is gone before it was read.
type Gap struct {
	After  event.Position `json:"after"`  // the last position that was read
	Oldest event.Position `json:"oldest"` // the position before the oldest record that is left
}

// Followed says why following a shard has stopped.
type Followed struct {
	Progress

	End      bool `json:"end,omitempty"`      // the shard is closed and read to its end
	Gap      *Gap `json:"gap,omitempty"`      // an operator has to accept it
	CaughtUp bool `json:"caughtUp,omitempty"` // nothing was left, with StopAtHead
	Early    bool `json:"early,omitempty"`    // the worker stopped, or the activity was cancelled
}

// FollowShard polls the shard and applies what it holds, page by page, until its end, a
// gap, the worker's stop, or RunFor is over; with StopAtHead also until nothing is left.
// It begins at the higher of the position record and the last heartbeat, and keeps the
// record up to date. Errors are faults of the feed or the stores, and *[UnknownFeed]; the
// next attempt goes on where this one stopped.
func (a *Consumers) FollowShard(ctx context.Context, in FollowInput) (Followed, error) {
	feed, known := a.Feeds[in.Feed]
	if !known {
		return Followed{}, Failure(&UnknownFeed{Feed: in.Feed, Known: slices.Sorted(maps.Keys(a.Feeds))})
	}
	f := &follow{Consumers: a, in: in, feed: feed, ensured: map[string]bool{}}
	if err := f.begin(ctx); err != nil {
		return f.state, Failure(err)
	}
	stop := heartbeat(ctx, f.report)
	defer stop()
	err := f.run(ctx)
	if temporal.IsCanceledError(context.Cause(ctx)) { // and not a lost worker or a paused activity
		err = nil // whoever asked this run to end wants to know how far it came
		f.update(func(state *Followed) { state.Early = true })
	}
	if saveErr := f.save(ctx); err == nil {
		err = saveErr
	}
	return f.state, Failure(err)
}

// follow is one run of FollowShard.
type follow struct {
	*Consumers

	in      FollowInput
	feed    event.Feed
	began   time.Time
	ensured map[string]bool

	mu    sync.Mutex // guards state, which the heartbeat reads
	state Followed

	saved   event.Position
	savedAt time.Time
}

func (f *follow) now() time.Time {
	return clock(f.Now)()
}

// report returns the details of a heartbeat.
func (f *follow) report() any {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.Progress
}

func (f *follow) update(change func(state *Followed)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.state)
}

// begin finds out where to go on.
func (f *follow) begin(ctx context.Context) error {
	records, err := f.Positions.Positions(ctx, f.in.Consumer, f.in.Feed)
	if err != nil {
		return err
	}
	record, found := records[f.in.Shard]
	start := record.Position
	f.began, f.savedAt, f.saved = f.now(), f.now(), record.Position
	before := f.attemptBefore(ctx)
	start = max(start, before.Position)
	if accept := f.in.AcceptGap; accept != nil {
		start = max(start, *accept)
	}
	f.update(func(state *Followed) {
		state.Progress = before
		state.Position, state.Behind, state.At = start, -1, f.now().UTC()
		state.UnknownStart = before.UnknownStart || !found && !f.in.Child
		state.End = record.Done
	})
	if found {
		return nil
	}
	// From now on the start is known, also when nothing comes for a long time. That it was
	// not is told first, or the next attempt, which finds the record, would not know.
	activity.RecordHeartbeat(ctx, f.report())
	return f.put(ctx, start, false)
}

// attemptBefore returns what the attempt before this one has reported; its counts go on.
func (f *follow) attemptBefore(ctx context.Context) Progress {
	var progress Progress
	if !activity.HasHeartbeatDetails(ctx) || activity.GetHeartbeatDetails(ctx, &progress) != nil {
		return Progress{}
	}
	return progress
}

func (f *follow) run(ctx context.Context) error {
	for !f.state.End {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case stopping(ctx):
			f.update(func(state *Followed) { state.Early = true })
			return nil
		case f.now().Sub(f.began) >= f.in.RunFor.Std():
			return nil
		}
		page, err := f.feed.Read(ctx, f.in.Shard, f.state.Position, f.in.PageSize)
		if trimmed, is := errors.AsType[*event.Trimmed](err); is {
			if f.state.UnknownStart && f.state.Position == "" {
				// Nothing was read yet, so nothing was missed between two reads: begin at the oldest.
				f.update(func(state *Followed) { state.Position = trimmed.Oldest })
				continue
			}
			f.update(func(state *Followed) { state.Gap = &Gap{After: trimmed.After, Oldest: trimmed.Oldest} })
			return nil
		}
		if err != nil {
			return err
		}
		if err := f.take(ctx, page); err != nil {
			return err
		}
		if len(page.Records) > 0 || page.End {
			continue
		}
		if f.in.StopAtHead {
			f.update(func(state *Followed) { state.CaughtUp = true })
			return nil
		}
		if err := sleep(ctx, activity.GetWorkerStopChannel(ctx), f.in.PollInterval.Std()); err != nil {
			return err
		}
	}
	return nil
}

// take applies a page and moves on behind it.
func (f *follow) take(ctx context.Context, page event.Page) error {
	policy := retries{
		attempts: f.in.Attempts, backoff: outbox.Backoff{Min: f.in.RetryMin.Std(), Max: f.in.RetryMax.Std()},
	}
	applied, err := f.page(ctx, page.Records, f.in.Projections, policy, f.ensured)
	f.update(func(state *Followed) {
		state.Add(applied)
		if err != nil {
			return
		}
		state.Position, state.Behind, state.At = page.Next, page.Behind, f.now().UTC()
		state.End = page.End
		if len(page.Records) > 0 {
			state.Pages++
		}
	})
	if err != nil {
		return err
	}
	if f.state.Position != f.saved && f.now().Sub(f.savedAt) >= f.in.SaveEvery.Std() {
		return f.save(ctx)
	}
	return nil
}

// save writes the position record if it is behind.
func (f *follow) save(ctx context.Context) error {
	if f.state.Position == f.saved && !f.state.End {
		return nil
	}
	return f.put(ctx, f.state.Position, f.state.End)
}

// put writes the position record, also when ctx has ended: what was applied is known
// only here, and reading it again costs time.
func (f *follow) put(ctx context.Context, position event.Position, done bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleFor)
	defer cancel()
	err := f.Positions.SavePosition(ctx, projection.PositionRecord{
		Consumer: f.in.Consumer, Stream: f.in.Feed, Shard: f.in.Shard, Position: position, Done: done, At: f.now().UTC(),
	})
	if err != nil {
		return err
	}
	f.saved, f.savedAt = position, f.now()
	return nil
}

// settleFor bounds what an activity still has to write when its context has ended.
const settleFor = 5 * time.Second
