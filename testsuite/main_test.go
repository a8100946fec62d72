package testsuite_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rowfold/rowfold/store/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// openStore returns a real store in memory.
func openStore(tb testing.TB) *sqlite.Store {
	tb.Helper()
	store, err := sqlite.Open(tb.Context(), sqlite.Config{})
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, store.Close()) })
	return store
}
