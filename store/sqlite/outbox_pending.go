package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/rowfold/rowfold/outbox"
)

// pendingRows lists rows with pending effects: ?1 is the projection, ?2 the row after which to
// go on, ?3 how many. It skips from row to row along the primary key: one seek for each row,
// however many effects it has. SQLite has no such scan of its own, so a recursive query
// does it (https://www.sqlite.org/lang_with.html). CROSS JOIN keeps the order of the
// tables: left to itself, the planner walks through all effects of the projection.
const pendingRows = `WITH RECURSIVE pending (row_key, sequence, n) AS (
		SELECT row_key, sequence, 1 FROM (SELECT row_key, sequence FROM rowfold_outbox
			WHERE projection = ?1 AND row_key > ?2 ORDER BY row_key, sequence LIMIT 1)
		UNION ALL
		SELECT next.row_key, next.sequence, p.n + 1 FROM pending AS p CROSS JOIN rowfold_outbox AS next
			ON next.projection = ?1 AND (next.row_key, next.sequence) = (SELECT row_key, sequence FROM rowfold_outbox
				WHERE projection = ?1 AND row_key > p.row_key ORDER BY row_key, sequence LIMIT 1)
		WHERE p.n < ?3
	)
	SELECT ` + itemColumns + ` FROM pending AS p CROSS JOIN rowfold_outbox AS o
		ON o.projection = ?1 AND o.row_key = p.row_key AND o.sequence = p.sequence ORDER BY p.row_key`

// whetherPending finds those of a JSON array of row keys that have pending effects.
const whetherPending = `SELECT wanted.value FROM json_each(?) AS wanted
	WHERE EXISTS (SELECT 1 FROM rowfold_outbox WHERE projection = ? AND row_key = wanted.value)`

// Pending implements outbox.Store.
func (s *Store) Pending(ctx context.Context, query outbox.PendingQuery) ([]outbox.PendingRow, error) {
	var pending []outbox.PendingRow
	err := s.read(ctx, "list pending rows of projection "+query.Projection, func(t *tx) error {
		return t.query(ctx, pendingRows, []any{query.Projection, query.After, query.Limit}, func(rows *sql.Rows) error {
			item, err := scanItem(rows)
			pending = append(pending, outbox.PendingRow{Row: item.Row, Head: item})
			return err
		})
	})
	return pending, err
}

// HasPending implements outbox.Store.
func (s *Store) HasPending(ctx context.Context, projection string, keys []string) (map[string]bool, error) {
	pending := make(map[string]bool, len(keys))
	if len(keys) == 0 {
		return pending, nil
	}
	wanted, err := json.Marshal(keys)
	if err != nil {
		return nil, fmt.Errorf("sqlite: encode the keys: %w", err)
	}
	err = s.read(ctx, "look for pending effects of projection "+projection, func(t *tx) error {
		return t.query(ctx, whetherPending, []any{string(wanted), projection}, func(rows *sql.Rows) error {
			var key string
			err := rows.Scan(&key)
			pending[key] = true
			return err //nolint:wrapcheck // the caller names the step
		})
	})
	return pending, err
}
