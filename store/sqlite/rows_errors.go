package sqlite

import (
	"fmt"

	sqlite3 "modernc.org/sqlite/lib"

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

// ConstraintViolation is returned for a write that the database refuses for what is in it: a
// constraint or a trigger that somebody added to the table, or a value beyond SQLite's own
// limits.
type ConstraintViolation struct {
	Projection string
	Key        string
	Err        error // the driver's, which names the constraint
}

// Error implements error.
func (e *ConstraintViolation) Error() string {
	return fmt.Sprintf("row %q of projection %s: the database refuses it: %v", e.Key, e.Projection, e.Err)
}

// Unwrap returns the cause.
func (e *ConstraintViolation) Unwrap() error { return e.Err }

// Class is [event.ClassPermanent].
func (e *ConstraintViolation) Class() event.Class { return event.ClassPermanent }

// rowFault tells the failures of a statement that are one write's fault from those of the
// transaction, which come back as they are.
func rowFault(table *table, write *projection.Write, err error) error {
	if isUnique(err) {
		return &UniqueViolation{Projection: table.model.Projection, Key: write.Key, Err: err}
	}
	switch primaryCode(err) {
	case sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG:
		return &ConstraintViolation{Projection: table.model.Projection, Key: write.Key, Err: err}
	default:
		return err
	}
}

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
