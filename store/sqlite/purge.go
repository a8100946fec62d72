package sqlite

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rowfold/rowfold/projection"
)

// PurgeTombstones implements projection.RowStore. A parked instance keeps the tombstones of the
// rows that its record names, and of those whose checkpoints know it.
func (s *Store) PurgeTombstones(ctx context.Context, model *projection.Model, now time.Time, limit int) (projection.Purged, error) {
	if limit < 1 {
		return projection.Purged{}, fmt.Errorf("sqlite: purge projection %s: limit %d: use 1 or more", model.Projection, limit)
	}
	var purged projection.Purged
	statements := purgeStatements(model)
	err := s.write(ctx, "purge tombstones of projection "+model.Projection, func(t *tx) error {
		removed, err := t.exec(ctx, statements.remove, model.Projection, now.UnixMicro(), limit)
		if err != nil {
			return err
		}
		var dated int64
		if model.TombstoneTTL > 0 {
			if dated, err = t.exec(ctx, statements.date, model.Projection, now.Add(model.TombstoneTTL).UnixMicro(), limit); err != nil {
				return err
			}
		}
		purged = projection.Purged{
			Removed: int(removed), Dated: int(dated), More: removed == int64(limit) || dated == int64(limit),
		}
		return nil
	})
	return purged, err
}

type purging struct{ remove, date string }

// purgeStatements puts the statements of a model together. ?1 is the projection, ?2 a
// time, ?3 the limit.
func purgeStatements(model *projection.Model) purging {
	table := rowTable(model)
	free := []string{`t.` + columnTombstone + ` = 1
		AND NOT EXISTS (SELECT 1 FROM rowfold_outbox AS o WHERE o.projection = ?1 AND o.row_key = t.` + columnKey + `)
		AND t.` + columnKey + ` NOT IN (SELECT k.value FROM rowfold_parks AS p, json_each(p.row_keys) AS k WHERE p.projection = ?1)`}
	if model.Checkpoints != "" {
		free = append(free, `NOT EXISTS (SELECT 1 FROM json_each(t.`+quote(model.Checkpoints)+`) AS c
			JOIN rowfold_parks AS p ON p.projection = ?1 AND p.instance = c.key)`)
	}
	for _, scalar := range model.Scalars {
		owner := `t.` + quote(scalar.Instance)
		free = append(free, `NOT EXISTS (SELECT 1 FROM rowfold_parks AS p WHERE p.projection = ?1
			AND p.instance = `+quoteText(scalar.Source+"#")+` || `+owner+`)`)
	}
	chosen := func(condition string) string {
		return ` WHERE ` + columnKey + ` IN (SELECT t.` + columnKey + ` FROM ` + table + ` AS t
			WHERE ` + strings.Join(append(slices.Clone(free), condition), ` AND `) + ` LIMIT ?3)`
	}
	return purging{
		remove: `DELETE FROM ` + table + chosen(`t.`+columnExpiresAt+` <= ?2`),
		date:   `UPDATE ` + table + ` SET ` + columnExpiresAt + ` = ?2` + chosen(`t.`+columnExpiresAt+` IS NULL`),
	}
}
