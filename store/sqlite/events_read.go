package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/rowfold/rowfold/event"
)

// A page of events ends with the event that reaches one of both limits, so that it takes bounded
// memory, whatever the events hold. Between two pages no connection is held, so that the
// caller's loop may use the store.
const (
	pageEvents = 256     // of Read; a feed's caller says how many it wants
	pageBytes  = 4 << 20 // of payloads
)

// errPageFull ends the query of a page that reached pageBytes.
var errPageFull = errors.New("the page is full")

// Read implements event.Reader. Every read is consistent. Events that are trimmed under a read
// in version order end it with an *event.RecordError, which is retried: what follows would be
// behind a hole.
func (s *Store) Read(ctx context.Context, stream string, id event.ID, part event.Range) iter.Seq2[event.Envelope, error] {
	return func(yield func(event.Envelope, error) bool) {
		low, high := max(part.After, 0), int64(math.MaxInt64)
		if part.UpTo > 0 {
			high = part.UpTo
		}
		for more, first := true, true; more && low < high; first = false {
			var page []event.Envelope
			var err error
			page, more, err = s.readPage(ctx, stream, id, low, high, part.Reverse)
			if err == nil && !first && !part.Reverse && len(page) > 0 && page[0].Version != low+1 {
				err = &event.RecordError{Stream: stream, StreamID: id, Version: low + 1, Err: errTrimmedUnderRead}
			}
			if err != nil {
				yield(event.Envelope{}, err)
				return
			}
			for _, envelope := range page {
				if !yield(envelope, nil) {
					return
				}
				if part.Reverse {
					high = envelope.Version - 1
				} else {
					low = envelope.Version
				}
			}
		}
	}
}

var errTrimmedUnderRead = errors.New("it was trimmed while the stream was read: read again")

func (s *Store) readPage(
	ctx context.Context, stream string, id event.ID, after, upTo int64, reverse bool,
) (page []event.Envelope, more bool, err error) {
	order := "ASC"
	if reverse {
		order = "DESC"
	}
	page = make([]event.Envelope, 0, min(pageEvents, upTo-after))
	err = s.read(ctx, fmt.Sprintf("read stream %s %q", stream, id), func(t *tx) error {
		more, err = t.page(ctx, `SELECT `+envelopeColumns+` FROM rowfold_events
			WHERE stream = ? AND stream_id = ? AND version > ? AND version <= ? ORDER BY version `+order+` LIMIT ?`,
			[]any{stream, string(id), after, upTo}, pageEvents, func(rows *sql.Rows) (int, error) {
				envelope, err := scanEnvelope(rows)
				page = append(page, envelope)
				return len(envelope.Payload), err
			})
		return err
	})
	return page, more, err
}

// page runs a query whose last parameter is its limit. scan takes a row and returns the bytes of
// its payload. page reports whether it ended before the rows did, as far as it knows.
func (t *tx) page(
	ctx context.Context, text string, args []any, limit int, scan func(rows *sql.Rows) (int, error),
) (more bool, err error) {
	events, bytes := 0, 0
	err = t.query(ctx, text, append(args, limit), func(rows *sql.Rows) error {
		size, err := scan(rows)
		if err != nil {
			return err
		}
		events++
		if bytes += size; bytes >= pageBytes {
			return errPageFull
		}
		return nil
	})
	if errors.Is(err, errPageFull) {
		return true, nil
	}
	return err == nil && events == limit, err
}

// Version implements event.Reader. It also counts events that were trimmed.
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

// scanEnvelope reads the envelopeColumns, and before them whatever dest takes. It returns an
// *event.RecordError, with the envelope, for metadata that somebody else has written.
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
			return envelope, &event.RecordError{
				Stream: envelope.Stream, StreamID: envelope.StreamID, Version: envelope.Version,
				Err: &event.DecodeError{
					Owner: "the metadata", Type: envelope.Type, SchemaVersion: envelope.SchemaVersion, Err: err,
				},
			}
		}
	}
	return envelope, nil
}
