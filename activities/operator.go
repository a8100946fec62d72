package activities

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/rowfold/rowfold/outbox"
)

// Types of the errors that answer an operator. They are never retried.
const (
	// ErrorHeadMoved says that the effect is not the head of its queue any more.
	ErrorHeadMoved = "HeadMoved"
	// ErrorIncompleteOrder says that an order lacks a field.
	ErrorIncompleteOrder = "IncompleteOrder"
)

// HeadInput names the row whose head is meant.
type HeadInput struct {
	outbox.Row
}

// DecideInput is an operator's decision about the head of a row's queue.
type DecideInput struct {
	outbox.Row

	Verb     outbox.Verb `json:"verb"`
	EffectID string      `json:"effectId"`
	Who      string      `json:"who"`
	Why      string      `json:"why"`
	At       time.Time   `json:"at"`
}

// RetryHead makes the head of the row's queue due now. It reports whether the head
// waited for its time or for an operator. Errors are faults of the store.
func (a *Drains) RetryHead(ctx context.Context, in HeadInput) (bool, error) {
	waited, err := outbox.Retry(ctx, a.Store, in.Row)
	return waited, Failure(err)
}

// DecideHead carries out a decision and records it, with who decided and why. Errors:
// [ErrorHeadMoved], [ErrorIncompleteOrder], faults of the store.
func (a *Drains) DecideHead(ctx context.Context, in DecideInput) error {
	order := outbox.Order{EffectID: in.EffectID, Who: in.Who, Why: in.Why, At: in.At}
	decide := outbox.SkipHead
	if in.Verb == outbox.VerbPark {
		decide = outbox.ParkHead
	}
	err := decide(ctx, a.Store, in.Row, order)
	var moved *outbox.HeadMoved
	var incomplete *outbox.IncompleteOrder
	switch {
	case errors.As(err, &moved):
		return temporal.NewNonRetryableApplicationError(moved.Error(), ErrorHeadMoved, nil)
	case errors.As(err, &incomplete):
		return temporal.NewNonRetryableApplicationError(incomplete.Error(), ErrorIncompleteOrder, nil)
	}
	return Failure(err)
}
