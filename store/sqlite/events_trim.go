package sqlite

import (
	"context"
	"time"
)

// trimEvents is how many events one transaction of a trim removes: other writers wait for
// no more than that.
const trimEvents = 1_000

// TrimEvents removes a stream's events from the oldest one on, up to the first whose time is not
// before the given one, by the millisecond, and returns how many. Versions go on where they were, and commands
// stay known. Followers that have not read them meet *event.Trimmed; a fold that needs them, a
// *projection.HistoryTrimmed.
//
// It takes several transactions when there is much to remove. After an error, removed says
// what is known to be gone, and the same call goes on.
func (s *Store) TrimEvents(ctx context.Context, stream string, before time.Time) (removed int64, err error) {
	var upTo int64
	err = s.read(ctx, "look for what to trim of stream "+stream, func(t *tx) error {
		_, err := t.one(ctx, `SELECT COALESCE(
			(SELECT MIN(position) - 1 FROM rowfold_events WHERE stream = ?1 AND time >= ?2),
			(SELECT MAX(position) FROM rowfold_events WHERE stream = ?1), 0)`,
			[]any{stream, before.UnixMilli()}, &upTo)
		return err
	})
	for batch := int64(trimEvents); err == nil && batch == trimEvents; removed += batch {
		batch, err = s.trim(ctx, stream, upTo)
	}
	return removed, err
}

// trim removes at most trimEvents events, the oldest ones, up to a position.
func (s *Store) trim(ctx context.Context, stream string, upTo int64) (removed int64, err error) {
	err = s.write(ctx, "trim stream "+stream, func(t *tx) error {
		var last int64
		if _, err := t.one(ctx, `SELECT COALESCE(MAX(position), 0) FROM
			(SELECT position FROM rowfold_events WHERE stream = ? AND position <= ? ORDER BY position LIMIT ?)`,
			[]any{stream, upTo, trimEvents}, &last); err != nil || last == 0 {
			return err
		}
		if removed, err = t.exec(ctx, `DELETE FROM rowfold_events WHERE stream = ? AND position <= ?`, stream, last); err != nil {
			return err
		}
		_, err := t.exec(ctx, `INSERT INTO rowfold_trims (stream, position) VALUES (?, ?)
			ON CONFLICT DO UPDATE SET position = MAX(position, excluded.position)`, stream, last)
		return err
	})
	if err != nil {
		return 0, err
	}
	return removed, nil
}
