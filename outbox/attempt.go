package outbox

import (
	"context"
	"runtime/debug"

	"github.com/rowfold/rowfold/event"
)

// tried is what became of a delivery.
type tried struct {
	failed int   // how many tries failed
	err    error // of the last try; nil = delivered
}

// attempt delivers the head, with a few tries in place. The error is not the
// deliverer's: this drain's claim could not be renewed.
func (d *drain) attempt(ctx context.Context) (tried, error) {
	tries := d.Attempts
	if d.ParkAfter > 0 {
		tries = max(1, min(tries, d.ParkAfter-d.held[0].Deferral.Attempts))
	}
	for failed := 0; ; {
		if err := d.renew(ctx); err != nil {
			return tried{}, err
		}
		item := d.held[0]
		err := d.try(ctx, item)
		if err == nil || ctx.Err() != nil {
			return tried{failed: failed, err: err}, nil //nolint:nilerr // it is in tried
		}
		failed++
		if d.OnFailure != nil {
			d.OnFailure(ctx, &DeliveryError{Row: d.row, Sequence: item.Sequence, ID: item.ID, Err: err})
		}
		if !repeatable(err) || failed >= tries {
			return tried{failed: failed, err: err}, nil
		}
		delay := d.Retry.half(failed, d.Rand)
		if event.Classify(err) == event.ClassThrottled {
			delay = d.Retry.Max
		}
		if waitErr := d.Wait(ctx, delay); waitErr != nil {
			return tried{failed: failed, err: err}, nil //nolint:nilerr // ctx has ended, which the caller sees
		}
	}
}

// try decodes and delivers once.
func (d *drain) try(ctx context.Context, item Item) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &DeliveryPanic{ID: item.ID, Type: item.Type, Value: value, Stack: debug.Stack()}
		}
	}()
	effect, err := d.Types.Decode(item.Type, item.SchemaVersion, item.Payload)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, d.DeliveryTimeout)
	defer cancel()
	return d.deliver(ctx, Delivery{Item: item, Effect: effect})
}
