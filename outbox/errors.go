package outbox

import (
	"fmt"

	"github.com/rowfold/rowfold/event"
)

// UnexpectedEffect is returned for an effect that no deliverer was given for.
type UnexpectedEffect struct {
	ID   string
	Type string
	Got  string // its Go type
}

func (e *UnexpectedEffect) Error() string {
	return fmt.Sprintf("effect %s: no deliverer for the type %q (%s): add one", e.ID, e.Type, e.Got)
}

// Class is event.ClassPermanent.
func (e *UnexpectedEffect) Class() event.Class { return event.ClassPermanent }

// DeliveryError says which effect an error is about.
type DeliveryError struct {
	Row      Row
	Sequence Sequence
	ID       string
	Err      error
}

func (e *DeliveryError) Error() string {
	return fmt.Sprintf("deliver effect %s (sequence %s) of row %s: %v", e.ID, e.Sequence, e.Row, e.Err)
}

func (e *DeliveryError) Unwrap() error { return e.Err }
