package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
)

// errApart says that a batch needs a savepoint for each of its writes.
var errApart = errors.New("a write has to be taken back by itself")

// Commit implements projection.RowStore. A batch is one transaction, in which each write that
// fails is taken back by itself. That takes a savepoint where a row was written whose
// effects are refused, or where a trigger may have ended the transaction. Both are so rare,
// and savepoints are so large a part of a write, that a batch sets none until it happens.
// Then it begins anew.
func (s *Store) Commit(ctx context.Context, model *projection.Model, writes []projection.Write) []error {
	refused := make([]error, len(writes))
	table, sent := s.table(model), 0
	for i := range writes {
		if refused[i] = s.checkSize(table, &writes[i]); refused[i] == nil {
			sent++
		}
	}
	if sent == 0 {
		return refused
	}
	what := fmt.Sprintf("commit %d rows of projection %s", sent, model.Projection)
	results := make([]error, len(writes))
	attempt := func(do commitFunc) error {
		copy(results, refused)
		return s.write(ctx, what, func(t *tx) error { return commitEach(ctx, t, table, writes, results, do) })
	}
	err := attempt(commitPlainly)
	if errors.Is(err, errApart) {
		err = attempt(commitApart)
	}
	if err == nil {
		return results
	}
	for i := range results {
		// What was refused for itself stays refused; of the others nothing was committed,
		// or nobody knows.
		if results[i] == nil || !isResult(results[i]) {
			results[i] = err
		}
	}
	return results
}

// commitFunc does one write.
type commitFunc func(ctx context.Context, t *tx, table *table, write *projection.Write) error

// commitEach does the writes that have no result yet. Its error is one of the transaction.
func commitEach(ctx context.Context, t *tx, table *table, writes []projection.Write, results []error, do commitFunc) error {
	// The driver would watch the context of each statement, which costs more than to look
	// between them: they are short.
	statements := context.WithoutCancel(ctx)
	for i := range writes {
		if results[i] != nil {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if results[i] = do(statements, t, table, &writes[i]); !isResult(results[i]) {
			return results[i]
		}
	}
	return nil
}

// commitApart does a write that may fail by itself: nothing of it remains then.
func commitApart(ctx context.Context, t *tx, table *table, write *projection.Write) error {
	return t.savepoint(ctx, func() error { return commitWhole(ctx, t, table, write) })
}

// commitPlainly does the same without a savepoint; it ends with errApart where one was
// needed. The row comes first: one statement that lost its race, or met a unique
// index, has done nothing that would have to be taken back.
func commitPlainly(ctx context.Context, t *tx, table *table, write *projection.Write) error {
	err := writeRow(ctx, t, table, write)
	if err == nil {
		if err = insertEffects(ctx, t, table, write); err != nil && isResult(err) {
			return errApart
		}
		return err
	}
	if _, refused := errors.AsType[*ConstraintViolation](err); refused {
		return errApart
	}
	return err
}

// commitWhole does one write in whose failure everything is taken back by the caller.
func commitWhole(ctx context.Context, t *tx, table *table, write *projection.Write) error {
	if err := writeRow(ctx, t, table, write); err != nil {
		return err
	}
	return insertEffects(ctx, t, table, write)
}

// CommitAll implements projection.RowStore.
func (s *Store) CommitAll(ctx context.Context, writes []projection.ModelWrite) error {
	if len(writes) == 0 {
		return nil
	}
	about := func(write *projection.ModelWrite, err error) error {
		return &projection.WriteError{Projection: write.Model.Projection, Key: write.Write.Key, Err: err}
	}
	for i := range writes {
		if err := s.checkSize(s.table(writes[i].Model), &writes[i].Write); err != nil {
			return about(&writes[i], err)
		}
	}
	failed := &writes[0] // of a transaction that fails as a whole
	err := s.write(ctx, fmt.Sprintf("commit %d rows together", len(writes)), func(t *tx) error {
		for i := range writes {
			if err := commitWhole(ctx, t, s.table(writes[i].Model), &writes[i].Write); err != nil {
				failed = &writes[i]
				return err
			}
		}
		return nil
	})
	if err != nil {
		return about(failed, err)
	}
	return nil
}

// checkSize refuses what would be too large, before anything is sent.
func (s *Store) checkSize(table *table, write *projection.Write) error {
	size := table.model.Size(write.Values, write.Books)
	if size > s.config.MaxRowBytes {
		return &projection.RowTooLarge{
			Projection: table.model.Projection, Key: write.Key, Size: size, Limit: s.config.MaxRowBytes,
		}
	}
	for i := range write.Effects {
		size += len(write.Effects[i].Payload)
	}
	if len(write.Effects) > s.config.MaxEffects || s.config.MaxBytes > 0 && size > s.config.MaxBytes {
		return &WriteTooLarge{
			Row:     outbox.Row{Projection: table.model.Projection, Key: write.Key},
			Effects: len(write.Effects), Bytes: size, Limits: s.Limits(),
		}
	}
	return nil
}

func writeRow(ctx context.Context, t *tx, table *table, write *projection.Write) error {
	var (
		written int64
		err     error
	)
	switch {
	case table.model.Revision == "":
		written, err = writeChecked(ctx, t, table, write)
	case write.Guard.Revision == nil:
		written, err = t.exec(ctx, table.upsert, table.args(write, true)...)
	default:
		written, err = t.exec(ctx, table.update, append(table.args(write, false), write.Key, *write.Guard.Revision)...)
	}
	switch {
	case err != nil:
		return rowFault(table, write, err)
	case written == 0:
		return &projection.LostRace{Projection: table.model.Projection, Key: write.Key}
	}
	return nil
}

// writeChecked writes a row that has no revision. The transaction has the write lock, so
// what is read here is still true when it commits.
func writeChecked(ctx context.Context, t *tx, table *table, write *projection.Write) (int64, error) {
	if write.GuardStatus == projection.RowAbsent {
		return t.exec(ctx, table.insert, table.args(write, true)...)
	}
	found, err := loadRows(ctx, t, table, []string{write.Key})
	if err != nil {
		return 0, err
	}
	row, known := found[write.Key]
	if !known || row.Status != write.GuardStatus || !sameCheckpoints(row.Books, write.Guard) {
		return 0, nil
	}
	return t.exec(ctx, table.replace, append(table.args(write, false), write.Key)...)
}

func sameCheckpoints(a, b projection.Bookkeeping) bool {
	if !maps.Equal(a.Checkpoints, b.Checkpoints) {
		return false
	}
	for source := range maps.Keys(a.Scalars) {
		if !sameScalar(a.Scalars[source], b.Scalars[source]) {
			return false
		}
	}
	for source := range maps.Keys(b.Scalars) {
		if !sameScalar(a.Scalars[source], b.Scalars[source]) {
			return false
		}
	}
	return true
}

func sameScalar(a, b projection.ScalarCheckpoint) bool {
	if a.Owner != b.Owner || (a.Stored == nil) != (b.Stored == nil) {
		return false
	}
	return a.Stored == nil || *a.Stored == *b.Stored
}

// insertEffects adds the effects of a write, each under the condition that its sequence is
// free.
func insertEffects(ctx context.Context, t *tx, table *table, write *projection.Write) error {
	for i := range write.Effects {
		item := &write.Effects[i]
		var owner any
		if !item.Claim.IsZero() {
			text, err := json.Marshal(item.Claim.Owner)
			if err != nil {
				return fmt.Errorf("encode a claim: %w", err)
			}
			owner = string(text)
		}
		inserted, err := t.exec(ctx, `INSERT INTO rowfold_outbox
			(projection, row_key, sequence, id, source, stream, stream_id, version, effect_index, type, schema_version,
			 payload, enqueued_at, trace_parent, claim_epoch, claim_nonce, claim_owner)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
			item.Row.Projection, item.Row.Key, string(item.Sequence), item.ID, item.Source, item.Stream, string(item.StreamID),
			item.Version, item.Index, item.Type, item.SchemaVersion, []byte(item.Payload), item.EnqueuedAt.UnixMicro(),
			item.TraceParent, item.Claim.Epoch, item.Claim.Nonce, owner)
		if err != nil {
			return rowFault(table, write, err)
		}
		if inserted == 0 {
			return &projection.SequenceReused{Row: item.Row, Sequence: item.Sequence}
		}
	}
	return nil
}

// isResult reports whether an outcome of a write is one of that write alone, so that the
// transaction goes on. A nil error is one.
func isResult(err error) bool {
	if err == nil {
		return true
	}
	if _, broken := errors.AsType[*brokenTransaction](err); broken {
		return false
	}
	_, typed := errors.AsType[event.Classed](err)
	return typed
}
