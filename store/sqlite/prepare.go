package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/rowfold/rowfold/projection"
)

// reserved is how the store's own tables and columns begin.
const reserved = "rowfold_"

// Prepare implements projection.Store. Tables grow with their models: a new field gets its
// column, which is empty in the rows that are there; a column whose field is gone
// stays, with what is in it. A column's kind and the key never change: a rebuild into
// another table is the way. The error is a *[TableConflict].
func (s *Store) Prepare(ctx context.Context, models ...*projection.Model) error {
	for _, model := range models {
		if err := checkNames(model); err != nil {
			return err
		}
	}
	err := s.write(ctx, "prepare tables", func(t *tx) error {
		for _, model := range models {
			if err := prepareModel(ctx, t, model); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, model := range models {
		s.models[model.Projection] = model
	}
	return nil
}

// checkNames refuses names that would meet the store's own.
func checkNames(model *projection.Model) error {
	conflict := func(column, reason string) error {
		return &TableConflict{Projection: model.Projection, Table: model.Table, Column: column, Reason: reason}
	}
	if model.Table == "" {
		return conflict("", "the name is empty")
	}
	if hasReservedPrefix(model.Table) {
		return conflict("", "names that begin with rowfold_ belong to the store: choose another one")
	}
	if strings.HasPrefix(strings.ToLower(model.Table), "sqlite_") {
		return conflict("", "names that begin with sqlite_ belong to SQLite: choose another one")
	}
	seen := map[string]bool{}
	check := func(name string) error {
		folded := strings.ToLower(name) // SQLite's names are the same in any case
		switch {
		case name == "":
			return conflict("", "a column's name is empty")
		case hasReservedPrefix(name):
			return conflict(name, "names that begin with rowfold_ belong to the store: choose another one")
		case seen[folded]:
			return conflict(name, "the name occurs twice; upper and lower case are the same")
		}
		seen[folded] = true
		return nil
	}
	for _, column := range model.Columns {
		if err := check(column.Name); err != nil {
			return err
		}
	}
	for _, column := range bookColumns(model) {
		if err := check(column.name); err != nil {
			return err
		}
	}
	return nil
}

func hasReservedPrefix(name string) bool { return strings.HasPrefix(strings.ToLower(name), reserved) }

// prepareModel brings the table of one model up to date.
func prepareModel(ctx context.Context, t *tx, model *projection.Model) error {
	encoded, err := json.Marshal(model)
	if err != nil {
		return fmt.Errorf("encode the model: %w", err)
	}
	before, err := recordedModel(ctx, t, model)
	if err != nil {
		return err
	}
	switch {
	case before == nil:
		err = createTable(ctx, t, model)
	case before.text == string(encoded):
		return nil
	default:
		err = growTable(ctx, t, before.model, model)
	}
	if err != nil {
		return err
	}
	if err := describe(ctx, t, model); err != nil {
		return err
	}
	_, err = t.exec(ctx, `INSERT INTO rowfold_models (projection, row_table, model) VALUES (?, ?, ?)
		ON CONFLICT (projection) DO UPDATE SET model = excluded.model`, model.Projection, model.Table, string(encoded))
	return err
}

type recorded struct {
	model *projection.Model
	text  string
}

// recordedModel returns what was prepared for the projection before; nil = nothing.
func recordedModel(ctx context.Context, t *tx, model *projection.Model) (*recorded, error) {
	var found []recorded
	err := t.query(ctx, `SELECT model FROM rowfold_models WHERE projection = ? OR row_table = ? COLLATE NOCASE`,
		[]any{model.Projection, model.Table}, func(rows *sql.Rows) error {
			before := recorded{model: &projection.Model{}}
			if err := rows.Scan(&before.text); err != nil {
				return err //nolint:wrapcheck // the caller names the step
			}
			found = append(found, before)
			return json.Unmarshal([]byte(before.text), before.model)
		})
	if err != nil {
		return nil, err
	}
	for _, before := range found {
		switch {
		case before.model.Projection != model.Projection:
			return nil, &TableConflict{
				Projection: model.Projection, Table: model.Table,
				Reason: fmt.Sprintf("it holds the rows of projection %s: choose another table", before.model.Projection),
			}
		case before.model.Table != model.Table:
			return nil, &TableConflict{
				Projection: model.Projection, Table: model.Table,
				Reason: fmt.Sprintf("the projection's rows are in table %q: keep that name, or give the projection a new one", before.model.Table),
			}
		}
	}
	if len(found) == 0 {
		return nil, nil //nolint:nilnil // nothing was prepared
	}
	return &found[0], nil
}

func createTable(ctx context.Context, t *tx, model *projection.Model) error {
	var kind string
	taken, err := t.one(ctx, `SELECT type FROM sqlite_schema WHERE name = ? COLLATE NOCASE`, []any{model.Table}, &kind)
	if err != nil {
		return err
	}
	if taken {
		return &TableConflict{
			Projection: model.Projection, Table: model.Table,
			Reason: fmt.Sprintf("the database has a %s of that name: choose another table", kind),
		}
	}
	columns := []string{
		columnKey + " TEXT NOT NULL PRIMARY KEY", columnTombstone + " INTEGER NOT NULL DEFAULT 0",
		columnExpiresAt + " INTEGER", columnWriteID + " TEXT NOT NULL DEFAULT ''",
		columnDefinition + " INTEGER NOT NULL DEFAULT 0", columnEmits + " INTEGER", columnEmitAbove + " TEXT",
	}
	for _, column := range bookColumns(model) {
		columns = append(columns, quote(column.name)+" "+column.sqlType)
	}
	for _, column := range model.Columns {
		columns = append(columns, quote(column.Name)+" "+sqlType(column.Kind))
	}
	name := rowTable(model)
	if err := t.script(ctx, `CREATE TABLE `+name+` (`+strings.Join(columns, ", ")+`) STRICT`); err != nil {
		return err
	}
	keys := make([]string, 0, 1)
	for _, column := range model.KeyColumns() {
		keys = append(keys, quote(column.Name))
	}
	// People look rows up by the columns of the key, not by its text.
	if err := t.script(ctx, `CREATE INDEX `+quote("rowfold_key_"+model.Table)+` ON `+name+` (`+strings.Join(keys, ", ")+`)`); err != nil {
		return err
	}
	return t.script(ctx, `CREATE INDEX `+quote("rowfold_expiry_"+model.Table)+` ON `+name+` (`+columnExpiresAt+`)
		WHERE `+columnTombstone+` = 1`)
}

// growTable adds the columns that are new, and refuses what would change the meaning of
// those that are there.
func growTable(ctx context.Context, t *tx, before, model *projection.Model) error {
	conflict := func(column, format string, args ...any) error {
		return &TableConflict{Projection: model.Projection, Table: model.Table, Column: column, Reason: fmt.Sprintf(format, args...)}
	}
	sameColumn := func(a, b projection.Column) bool { return a.Name == b.Name && a.Kind == b.Kind }
	if !slices.EqualFunc(before.KeyColumns(), model.KeyColumns(), sameColumn) {
		return conflict(model.KeyColumns()[0].Name,
			"the key has changed: its columns, their order and their kinds stay as they are; rebuild into another table")
	}
	if column, reason := movedBooks(before, model); reason != "" {
		return conflict(column, "%s", reason)
	}
	kinds := map[string]projection.Kind{}
	for _, column := range before.Columns {
		kinds[column.Name] = column.Kind
	}
	types := map[string]string{}
	err := t.query(ctx, `SELECT name, type FROM pragma_table_info(?)`, []any{"rowfold_rows_" + model.Table}, func(rows *sql.Rows) error {
		var name, declared string
		err := rows.Scan(&name, &declared)
		types[strings.ToLower(name)] = declared
		return err //nolint:wrapcheck // the caller names the step
	})
	if err != nil {
		return err
	}
	add := func(name, declared string) error {
		present, known := types[strings.ToLower(name)]
		switch {
		case !known:
			return t.script(ctx, `ALTER TABLE `+rowTable(model)+` ADD COLUMN `+quote(name)+` `+declared)
		case present != declared:
			return conflict(name, "the table has it with type %s, the row type needs %s: give the field another name, and rebuild",
				present, declared)
		}
		return nil
	}
	for _, column := range bookColumns(model) {
		if err := add(column.name, column.sqlType); err != nil {
			return err
		}
	}
	for _, column := range model.Columns {
		if kind, known := kinds[column.Name]; known && kind != column.Kind {
			return conflict(column.Name, "its kind was %s and is %s now: give the field another name, and rebuild", kind, column.Kind)
		}
		if err := add(column.Name, sqlType(column.Kind)); err != nil {
			return err
		}
	}
	return nil
}

// movedBooks finds bookkeeping that a model looks for elsewhere than the table has it. Rows
// would read as never written, and their events be folded a second time.
func movedBooks(before, model *projection.Model) (column, reason string) {
	moved := func(what, from, to string) bool {
		column, reason = to, fmt.Sprintf("%s was in column %q: keep that name, or rebuild into another table", what, from)
		return from != "" && to != "" && from != to
	}
	if moved("the revision", before.Revision, model.Revision) || moved("the checkpoint map", before.Checkpoints, model.Checkpoints) {
		return column, reason
	}
	for _, from := range before.Scalars {
		for _, to := range model.Scalars {
			switch {
			case from.Source != to.Source:
			case moved("the checkpoint of source "+from.Source, from.Version, to.Version),
				moved("the owner of the checkpoint of source "+from.Source, from.Instance, to.Instance):
				return column, reason
			case from.Offset != to.Offset:
				return to.Version, fmt.Sprintf("the offset of source %s was %d and is %d now: keep it, or rebuild into another table",
					from.Source, from.Offset, to.Offset)
			}
		}
	}
	return "", ""
}

// describe makes what depends on a model's columns: the view that readers use, which shows
// live rows with the columns of the model, and the unique indexes.
func describe(ctx context.Context, t *tx, model *projection.Model) error {
	names := make([]string, 0, len(model.Columns)+2)
	for _, column := range model.Columns {
		names = append(names, quote(column.Name))
	}
	for _, column := range bookColumns(model) {
		names = append(names, quote(column.name))
	}
	if err := t.script(ctx, `DROP VIEW IF EXISTS `+quote(model.Table)); err != nil {
		return err
	}
	if err := t.script(ctx, `CREATE VIEW `+quote(model.Table)+` AS SELECT `+strings.Join(names, ", ")+
		` FROM `+rowTable(model)+` WHERE `+columnTombstone+` = 0`); err != nil {
		return err
	}
	for _, column := range model.Columns {
		index := quote(uniqueIndex(model.Table, column.Name))
		text := `DROP INDEX IF EXISTS ` + index
		if column.Unique {
			text = `CREATE UNIQUE INDEX IF NOT EXISTS ` + index + ` ON ` + rowTable(model) + ` (` + quote(column.Name) + `)
				WHERE ` + columnTombstone + ` = 0`
		}
		switch err := t.script(ctx, text); {
		case isUnique(err):
			return &TableConflict{
				Projection: model.Projection, Table: model.Table, Column: column.Name,
				Reason: "it is to be unique, but rows have equal values there: " + err.Error(),
			}
		case err != nil:
			return err
		}
	}
	return nil
}

// uniqueIndex names the index of a unique column. The length tells where the table's name
// ends: "a" with "b_c" and "a_b" with "c" are two indexes.
func uniqueIndex(table, column string) string {
	return fmt.Sprintf("rowfold_unique_%d_%s_%s", len(table), table, column)
}
