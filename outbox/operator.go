package outbox

import (
	"context"
	"time"
)

// Order is what an operator says about the head of a row's queue.
type Order struct {
	// EffectID is the id of the head as the operator has seen it. Required.
	EffectID string
	// Who decides, and why. Required: they are recorded.
	Who, Why string
	// At is when it was decided. Give the same time with each repetition of one order:
	// then a repetition whose first answer was lost is told apart from a second order.
	// Required.
	At time.Time
}

// Validate names every missing field, as an *[IncompleteOrder].
func (o Order) Validate() error {
	var fields []string
	for _, field := range []struct {
		name    string
		missing bool
	}{
		{"EffectID", o.EffectID == ""}, {"Who", o.Who == ""}, {"Why", o.Why == ""}, {"At", o.At.IsZero()},
	} {
		if field.missing {
			fields = append(fields, field.name)
		}
	}
	if len(fields) > 0 {
		return &IncompleteOrder{Fields: fields}
	}
	return nil
}

// SkipHead drops the head of a row's queue without delivering it, and records who
// decided that and why. Errors: *[IncompleteOrder], *[HeadMoved] when the effect is
// not the head (any more), a *[DrainError] around a fault of the store. Giving the
// same order again after an unknown outcome is safe.
func SkipHead(ctx context.Context, store Store, row Row, order Order) error {
	return decideHead(ctx, store, row, VerbSkip, order)
}

// ParkHead moves the head of a row's queue to the parked store, see
// [Store.Decisions]: later effects overtake it. Errors are those of [SkipHead].
func ParkHead(ctx context.Context, store Store, row Row, order Order) error {
	return decideHead(ctx, store, row, VerbPark, order)
}

func decideHead(ctx context.Context, store Store, row Row, verb Verb, order Order) error {
	if err := order.Validate(); err != nil {
		return err
	}
	head, err := store.Head(ctx, row, 1)
	if err != nil {
		return &DrainError{Row: row, Step: "read the head", Err: err}
	}
	if len(head.Items) == 0 || head.Items[0].ID != order.EffectID {
		return decidedBefore(ctx, store, row, verb, order, head)
	}
	item := head.Items[0]
	decision := Decision{
		Verb: verb, Who: order.Who, Why: order.Why, At: order.At.UTC(),
		Class: item.Deferral.Class, Error: item.Deferral.Error,
	}
	decided, err := store.Decide(ctx, row, item.Ref(), decision)
	if err != nil {
		return &DrainError{Row: row, Step: "record a decision", Err: err}
	}
	if !decided { // delivered, or decided by somebody else, since it was read
		return decidedBefore(ctx, store, row, verb, order, Head{})
	}
	return nil
}

// decidedBefore returns nil when the very same order was carried out already.
func decidedBefore(ctx context.Context, store Store, row Row, verb Verb, order Order, head Head) error {
	decisions, err := store.Decisions(ctx, row)
	if err != nil {
		return &DrainError{Row: row, Step: "read the decisions", Err: err}
	}
	for _, decided := range decisions {
		d := decided.Decision
		if decided.Item.ID == order.EffectID && d.Verb == verb && d.Who == order.Who && d.Why == order.Why &&
			d.At.Truncate(time.Millisecond).Equal(order.At.Truncate(time.Millisecond)) { // stores keep milliseconds at least
			return nil
		}
	}
	moved := &HeadMoved{Row: row, Want: order.EffectID}
	if len(head.Items) > 0 {
		moved.Head = head.Items[0].ID
	}
	return moved
}

// Retry makes the head of a row's queue due now: it takes a park or a wait off it,
// with the number of failed tries. It reports false when there was none. Drain the row
// afterwards. The error is a *[DrainError] around a fault of the store, or
// *[ClaimsLost] when the head changed hands again and again meanwhile.
func Retry(ctx context.Context, store Store, row Row) (bool, error) {
	for range DefaultRounds {
		head, err := store.Head(ctx, row, 1)
		if err != nil {
			return false, &DrainError{Row: row, Step: "read the head", Err: err}
		}
		if len(head.Items) == 0 || head.Items[0].Deferral.IsZero() {
			return false, nil
		}
		cleared, err := store.Defer(ctx, row, head.Items[0].Ref(), Deferral{})
		if err != nil {
			return false, &DrainError{Row: row, Step: "clear a failed delivery", Err: err}
		}
		if cleared {
			return true, nil
		}
	}
	return false, &ClaimsLost{Row: row, Rounds: DefaultRounds}
}
