package sqlite

import (
	"strings"

	"github.com/rowfold/rowfold/projection"
)

// table is a model's table of rows: its columns in the order of the statements, and the
// statements themselves. Every text is one per model, so that it is prepared once.
type table struct {
	model *projection.Model
	name  string // quoted
	books []bookColumn

	selection string // of all columns, in the order of columns()
	load      string
	list      string
	insert    string // of an absent row
	upsert    string // of a row without a revision, or an absent one
	update    string // of a row with the given revision
	replace   string // of a row, its guard having been checked
}

// bookColumn is a column of the bookkeeping.
type bookColumn struct {
	name    string
	sqlType string
}

func tableOf(model *projection.Model) *table {
	t := &table{model: model, name: rowTable(model), books: bookColumns(model)}
	names := t.columns()
	t.selection = "t." + strings.Join(names, ", t.")
	// CROSS JOIN keeps the order of the loops: the keys, and for each its row.
	t.load = `SELECT ` + t.selection + ` FROM json_each(?) AS wanted CROSS JOIN ` + t.name + ` AS t ON t.` + columnKey + ` = wanted.value`
	t.list = `SELECT ` + t.selection + ` FROM ` + t.name + ` AS t WHERE t.` + columnKey + ` > ? AND t.` + columnTombstone + ` <= ?
		ORDER BY t.` + columnKey + ` LIMIT ?`

	// The key comes first in columns(): what follows is what an update sets.
	sets := make([]string, 0, len(names)-1)
	excluded := make([]string, 0, len(names)-1)
	for _, name := range names[1:] {
		sets = append(sets, name+" = ?")
		excluded = append(excluded, name+" = excluded."+name)
	}
	into := `INSERT INTO ` + t.name + ` AS t (` + strings.Join(names, ", ") + `) VALUES (?` + strings.Repeat(", ?", len(names)-1) + `)
		ON CONFLICT (` + columnKey + `) DO `
	set := `UPDATE ` + t.name + ` SET ` + strings.Join(sets, ", ") + ` WHERE ` + columnKey + ` = ?`
	t.insert = into + `NOTHING`
	t.replace = set
	if model.Revision != "" {
		revision := quote(model.Revision)
		t.upsert = into + `UPDATE SET ` + strings.Join(excluded, ", ") + ` WHERE t.` + revision + ` IS NULL`
		t.update = set + ` AND ` + revision + ` = ?`
	}
	return t
}

// columns returns the quoted names of all columns that the store reads and writes: the key,
// the store's own, those of the bookkeeping, those of the user.
func (t *table) columns() []string {
	names := make([]string, 0, 7+len(t.books)+len(t.model.Columns))
	names = append(names, columnKey, columnTombstone, columnExpiresAt, columnWriteID, columnDefinition, columnEmits, columnEmitAbove)
	for _, column := range t.books {
		names = append(names, quote(column.name))
	}
	for _, column := range t.model.Columns {
		names = append(names, quote(column.Name))
	}
	return names
}

// bookColumns returns the declared columns of the bookkeeping: revision, checkpoints,
// and two for each scalar.
func bookColumns(model *projection.Model) []bookColumn {
	var columns []bookColumn
	if model.Revision != "" {
		columns = append(columns, bookColumn{model.Revision, "INTEGER"})
	}
	if model.Checkpoints != "" {
		columns = append(columns, bookColumn{model.Checkpoints, "TEXT"})
	}
	for _, scalar := range model.Scalars {
		columns = append(columns, bookColumn{scalar.Version, "INTEGER"}, bookColumn{scalar.Instance, "TEXT"})
	}
	return columns
}

// args returns the values of columns(), without the key if it is not asked for.
func (t *table) args(write *projection.Write, withKey bool) []any {
	args := make([]any, 0, 9+len(t.books)+len(t.model.Columns))
	if withKey {
		args = append(args, write.Key)
	}
	books := &write.Books
	var emits any
	if books.Emits != nil {
		emits = *books.Emits
	}
	args = append(args, write.Tombstone, microseconds(write.ExpiresAt), write.ID, books.Definition, emits, encodeMap(books.EmitAbove))
	if t.model.Revision != "" {
		args = append(args, orNull(books.Revision))
	}
	if t.model.Checkpoints != "" {
		args = append(args, encodeMap(books.Checkpoints))
	}
	for _, scalar := range t.model.Scalars {
		checkpoint := books.Scalars[scalar.Source]
		args = append(args, orNull(checkpoint.Stored), unsetIfEmpty(checkpoint.Owner))
	}
	for i := range t.model.Columns {
		if i < len(write.Values) {
			args = append(args, toColumn(write.Values[i]))
		} else {
			args = append(args, nil)
		}
	}
	return args
}

func orNull(number *int64) any {
	if number == nil {
		return nil
	}
	return *number
}
