package workflows

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/rowfold/rowfold/activities"
	"github.com/rowfold/rowfold/internal/clip"
)

// MaxShards is how many shards one ConsumeStream follows at a time, so that what it carries
// stays small; it goes on with others when those have ended.
const MaxShards = 200

// ConsumeStream is the input of the workflow of that name, which follows a feed: it
// discovers the feed's shards and lets one ConsumeShard follow each, children only after
// their parents.
type ConsumeStream struct {
	Following

	// DiscoverEvery is how often the shards are listed again. Defaults to 1m.
	DiscoverEvery activities.Duration `json:"discoverEvery,omitempty"`
	// MaxShards is how many shards are followed at a time, at most [MaxShards]. Defaults to
	// that.
	MaxShards int `json:"maxShards,omitempty"`

	// Carried is the state of the run before this one. Leave it out.
	Carried *StreamState `json:"carried,omitempty"`
}

// WithDefaults returns the input with every empty field at its default.
func (in ConsumeStream) WithDefaults() ConsumeStream {
	in.Following = in.withDefaults()
	in.DiscoverEvery = in.DiscoverEvery.Or(time.Minute)
	in.MaxShards = orDefault(in.MaxShards, MaxShards)
	return in
}

// Validate names every field that is wrong, in an error of the type
// [ErrorInvalidInput]. It expects the defaults to be filled in.
func (in ConsumeStream) Validate() error {
	var c checks
	in.check(&c)
	c.duration("discoverEvery", in.DiscoverEvery)
	c.positive("maxShards", in.MaxShards)
	if in.MaxShards > MaxShards {
		c.faultf("maxShards", "%d is too high: write at most %d", in.MaxShards, MaxShards)
	}
	return invalid(TypeConsumeStream, c)
}

// streamRun is one run of ConsumeStream.
type streamRun struct {
	in    ConsumeStream
	state StreamState
	// children are the followers that this run has started, by shard; a run before it has
	// started the others.
	children map[string]string
	starting bool // followers are being started
	nudged   bool // something is different: look at the shards again
	orders   int  // orders that are being carried out
	counted  int
}

func consumeStream(ctx workflow.Context, raw json.RawMessage, _ Options) (StreamState, error) {
	in, err := decode[ConsumeStream](TypeConsumeStream, raw)
	if err != nil {
		return StreamState{}, err
	}
	r := &streamRun{in: in, children: map[string]string{}}
	if in.Carried != nil {
		r.state = *in.Carried
		r.state.Runs++
	}
	if r.state.Running == nil {
		r.state.Running = map[string]string{}
	}
	if err := r.handle(ctx); err != nil {
		return r.state, err
	}
	err = r.run(ctx)
	if temporal.IsCanceledError(err) {
		r.cancelFollowers(ctx)
	}
	if err == nil || temporal.IsCanceledError(err) {
		err = finish(ctx, err)
	}
	return r.state, err
}

func (r *streamRun) run(ctx workflow.Context) error {
	for {
		if err := workflow.Await(ctx, func() bool { return r.orders == 0 }); err != nil {
			return err
		}
		if full(ctx, r.counted, r.in.ContinueAfter) {
			return r.continueAsNew(ctx)
		}
		r.nudged = false
		found, err := r.discover(ctx)
		if err != nil {
			return err
		}
		if !r.state.Stopped {
			if err := r.followAll(ctx, found.Ready); err != nil {
				return err
			}
		}
		if err := r.settle(ctx); err != nil {
			return err
		}
		if r.over() {
			return nil
		}
		_, err = workflow.AwaitWithOptions(ctx, workflow.AwaitOptions{
			Timeout: r.in.DiscoverEvery.Std(), TimerOptions: workflow.TimerOptions{Summary: "list the shards again"},
		}, func() bool { return r.nudged })
		if err != nil {
			return err
		}
	}
}

// over reports whether nothing is left to do.
func (r *streamRun) over() bool {
	if len(r.state.Running) > 0 || len(r.children) > 0 { // the result of a child that has ended may be on the way
		return false
	}
	return r.state.Stopped || r.in.StopAtHead && r.state.Waiting == 0 && len(r.state.Vanished) == 0
}

// discover lists the shards and takes in what has become of them.
func (r *streamRun) discover(ctx workflow.Context) (activities.Discovered, error) {
	r.counted++
	r.state.Rounds++
	options := long("", "list the shards of "+r.in.Feed, activities.Duration(time.Minute), r.in.HeartbeatTimeout)
	var found activities.Discovered
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, options), activities.DiscoverShards, activities.DiscoverInput{
		Consumer: r.in.Consumer, Feed: r.in.Feed, Running: r.state.Running, MaxReady: max(0, r.in.MaxShards-len(r.state.Running)),
	}).Get(ctx, &found)
	if err != nil {
		return found, fmt.Errorf("list the shards of %s: %w", r.in.Feed, err)
	}
	for _, shard := range slices.Concat(found.Ended, found.Lost) {
		delete(r.state.Running, shard)
	}
	for _, shard := range found.Ended {
		// The result of a follower that this run has started says more.
		if _, mine := r.children[shard]; r.in.StopAtHead && !mine {
			r.state.finish(shard)
		}
	}
	r.state.Waiting, r.state.Done, r.state.Vanished, r.state.Behind = found.Waiting, found.Done, found.Vanished, found.Behind
	return found, nil
}

// followAll starts the followers of shards and waits until they are there: the next look
// at the shards asks Temporal for them, and a run that continues as new must leave none
// half started.
func (r *streamRun) followAll(ctx workflow.Context, shards []activities.ShardRef) error {
	r.starting = true
	defer func() { r.starting = false }()
	var starts []workflow.Future
	for _, shard := range shards {
		if _, mine := r.children[shard.ID]; mine || slices.Contains(r.state.Finished, shard.ID) {
			continue // it has ended, and its result is on the way
		}
		starts = append(starts, r.follow(ctx, shard))
	}
	for _, start := range starts {
		if err := start.Get(ctx, nil); temporal.IsCanceledError(err) {
			return err
		}
	}
	return nil
}

// follow starts the follower of a shard. It lives on when this run continues as new, or
// when somebody terminates it: then the next run finds it.
func (r *streamRun) follow(ctx workflow.Context, shard activities.ShardRef) (started workflow.Future) {
	r.counted++
	id := ShardID(workflow.GetInfo(ctx).WorkflowExecution.ID, shard.ID)
	r.state.Running[shard.ID], r.children[shard.ID] = id, id
	options := workflow.ChildWorkflowOptions{
		WorkflowID: id, ParentClosePolicy: enumspb.PARENT_CLOSE_POLICY_ABANDON,
		StaticSummary: clip.Text("follow "+r.in.Feed+" "+shard.ID, maxSummary),
	}
	key := temporal.NewSearchAttributeKeyKeyword(AttributeState)
	if _, known := workflow.GetTypedSearchAttributes(ctx).GetKeyword(key); known {
		options.TypedSearchAttributes = temporal.NewSearchAttributes(key.ValueSet(StateFollowing))
	}
	child := workflow.ExecuteChildWorkflow(workflow.WithChildOptions(ctx, options), TypeConsumeShard, ConsumeShard{
		Following: r.in.Following, Shard: shard.ID, Child: shard.Child, Paused: r.state.Paused,
	})
	workflow.GoNamed(ctx, "shard "+shard.ID, func(ctx workflow.Context) {
		var state ShardState
		err := child.Get(ctx, &state)
		r.ended(shard.ID, state, err)
	})
	return child.GetChildWorkflowExecution()
}

// ended takes in that a follower has ended. A fault of it is shown, and the next look at
// the shards starts it again.
func (r *streamRun) ended(shard string, state ShardState, err error) {
	delete(r.children, shard)
	var started *temporal.ChildWorkflowExecutionAlreadyStartedError
	switch {
	case errors.As(err, &started):
		return // by a run before this one: it is followed
	case temporal.IsCanceledError(err):
	case err != nil:
		r.state.Failed = clip.Text(fmt.Sprintf("%s: %v", shard, err), maxMemoError)
	case state.CaughtUp:
		r.state.finish(shard)
	}
	r.state.Applied.Add(state.Applied)
	delete(r.state.Running, shard)
	delete(r.state.Behind, shard)
	// After a failure the next look is by the timer, so that a fault that stays costs little.
	r.nudged = r.nudged || err == nil
}

// settle shows the state, and publishes it when it has changed.
func (r *streamRun) settle(ctx workflow.Context) error {
	state := StateFollowing
	switch {
	case len(r.state.Vanished) > 0:
		state = StateGap
	case r.state.Paused:
		state = StatePaused
	}
	changed := r.state.enter(state, workflow.Now(ctx))
	workflow.SetCurrentDetails(ctx, r.state.details(r.in))
	if changed {
		return publish(ctx, r.state.memo(r.in))
	}
	return nil
}

func (r *streamRun) continueAsNew(ctx workflow.Context) error {
	if err := answerUpdates(ctx); err != nil {
		return err
	}
	next := r.in
	next.Carried = &r.state
	return workflow.NewContinueAsNewError(ctx, TypeConsumeStream, next)
}

// controls are the updates that steer a consumer, with their descriptions.
func controls() []control {
	return []control{
		{UpdatePause, "Finish the page and wait."},
		{UpdateResume, "Go on."},
		{UpdateStop, "Finish the page and complete."},
	}
}

type control struct{ verb, text string }

func (r *streamRun) handle(ctx workflow.Context) error {
	if err := workflow.SetQueryHandler(ctx, QueryProgress, func() (StreamState, error) { return r.state, nil }); err != nil {
		return fmt.Errorf("set the query handler: %w", err)
	}
	for _, c := range controls() {
		err := setUpdate(ctx, c.verb, c.text, func(ctx workflow.Context, _ NoInput) (NoInput, error) {
			return NoInput{}, r.control(ctx, c.verb)
		})
		if err != nil {
			return err
		}
	}
	return setUpdate(ctx, UpdateAcceptGap, "Take note that a shard vanished before its end.", r.accept)
}

// control tells every follower. One that has ended meanwhile needs nothing.
func (r *streamRun) control(ctx workflow.Context, verb string) error {
	r.orders++
	r.counted++
	defer func() { r.orders-- }()
	switch verb {
	case UpdatePause:
		r.state.Paused = true
	case UpdateResume:
		r.state.Paused = false
	case UpdateStop:
		r.state.Stopped = true
	}
	r.nudged = true
	// A follower that is being started would miss the signal.
	if err := workflow.Await(ctx, func() bool { return !r.starting }); err != nil {
		return err
	}
	return r.tell(ctx, verb, workflow.DeterministicKeys(r.state.Running)...)
}

// tell signals the followers of shards.
func (r *streamRun) tell(ctx workflow.Context, verb string, shards ...string) error {
	futures := make([]workflow.Future, 0, len(shards))
	for _, shard := range shards {
		futures = append(futures, workflow.SignalExternalWorkflow(ctx, r.state.Running[shard], "", SignalControl, Control{Verb: verb}))
	}
	for _, future := range futures {
		var gone *temporal.UnknownExternalWorkflowExecutionError
		if err := future.Get(ctx, nil); err != nil && !errors.As(err, &gone) {
			return fmt.Errorf("tell a follower to %s: %w", verb, err)
		}
	}
	return nil
}

// cancelFollowers cancels the followers that runs before this one have started; the
// cancellation has reached this run's own as its children.
func (r *streamRun) cancelFollowers(ctx workflow.Context) {
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	var requests []workflow.Future
	for _, shard := range workflow.DeterministicKeys(r.state.Running) {
		if _, mine := r.children[shard]; !mine {
			requests = append(requests, workflow.RequestCancelExternalWorkflow(ctx, r.state.Running[shard], ""))
		}
	}
	for _, request := range requests {
		_ = request.Get(ctx, nil) // it has ended: that is what was asked for
	}
}

func (r *streamRun) accept(ctx workflow.Context, in AcceptGap) (Accepted, error) {
	if !slices.Contains(r.state.Vanished, in.Shard) {
		return Accepted{}, noGap(in.Shard)
	}
	r.orders++
	r.counted++
	defer func() { r.orders-- }()
	ctx = workflow.WithActivityOptions(ctx, short("", "accept the gap of "+in.Shard+", by "+in.Who))
	err := workflow.ExecuteActivity(ctx, activities.CloseShard, activities.CloseInput{
		Consumer: r.in.Consumer, Feed: r.in.Feed, Shard: in.Shard,
	}).Get(ctx, nil)
	if err != nil {
		return Accepted{}, err
	}
	if _, followed := r.state.Running[in.Shard]; followed {
		if err := r.tell(ctx, UpdateStop, in.Shard); err != nil {
			return Accepted{}, err
		}
	}
	r.nudged = true
	r.state.Accepted = keepAccepted(r.state.Accepted, in, workflow.Now(ctx))
	return r.state.Accepted[len(r.state.Accepted)-1], nil
}
