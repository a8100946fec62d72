package outbox

import (
	"fmt"
	"strings"

	"github.com/rowfold/rowfold/event"
)

// UnexpectedEffect is returned for an effect that no deliverer was given for.
type UnexpectedEffect struct {
	ID   string
	Type string
	Got  string // its Go type
}

// Error implements error.
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

// Error implements error.
func (e *DeliveryError) Error() string {
	return fmt.Sprintf("deliver effect %s (sequence %s) of row %s: %v", e.ID, e.Sequence, e.Row, e.Err)
}

// Unwrap returns the cause.
func (e *DeliveryError) Unwrap() error { return e.Err }

// DeliveryPanic is a panic of a deliverer or an upcaster, as an error of the effect.
type DeliveryPanic struct {
	ID    string
	Type  string
	Value any // what it panicked with
	Stack []byte
}

// Error implements error.
func (e *DeliveryPanic) Error() string {
	return fmt.Sprintf("delivery of effect %s (%s) panicked: %v", e.ID, e.Type, e.Value)
}

// Unwrap returns what it panicked with, if that was an error.
func (e *DeliveryPanic) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Class is event.ClassPermanent.
func (e *DeliveryPanic) Class() event.Class { return event.ClassPermanent }

// DrainError says at which step of a drain the store failed. Its class is that of Err.
type DrainError struct {
	Row  Row
	Step string
	Err  error
}

// Error implements error.
func (e *DrainError) Error() string {
	return fmt.Sprintf("drain row %s: %s: %v", e.Row, e.Step, e.Err)
}

// Unwrap returns the cause.
func (e *DrainError) Unwrap() error { return e.Err }

// ClaimsLost is returned by a drain whose claims were taken by others in every round.
type ClaimsLost struct {
	Row    Row
	Rounds int
}

// Error implements error.
func (e *ClaimsLost) Error() string {
	return fmt.Sprintf("drain row %s: others claimed its head in %d rounds in a row: drain it from fewer places", e.Row, e.Rounds)
}

// Class is event.ClassRetry: the row is contended now and may not be later.
func (e *ClaimsLost) Class() event.Class { return event.ClassRetry }

// HeadMoved is returned for a decision about an effect that is not the head of its
// row's queue: an operator never decides about another effect than the one seen.
type HeadMoved struct {
	Row  Row
	Want string // the id of the effect that was decided about
	Head string // the id of the head; empty = nothing is pending
}

// Error implements error.
func (e *HeadMoved) Error() string {
	head := "nothing is pending"
	if e.Head != "" {
		head = "the head is " + e.Head
	}
	return fmt.Sprintf("effect %s is not the head of row %s any more, %s: look again and decide again", e.Want, e.Row, head)
}

// Class is event.ClassStale.
func (e *HeadMoved) Class() event.Class { return event.ClassStale }

// IncompleteOrder is returned for an operator's order that lacks what is recorded.
type IncompleteOrder struct {
	Fields []string
}

// Error implements error.
func (e *IncompleteOrder) Error() string {
	return fmt.Sprintf("incomplete order: give %s", strings.Join(e.Fields, ", "))
}

// Class is event.ClassPermanent.
func (e *IncompleteOrder) Class() event.Class { return event.ClassPermanent }
