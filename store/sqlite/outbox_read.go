package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/rowfold/rowfold/outbox"
)

// itemColumns are what scanItem reads.
const itemColumns = `o.projection, o.row_key, o.sequence, o.id, o.source, o.stream, o.stream_id, o.version, o.effect_index, o.type,
	o.schema_version, o.payload, o.enqueued_at, o.trace_parent, o.claim_epoch, o.claim_nonce, o.claim_owner, o.deferral`

// headItems reads the lowest effects of a row, up to a sequence.
const headItems = `SELECT ` + itemColumns + ` FROM rowfold_outbox AS o
	WHERE o.projection = ? AND o.row_key = ? AND o.sequence <= ? ORDER BY o.sequence LIMIT ?`

// Head implements outbox.Store. Row and outbox are read as one snapshot.
func (s *Store) Head(ctx context.Context, row outbox.Row, limit int) (outbox.Head, error) {
	var head outbox.Head
	err := s.read(ctx, "read the outbox of row "+row.String(), func(t *tx) error {
		if err := s.readState(ctx, t, row, &head); err != nil {
			return err
		}
		upTo := outbox.SequenceOf(head.Revision, outbox.MaxIndex)
		return t.query(ctx, headItems, []any{row.Projection, row.Key, string(upTo), limit + 1}, func(rows *sql.Rows) error {
			item, err := scanItem(rows)
			head.Items = append(head.Items, item)
			return err
		})
	})
	if err != nil {
		return outbox.Head{}, err
	}
	if len(head.Items) > limit {
		head.Items, head.More = head.Items[:limit], true
	}
	return head, nil
}

// readState reads the revision of a row, and what it says as a tombstone.
func (s *Store) readState(ctx context.Context, t *tx, row outbox.Row, head *outbox.Head) error {
	model, err := s.model(ctx, t, row.Projection)
	if err != nil || model.Revision == "" {
		return err
	}
	var (
		revision, expires *int64
		tombstone         bool
	)
	if _, err := t.one(ctx, `SELECT `+quote(model.Revision)+`, `+columnTombstone+`, `+columnExpiresAt+` FROM `+rowTable(model)+`
		WHERE `+columnKey+` = ?`, []any{row.Key}, &revision, &tombstone, &expires); err != nil {
		return err
	}
	if revision != nil {
		head.Revision = *revision
	}
	head.Tombstone, head.Expires = tombstone, expires != nil
	return nil
}

// itemOf returns one item as it is now.
func itemOf(ctx context.Context, t *tx, row outbox.Row, ref outbox.Ref) (item outbox.Item, found bool, err error) {
	err = t.query(ctx, `SELECT `+itemColumns+` FROM rowfold_outbox AS o
		WHERE o.projection = ? AND o.row_key = ? AND o.sequence = ? AND o.id = ?`,
		[]any{row.Projection, row.Key, string(ref.Sequence), ref.ID}, func(rows *sql.Rows) (err error) {
			item, err = scanItem(rows)
			found = true
			return err
		})
	return item, found, err
}

func scanItem(rows *sql.Rows) (outbox.Item, error) {
	var (
		item            outbox.Item
		payload         []byte
		enqueued        int64
		owner, deferral *string
	)
	if err := rows.Scan(&item.Row.Projection, &item.Row.Key, &item.Sequence, &item.ID, &item.Source, &item.Stream, &item.StreamID,
		&item.Version, &item.Index, &item.Type, &item.SchemaVersion, &payload, &enqueued, &item.TraceParent,
		&item.Claim.Epoch, &item.Claim.Nonce, &owner, &deferral); err != nil {
		return item, err //nolint:wrapcheck // the caller names the step
	}
	item.Payload, item.EnqueuedAt = payload, time.UnixMicro(enqueued).UTC()
	if owner != nil {
		if err := json.Unmarshal([]byte(*owner), &item.Claim.Owner); err != nil {
			return item, fmt.Errorf("decode the claim of effect %s: %w", item.ID, err)
		}
	}
	if deferral != nil {
		if err := json.Unmarshal([]byte(*deferral), &item.Deferral); err != nil {
			return item, fmt.Errorf("decode the deferral of effect %s: %w", item.ID, err)
		}
	}
	return item, nil
}
