package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rowfold/rowfold/store/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAFileOfANewerProgramIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rows.db")
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	require.NoError(t, err)
	require.NoError(t, store.Exec(t.Context(), `INSERT INTO rowfold_migrations VALUES (99, 'later', 0)`))
	require.NoError(t, store.Close())

	_, err = sqlite.Open(t.Context(), sqlite.Config{Path: path})
	newer := &sqlite.NewerSchema{}
	require.ErrorAs(t, err, &newer)
	require.Equal(t, 99, newer.Found)
}
