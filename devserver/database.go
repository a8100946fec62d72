package devserver

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/metrics"
	"go.temporal.io/server/common/persistence/sql"
	"go.temporal.io/server/common/persistence/sql/sqlplugin"
	"go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	"go.temporal.io/server/common/resolver"
	schema "go.temporal.io/server/schema/sqlite"
	"google.golang.org/protobuf/types/known/durationpb"
)

// clusterName is the name of the only cluster. It is stored in the database, so it stays as it is.
const clusterName = "active"

// Names of the search attributes that rowfold's workflows set, all of type Keyword.
const (
	// AttributeProjection is the projection on which a workflow works.
	AttributeProjection = "RowfoldProjection"
	// AttributeRow is the key of the row on which a workflow works.
	AttributeRow = "RowfoldRow"
	// AttributeState is the state of a workflow that should be seen without a worker, for example "parked".
	AttributeState = "RowfoldState"
)

// SearchAttributes returns the search attributes that every namespace of a [Server] has, and their types.
func SearchAttributes() map[string]enumspb.IndexedValueType {
	return map[string]enumspb.IndexedValueType{
		AttributeProjection: enumspb.INDEXED_VALUE_TYPE_KEYWORD,
		AttributeRow:        enumspb.INDEXED_VALUE_TYPE_KEYWORD,
		AttributeState:      enumspb.INDEXED_VALUE_TYPE_KEYWORD,
	}
}

// attributeColumns says in which column of the visibility table each attribute lives. Temporal's own helper deals the
// columns out at random; fixed ones let unusedIndexes keep exactly the indexes that queries by our attributes need.
func attributeColumns() map[string]string {
	return map[string]string{
		"Keyword01": AttributeProjection,
		"Keyword02": AttributeRow,
		"Keyword03": AttributeState,
	}
}

// sqlConfig describes the database to Temporal's SQLite plugin.
func sqlConfig(path string) *config.SQL {
	if path == "" {
		return &config.SQL{
			PluginName: sqlite.PluginName,
			// The name tells the databases of one process apart.
			DatabaseName:      "rowfold-" + uuid.NewString(),
			ConnectAttributes: map[string]string{"mode": "memory", "cache": "shared"},
			MaxConns:          1,
			MaxIdleConns:      1,
		}
	}

	return &config.SQL{
		PluginName:   sqlite.PluginName,
		DatabaseName: escapeURIPath(path),
		ConnectAttributes: map[string]string{
			"mode":         "rwc",
			"journal_mode": "wal",
			// With a write-ahead log, normal loses nothing when the process is killed, only the last transactions when
			// the machine loses its power.
			"synchronous": "normal",
			// One server per file: a second one would fight with the first for the history shard.
			"locking_mode": "exclusive",
		},
		MaxConns:     1,
		MaxIdleConns: 1,
	}
}

// escapeURIPath escapes the characters of a path that mean something in an SQLite URI, into which the plugin puts it
// as it is.
func escapeURIPath(path string) string {
	return strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(path)
}

// prepareDatabase creates the schema in an empty database, drops the indexes that only cost, and creates the namespaces
// that the database does not have. Namespaces that are created here are usable as soon as the server is up, while those
// created by a call wait for the server's caches and per-namespace workers.
func prepareDatabase(cfg Config, store *config.SQL) error {
	db, err := openDatabase(store)
	if err != nil {
		return err
	}

	if err := errors.Join(prepareSchema(db), db.Close()); err != nil {
		return err
	}

	namespaces := make([]*schema.NamespaceConfig, 0, len(cfg.Namespaces))

	for _, name := range cfg.Namespaces {
		namespace, err := namespaceConfig(name, cfg.Retention)
		if err != nil {
			return err
		}

		namespaces = append(namespaces, namespace)
	}

	if err := schema.CreateNamespaces(store, namespaces...); err != nil {
		return fmt.Errorf("create namespaces: %w", err)
	}

	return nil
}

// openDatabase opens the database as Temporal does, and gets the connection that Temporal has or will have.
func openDatabase(store *config.SQL) (sqlplugin.AdminDB, error) {
	db, err := sql.NewSQLAdminDB(
		sqlplugin.DbKindUnknown, store, resolver.NewNoopResolver(), log.NewNoopLogger(), metrics.NoopMetricsHandler)
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}

	return db, nil
}

// checkpoint moves what is in the write-ahead log to the database file, so that the file is complete without its log
// after an orderly stop. The plugin never closes its connection, which would do the same.
func checkpoint(store *config.SQL) error {
	if store.ConnectAttributes["journal_mode"] != "wal" {
		return nil
	}

	db, err := openDatabase(store)
	if err != nil {
		return err
	}

	if err := errors.Join(db.Exec("PRAGMA wal_checkpoint(TRUNCATE)"), db.Close()); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}

	return nil
}

// prepareSchema works in one transaction, so that a process that is killed meanwhile leaves an empty database rather than
// half a schema that no later start could tell from a whole one. The plugin's single connection makes that possible
// although its interface knows no transactions here.
func prepareSchema(db sqlplugin.AdminDB) (err error) {
	if err := db.Exec("BEGIN IMMEDIATE"); err != nil {
		return fmt.Errorf("lock (is another process using the database?): %w", err)
	}

	defer func() {
		if err != nil {
			err = errors.Join(err, db.Exec("ROLLBACK"))
		}
	}()

	tables, err := db.ListTables("")
	if err != nil {
		return fmt.Errorf("list tables: %w", err)
	}

	if len(tables) == 0 {
		if err := schema.SetupSchemaOnDB(db); err != nil {
			return fmt.Errorf("create schema: %w", err)
		}
	}

	for _, index := range unusedIndexes() {
		if err := db.Exec("DROP INDEX IF EXISTS " + index); err != nil {
			return fmt.Errorf("drop index %s: %w", index, err)
		}
	}

	if err := db.Exec("COMMIT"); err != nil {
		return fmt.Errorf("commit schema: %w", err)
	}

	return nil
}

func namespaceConfig(name string, retention time.Duration) (*schema.NamespaceConfig, error) {
	namespace, err := schema.NewNamespaceConfig(clusterName, name, false, SearchAttributes())
	if err != nil {
		return nil, fmt.Errorf("configure namespace %q: %w", name, err)
	}

	namespace.Detail.Config.Retention = durationpb.New(retention)
	namespace.Detail.Config.CustomSearchAttributeAliases = maps.Clone(attributeColumns())

	return namespace, nil
}

// unusedIndexes lists the indexes of the visibility table that a development server does without. Every start, upsert and
// close of a workflow writes all indexes of its row, in the one connection that everything else waits for; without these
// the server does 1.7 to 2 times the work. What stays are the order of lists, the workflow id, the status, the division
// (which schedules, deployments and standalone activities are listed by), and the columns of our attributes. Queries by
// other attributes still work; they scan.
func unusedIndexes() []string {
	indexes := []string{
		"by_execution_time", "by_workflow_type", "by_history_length", "by_history_size_bytes", "by_execution_duration",
		"by_state_transition_count", "by_task_queue", "by_parent_workflow_id", "by_parent_run_id", "by_root_workflow_id",
		"by_root_run_id", "by_batcher_user", "by_temporal_scheduled_start_time", "by_temporal_scheduled_by_id",
		"by_temporal_schedule_paused", "by_temporal_pause_info", "by_temporal_worker_deployment_version",
		"by_temporal_workflow_versioning_behavior", "by_temporal_worker_deployment",
		"by_temporal_low_cardinality_keyword_01",
	}

	// Numbered columns: kind, first and last number without a use.
	numbered := []struct {
		kind        string
		first, last int
	}{
		{"bool", 1, 3},
		{"datetime", 1, 3},
		{"double", 1, 3},
		{"int", 1, 3},
		{"keyword", len(attributeColumns()) + 1, 10},
		{"temporal_bool", 1, 2},
		{"temporal_datetime", 1, 2},
		{"temporal_double", 1, 2},
		{"temporal_int", 1, 2},
		{"temporal_keyword", 1, 4},
	}
	for _, n := range numbered {
		for i := n.first; i <= n.last; i++ {
			indexes = append(indexes, fmt.Sprintf("by_%s_%02d", n.kind, i))
		}
	}

	return slices.Clip(indexes)
}
