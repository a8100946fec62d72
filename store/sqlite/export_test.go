package sqlite

import (
	"context"
	"database/sql"
)

// Exec runs a statement on the store's own database, as somebody else with access would.
func (s *Store) Exec(ctx context.Context, text string, args ...any) error {
	return s.write(ctx, "test", func(t *tx) error {
		_, err := t.exec(ctx, text, args...)
		return err
	})
}

// Texts returns the last column of an answer.
func (s *Store) Texts(ctx context.Context, text string, args ...any) ([]string, error) {
	var texts []string
	err := s.read(ctx, "test", func(t *tx) error {
		return t.query(ctx, text, args, func(rows *sql.Rows) error {
			var value string
			columns, err := rows.Columns()
			if err != nil {
				return err
			}
			dest := make([]any, len(columns))
			for i := range dest {
				dest[i] = new(any)
			}
			dest[len(dest)-1] = &value
			err = rows.Scan(dest...)
			texts = append(texts, value)
			return err
		})
	})
	return texts, err
}
