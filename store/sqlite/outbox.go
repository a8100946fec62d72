package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
)

// itemKey is the condition that names one item: arguments projection, row key, sequence, id.
const itemKey = ` WHERE projection = ? AND row_key = ? AND sequence = ? AND id = ?`

// Claim implements outbox.Store.
func (s *Store) Claim(ctx context.Context, row outbox.Row, refs []outbox.Ref, owner outbox.Owner) (int, error) {
	encoded, err := json.Marshal(owner)
	if err != nil {
		return 0, fmt.Errorf("sqlite: encode a claim's owner: %w", err)
	}
	claimed := 0
	err = s.write(ctx, "claim effects of row "+row.String(), func(t *tx) error {
		claimed = 0
		for _, ref := range refs {
			changed, err := t.exec(ctx, `UPDATE rowfold_outbox SET claim_epoch = claim_epoch + 1, claim_nonce = ?, claim_owner = ?`+
				itemKey+` AND claim_epoch = ? AND claim_nonce = ?`,
				owner.Nonce, string(encoded), row.Projection, row.Key, string(ref.Sequence), ref.ID, ref.Epoch, ref.Nonce)
			if err != nil {
				return err
			}
			if changed == 0 {
				return nil
			}
			claimed++
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return claimed, nil
}

// Release implements outbox.Store.
func (s *Store) Release(ctx context.Context, row outbox.Row, refs []outbox.Ref, nonce string) error {
	if len(refs) == 0 {
		return nil
	}
	return s.write(ctx, "release effects of row "+row.String(), func(t *tx) error {
		for _, ref := range refs {
			if _, err := t.exec(ctx, `UPDATE rowfold_outbox SET claim_nonce = '', claim_owner = NULL`+itemKey+` AND claim_nonce = ?`,
				row.Projection, row.Key, string(ref.Sequence), ref.ID, nonce); err != nil {
				return err
			}
		}
		return nil
	})
}

// Delete implements outbox.Store.
func (s *Store) Delete(ctx context.Context, row outbox.Row, ref outbox.Ref) (outbox.Deleted, error) {
	var deleted outbox.Deleted
	err := s.write(ctx, "delete an effect of row "+row.String(), func(t *tx) error {
		item, found, err := itemOf(ctx, t, row, ref)
		if err != nil || !found {
			return err
		}
		deleted = outbox.Deleted{Found: true, Claim: item.Claim}
		return deleteItem(ctx, t, row, ref)
	})
	if err != nil {
		return outbox.Deleted{}, err
	}
	return deleted, nil
}

// Defer implements outbox.Store.
func (s *Store) Defer(ctx context.Context, row outbox.Row, ref outbox.Ref, deferral outbox.Deferral) (bool, error) {
	var text any // the zero deferral is none
	if !deferral.IsZero() {
		encoded, err := json.Marshal(deferral)
		if err != nil {
			return false, fmt.Errorf("sqlite: encode a deferral: %w", err)
		}
		text = string(encoded)
	}
	var changed int64
	err := s.write(ctx, "defer an effect of row "+row.String(), func(t *tx) (err error) {
		changed, err = t.exec(ctx, `UPDATE rowfold_outbox SET deferral = ?`+itemKey+` AND claim_nonce = ?`,
			text, row.Projection, row.Key, string(ref.Sequence), ref.ID, ref.Nonce)
		return err
	})
	return err == nil && changed > 0, err
}

// ExpireTombstone implements outbox.Store.
func (s *Store) ExpireTombstone(ctx context.Context, row outbox.Row, revision int64, at time.Time) (bool, error) {
	var changed int64
	err := s.write(ctx, "set the expiry of row "+row.String(), func(t *tx) error {
		model, err := s.model(ctx, t, row.Projection)
		if err != nil || model.Revision == "" {
			return err
		}
		changed, err = t.exec(ctx, `UPDATE `+rowTable(model)+` SET `+columnExpiresAt+` = ?
			WHERE `+columnKey+` = ? AND `+columnTombstone+` = 1 AND `+quote(model.Revision)+` = ?
			AND NOT EXISTS (SELECT 1 FROM rowfold_outbox WHERE projection = ? AND row_key = ?)`,
			at.UnixMicro(), row.Key, revision, row.Projection, row.Key)
		return err
	})
	return err == nil && changed > 0, err
}

func deleteItem(ctx context.Context, t *tx, row outbox.Row, ref outbox.Ref) error {
	_, err := t.exec(ctx, `DELETE FROM rowfold_outbox`+itemKey, row.Projection, row.Key, string(ref.Sequence), ref.ID)
	return err
}

var _ projection.Store = (*Store)(nil)
