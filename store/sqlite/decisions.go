package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/rowfold/rowfold/outbox"
)

// Decide implements outbox.Store.
func (s *Store) Decide(ctx context.Context, row outbox.Row, ref outbox.Ref, decision outbox.Decision) (bool, error) {
	decided := false
	err := s.write(ctx, "decide about an effect of row "+row.String(), func(t *tx) error {
		item, found, err := itemOf(ctx, t, row, ref)
		if err != nil || !found {
			return err
		}
		itemText, err := encodeItem(item)
		if err != nil {
			return fmt.Errorf("encode the effect: %w", err)
		}
		decisionText, err := json.Marshal(decision)
		if err != nil {
			return fmt.Errorf("encode the decision: %w", err)
		}
		// A record of the past never stands in the way of a decision: hence REPLACE.
		if _, err := t.exec(ctx, `INSERT OR REPLACE INTO rowfold_decisions
			(projection, row_key, sequence, item, payload, decision, decided_at) VALUES (?, ?, ?, ?, ?, ?, ?)`,
			row.Projection, row.Key, string(ref.Sequence), itemText, []byte(item.Payload), string(decisionText),
			decision.At.UnixMicro()); err != nil {
			return err
		}
		decided = true
		return deleteItem(ctx, t, row, ref)
	})
	return err == nil && decided, err
}

// encodeItem encodes an item without its payload, which may be anything: what was decided
// about may be what could not be decoded.
func encodeItem(item outbox.Item) (string, error) {
	item.Payload = nil
	text, err := json.Marshal(item)
	return string(text), err
}

// Decisions implements outbox.Store.
func (s *Store) Decisions(ctx context.Context, row outbox.Row) ([]outbox.Decided, error) {
	var all []outbox.Decided
	err := s.read(ctx, "list the decisions of row "+row.String(), func(t *tx) error {
		return t.query(ctx, `SELECT item, payload, decision FROM rowfold_decisions
			WHERE projection = ? AND row_key = ? ORDER BY sequence, decided_at`,
			[]any{row.Projection, row.Key}, func(rows *sql.Rows) error {
				var (
					item, payload, decision []byte
					decided                 outbox.Decided
				)
				if err := rows.Scan(&item, &payload, &decision); err != nil {
					return err //nolint:wrapcheck // the caller names the step
				}
				if err := json.Unmarshal(item, &decided.Item); err != nil {
					return fmt.Errorf("decode the effect: %w", err)
				}
				if err := json.Unmarshal(decision, &decided.Decision); err != nil {
					return fmt.Errorf("decode the decision: %w", err)
				}
				decided.Item.Payload = payload
				all = append(all, decided)
				return nil
			})
	})
	return all, err
}
