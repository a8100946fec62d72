package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/rowfold/rowfold/event"
)

// readPage is how many events one query of Read returns. Between two queries no
// connection is held, so that the caller's loop may use the store.
const readPage = 256

// Read implements event.Reader. Every read is consistent.
func (s *Store) Read(ctx context.Context, stream string, id event.ID, part event.Range) iter.Seq2[event.Envelope, error] {
	return func(yield func(event.Envelope, error) bool) {
		low, high := part.After, int64(math.MaxInt64)
		if part.UpTo > 0 {
			high = part.UpTo
		}
		for low < high {
			page, err := s.readPage(ctx, stream, id, low, high, part.Reverse)
			if err != nil {
				yield(event.Envelope{}, err)
				return
			}
			for _, envelope := range page {
				if !yield(envelope, nil) {
					return
				}
			}
			if len(page) < readPage {
				return
			}
			if last := page[len(page)-1].Version; part.Reverse {
				high = last - 1
			} else {
				low = last
			}
		}
	}
}

func (s *Store) readPage(ctx context.Context, stream string, id event.ID, after, upTo int64, reverse bool) ([]event.Envelope, error) {
	order := "ASC"
	if reverse {
		order = "DESC"
	}
	page := make([]event.Envelope, 0, min(readPage, max(upTo-after, 0)))
	err := s.read(ctx, fmt.Sprintf("read stream %s %q", stream, id), func(t *tx) error {
		return t.query(ctx, `SELECT `+envelopeColumns+` FROM rowfold_events
			WHERE stream = ? AND stream_id = ? AND version > ? AND version <= ? ORDER BY version `+order+` LIMIT ?`,
			[]any{stream, string(id), after, upTo, readPage}, func(rows *sql.Rows) error {
				envelope, err := scanEnvelope(rows)
				page = append(page, envelope)
				return err
			})
	})
	return page, err
}

// Version implements event.Reader.
func (s *Store) Version(ctx context.Context, stream string, id event.ID) (version int64, err error) {
	err = s.read(ctx, fmt.Sprintf("read the version of stream %s %q", stream, id), func(t *tx) error {
		version, err = versionOf(ctx, t, stream, id)
		return err
	})
	return version, err
}

// Oldest implements event.Reader.
func (s *Store) Oldest(ctx context.Context, stream string, id event.ID) (version int64, err error) {
	err = s.read(ctx, fmt.Sprintf("read the oldest version of stream %s %q", stream, id), func(t *tx) error {
		_, err := t.one(ctx, `SELECT COALESCE(MIN(version), 0) FROM rowfold_events WHERE stream = ? AND stream_id = ?`,
			[]any{stream, string(id)}, &version)
		return err
	})
	return version, err
}

// envelopeColumns are what scanEnvelope reads.
const envelopeColumns = `stream, stream_id, version, type, schema_version, time, data, metadata`

// scanEnvelope reads the envelopeColumns, and before them whatever dest takes.
func scanEnvelope(rows *sql.Rows, dest ...any) (event.Envelope, error) {
	var (
		envelope event.Envelope
		at       int64
		data     []byte
		metadata *string
	)
	err := rows.Scan(append(dest, &envelope.Stream, &envelope.StreamID, &envelope.Version, &envelope.Type,
		&envelope.SchemaVersion, &at, &data, &metadata)...)
	if err != nil {
		return envelope, err //nolint:wrapcheck // the caller names the step
	}
	envelope.Time, envelope.Payload = time.UnixMilli(at).UTC(), data
	if metadata != nil {
		if err := json.Unmarshal([]byte(*metadata), &envelope.Metadata); err != nil {
			return envelope, fmt.Errorf("decode the metadata: %w", err)
		}
	}
	return envelope, nil
}
