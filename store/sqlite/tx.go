package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/rowfold/rowfold/event"
)

// tx is a transaction. Its errors are the driver's, to be classified by whoever started
// it.
type tx struct{ connection *connection }

// write runs do in a transaction that holds the database's write lock from its start,
// so that what it reads stays true until it commits. what names the step in errors.
// An error of do that is typed and classified comes back as it is; a driver's comes
// back classified.
func (s *Store) write(ctx context.Context, what string, do func(t *tx) error) error {
	return classify(what, s.writer.run(ctx, `BEGIN IMMEDIATE`, do))
}

// read runs do on one snapshot of the database. In a file it waits for no writer.
func (s *Store) read(ctx context.Context, what string, do func(t *tx) error) error {
	return classify(what, s.reader.run(ctx, `BEGIN`, do))
}

func (p *pool) run(ctx context.Context, begin string, do func(t *tx) error) error {
	c, err := p.take(ctx)
	if err != nil {
		return err
	}
	t := &tx{connection: c}
	if _, err := t.exec(ctx, begin); err != nil {
		p.give(c)
		return err
	}
	// A panic of do must not keep the connection: nobody could ever write again.
	finished := false
	defer func() {
		if !finished {
			_ = p.end(ctx, t) // the panic goes on
		}
	}()
	if err := do(t); err != nil {
		finished = true
		return errors.Join(err, p.end(ctx, t))
	}
	finished = true
	return p.commit(ctx, t)
}

func (p *pool) commit(ctx context.Context, t *tx) error {
	if err := ctx.Err(); err != nil {
		return errors.Join(err, p.end(ctx, t))
	}
	// A commit that was begun is not interrupted: its outcome would be unknown.
	if _, err := t.exec(context.WithoutCancel(ctx), `COMMIT`); err != nil {
		if !isRefusal(err) {
			err = event.WithClass(err, event.ClassUnknownOutcome)
		}
		return errors.Join(err, p.end(ctx, t))
	}
	p.give(t.connection)
	return nil
}

// end takes a transaction back and returns its connection. Some failures end a
// transaction by themselves, then there is none to take back.
func (p *pool) end(ctx context.Context, t *tx) error {
	if _, err := t.exec(context.WithoutCancel(ctx), `ROLLBACK`); err != nil && !isNoTransaction(err) {
		return errors.Join(err, p.drop(t.connection))
	}
	p.give(t.connection)
	return nil
}

// exec runs a statement and returns how many rows it changed.
func (t *tx) exec(ctx context.Context, text string, args ...any) (int64, error) {
	statement, err := t.connection.prepare(ctx, text)
	if err != nil {
		return 0, err
	}
	result, err := statement.ExecContext(ctx, args...)
	if err != nil {
		return 0, err //nolint:wrapcheck // the caller names the step
	}
	return result.RowsAffected() //nolint:wrapcheck // as above
}

// script runs statements that are run once, without keeping them.
func (t *tx) script(ctx context.Context, text string) error {
	_, err := t.connection.conn.ExecContext(ctx, text)
	return err //nolint:wrapcheck // the caller names the step
}

// query calls scan for each row of the answer.
func (t *tx) query(ctx context.Context, text string, args []any, scan func(rows *sql.Rows) error) (err error) {
	statement, err := t.connection.prepare(ctx, text)
	if err != nil {
		return err
	}
	rows, err := statement.QueryContext(ctx, args...)
	if err != nil {
		return err //nolint:wrapcheck // the caller names the step
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// one scans the only row of an answer; it reports false when there is none.
func (t *tx) one(ctx context.Context, text string, args []any, dest ...any) (found bool, err error) {
	err = t.query(ctx, text, args, func(rows *sql.Rows) error {
		found = true
		return rows.Scan(dest...)
	})
	return found && err == nil, err
}

// savepoint runs a part of a transaction that may fail by itself: with an error,
// nothing of it remains and the transaction goes on. A *[brokenTransaction] ends the
// transaction as well.
func (t *tx) savepoint(ctx context.Context, part func() error) error {
	if _, err := t.exec(ctx, `SAVEPOINT rowfold`); err != nil {
		return &brokenTransaction{err: err}
	}
	failed := part()
	if failed != nil {
		if _, err := t.exec(context.WithoutCancel(ctx), `ROLLBACK TO rowfold`); err != nil {
			return &brokenTransaction{err: errors.Join(failed, err)}
		}
	}
	if _, err := t.exec(context.WithoutCancel(ctx), `RELEASE rowfold`); err != nil {
		return &brokenTransaction{err: errors.Join(failed, err)}
	}
	return failed
}

// brokenTransaction says that a savepoint could not be set, taken back or released: the
// whole transaction failed.
type brokenTransaction struct{ err error }

// Error implements error.
func (e *brokenTransaction) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *brokenTransaction) Unwrap() error { return e.err }
