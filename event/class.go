package event

import (
	"context"
	"errors"
)

// Class says what can be done about an error. It is the only thing that retries,
// metrics and workflow retry policies look at.
type Class string

const (
	// ClassRetry is a passing fault: the same call may succeed later.
	ClassRetry Class = "retry"
	// ClassStale is a lost race: read again, decide again, try again.
	ClassStale Class = "stale"
	// ClassPermanent is a fault that no repetition mends. Somebody has to act.
	ClassPermanent Class = "permanent"
	// ClassFenced says that somebody else took over: this caller has to stop.
	ClassFenced Class = "fenced"
	// ClassThrottled is a passing refusal under load: slow down, then retry. It
	// does not count as a lost race.
	ClassThrottled Class = "throttled"
	// ClassUnknownOutcome says that the call may or may not have had its effect.
	// Read the checkpoints again before deciding anything.
	ClassUnknownOutcome Class = "unknown outcome"
)

// Classed is implemented by errors that know their class.
type Classed interface {
	error
	// Class returns what can be done about the error.
	Class() Class
}

// Classify maps any error to its class. The outermost error in err's tree that
// knows its class decides. A deadline that ran out is [ClassUnknownOutcome] only
// where a store says so; by itself it is [ClassRetry], as is any error that
// nobody classified. Classify(nil) is the empty class.
func Classify(err error) Class {
	if err == nil {
		return ""
	}
	if classed, ok := errors.AsType[Classed](err); ok {
		return classed.Class()
	}
	return ClassRetry
}

// WithClass wraps err so that [Classify] reports class. It returns nil for a nil
// error. The message is err's own.
func WithClass(err error, class Class) error {
	if err == nil {
		return nil
	}
	return &classedError{err: err, class: class}
}

// Permanent marks err as one that no repetition mends. It is how a deliverer or
// an evolve function says that an operator has to look.
func Permanent(err error) error { return WithClass(err, ClassPermanent) }

// IsCancelled reports whether err comes from a context that was cancelled by its
// owner, as opposed to a deadline or a fault.
func IsCancelled(err error) bool { return errors.Is(err, context.Canceled) }

type classedError struct {
	err   error
	class Class
}

// Error implements error.
func (e *classedError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *classedError) Unwrap() error { return e.err }

// Class returns the class that the error was given.
func (e *classedError) Class() Class { return e.class }
