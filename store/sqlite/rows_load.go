package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/projection"
)

// Load implements projection.RowStore. All rows are of one snapshot.
func (s *Store) Load(ctx context.Context, model *projection.Model, keys []string) ([]projection.Stored, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	var found map[string]projection.Stored
	err := s.read(ctx, "load rows of projection "+model.Projection, func(t *tx) (err error) {
		found, err = loadRows(ctx, t, s.table(model), keys)
		return err
	})
	if err != nil {
		return nil, err
	}
	rows := make([]projection.Stored, len(keys))
	for i, key := range keys {
		row, known := found[key]
		if !known {
			row = projection.Stored{Key: key, Status: projection.RowAbsent}
		}
		rows[i] = row
	}
	return rows, nil
}

// loadRows returns the rows that are there, by key.
func loadRows(ctx context.Context, t *tx, table *table, keys []string) (map[string]projection.Stored, error) {
	wanted, err := json.Marshal(keys)
	if err != nil {
		return nil, fmt.Errorf("encode the keys: %w", err)
	}
	found := make(map[string]projection.Stored, len(keys))
	err = t.query(ctx, table.load, []any{string(wanted)}, func(rows *sql.Rows) error {
		row, err := table.scan(rows)
		found[row.Key] = row
		return err
	})
	return found, err
}

// Rows implements projection.RowStore.
func (s *Store) Rows(ctx context.Context, model *projection.Model, page projection.RowPage) ([]projection.Stored, error) {
	var found []projection.Stored
	table := s.table(model)
	err := s.read(ctx, "list rows of projection "+model.Projection, func(t *tx) error {
		return t.query(ctx, table.list, []any{page.After, page.Tombstones, page.Limit}, func(rows *sql.Rows) error {
			row, err := table.scan(rows)
			found = append(found, row)
			return err
		})
	})
	return found, err
}

// table returns the statements of a model, which are put together once.
func (s *Store) table(model *projection.Model) *table {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.tables[model]
	if known == nil {
		known = tableOf(model)
		s.tables[model] = known
	}
	return known
}

// scan reads a row of columns().
func (t *table) scan(rows *sql.Rows) (projection.Stored, error) {
	var (
		row       projection.Stored
		tombstone bool
		expires   *int64
		emitAbove *string
		books     = &row.Books
	)
	dest := []any{&row.Key, &tombstone, &expires, &row.WriteID, &books.Definition, &books.Emits, &emitAbove}
	var checkpoints *string
	if t.model.Revision != "" {
		dest = append(dest, &books.Revision)
	}
	if t.model.Checkpoints != "" {
		dest = append(dest, &checkpoints)
	}
	stored, owners := make([]*int64, len(t.model.Scalars)), make([]*string, len(t.model.Scalars))
	for i := range t.model.Scalars {
		dest = append(dest, &stored[i], &owners[i])
	}
	values := make([]any, len(t.model.Columns))
	for i := range values {
		dest = append(dest, &values[i])
	}
	if err := rows.Scan(dest...); err != nil {
		return row, err //nolint:wrapcheck // the caller names the step
	}
	row.ExpiresAt = fromMicroseconds(expires)
	var err error
	if books.EmitAbove, err = decodeMap(emitAbove); err != nil {
		return row, t.broken(row.Key, columnEmitAbove, err)
	}
	if books.Checkpoints, err = decodeMap(checkpoints); err != nil {
		return row, t.broken(row.Key, t.model.Checkpoints, err)
	}
	for i, scalar := range t.model.Scalars {
		if stored[i] == nil && owners[i] == nil {
			continue
		}
		if books.Scalars == nil {
			books.Scalars = map[string]projection.ScalarCheckpoint{}
		}
		checkpoint := projection.ScalarCheckpoint{Stored: stored[i]}
		if owners[i] != nil {
			checkpoint.Owner = *owners[i]
		}
		books.Scalars[scalar.Source] = checkpoint
	}
	if tombstone {
		row.Status = projection.RowTombstone
		return row, nil
	}
	row.Status, row.Values = projection.RowLive, values
	for i, column := range t.model.Columns {
		if values[i], err = fromColumn(column, values[i]); err != nil {
			return row, t.broken(row.Key, column.Name, err)
		}
	}
	return row, nil
}

// broken says that a row holds what the store never writes.
func (t *table) broken(key, column string, err error) error {
	return event.Permanent(fmt.Errorf("sqlite: row %q of projection %s, column %q: %w", key, t.model.Projection, column, err))
}
