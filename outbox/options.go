package outbox

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rowfold/rowfold/event"
)

// Defaults of [Options].
const (
	DefaultClaimAhead      = 16
	DefaultDeliveryTimeout = 30 * time.Second
	DefaultAttempts        = 3
	DefaultRounds          = 10
	DefaultParallelism     = 4
)

// Options configure a drain. Only Types is required.
type Options struct {
	// Types decode the effects and bring them to their newest shape. Required.
	Types *event.Registry

	// Owner is who claims. The zero Owner = a process with a new nonce, whose claims
	// are good for ClaimFor.
	Owner Owner
	// Judge decides about the claims of others. Defaults to [ClockJudge] on Now,
	// which takes over expired claims of processes and never those of workflows.
	Judge Judge
	// ClaimFor is how long a process's claim is good for. It is renewed, between
	// deliveries, when less than half is left: a delivery that lasts longer than that
	// may be overtaken and repeated. Defaults to [DefaultClaimFor].
	ClaimFor time.Duration
	// ClaimAhead is how many effects one claim takes. Defaults to [DefaultClaimAhead].
	ClaimAhead int

	// MaxEffects is how many effects one drain delivers. 0 = until the outbox is empty.
	MaxEffects int
	// DeliveryTimeout is one delivery's own deadline. Defaults to [DefaultDeliveryTimeout].
	DeliveryTimeout time.Duration
	// Attempts is how often the head is tried in place before the drain returns.
	// Permanent and fenced errors are not tried again. Defaults to [DefaultAttempts].
	Attempts int
	// Retry is the wait between the tries in place, with half jitter; a throttled try
	// waits as long as it allows. Defaults to 100 ms … 2 s.
	Retry Backoff
	// Deferral is the wait before the head is due again, after Attempts tries in
	// place, with half jitter; its n counts drains. Defaults to 1 s … 5 min.
	Deferral Backoff
	// ParkAfter is how many failed tries, over all drains, park the queue until an
	// operator decides, as a permanent error does at once. 0 = never.
	ParkAfter int

	// Rounds is how often in a row the head is read again after a lost claim or a
	// passing fault of the store, before the drain returns it. Defaults to [DefaultRounds].
	Rounds int
	// Contention is the wait between those rounds, with full jitter. Defaults to
	// 10 ms … 500 ms.
	Contention Backoff

	// TombstoneTTL is how long a removed row is kept after its last effect has left.
	// 0 = for ever: no expiry is set.
	TombstoneTTL time.Duration
	// Parallelism is how many rows [DrainPending] drains at a time; [Drain] ignores
	// it. Defaults to [DefaultParallelism].
	Parallelism int

	// Progress is called after each delivery with their number so far, from the
	// drain's own goroutine. nil = not called.
	Progress func(delivered int)
	// OnFailure is called after each failed try with the whole error, of which the
	// result only keeps a bounded text. nil = not called.
	OnFailure func(ctx context.Context, failure *DeliveryError)

	// Now defaults to time.Now.
	Now func() time.Time
	// Wait waits, or returns the context's cause when it ends. Defaults to a timer.
	Wait func(ctx context.Context, delay time.Duration) error
	// Rand returns numbers in [0, 1) for the jitter. Defaults to math/rand/v2.
	Rand func() float64
}

// Validate reports all faults at once, as an *event.DefinitionError.
func (o Options) Validate() error {
	if faults := o.faults(); len(faults) > 0 {
		return &event.DefinitionError{What: "outbox.Options", Faults: faults}
	}
	return nil
}

func (o Options) faults() []string {
	var faults []string
	if o.Types == nil {
		faults = append(faults, "Types is nil: give the registry of the projection's effects")
	}
	if o.Owner != (Owner{}) {
		faults = append(faults, o.Owner.faults()...)
	}
	for _, number := range []struct {
		name  string
		value int64
	}{
		{"ClaimFor", int64(o.ClaimFor)},
		{"ClaimAhead", int64(o.ClaimAhead)},
		{"MaxEffects", int64(o.MaxEffects)},
		{"DeliveryTimeout", int64(o.DeliveryTimeout)},
		{"Attempts", int64(o.Attempts)},
		{"Retry.Min", int64(o.Retry.Min)},
		{"Retry.Max", int64(o.Retry.Max)},
		{"Deferral.Min", int64(o.Deferral.Min)},
		{"Deferral.Max", int64(o.Deferral.Max)},
		{"ParkAfter", int64(o.ParkAfter)},
		{"Rounds", int64(o.Rounds)},
		{"Contention.Min", int64(o.Contention.Min)},
		{"Contention.Max", int64(o.Contention.Max)},
		{"TombstoneTTL", int64(o.TombstoneTTL)},
		{"Parallelism", int64(o.Parallelism)},
	} {
		if number.value < 0 {
			faults = append(faults, fmt.Sprintf("%s is negative: leave it 0 for its default", number.name))
		}
	}
	return faults
}

func (o Owner) faults() []string {
	var faults []string
	if o.Nonce == "" {
		faults = append(faults, "Owner.Nonce is empty: use NewNonce, once for each execution")
	}
	switch o.Kind {
	case OwnerProcess:
		if o.Until.IsZero() {
			faults = append(faults, "Owner.Until is zero: use ProcessOwner")
		}
	case OwnerTemporal:
		if o.Namespace == "" || o.WorkflowID == "" || o.RunID == "" || o.ActivityID == "" || o.StartedAt.IsZero() {
			faults = append(faults, "Owner: a Temporal owner needs Namespace, WorkflowID, RunID, ActivityID and StartedAt")
		}
	default:
		faults = append(faults, fmt.Sprintf("Owner.Kind is %q: it is %q or %q", o.Kind, OwnerProcess, OwnerTemporal))
	}
	return faults
}

func (o Options) withDefaults() Options {
	o.ClaimFor = orDefault(o.ClaimFor, DefaultClaimFor)
	o.ClaimAhead = orDefault(o.ClaimAhead, DefaultClaimAhead)
	o.DeliveryTimeout = orDefault(o.DeliveryTimeout, DefaultDeliveryTimeout)
	o.Attempts = orDefault(o.Attempts, DefaultAttempts)
	o.Retry = o.Retry.orDefault(100*time.Millisecond, 2*time.Second)
	o.Deferral = o.Deferral.orDefault(time.Second, 5*time.Minute)
	o.Rounds = orDefault(o.Rounds, DefaultRounds)
	o.Contention = o.Contention.orDefault(10*time.Millisecond, 500*time.Millisecond)
	o.Parallelism = orDefault(o.Parallelism, DefaultParallelism)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Judge == nil {
		o.Judge = ClockJudge{Now: o.Now}
	}
	if o.Wait == nil {
		o.Wait = wait
	}
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
	return o
}

func orDefault[T int | time.Duration](value, fallback T) T {
	if value == 0 {
		return fallback
	}
	return value
}
