package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
	"github.com/rowfold/rowfold/store/sqlite"
	"github.com/rowfold/rowfold/testsuite"
)

func features() testsuite.Features {
	return testsuite.Features{
		Store: "SQLite", MaxEffects: outbox.MaxIndex, MaxRowBytes: sqlite.DefaultMaxRowBytes,
		Feed: true, SnapshotHead: true, ForeignColumns: true,
	}
}

func TestConformanceInMemory(t *testing.T) {
	t.Parallel()
	testsuite.Run(t, testsuite.Harness{Features: features(), Open: func(tb testing.TB) testsuite.Backend {
		tb.Helper()
		return backend(tb, sqlite.Config{})
	}})
}

func TestConformanceInAFile(t *testing.T) {
	t.Parallel()
	testsuite.Run(t, testsuite.Harness{Features: features(), Open: func(tb testing.TB) testsuite.Backend {
		tb.Helper()
		return backend(tb, sqlite.Config{Path: filepath.Join(tb.TempDir(), "rows.db"), Synchronous: sqlite.SynchronousNormal})
	}})
}

func open(tb testing.TB, config sqlite.Config) *sqlite.Store {
	tb.Helper()
	store, err := sqlite.Open(tb.Context(), config)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, store.Close()) })
	return store
}

func backend(tb testing.TB, config sqlite.Config) testsuite.Backend {
	tb.Helper()
	store := open(tb, config)
	return testsuite.Backend{
		Store: store, Events: store,
		Feed: func(stream string, partitions int) (event.Feed, error) { return store.Feed(stream, partitions) },
		PlantForeign: func(tb testing.TB, model *projection.Model, key string) func() bool {
			tb.Helper()
			table := "rowfold_rows_" + model.Table
			require.NoError(tb, store.Exec(tb.Context(), "ALTER TABLE "+table+" ADD COLUMN colour TEXT"))
			require.NoError(tb, store.Exec(tb.Context(), "UPDATE "+table+" SET colour = 'red' WHERE rowfold_key = ?", key))
			return func() bool {
				colours, err := store.Texts(tb.Context(), "SELECT colour FROM "+table+" WHERE rowfold_key = ? AND colour IS NOT NULL", key)
				require.NoError(tb, err)
				return len(colours) == 1 && colours[0] == "red"
			}
		},
	}
}
