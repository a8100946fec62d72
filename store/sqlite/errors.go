package sqlite

import (
	"context"
	"errors"
	"fmt"

	driver "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/rowfold/rowfold/event"
)

var errClosed = event.Permanent(errors.New("the store is closed"))

// NewerSchema is returned by Open for a database that a newer rowfold has written.
type NewerSchema struct {
	Path  string
	Found int // the version of the database's own tables
	Known int // the newest one that this program knows
}

// Error implements error.
func (e *NewerSchema) Error() string {
	return fmt.Sprintf("sqlite: %q is at schema version %d, this program knows versions up to %d: run a newer one",
		e.Path, e.Found, e.Known)
}

// Class is [event.ClassPermanent].
func (e *NewerSchema) Class() event.Class { return event.ClassPermanent }

// classify is the one place where errors of the driver get their class. Errors that have
// one keep it, and are not wrapped, so that callers meet the type that they expect.
func classify(what string, err error) error {
	if err == nil {
		return nil
	}
	if _, classed := errors.AsType[event.Classed](err); classed {
		return err
	}
	err = fmt.Errorf("sqlite: %s: %w", what, err)
	if class := classOf(err); class != "" {
		return event.WithClass(err, class)
	}
	return err
}

// classOf reads the driver's result code; the empty class is the default of
// [event.Classify]. The codes: https://www.sqlite.org/rescode.html
func classOf(err error) event.Class {
	switch primaryCode(err) {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return event.ClassThrottled
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH,
		sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_SCHEMA, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH,
		sqlite3.SQLITE_MISUSE, sqlite3.SQLITE_RANGE, sqlite3.SQLITE_ERROR:
		return event.ClassPermanent
	default: // a full disk, a failed read, an interruption: they pass
		return ""
	}
}

// isRefusal reports whether a failed commit is known to have done nothing.
func isRefusal(err error) bool {
	code := primaryCode(err)
	return code == sqlite3.SQLITE_BUSY || code == sqlite3.SQLITE_LOCKED || code == sqlite3.SQLITE_CONSTRAINT
}

// isNoTransaction reports whether there was no transaction to take back: SQLite ends one
// by itself after a full disk, a failed read or an interruption.
func isNoTransaction(err error) bool { return primaryCode(err) == sqlite3.SQLITE_ERROR }

// isUnique reports whether a unique index or a primary key refused a row.
func isUnique(err error) bool {
	failed, ok := errors.AsType[*driver.Error](err)
	return ok && (failed.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE || failed.Code() == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY)
}

// primaryCode returns the low byte of the driver's result code; 0 for other errors.
func primaryCode(err error) int {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return 0
	}
	if failed, ok := errors.AsType[*driver.Error](err); ok {
		return failed.Code() & 0xff
	}
	return 0
}
