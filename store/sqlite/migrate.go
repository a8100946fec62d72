package sqlite

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
)

// migrations are the steps of the store's own tables, in the order of their names. A step
// that was released is never changed: later ones change what it made.
//
//go:embed migrations/*.sql
var migrations embed.FS

// migrate brings the store's own tables up to date. Several processes may do it at once:
// the write lock lets one after the other look what is left to do.
func (s *Store) migrate(ctx context.Context) error {
	steps, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return fmt.Errorf("sqlite: list the migrations: %w", err)
	}
	return s.write(ctx, "migrate", func(t *tx) error {
		if err := t.script(ctx, `CREATE TABLE IF NOT EXISTS rowfold_migrations (
			version INTEGER NOT NULL PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL) STRICT`); err != nil {
			return err
		}
		var found int
		if _, err := t.one(ctx, `SELECT COALESCE(MAX(version), 0) FROM rowfold_migrations`, nil, &found); err != nil {
			return err
		}
		if found > len(steps) {
			return &NewerSchema{Path: s.config.Path, Found: found, Known: len(steps)}
		}
		for i, name := range steps[found:] {
			text, err := migrations.ReadFile(name)
			if err != nil {
				return fmt.Errorf("read %s: %w", name, err)
			}
			if err := t.script(ctx, string(text)); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if _, err := t.exec(ctx, `INSERT INTO rowfold_migrations (version, name, applied_at) VALUES (?, ?, ?)`,
				found+i+1, name, s.config.Now().UnixMicro()); err != nil {
				return err
			}
		}
		return nil
	})
}
