package sqlite_test

import (
	"database/sql"
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
	"github.com/rowfold/rowfold/store/sqlite"
)

var noon = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

// deskModel has a revision, a map, a scalar, a unique column and an outbox.
func deskModel() *projection.Model {
	return &projection.Model{
		Projection: "Desk", Table: "desk",
		Columns: []projection.Column{
			{Name: "code", Kind: projection.KindText, Key: true},
			{Name: "phone", Kind: projection.KindText, Nullable: true, Unique: true},
			{Name: "total", Kind: projection.KindInt},
		},
		Checkpoints: "checkpoints", Revision: "revision",
		Scalars:   []projection.ScalarColumns{{Source: "survey", Version: "survey_version", Instance: "survey_id", Offset: 10}},
		HasOutbox: true, HasRemoval: true, TombstoneTTL: time.Hour,
	}
}

// deskWrite is the first write of a desk, with effects; an empty phone is none.
func deskWrite(code, phone string, effects ...string) projection.Write {
	return deskWriteOver(projection.Stored{Key: code, Status: projection.RowAbsent}, phone, effects...)
}

// deskWriteOver is the write that follows a desk as read.
func deskWriteOver(read projection.Stored, phone string, effects ...string) projection.Write {
	books := read.Books.Clone()
	revision := int64(1)
	if books.Revision != nil {
		revision = *books.Revision + 1
	}
	books.Revision = new(revision)
	books.Checkpoints = map[string]int64{"day#d-1": revision}
	write := projection.Write{
		Key: read.Key, Guard: read.Books, GuardStatus: read.Status, Values: []any{read.Key, any(phone), revision}, Books: books,
		ID: outbox.NewNonce(),
	}
	if phone == "" {
		write.Values[1] = nil
	}
	row := outbox.Row{Projection: "Desk", Key: read.Key}
	for index, effect := range effects {
		payload, err := json.Marshal(effect)
		if err != nil {
			panic(err) // a string always encodes
		}
		write.Effects = append(write.Effects, outbox.Item{
			Row: row, Sequence: outbox.SequenceOf(revision, index), ID: outbox.EffectID(row, "day", "d-1", revision, index),
			Source: "day", Stream: "Day", StreamID: "d-1", Version: revision, Index: index,
			Type: "Notice", SchemaVersion: 1, Payload: payload, EnqueuedAt: noon,
		})
	}
	return write
}

func tombstoneOver(read projection.Stored) projection.Write {
	write := deskWriteOver(read, "")
	write.Tombstone, write.Values = true, []any{read.Key, nil, nil}
	return write
}

// desks returns an open store with the tables of deskModel.
func desks(tb testing.TB, config sqlite.Config) (*sqlite.Store, *projection.Model) {
	tb.Helper()
	store, model := open(tb, config), deskModel()
	require.NoError(tb, store.Prepare(tb.Context(), model))
	return store, model
}

func inFile(tb testing.TB) sqlite.Config {
	tb.Helper()
	return sqlite.Config{
		Path: filepath.Join(tb.TempDir(), "rows.db"), Synchronous: sqlite.SynchronousNormal, BusyTimeout: time.Millisecond,
	}
}

func load(tb testing.TB, store *sqlite.Store, model *projection.Model, key string) projection.Stored {
	tb.Helper()
	rows, err := store.Load(tb.Context(), model, []string{key})
	require.NoError(tb, err)
	require.Len(tb, rows, 1)
	return rows[0]
}

func committed(tb testing.TB, store *sqlite.Store, model *projection.Model, writes ...projection.Write) {
	tb.Helper()
	for _, err := range store.Commit(tb.Context(), model, writes) {
		require.NoError(tb, err)
	}
}

func run(tb testing.TB, store *sqlite.Store, text string, args ...any) {
	tb.Helper()
	require.NoError(tb, store.Exec(tb.Context(), text, args...))
}

func texts(tb testing.TB, store *sqlite.Store, text string, args ...any) []string {
	tb.Helper()
	found, err := store.Texts(tb.Context(), text, args...)
	require.NoError(tb, err)
	return found
}

// keys returns what the database holds: the keys of all rows, and of all effects.
func keys(tb testing.TB, store *sqlite.Store) (rows, effects []string) {
	tb.Helper()
	return texts(tb, store, `SELECT rowfold_key FROM rowfold_rows_desk ORDER BY 1`),
		texts(tb, store, `SELECT row_key || ' ' || json_extract(CAST(payload AS TEXT), '$') FROM rowfold_outbox ORDER BY row_key, sequence`)
}

// lock holds the write lock of a database as another process, until it is released.
func lock(tb testing.TB, path string) (release func()) {
	tb.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, db.Close()) })
	db.SetMaxOpenConns(1)
	_, err = db.ExecContext(tb.Context(), `BEGIN IMMEDIATE`)
	require.NoError(tb, err)
	return func() {
		_, err := db.ExecContext(tb.Context(), `ROLLBACK`)
		require.NoError(tb, err)
	}
}
