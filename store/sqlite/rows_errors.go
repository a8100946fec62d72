package sqlite

import (
	"fmt"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
)

// UniqueViolation is returned for a write that gives a unique column a value which
// another row has.
type UniqueViolation struct {
	Projection string
	Key        string
	Err        error // the driver's, which names the column
}

// Error implements error.
func (e *UniqueViolation) Error() string {
	return fmt.Sprintf("row %q of projection %s: another row has the same value in a unique column: %v", e.Key, e.Projection, e.Err)
}

// Unwrap returns the cause.
func (e *UniqueViolation) Unwrap() error { return e.Err }

// Class is [event.ClassPermanent].
func (e *UniqueViolation) Class() event.Class { return event.ClassPermanent }

// WriteTooLarge is returned, before anything is sent, for a write over the store's limits. A
// processor cuts its writes so that this does not happen.
type WriteTooLarge struct {
	Row     outbox.Row
	Effects int // in the write
	Bytes   int // of the row and its effects
	Limits  projection.Limits
}

// Error implements error.
func (e *WriteTooLarge) Error() string {
	return fmt.Sprintf("the write of row %s has %d effects and %d bytes; the store takes %d effects and %d bytes (0 = no limit) in one write",
		e.Row, e.Effects, e.Bytes, e.Limits.MaxEffects, e.Limits.MaxBytes)
}

// Class is [event.ClassPermanent].
func (e *WriteTooLarge) Class() event.Class { return event.ClassPermanent }

// TableConflict is returned by Prepare for a model that does not fit what the database
// holds. Nothing was changed.
type TableConflict struct {
	Projection string
	Table      string
	Column     string // empty = the table as a whole
	Reason     string // what is in the way, and what helps
}

// Error implements error.
func (e *TableConflict) Error() string {
	if e.Column == "" {
		return fmt.Sprintf("projection %s: table %q: %s", e.Projection, e.Table, e.Reason)
	}
	return fmt.Sprintf("projection %s: table %q, column %q: %s", e.Projection, e.Table, e.Column, e.Reason)
}

// Class is [event.ClassPermanent].
func (e *TableConflict) Class() event.Class { return event.ClassPermanent }
