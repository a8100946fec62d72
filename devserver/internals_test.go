package devserver //nolint:testpackage // what Temporal makes of our settings and our schema has no exported face

import (
	"bytes"
	stdsql "database/sql"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/server/common/dynamicconfig"
	temporallog "go.temporal.io/server/common/log"
	"go.temporal.io/server/common/log/tag"
	"go.uber.org/goleak"
)

// Temporal falls back to its default, without a word, when a value has the wrong type.
func TestDynamicSettings_areUnderstood(t *testing.T) {
	t.Parallel()

	settings, err := dynamicSettings(map[string]any{"limit.maxIDLength": 500, "history.rps": 100.0})
	require.NoError(t, err)

	collection := dynamicconfig.NewCollection(settings, temporallog.NewNoopLogger())

	require.Equal(t, 1000, dynamicconfig.TransferProcessorMaxPollRPS.Get(collection)())
	require.Equal(t, 1000, dynamicconfig.TimerProcessorMaxPollRPS.Get(collection)())
	require.Equal(t, 1, dynamicconfig.MatchingNumTaskqueueReadPartitions.Get(collection)("ns", "queue", 1))
	require.Equal(t, 1, dynamicconfig.MatchingNumTaskqueueWritePartitions.Get(collection)("ns", "queue", 1))
	require.Equal(t, 500, dynamicconfig.MaxIDLengthLimit.Get(collection)())
	require.Equal(t, 100, dynamicconfig.HistoryRPS.Get(collection)())
	require.False(t, dynamicconfig.EnableServerVersionCheck.Get(collection)())
}

func TestPrepareDatabase_keepsTheIndexesThatAreUsed(t *testing.T) {
	t.Parallel()

	store := sqlConfig("")
	cfg := Config{}.withDefaults()

	require.NoError(t, prepareDatabase(cfg, store))
	require.NoError(t, prepareDatabase(cfg, store), "a second time, as on a restart")

	db, err := stdsql.Open("sqlite", "file:"+store.DatabaseName+"?mode=memory&cache=shared")
	require.NoError(t, err)

	defer func() { require.NoError(t, db.Close()) }()

	rows, err := db.QueryContext(t.Context(),
		"SELECT name FROM sqlite_master WHERE type = 'index' AND tbl_name = 'executions_visibility' AND sql IS NOT NULL")
	require.NoError(t, err)

	defer func() { require.NoError(t, rows.Close()) }()

	var names []string

	for rows.Next() {
		var name string

		require.NoError(t, rows.Scan(&name))
		names = append(names, name)
	}

	require.NoError(t, rows.Err())
	require.ElementsMatch(t, []string{
		"default_idx", "by_workflow_id", "by_status", "by_temporal_namespace_division",
		"by_keyword_01", "by_keyword_02", "by_keyword_03",
	}, names)
}

//nolint:paralleltest // it looks for leaked goroutines, those of others among them
func TestReservePort(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())

	port, err := reservePort(t.Context(), "127.0.0.1", 0)
	require.NoError(t, err)

	again, err := reservePort(t.Context(), "127.0.0.1", port)
	require.NoError(t, err, "the port is kept from others, not from us")
	require.Equal(t, port, again)

	port, err = reservePort(t.Context(), "0.0.0.0", 0)
	require.NoError(t, err)
	require.NotZero(t, port)
}

func TestLogger(t *testing.T) {
	t.Parallel()

	var out bytes.Buffer

	l := newLogger(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}

			return a
		},
	})))
	scoped := l.With(tag.NewStringTag("shard", "1"))

	scoped.Debug("debug")
	scoped.Info("info")
	scoped.Warn("slow", tag.NewInt("ms", 7))
	l.stopping.Store(true)
	scoped.Warn("gone")
	scoped.Error("broken")
	require.PanicsWithValue(t, "impossible ms=7", func() { l.Panic("impossible", tag.NewInt("ms", 7)) })

	require.Equal(t, `level=WARN msg=slow component=temporal shard=1 ms=7
level=ERROR msg=broken component=temporal shard=1
level=ERROR msg=impossible component=temporal ms=7
`, out.String())
}

func TestConfig_dialAddress(t *testing.T) {
	t.Parallel()

	for address, want := range map[string]string{
		"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1", "::1": "::1", "10.0.0.7": "10.0.0.7",
	} {
		require.Equal(t, want, Config{Address: address}.withDefaults().dialAddress(), address)
	}
}
