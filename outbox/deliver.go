package outbox

import (
	"context"
	"fmt"
)

// Delivery is one effect on its way to its deliverer.
type Delivery struct {
	Item

	Effect any // the decoded effect, in its newest shape
}

// Deliverer hands one effect to the outside. A nil error means that it was taken
// and may be deleted. Mark an error with event.Permanent when trying again is of no
// use: the row's queue then waits for an operator.
//
// ctx ends with the delivery's own deadline. A deliverer may be called again with
// an effect that it has already taken: see the package documentation.
type Deliverer func(ctx context.Context, delivery Delivery) error

// Handle makes a deliverer of a function for effects of one Go type. Effects of
// other types are refused with *[UnexpectedEffect].
func Handle[T any](handle func(ctx context.Context, effect T, delivery Delivery) error) Deliverer {
	return func(ctx context.Context, delivery Delivery) error {
		effect, isT := delivery.Effect.(T)
		if !isT {
			return &UnexpectedEffect{ID: delivery.ID, Type: delivery.Type, Got: fmt.Sprintf("%T", delivery.Effect)}
		}
		return handle(ctx, effect, delivery)
	}
}

// ByType makes a deliverer that chooses another one by the effect's stored type
// name. Effects of other types are refused with *[UnexpectedEffect].
func ByType(deliverers map[string]Deliverer) Deliverer {
	return func(ctx context.Context, delivery Delivery) error {
		deliver, known := deliverers[delivery.Type]
		if !known {
			return &UnexpectedEffect{ID: delivery.ID, Type: delivery.Type, Got: fmt.Sprintf("%T", delivery.Effect)}
		}
		return deliver(ctx, delivery)
	}
}
