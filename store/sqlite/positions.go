package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/rowfold/rowfold/projection"
)

// Positions implements projection.PositionStore.
func (s *Store) Positions(ctx context.Context, consumer, stream string) (map[string]projection.PositionRecord, error) {
	records := map[string]projection.PositionRecord{}
	err := s.read(ctx, fmt.Sprintf("read the positions of consumer %s in stream %s", consumer, stream), func(t *tx) error {
		return t.query(ctx, `SELECT consumer, stream, shard, position, done, saved_at FROM rowfold_positions
			WHERE consumer = ? AND stream = ?`,
			[]any{consumer, stream}, func(rows *sql.Rows) error {
				var (
					record projection.PositionRecord
					at     int64
				)
				err := rows.Scan(&record.Consumer, &record.Stream, &record.Shard, &record.Position, &record.Done, &at)
				record.At = time.UnixMicro(at).UTC()
				records[record.Shard] = record
				return err //nolint:wrapcheck // the caller names the step
			})
	})
	if err != nil {
		return nil, err
	}
	return records, nil
}

// SavePosition implements projection.PositionStore. Positions compare bytewise; a done record
// is further than one at the same position that is not, and stays done.
func (s *Store) SavePosition(ctx context.Context, record projection.PositionRecord) error {
	return s.write(ctx, fmt.Sprintf("save the position of consumer %s in shard %s", record.Consumer, record.Shard), func(t *tx) error {
		_, err := t.exec(ctx, `INSERT INTO rowfold_positions AS p (consumer, stream, shard, position, done, saved_at)
			VALUES (?, ?, ?, ?, ?, ?)
			ON CONFLICT DO UPDATE SET position = excluded.position, done = excluded.done, saved_at = excluded.saved_at
			WHERE (excluded.position, excluded.done) > (p.position, p.done)`,
			record.Consumer, record.Stream, record.Shard, string(record.Position), record.Done, record.At.UnixMicro())
		return err
	})
}
