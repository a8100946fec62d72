package projection

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
)

// Rows reads and writes the rows of a projection by hand. To it a tombstone is an
// absent row. Its writes are writers like any other: they raise the revision under
// its guard, keep the bookkeeping, and cause no effects.
type Rows[K, R any] struct {
	projection *Projection[K, R]
	store      Store
}

// NewRows returns the rows of a projection in a store.
func NewRows[K, R any](projection *Projection[K, R], store Store) *Rows[K, R] {
	return &Rows[K, R]{projection: projection, store: store}
}

// NotFound is returned for a row that is absent or removed.
type NotFound struct {
	Projection string
	Key        string
}

// Error implements error.
func (e *NotFound) Error() string {
	return fmt.Sprintf("projection %s has no row %q", e.Projection, e.Key)
}

// Class is event.ClassPermanent.
func (e *NotFound) Class() event.Class { return event.ClassPermanent }

// AlreadyExists is returned by a create of a row that is live.
type AlreadyExists struct {
	Projection string
	Key        string
}

// Error implements error.
func (e *AlreadyExists) Error() string {
	return fmt.Sprintf("projection %s already has a row %q", e.Projection, e.Key)
}

// Class is event.ClassPermanent.
func (e *AlreadyExists) Class() event.Class { return event.ClassPermanent }

// EffectsPending is returned by a delete, in a projection without removal, of a row
// whose effects are not delivered yet.
type EffectsPending struct{ Row outbox.Row }

// Error implements error.
func (e *EffectsPending) Error() string {
	return fmt.Sprintf("row %s has pending effects: drain it first, or declare Config.Removal", e.Row)
}

// Class is event.ClassRetry: it passes with the next drain.
func (e *EffectsPending) Class() event.Class { return event.ClassRetry }

// Get returns a row. Errors: *[IncompleteKey], *[NotFound], those of the store.
func (r *Rows[K, R]) Get(ctx context.Context, key K) (R, error) {
	var none R
	text, err := r.projection.KeyText(key)
	if err != nil {
		return none, err
	}
	found, err := r.load(ctx, []string{text})
	if err != nil {
		return none, err
	}
	row, live, err := r.row(found[0])
	if err != nil {
		return none, err
	}
	if !live {
		return none, &NotFound{Projection: r.projection.name, Key: text}
	}
	return row, nil
}

// GetAll returns the rows of many keys, as one consistent view where they are few
// enough for the store to read them at once. A row that is absent or removed is nil.
func (r *Rows[K, R]) GetAll(ctx context.Context, keys []K) ([]*R, error) {
	texts := make([]string, len(keys))
	for i, key := range keys {
		text, err := r.projection.KeyText(key)
		if err != nil {
			return nil, err
		}
		texts[i] = text
	}
	found, err := r.load(ctx, texts)
	if err != nil {
		return nil, err
	}
	rows := make([]*R, len(keys))
	for i := range found {
		row, live, err := r.row(found[i])
		if err != nil {
			return nil, err
		}
		if live {
			rows[i] = &row
		}
	}
	return rows, nil
}

// All yields every live row in the order of the keys' text, page by page. The first
// error ends the sequence.
func (r *Rows[K, R]) All(ctx context.Context) iter.Seq2[R, error] {
	const pageSize = 500
	return func(yield func(R, error) bool) {
		var none R
		after := ""
		for {
			page, err := r.store.Rows(ctx, r.projection.model, RowPage{After: after, Limit: pageSize})
			if err != nil {
				yield(none, fmt.Errorf("list the rows of projection %s: %w", r.projection.name, err))
				return
			}
			for _, stored := range page {
				after = stored.Key
				row, live, err := r.row(stored)
				if (live || err != nil) && !yield(row, err) || err != nil {
					return
				}
			}
			if len(page) < pageSize {
				return
			}
		}
	}
}

// Create writes a row that must not be live. Over a tombstone it carries the
// tombstone's checkpoints on, so that a late redelivery cannot undo it. Errors:
// *[AlreadyExists], *[IncompleteKey], *[ValueError], *[RowTooLarge], *[ProjectionConflict].
func (r *Rows[K, R]) Create(ctx context.Context, row R) error {
	return Transact(ctx, r.store, r.Creating(row))
}

// Put writes a row whether it is there or not. Errors: those of Create, without
// *[AlreadyExists].
func (r *Rows[K, R]) Put(ctx context.Context, row R) error {
	return Transact(ctx, r.store, r.Putting(row))
}

// Update changes a live row. change gets the row as read and may be called again after
// a lost race. Errors: *[NotFound], *[RowKeyChanged], change's own, those of Put.
func (r *Rows[K, R]) Update(ctx context.Context, key K, change func(R) (R, error)) error {
	return Transact(ctx, r.store, r.Updating(key, change))
}

// Delete removes a live row and leaves a tombstone, which keeps the checkpoints: a late
// redelivery does not bring the row back. Errors: *[NotFound], *[EffectsPending] in a
// projection that has an outbox and no removal, *[ProjectionConflict].
func (r *Rows[K, R]) Delete(ctx context.Context, key K) error {
	return Transact(ctx, r.store, r.Deleting(key))
}

// Change is a write by hand that [Transact] does together with others. It is made by
// Rows.Creating, Putting, Updating and Deleting.
type Change struct {
	model *Model
	key   func() (string, error)
	write func(ctx context.Context, stored Stored) (Write, error)
}

// Creating is Create as part of a transaction.
func (r *Rows[K, R]) Creating(row R) Change {
	return r.change(r.keyOf(row), func(_ context.Context, stored Stored) (Write, error) {
		if stored.Status == RowLive {
			return Write{}, &AlreadyExists{Projection: r.projection.name, Key: stored.Key}
		}
		return r.write(stored, row)
	})
}

// Putting is Put as part of a transaction.
func (r *Rows[K, R]) Putting(row R) Change {
	return r.change(r.keyOf(row), func(_ context.Context, stored Stored) (Write, error) { return r.write(stored, row) })
}

// Updating is Update as part of a transaction.
func (r *Rows[K, R]) Updating(key K, change func(R) (R, error)) Change {
	return r.change(func() (string, error) { return r.projection.KeyText(key) }, func(_ context.Context, stored Stored) (Write, error) {
		row, live, err := r.row(stored)
		if err != nil {
			return Write{}, err
		}
		if !live {
			return Write{}, &NotFound{Projection: r.projection.name, Key: stored.Key}
		}
		if row, err = change(row); err != nil {
			return Write{}, err
		}
		if to, err := r.keyOf(row)(); err != nil || to != stored.Key {
			return Write{}, &RowKeyChanged{Projection: r.projection.name, From: stored.Key, To: to}
		}
		return r.write(stored, row)
	})
}

// Deleting is Delete as part of a transaction.
func (r *Rows[K, R]) Deleting(key K) Change {
	model := r.projection.model
	return r.change(func() (string, error) { return r.projection.KeyText(key) }, func(ctx context.Context, stored Stored) (Write, error) {
		if stored.Status != RowLive {
			return Write{}, &NotFound{Projection: r.projection.name, Key: stored.Key}
		}
		write := r.guarded(stored)
		write.Tombstone = true
		if !model.HasOutbox {
			if model.TombstoneTTL > 0 {
				write.ExpiresAt = new(time.Now().Add(model.TombstoneTTL).UTC())
			}
			return write, nil
		}
		if !model.HasRemoval {
			pending, err := r.store.HasPending(ctx, model.Projection, []string{stored.Key})
			if err != nil {
				return Write{}, fmt.Errorf("look for pending effects of row %s: %w", stored.Key, err)
			}
			if pending[stored.Key] {
				return Write{}, &EffectsPending{Row: outbox.Row{Projection: model.Projection, Key: stored.Key}}
			}
		}
		return write, nil
	})
}

// Transact does all changes or none, in one transaction, and does them again when a
// race is lost. No row may occur twice. Errors: those of the changes, *[WriteError],
// *[ProjectionConflict]. An error of class event.ClassUnknownOutcome says that the
// changes may have been done and that the rows were written again since: whether to
// change them again is for the caller to decide.
func Transact(ctx context.Context, store Store, changes ...Change) error {
	const attempts = 10
	for wait, lost := 0, 0; ; wait++ {
		read, writes, err := prepareChanges(ctx, store, changes)
		if err != nil {
			return err
		}
		failed := store.CommitAll(ctx, writes)
		switch event.Classify(failed) {
		case event.ClassThrottled:
		case event.ClassStale:
			lost++
			if lost == attempts {
				return conflictOf(failed, writes[0], lost)
			}
		case event.ClassUnknownOutcome:
			lost++
			done, known, err := landedAll(ctx, store, read, writes)
			if done || err != nil {
				return err
			}
			if !known || lost == attempts {
				return failed
			}
		default:
			return failed
		}
		delay := time.Duration(rand.Int64N(int64(10*time.Millisecond<<min(wait, 5)) + 1)) //nolint:gosec // jitter needs no secrecy
		if err := sleep(ctx, delay); err != nil {
			return fmt.Errorf("write %d rows: %w", len(changes), err)
		}
	}
}

// prepareChanges returns the rows of changes as read, and their writes onto them.
func prepareChanges(ctx context.Context, store Store, changes []Change) ([]Stored, []ModelWrite, error) {
	read, writes := make([]Stored, len(changes)), make([]ModelWrite, len(changes))
	for i, change := range changes {
		key, err := change.key()
		if err != nil {
			return nil, nil, err
		}
		if read[i], err = loadOne(ctx, store, change.model, key); err != nil {
			return nil, nil, err
		}
		write, err := change.write(ctx, read[i])
		if err != nil {
			return nil, nil, err
		}
		if size, limit := change.model.Size(write.Values, write.Books), store.Limits().MaxRowBytes; limit > 0 && size > limit {
			return nil, nil, &RowTooLarge{Projection: change.model.Projection, Key: key, Size: size, Limit: limit}
		}
		writes[i] = ModelWrite{Model: change.model, Write: write}
	}
	return read, writes, nil
}

// conflictOf names the row that lost, which is the first where the store does not say.
func conflictOf(err error, first ModelWrite, attempts int) error {
	conflict := &ProjectionConflict{Projection: first.Model.Projection, Key: first.Write.Key, Attempts: attempts, Err: err}
	if failed, ok := errors.AsType[*WriteError](err); ok {
		conflict.Projection, conflict.Key = failed.Projection, failed.Key
	}
	return conflict
}

// landedAll finds out whether the writes of one transaction were done: what is known of
// one row holds for all. It is not known when somebody else has written every row since,
// be it after our write or without it.
func landedAll(ctx context.Context, store Store, read []Stored, writes []ModelWrite) (done, known bool, err error) {
	for i, w := range writes {
		now, err := loadOne(ctx, store, w.Model, w.Write.Key)
		if err != nil {
			return false, false, err
		}
		instead := now.Books.Revision != nil && w.Write.Books.Revision != nil && *now.Books.Revision == *w.Write.Books.Revision
		switch {
		case now.WriteID == w.Write.ID:
			return true, true, nil
		case now.WriteID == read[i].WriteID || instead:
			return false, true, nil
		}
	}
	return false, false, nil
}

func loadOne(ctx context.Context, store Store, model *Model, key string) (Stored, error) {
	stored, err := store.Load(ctx, model, []string{key})
	if err != nil {
		return Stored{}, fmt.Errorf("load row %s of projection %s: %w", key, model.Projection, err)
	}
	return stored[0], nil
}

func (r *Rows[K, R]) change(key func() (string, error), write func(context.Context, Stored) (Write, error)) Change {
	return Change{model: r.projection.model, key: key, write: write}
}

func (r *Rows[K, R]) keyOf(row R) func() (string, error) {
	return func() (string, error) { return r.projection.model.KeyText(r.projection.rows.rowKey(&row)) }
}

// guarded returns a write onto a row as read, with the next revision.
func (r *Rows[K, R]) guarded(stored Stored) Write {
	write := Write{Key: stored.Key, Guard: stored.Books, GuardStatus: stored.Status, Books: stored.Books.Clone(), ID: outbox.NewNonce()}
	if r.projection.model.Revision != "" {
		revision := r.projection.initialRevision
		if stored.Books.Revision != nil {
			revision = *stored.Books.Revision + 1
		}
		write.Books.Revision = &revision
	}
	return write
}

func (r *Rows[K, R]) write(stored Stored, row R) (Write, error) {
	write := r.guarded(stored)
	values, err := r.projection.rows.values(&row)
	if err != nil {
		return write, err
	}
	write.Values = values
	return write, nil
}

func (r *Rows[K, R]) load(ctx context.Context, keys []string) ([]Stored, error) {
	stored, err := r.store.Load(ctx, r.projection.model, slices.Clone(keys))
	if err != nil {
		return nil, fmt.Errorf("load %d rows of projection %s: %w", len(keys), r.projection.name, err)
	}
	return stored, nil
}

func (r *Rows[K, R]) row(stored Stored) (row R, live bool, err error) {
	if stored.Status != RowLive {
		return row, false, nil
	}
	row, err = r.projection.rows.state(stored.Values, stored.Books)
	return row, err == nil, err
}
