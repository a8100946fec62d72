package workflows

import (
	"encoding/json"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/rowfold/rowfold/activities"
)

// ConsumeShard is the input of the workflow of that name, which follows one shard of a feed. A
// ConsumeStream starts it.
type ConsumeShard struct {
	Following

	Shard string `json:"shard"` // required
	// Child says that the shard's parents were read to their end, so that it is known to
	// begin at its oldest record.
	Child bool `json:"child,omitempty"`
	// Paused lets it begin paused.
	Paused bool `json:"paused,omitempty"`

	// Carried is the state of the run before this one. Leave it out.
	Carried *ShardState `json:"carried,omitempty"`
}

// WithDefaults returns the input with every empty field at its default.
func (in ConsumeShard) WithDefaults() ConsumeShard {
	in.Following = in.withDefaults()
	return in
}

// Validate names every field that is wrong, in an error of the type
// [ErrorInvalidInput]. It expects the defaults to be filled in.
func (in ConsumeShard) Validate() error {
	var c checks
	in.check(&c)
	c.required("shard", in.Shard)
	return invalid(TypeConsumeShard, c)
}

// shardRun is one run of ConsumeShard.
type shardRun struct {
	in      ConsumeShard
	state   ShardState
	paused  bool
	control workflow.ReceiveChannel
	cancel  func() // ends the activity that runs; nil = none does
	counted int
}

func consumeShard(ctx workflow.Context, raw json.RawMessage, _ Options) (ShardState, error) {
	in, err := decode[ConsumeShard](TypeConsumeShard, raw)
	if err != nil {
		return ShardState{}, err
	}
	r := &shardRun{in: in, state: ShardState{Behind: -1}, paused: in.Paused, control: workflow.GetSignalChannel(ctx, SignalControl)}
	if in.Carried != nil {
		r.state = *in.Carried
		r.state.Runs++
	}
	if err := r.handle(ctx); err != nil {
		return r.state, err
	}
	workflow.GoNamed(ctx, "control", r.listen)
	err = r.run(ctx)
	if err == nil || temporal.IsCanceledError(err) {
		err = finish(ctx, err)
	}
	return r.state, err
}

func (r *shardRun) run(ctx workflow.Context) error {
	for {
		if err := r.settle(ctx); err != nil {
			return err
		}
		switch {
		case r.state.End || r.state.CaughtUp || r.state.Stopped:
			return nil
		case full(ctx, r.counted, r.in.ContinueAfter):
			return r.continueAsNew(ctx)
		case r.paused || r.state.Gap != nil:
			if err := workflow.Await(ctx, func() bool {
				return r.state.Stopped || r.now() != r.state.State || r.counted >= r.in.ContinueAfter
			}); err != nil {
				return err
			}
		default:
			if err := r.round(ctx); err != nil {
				return err
			}
		}
	}
}

// now returns the state that the run is in.
func (r *shardRun) now() string {
	switch {
	case r.state.Gap != nil:
		return StateGap
	case r.paused:
		return StatePaused
	default:
		return StateFollowing
	}
}

// settle shows the state, and publishes it when it has changed.
func (r *shardRun) settle(ctx workflow.Context) error {
	unknown := r.state.UnknownStart && r.state.Rounds == 1
	changed := r.state.enter(r.now(), workflow.Now(ctx))
	workflow.SetCurrentDetails(ctx, r.state.details(r.in))
	if changed || unknown {
		return publish(ctx, r.state.memo(r.in.Shard))
	}
	return nil
}

// round lets an activity follow the shard until it has something to say, or until the
// operator wants something else.
func (r *shardRun) round(ctx workflow.Context) error {
	r.counted++
	r.state.Rounds++
	in := r.in
	// The time above RunFor lets a page that is under way be finished.
	timeout := in.RunFor + activities.Duration(time.Hour)
	ctx, cancel := workflow.WithCancel(ctx)
	interrupted := false
	r.cancel = func() {
		interrupted = true
		cancel()
	}
	defer func() {
		cancel()
		r.cancel = nil
	}()
	summary := fmt.Sprintf("follow %s %s after %q", in.Feed, in.Shard, r.state.Position)
	activityCtx := workflow.WithActivityOptions(ctx, long("", summary, timeout, in.HeartbeatTimeout))
	var found activities.Followed
	err := workflow.ExecuteActivity(activityCtx, activities.FollowShard, activities.FollowInput{
		Consumer: in.Consumer, Feed: in.Feed, Shard: in.Shard, Child: in.Child, Projections: in.Projections,
		PageSize: in.PageSize, PollInterval: in.PollInterval, SaveEvery: in.SaveEvery, RunFor: in.RunFor,
		Attempts: in.Attempts, RetryMin: in.RetryMin, RetryMax: in.RetryMax,
		StopAtHead: in.StopAtHead, AcceptGap: r.state.AcceptUpTo,
	}).Get(activityCtx, &found)
	switch {
	case err == nil:
		r.state.take(found)
		return nil
	case temporal.IsCanceledError(err) && interrupted:
		return nil // it had not begun, or was between two attempts
	default:
		return fmt.Errorf("follow shard %s of %s: %w", in.Shard, in.Feed, err)
	}
}

func (r *shardRun) continueAsNew(ctx workflow.Context) error {
	if err := answerUpdates(ctx); err != nil {
		return err
	}
	r.drainControl()
	next := r.in
	next.Paused, next.Carried = r.paused, &r.state
	return workflow.NewContinueAsNewError(ctx, TypeConsumeShard, next)
}

// listen carries out what the parent says. It takes a signal only when its turn has come: a
// blocked Receive would be handed one that is lost if the run continues as new before.
func (r *shardRun) listen(ctx workflow.Context) {
	for {
		if err := workflow.Await(ctx, func() bool { return r.control.Len() > 0 }); err != nil {
			return // the run was cancelled
		}
		r.drainControl()
	}
}

func (r *shardRun) drainControl() {
	var said Control
	for r.control.ReceiveAsync(&said) {
		r.obey(said.Verb)
	}
}

func (r *shardRun) obey(verb string) {
	r.counted++
	switch verb {
	case UpdatePause:
		r.paused = true
	case UpdateResume:
		r.paused = false
	case UpdateStop:
		r.state.Stopped = true
	default:
		return
	}
	if r.cancel != nil && verb != UpdateResume {
		r.cancel() // the activity ends and says how far it came; a page that is cut off is read again
	}
}

func (r *shardRun) handle(ctx workflow.Context) error {
	if err := workflow.SetQueryHandler(ctx, QueryProgress, func() (ShardState, error) { return r.state, nil }); err != nil {
		return fmt.Errorf("set the query handler: %w", err)
	}
	for _, c := range controls() {
		err := setUpdate(ctx, c.verb, c.text, func(workflow.Context, NoInput) (NoInput, error) {
			r.obey(c.verb)
			return NoInput{}, nil
		})
		if err != nil {
			return err
		}
	}
	return setUpdate(ctx, UpdateAcceptGap, "Go on behind a gap, on the record.", r.accept)
}

func (r *shardRun) accept(ctx workflow.Context, in AcceptGap) (Accepted, error) {
	if r.state.Gap == nil || in.Shard != r.in.Shard {
		return Accepted{}, noGap(in.Shard)
	}
	r.counted++
	oldest := r.state.Gap.Oldest
	r.state.AcceptUpTo, r.state.Gap = &oldest, nil
	r.state.Accepted = keepAccepted(r.state.Accepted, in, workflow.Now(ctx))
	return r.state.Accepted[len(r.state.Accepted)-1], nil
}

// ErrorNoGap is the type of the error of [UpdateAcceptGap] where there is none.
const ErrorNoGap = "NoGap"

func noGap(shard string) error {
	message := fmt.Sprintf("shard %s has no gap: look at the state again", shard)
	return temporal.NewNonRetryableApplicationError(message, ErrorNoGap, nil)
}
