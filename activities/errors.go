package activities

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/internal/clip"
)

// ThrottledDelay is how long Temporal waits before it repeats an activity that was
// throttled.
const ThrottledDelay = 10 * time.Second

// maxMessage bounds the text of an error in a history, in bytes.
const maxMessage = 1024

// Failure turns an error into what Temporal decides about retries by: an application
// error whose type is the error's class (event.Classify).
//
//   - permanent and fenced errors are not retried;
//   - throttled ones are retried after [ThrottledDelay];
//   - all others follow the activity's retry policy. An unknown outcome is among them:
//     the next attempt reads the checkpoints, which tell what was done.
//
// Errors that Temporal knows already, and cancellations, are returned as they are. The
// text is cut to 1 KiB. Failure(nil) is nil.
func Failure(err error) error {
	var application *temporal.ApplicationError
	var canceled *temporal.CanceledError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &application), errors.As(err, &canceled), errors.Is(err, context.Canceled):
		return err
	}
	class, options := event.Classify(err), temporal.ApplicationErrorOptions{}
	switch class {
	case event.ClassPermanent, event.ClassFenced:
		options.NonRetryable = true
	case event.ClassThrottled:
		options.NextRetryDelay = ThrottledDelay
	case event.ClassRetry, event.ClassStale, event.ClassUnknownOutcome:
	}
	return temporal.NewApplicationErrorWithOptions(clip.Text(err.Error(), maxMessage), string(class), options)
}

// ClassOf returns the class of an error that came back from an activity or a workflow,
// however it is wrapped. What is no application error of a class — a time-out, a lost worker —
// is event.ClassRetry, or event.ClassPermanent if it must not be retried. ClassOf(nil) is the
// empty class.
func ClassOf(err error) event.Class {
	final, failed := false, false
	for cause := err; ; {
		application, ok := errors.AsType[*temporal.ApplicationError](cause)
		if !ok {
			break
		}
		switch class := event.Class(application.Type()); class {
		case event.ClassRetry, event.ClassStale, event.ClassPermanent, event.ClassFenced, event.ClassThrottled, event.ClassUnknownOutcome:
			return class
		}
		final, failed = final || application.NonRetryable(), true
		cause = application.Unwrap() // a workflow wraps what an activity says
	}
	switch {
	case final:
		return event.ClassPermanent
	case failed:
		return event.ClassRetry
	default:
		return event.Classify(err)
	}
}

// UnknownProjection is returned when a worker is asked about a projection that it was
// not given.
type UnknownProjection struct {
	Projection string
	Known      []string
}

// Error implements error.
func (e *UnknownProjection) Error() string {
	return fmt.Sprintf("projection %q is not among this worker's %v: correct the name, or add it to worker.Config.Definitions", e.Projection, e.Known)
}

// Class is event.ClassPermanent.
func (e *UnknownProjection) Class() event.Class { return event.ClassPermanent }

// UnknownFeed is returned when a worker is asked about a feed that it was not given.
type UnknownFeed struct {
	Feed  string
	Known []string
}

// Error implements error.
func (e *UnknownFeed) Error() string {
	return fmt.Sprintf("feed %q is not among this worker's %v: correct the name, or add it to worker.Config.Feeds", e.Feed, e.Known)
}

// Class is event.ClassPermanent.
func (e *UnknownFeed) Class() event.Class { return event.ClassPermanent }
