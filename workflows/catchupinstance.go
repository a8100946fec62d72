package workflows

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/rowfold/rowfold/activities"
	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
)

// CatchUpInstance is the input of the workflow of that name, which applies what a parked
// instance has missed, until it is up to date and not parked any more.
type CatchUpInstance struct {
	Projection string   `json:"projection"` // required
	Source     string   `json:"source"`     // required
	StreamID   event.ID `json:"streamId"`   // required
	// Name is what people see instead of the stream id. Defaults to StreamID.
	Name string `json:"name,omitempty"`
	// PageSize is how many events are applied at a time. Defaults to 500.
	PageSize int `json:"pageSize,omitempty"`
	// RetryMin and RetryMax bound the wait after a failure that may pass; it doubles
	// each time. Default to 1s and 5m.
	RetryMin activities.Duration `json:"retryMin,omitempty"`
	RetryMax activities.Duration `json:"retryMax,omitempty"`
	// ActivityTimeout is the longest that one activity runs. Defaults to 1h.
	ActivityTimeout activities.Duration `json:"activityTimeout,omitempty"`
	// HeartbeatTimeout is how long an activity may be silent. Defaults to 10s.
	HeartbeatTimeout activities.Duration `json:"heartbeatTimeout,omitempty"`
	// ContinueAfter is after how many rounds and updates the run continues as new.
	// Defaults to 500.
	ContinueAfter int `json:"continueAfter,omitempty"`

	// Carried is the state of the run before this one. Leave it out.
	Carried *CatchUpState `json:"carried,omitempty"`
}

// WithDefaults returns the input with every empty field at its default.
func (in CatchUpInstance) WithDefaults() CatchUpInstance {
	in.Name = orDefault(in.Name, string(in.StreamID))
	in.PageSize = orDefault(in.PageSize, 500)
	in.RetryMin = in.RetryMin.Or(time.Second)
	in.RetryMax = in.RetryMax.Or(max(5*time.Minute, in.RetryMin.Std()))
	in.ActivityTimeout = in.ActivityTimeout.Or(time.Hour)
	in.HeartbeatTimeout = in.HeartbeatTimeout.Or(defaultHeartbeat)
	in.ContinueAfter = orDefault(in.ContinueAfter, defaultContinueAfter)
	return in
}

// Validate names every field that is wrong, in an error of the type
// [ErrorInvalidInput]. It expects the defaults to be filled in.
func (in CatchUpInstance) Validate() error {
	var c checks
	c.required("projection", in.Projection)
	c.required("source", in.Source)
	c.required("streamId", string(in.StreamID))
	c.positive("pageSize", in.PageSize)
	c.backoff("retry", in.RetryMin, in.RetryMax)
	c.duration("activityTimeout", in.ActivityTimeout)
	c.duration("heartbeatTimeout", in.HeartbeatTimeout)
	c.positive("continueAfter", in.ContinueAfter)
	return invalid(TypeCatchUpInstance, c)
}

// SkipEvent is the input of [UpdateSkip] of a CatchUpInstance. All fields are required.
type SkipEvent struct {
	Version int64  `json:"version"` // the event that is in the way
	Who     string `json:"who"`
	Why     string `json:"why"`
}

// WithDefaults returns the input as it is.
func (in SkipEvent) WithDefaults() SkipEvent { return in }

// Validate names every missing field, in an error of the type [ErrorInvalidInput].
func (in SkipEvent) Validate() error {
	var c checks
	if in.Version < 1 {
		c.faultf("version", "%d is too low: write the version of the event in the way", in.Version)
	}
	c.required("who", in.Who)
	c.required("why", in.Why)
	return invalid("the skip", c)
}

// CatchUpState is what a CatchUpInstance knows: the answer to [QueryState], and what one
// run hands to the next.
type CatchUpState struct {
	State    string    `json:"state"` // [StateCatchingUp], [StateRetrying] or [StateParked]
	Since    time.Time `json:"since"`
	Events   int64     `json:"events"` // given to the fold, over all runs
	Enqueued int64     `json:"enqueued"`
	Version  int64     `json:"version,omitempty"` // the last one that was applied
	Newest   int64     `json:"newest,omitempty"`  // the newest one that a feed has seen
	Skipped  []int64   `json:"skipped,omitempty"` // versions that operators have skipped, the last 20
	Rounds   int64     `json:"rounds"`
	Runs     int64     `json:"runs"`
	// Fault is what is in the way; nil = nothing is.
	Fault *activities.InstanceFault `json:"fault,omitempty"`
	// Attempts counts the failures in a row at one version.
	Attempts int       `json:"attempts,omitempty"`
	RetryAt  time.Time `json:"retryAt,omitzero"`
	Done     bool      `json:"done,omitempty"`
	// NotParked says that there was nothing to catch up.
	NotParked bool `json:"notParked,omitempty"`
}

// maxSkipped bounds CatchUpState.Skipped; all skips are in the store.
const maxSkipped = 20

// take takes in what an activity found, and returns how long to wait: a negative wait
// means until an operator answers.
func (s *CatchUpState) take(found activities.CaughtUp, now time.Time, low, high time.Duration) time.Duration {
	s.Events += int64(found.Events)
	s.Enqueued += int64(found.Enqueued)
	s.Version = max(s.Version, found.Version)
	s.Newest = max(s.Newest, found.Newest)
	s.Done, s.NotParked, s.RetryAt = found.Done, found.NotParked, time.Time{}
	if found.Failed == nil {
		s.Fault, s.Attempts = nil, 0
		s.enter(StateCatchingUp, now)
		return 0
	}
	if s.Fault == nil || s.Fault.Version != found.Failed.Version {
		s.Attempts = 0
	}
	s.Attempts++
	s.Fault = found.Failed
	if s.Fault.Class == event.ClassPermanent {
		s.enter(StateParked, now)
		return -1
	}
	delay := outbox.Backoff{Min: low, Max: high}.Bound(s.Attempts)
	s.RetryAt = now.Add(delay).UTC()
	s.enter(StateRetrying, now)
	return delay
}

func (s *CatchUpState) enter(state string, now time.Time) {
	if s.State != state {
		s.State, s.Since = state, now.UTC()
	}
}

func (s *CatchUpState) memo() StateMemo {
	memo := StateMemo{State: s.State, Since: s.Since}
	if s.Fault != nil {
		memo.About, memo.Attempts = fmt.Sprintf("version %d", s.Fault.Version), s.Attempts
		memo.Class, memo.Error = s.Fault.Class, s.Fault.Error
	}
	return memo
}

func (s *CatchUpState) details(in CatchUpInstance) string {
	rows := [][2]string{
		{"instance", in.Projection + ", " + in.Source + "#" + in.Name},
		{labelSince, stamp(s.Since)},
		{"applied up to", strconv.FormatInt(s.Version, 10)},
		{"newest seen", strconv.FormatInt(s.Newest, 10)},
		{"events", strconv.FormatInt(s.Events, 10)},
	}
	next := ""
	if s.Fault != nil {
		rows = append(rows, [2]string{"in the way", fmt.Sprintf("version %d", s.Fault.Version)}, [2]string{"failures", strconv.Itoa(s.Attempts)},
			[2]string{"last error", fmt.Sprintf("%s (%s)", s.Fault.Error, s.Fault.Class)}, [2]string{"next attempt", stamp(s.RetryAt)})
		next = "\nNext: mend the cause and send the update `retry`, or pass over the event with the update `skip` " +
			fmt.Sprintf("`{\"version\": %d, \"who\": \"…\", \"why\": \"…\"}`.\n", s.Fault.Version)
	}
	return "**" + s.State + "**\n\n" + table(rows...) + next
}

// catchUp is one run of CatchUpInstance.
type catchUp struct {
	in      CatchUpInstance
	state   CatchUpState
	nudged  bool // an operator's order was carried out
	orders  int  // orders that are being carried out
	counted int
}

func catchUpInstance(ctx workflow.Context, raw json.RawMessage, _ Options) (CatchUpState, error) {
	in, err := decode[CatchUpInstance](TypeCatchUpInstance, raw)
	if err != nil {
		return CatchUpState{}, err
	}
	c := &catchUp{in: in}
	if in.Carried != nil {
		c.state = *in.Carried
		c.state.Runs++
	}
	c.state.enter(StateCatchingUp, workflow.Now(ctx))
	if err := c.handle(ctx); err != nil {
		return c.state, err
	}
	return c.run(ctx)
}

func (c *catchUp) run(ctx workflow.Context) (CatchUpState, error) {
	for {
		if err := workflow.Await(ctx, func() bool { return c.orders == 0 }); err != nil {
			return c.state, finish(ctx, err)
		}
		if full(ctx, c.counted, c.in.ContinueAfter) {
			if err := answerUpdates(ctx); err != nil {
				return c.state, err
			}
			next := c.in
			next.Carried = &c.state
			return c.state, workflow.NewContinueAsNewError(ctx, TypeCatchUpInstance, next)
		}
		c.nudged = false
		delay, err := c.round(ctx)
		if err != nil {
			return c.state, finish(ctx, err)
		}
		if c.state.Done {
			return c.state, finish(ctx, nil)
		}
		if delay == 0 {
			continue
		}
		if err := c.wait(ctx, delay); err != nil {
			return c.state, finish(ctx, err)
		}
	}
}

func (c *catchUp) round(ctx workflow.Context) (time.Duration, error) {
	c.counted++
	c.state.Rounds++
	summary := fmt.Sprintf("catch up %s %s#%s", c.in.Projection, c.in.Source, c.in.Name)
	ctx = workflow.WithActivityOptions(ctx, long("", summary, c.in.ActivityTimeout, c.in.HeartbeatTimeout))
	var found activities.CaughtUp
	err := workflow.ExecuteActivity(ctx, activities.CatchUp, activities.CatchUpInput{
		Projection: c.in.Projection, Source: c.in.Source, StreamID: c.in.StreamID, PageSize: c.in.PageSize,
	}).Get(ctx, &found)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", summary, err)
	}
	before := c.state.State
	delay := c.state.take(found, workflow.Now(ctx), c.in.RetryMin.Std(), c.in.RetryMax.Std())
	c.show(ctx)
	if c.state.State != before {
		return delay, publish(ctx, c.state.memo())
	}
	return delay, nil
}

// wait returns after the delay — never for a negative one —, or when an operator's order
// was carried out.
func (c *catchUp) wait(ctx workflow.Context, delay time.Duration) error {
	ready := func() bool { return c.nudged || c.counted >= c.in.ContinueAfter }
	if delay < 0 {
		return workflow.Await(ctx, ready)
	}
	_, err := workflow.AwaitWithOptions(ctx, workflow.AwaitOptions{
		Timeout: delay, TimerOptions: workflow.TimerOptions{Summary: fmt.Sprintf("next attempt at version %d", c.state.Fault.Version)},
	}, ready)
	return err
}

// handle sets the handlers of queries and updates.
func (c *catchUp) handle(ctx workflow.Context) error {
	if err := workflow.SetQueryHandler(ctx, QueryState, func() (CatchUpState, error) { return c.state, nil }); err != nil {
		return fmt.Errorf("set the query handler: %w", err)
	}
	err := setUpdate(ctx, UpdateRetry, "Try again now.", func(_ workflow.Context, _ Retry) (Retried, error) {
		c.counted++
		c.nudged = true
		return Retried{Waited: c.state.Fault != nil}, nil
	})
	if err != nil {
		return err
	}
	return setUpdate(ctx, UpdateSkip, "Pass over one event, on the record.", c.skip)
}

func (c *catchUp) skip(ctx workflow.Context, skip SkipEvent) (SkipEvent, error) {
	c.orders++
	c.counted++
	defer func() { c.orders-- }()
	ctx = workflow.WithActivityOptions(ctx, short("", fmt.Sprintf("skip version %d, by %s", skip.Version, skip.Who)))
	err := workflow.ExecuteActivity(ctx, activities.RecordSkip, activities.SkipInput{
		Projection: c.in.Projection, Source: c.in.Source, StreamID: c.in.StreamID,
		Version: skip.Version, Who: skip.Who, Why: skip.Why, At: workflow.Now(ctx).UTC(),
	}).Get(ctx, nil)
	if err != nil {
		return skip, err
	}
	c.nudged = true
	c.state.Skipped = append(c.state.Skipped, skip.Version)
	c.state.Skipped = c.state.Skipped[max(0, len(c.state.Skipped)-maxSkipped):]
	return skip, nil
}

func (c *catchUp) show(ctx workflow.Context) {
	workflow.SetCurrentDetails(ctx, c.state.details(c.in))
}
