package sqlite

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAFileOfANewerProgramIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rows.db")
	store, err := Open(t.Context(), Config{Path: path})
	require.NoError(t, err)
	require.NoError(t, store.write(t.Context(), "pretend", func(t2 *tx) error {
		_, err := t2.exec(t.Context(), `INSERT INTO rowfold_migrations VALUES (99, 'later', 0)`)
		return err
	}))
	require.NoError(t, store.Close())

	_, err = Open(t.Context(), Config{Path: path})
	newer := &NewerSchema{}
	require.ErrorAs(t, err, &newer)
	require.Equal(t, 99, newer.Found)
}
