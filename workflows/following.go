package workflows

import (
	"time"

	"github.com/rowfold/rowfold/activities"
)

// Following says how the shards of a feed are followed. It is part of the inputs of
// ConsumeStream, which hands it on, and ConsumeShard.
type Following struct {
	Consumer string `json:"consumer"` // whose positions are kept; required
	Feed     string `json:"feed"`     // as the worker names it; required
	// Projections restricts the consumer; empty = every projection of the worker.
	Projections []string `json:"projections,omitempty"`
	// StopAtHead completes the run when everything is read that is there now: for backfills
	// and tests.
	StopAtHead bool `json:"stopAtHead,omitempty"`
	// PageSize is how many records are applied at a time. Defaults to 500.
	PageSize int `json:"pageSize,omitempty"`
	// PollInterval is the wait after a read that found nothing. Defaults to 200ms.
	PollInterval activities.Duration `json:"pollInterval,omitempty"`
	// SaveEvery is how long the position record may be behind. Defaults to 5s.
	SaveEvery activities.Duration `json:"saveEvery,omitempty"`
	// RunFor is how long one activity follows before the workflow takes in how far it
	// has come. Defaults to 5m.
	RunFor activities.Duration `json:"runFor,omitempty"`
	// Attempts is how often a page is tried before what fails for now is parked.
	// Defaults to 5.
	Attempts int `json:"attempts,omitempty"`
	// RetryMin and RetryMax bound the wait between those tries; it doubles each time.
	// Default to 200ms and 5s.
	RetryMin activities.Duration `json:"retryMin,omitempty"`
	RetryMax activities.Duration `json:"retryMax,omitempty"`
	// HeartbeatTimeout is how long an activity may be silent. Defaults to 10s.
	HeartbeatTimeout activities.Duration `json:"heartbeatTimeout,omitempty"`
	// ContinueAfter is after how many rounds, signals and updates a run continues as new.
	// Defaults to 500.
	ContinueAfter int `json:"continueAfter,omitempty"`
}

func (f Following) withDefaults() Following {
	f.PageSize = orDefault(f.PageSize, 500)
	f.PollInterval = f.PollInterval.Or(200 * time.Millisecond)
	f.SaveEvery = f.SaveEvery.Or(5 * time.Second)
	f.RunFor = f.RunFor.Or(5 * time.Minute)
	f.Attempts = orDefault(f.Attempts, 5)
	f.RetryMin = f.RetryMin.Or(200 * time.Millisecond)
	f.RetryMax = f.RetryMax.Or(max(5*time.Second, f.RetryMin.Std()))
	f.HeartbeatTimeout = f.HeartbeatTimeout.Or(defaultHeartbeat)
	f.ContinueAfter = orDefault(f.ContinueAfter, defaultContinueAfter)
	return f
}

func (f Following) check(c *checks) {
	c.required("consumer", f.Consumer)
	c.required("feed", f.Feed)
	c.positive("pageSize", f.PageSize)
	c.duration("pollInterval", f.PollInterval)
	c.duration("saveEvery", f.SaveEvery)
	c.duration("runFor", f.RunFor)
	c.positive("attempts", f.Attempts)
	c.backoff("retry", f.RetryMin, f.RetryMax)
	c.duration("heartbeatTimeout", f.HeartbeatTimeout)
	c.positive("continueAfter", f.ContinueAfter)
}

// Control is what a ConsumeStream tells its shards by [SignalControl].
type Control struct {
	Verb string `json:"verb"` // [UpdatePause], [UpdateResume] or [UpdateStop]
}

// NoInput is the input of updates that need none.
type NoInput struct{}

// WithDefaults returns the input as it is.
func (in NoInput) WithDefaults() NoInput { return in }

// Validate accepts everything.
func (in NoInput) Validate() error { return nil }

// AcceptGap is the input of [UpdateAcceptGap]: an operator takes note that records are
// missing, and lets the consumer go on behind them. All fields are required.
type AcceptGap struct {
	// Shard is the shard as the operator has seen it.
	Shard string `json:"shard"`
	Who   string `json:"who"`
	Why   string `json:"why"`
}

// WithDefaults returns the input as it is.
func (in AcceptGap) WithDefaults() AcceptGap { return in }

// Validate names every missing field, in an error of the type [ErrorInvalidInput].
func (in AcceptGap) Validate() error {
	var c checks
	c.required("shard", in.Shard)
	c.required("who", in.Who)
	c.required("why", in.Why)
	return invalid("the acceptance", c)
}

// Accepted is a gap that an operator has accepted.
type Accepted struct {
	Shard string    `json:"shard"`
	Who   string    `json:"who"`
	Why   string    `json:"why"`
	At    time.Time `json:"at"`
}

// maxAccepted bounds the accepted gaps that a state keeps; each is in a history as well.
const maxAccepted = 20

func keepAccepted(list []Accepted, in AcceptGap, at time.Time) []Accepted {
	list = append(list, Accepted{Shard: in.Shard, Who: in.Who, Why: in.Why, At: at.UTC()})
	return list[max(0, len(list)-maxAccepted):]
}
