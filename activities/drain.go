package activities

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
)

// Names of the activities of [Drains].
const (
	DrainOutbox = "DrainOutbox"
	RetryHead   = "RetryHead"
	DecideHead  = "DecideHead"
)

// Drains are the activities that deliver a row's effects and carry out what operators
// decide about them.
type Drains struct {
	// Store keeps the outboxes. Required.
	Store outbox.Store
	// Outboxes are the projections that this worker delivers for, by name.
	Outboxes map[string]Outbox
	// Judge decides about the claims of others. Required; see [Judge].
	Judge outbox.Judge
	// Log gets every failed try with its whole error. Required.
	Log *slog.Logger
}

// Outbox says how the effects of one projection are delivered.
type Outbox struct {
	Types   *event.Registry
	Deliver outbox.Deliverer
	// TombstoneTTL is how long a removed row is kept after its last effect has left; 0 =
	// for ever.
	TombstoneTTL time.Duration
}

// DrainInput asks for a drain of one row.
type DrainInput struct {
	outbox.Row

	MaxEffects      int      `json:"maxEffects"`
	ClaimAhead      int      `json:"claimAhead"`
	DeliveryTimeout Duration `json:"deliveryTimeout"`
	Attempts        int      `json:"attempts"`
	ParkAfter       int      `json:"parkAfter,omitempty"`
	RetryMin        Duration `json:"retryMin"`
	RetryMax        Duration `json:"retryMax"`
}

// DrainProgress is what a running drain reports by its heartbeats.
type DrainProgress struct {
	Delivered int `json:"delivered"`
}

// DrainOutbox delivers the row's pending effects in order, at most MaxEffects of them.
// It claims as the execution that it is, and returns early when the worker stops. A
// failed delivery is in the result; the error is a fault of the store or of the input,
// see [Failure].
func (a *Drains) DrainOutbox(ctx context.Context, in DrainInput) (outbox.Result, error) {
	options, deliver, err := a.options(ctx, in)
	if err != nil {
		return outbox.Result{}, Failure(err)
	}
	var delivered atomic.Int64
	stop := heartbeat(ctx, func() any { return DrainProgress{Delivered: int(delivered.Load())} })
	defer stop()
	total := outbox.Result{}
	// Claims come in pieces, so that a worker that stops leaves between two of them.
	for {
		before := total.Delivered
		options.MaxEffects = min(in.ClaimAhead, in.MaxEffects-before)
		options.Progress = func(n int) { delivered.Store(int64(before + n)) }
		result, err := outbox.Drain(ctx, a.Store, in.Row, deliver, options)
		result.Delivered += before
		result.Overtaken += total.Overtaken
		total = result
		if err != nil {
			return total, Failure(err)
		}
		if !total.More || total.Delivered >= in.MaxEffects || stopping(ctx) {
			return total, nil
		}
	}
}

func (a *Drains) options(ctx context.Context, in DrainInput) (outbox.Options, outbox.Deliverer, error) {
	box, known := a.Outboxes[in.Projection]
	if !known {
		return outbox.Options{}, nil, &UnknownProjection{Projection: in.Projection, Known: slices.Sorted(maps.Keys(a.Outboxes))}
	}
	return outbox.Options{
		Types: box.Types, TombstoneTTL: box.TombstoneTTL,
		Owner: Owner(ctx), Judge: a.Judge,
		ClaimAhead: in.ClaimAhead, DeliveryTimeout: in.DeliveryTimeout.Std(),
		Attempts: in.Attempts, ParkAfter: in.ParkAfter,
		Deferral: outbox.Backoff{Min: in.RetryMin.Std(), Max: in.RetryMax.Std()},
		OnFailure: func(ctx context.Context, failure *outbox.DeliveryError) {
			a.Log.WarnContext(ctx, "a delivery failed", "row", failure.Row.String(), "effectId", failure.ID, "error", failure.Err)
		},
	}, box.Deliver, nil
}

// Owner returns the claim's owner that the running activity is: its execution, the
// time at which this attempt started, and a new nonce.
func Owner(ctx context.Context) outbox.Owner {
	info := activity.GetInfo(ctx)
	return outbox.Owner{
		Kind: outbox.OwnerTemporal, Nonce: outbox.NewNonce(), Namespace: info.Namespace,
		WorkflowID: info.WorkflowExecution.ID, RunID: info.WorkflowExecution.RunID,
		ActivityID: info.ActivityID, StartedAt: info.StartedTime.UTC(),
	}
}
