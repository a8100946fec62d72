package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/projection"
)

// UnpreparedProjection is returned for a projection that Prepare was never called with,
// in this database.
type UnpreparedProjection struct{ Projection string }

// Error implements error.
func (e *UnpreparedProjection) Error() string {
	return fmt.Sprintf("sqlite: projection %q has no table here: call Prepare with its model first", e.Projection)
}

// Class is [event.ClassPermanent].
func (e *UnpreparedProjection) Class() event.Class { return event.ClassPermanent }

// model returns the model of a projection as Prepare recorded it, maybe in another
// process.
func (s *Store) model(ctx context.Context, t *tx, name string) (*projection.Model, error) {
	s.mu.Lock()
	known := s.models[name]
	s.mu.Unlock()
	if known != nil {
		return known, nil
	}
	var text string
	switch found, err := t.one(ctx, `SELECT model FROM rowfold_models WHERE projection = ?`, []any{name}, &text); {
	case err != nil:
		return nil, err
	case !found:
		return nil, &UnpreparedProjection{Projection: name}
	}
	model := &projection.Model{}
	if err := json.Unmarshal([]byte(text), model); err != nil {
		return nil, event.Permanent(fmt.Errorf("sqlite: the recorded model of projection %q: %w", name, err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.models[name] = model
	return model, nil
}

// Columns of every table of rows, next to those of its model. The columns of a model
// never begin so.
const (
	columnKey        = "rowfold_key"        // projection.Model.KeyText, the primary key
	columnTombstone  = "rowfold_tombstone"  // 1 for a tombstone, 0 for a live row
	columnExpiresAt  = "rowfold_expires_at" // when a tombstone may be purged
	columnWriteID    = "rowfold_write_id"   // projection.Write.ID of the last write
	columnDefinition = "rowfold_definition" // projection.Bookkeeping.Definition
	columnEmits      = "rowfold_emits"      // 1, 0 or NULL = as if 1
	columnEmitAbove  = "rowfold_emit_above" // JSON of projection.Bookkeeping.EmitAbove
)

// rowTable returns the quoted name of the table that holds the rows and tombstones of a
// model. The model's own name is a view of it, without tombstones.
func rowTable(model *projection.Model) string { return quote("rowfold_rows_" + model.Table) }

// quote makes an identifier of any text.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// quoteText makes a text literal.
func quoteText(text string) string { return `'` + strings.ReplaceAll(text, `'`, `''`) + `'` }
