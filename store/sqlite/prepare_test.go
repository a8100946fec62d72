package sqlite_test

import (
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
	"github.com/rowfold/rowfold/store/sqlite"
)

// With the columns of a model people can work: times, JSON and truths are what SQLite's own
// functions take.
func TestAViewShowsLiveRowsByTheirColumns(t *testing.T) {
	t.Parallel()
	store := open(t, sqlite.Config{})
	model := &projection.Model{
		Projection: "Visits", Table: "visits",
		Columns: []projection.Column{
			{Name: "name", Kind: projection.KindText, Key: true},
			{Name: "number", Kind: projection.KindInt, Key: true},
			{Name: "share", Kind: projection.KindFloat},
			{Name: "open", Kind: projection.KindBool},
			{Name: "seen", Kind: projection.KindTime},
			{Name: "mark", Kind: projection.KindBytes},
			{Name: "extra", Kind: projection.KindJSON},
			{Name: "order by", Kind: projection.KindText, Nullable: true},
		},
		Checkpoints: "checkpoints", Revision: "revision",
		Scalars: []projection.ScalarColumns{{Source: "survey", Version: "survey_version", Instance: "survey_id"}},
	}
	require.NoError(t, store.Prepare(t.Context(), model))
	write := func(name string, at time.Time) projection.Write {
		values := []any{name, int64(7), 2.0, true, at, []byte("ab"), json.RawMessage(`{"gate":"A12"}`), nil}
		return projection.Write{
			Key: name + "#7", GuardStatus: projection.RowAbsent, Values: values, ID: outbox.NewNonce(),
			Books: projection.Bookkeeping{
				Revision: new(int64(1)), Checkpoints: map[string]int64{"day#d-1": 3},
				Scalars: map[string]projection.ScalarCheckpoint{"survey": {Stored: new(int64(4)), Owner: "s-1"}},
			},
		}
	}
	committed(t, store, model, write("ZRH", noon.Add(1500*time.Millisecond).In(time.FixedZone("CET", 3600))), write("GVA", noon), write("gone", noon))
	gone := load(t, store, model, "gone#7")
	books := gone.Books.Clone()
	books.Revision = new(int64(2))
	committed(t, store, model, projection.Write{
		Key: gone.Key, Guard: gone.Books, GuardStatus: gone.Status, Tombstone: true,
		Values: []any{"gone", int64(7), nil, nil, nil, nil, nil, nil}, Books: books, ID: outbox.NewNonce(),
	})

	require.Equal(t, []string{"GVA", "ZRH"}, texts(t, store, `SELECT name FROM visits WHERE number = 7 AND open ORDER BY seen`))
	require.Equal(t, []string{"2026-03-14T12:00:01.500000Z"}, texts(t, store, `SELECT seen FROM visits WHERE name = 'ZRH'`))
	require.Equal(t, []string{"14.03.2026 12:00"}, texts(t, store, `SELECT strftime('%d.%m.%Y %H:%M', seen) FROM visits WHERE name = 'ZRH'`))
	require.Equal(t, []string{"A12"}, texts(t, store, `SELECT extra ->> 'gate' FROM visits WHERE name = 'ZRH'`))
	require.Equal(t, []string{"3"}, texts(t, store, `SELECT checkpoints -> '$."day#d-1"' FROM visits WHERE name = 'ZRH'`))
	require.Equal(t, []string{"text integer real integer/text blob text null/integer integer text"}, texts(t, store,
		`SELECT concat_ws('/', concat_ws(' ', typeof(name), typeof(number), typeof(share), typeof(open)),
			concat_ws(' ', typeof(seen), typeof(mark), typeof(extra), typeof("order by")),
			concat_ws(' ', typeof(revision), typeof(survey_version), typeof(survey_id))) FROM visits WHERE name = 'ZRH'`))
	require.Equal(t, []string{
		"name", "number", "share", "open", "seen", "mark", "extra", "order by", "revision", "checkpoints", "survey_version", "survey_id",
	}, texts(t, store, `SELECT name FROM pragma_table_info('visits')`), "and none of the store's own")
}

func TestANewFieldGetsItsColumn(t *testing.T) {
	t.Parallel()
	store := open(t, sqlite.Config{})
	before := deskModel()
	before.Scalars, before.Columns = nil, before.Columns[:2]
	require.NoError(t, store.Prepare(t.Context(), before))
	short := deskWrite("A", "1")
	short.Values = short.Values[:2]
	committed(t, store, before, short)
	run(t, store, `ALTER TABLE rowfold_rows_desk ADD COLUMN note TEXT`) // somebody's own, and a field later
	run(t, store, `UPDATE rowfold_rows_desk SET note = 'by hand'`)

	after := deskModel()
	after.Columns = append(after.Columns,
		projection.Column{Name: "note", Kind: projection.KindText, Nullable: true},
		projection.Column{Name: "email", Kind: projection.KindText, Nullable: true, Unique: true})
	require.NoError(t, store.Prepare(t.Context(), after))
	stored := load(t, store, after, "A")
	require.Equal(t, []any{"A", "1", nil, "by hand", nil}, stored.Values)
	require.Equal(t, short.Books, stored.Books)
	write := deskWriteOver(stored, "1")
	write.Values = []any{"A", "1", int64(5), nil, "a@example.org"}
	write.Books.Scalars = map[string]projection.ScalarCheckpoint{"survey": {Stored: new(int64(11)), Owner: "s-1"}}
	committed(t, store, after, write)
	require.Equal(t, []string{"s-1"}, texts(t, store, `SELECT email, survey_id FROM desk`))
	other := deskWrite("B", "2")
	other.Values = []any{"B", "2", int64(5), nil, "a@example.org"}
	violation := &sqlite.UniqueViolation{}
	require.ErrorAs(t, store.Commit(t.Context(), after, []projection.Write{other})[0], &violation)

	// A program of before goes on beside it, and takes nothing away.
	short = deskWriteOver(load(t, store, before, "A"), "3")
	short.Values = short.Values[:2]
	committed(t, store, before, short)
	require.Equal(t, []any{"A", "3", int64(5), nil, "a@example.org"}, load(t, store, after, "A").Values)
	require.NoError(t, store.Prepare(t.Context(), before))
	require.Equal(t, []any{"A", "3", int64(5), nil, "a@example.org"}, load(t, store, after, "A").Values)
}

// What a model must not change, and what is in the way of one. Nothing is changed then.
func TestPrepareRefusesWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(m *projection.Model)
		sql    string // of somebody else, before
		column string
		says   string
	}{
		"a kind": {
			change: func(m *projection.Model) { m.Columns[2].Kind = projection.KindText }, column: "total",
			says: "its kind was int and is text now",
		},
		"a kind of the same type": {
			change: func(m *projection.Model) { m.Columns[1].Kind = projection.KindTime }, column: "phone",
			says: "give the field another name",
		},
		"a column more in the key": {
			change: func(m *projection.Model) { m.Columns[2].Key = true }, column: "code", says: "rebuild into another table",
		},
		"another key": {
			change: func(m *projection.Model) { m.Columns[0].Key, m.Columns[2].Key = false, true }, column: "total",
			says: "the key has changed",
		},
		"another revision": {
			change: func(m *projection.Model) { m.Revision = "rev" }, column: "rev", says: `the revision was in column "revision"`,
		},
		"other checkpoints": {
			change: func(m *projection.Model) { m.Checkpoints = "seen" }, column: "seen", says: `the checkpoint map was in column "checkpoints"`,
		},
		"another scalar": {
			change: func(m *projection.Model) { m.Scalars[0].Version = "v" }, column: "v", says: `was in column "survey_version"`,
		},
		"another owner": {
			change: func(m *projection.Model) { m.Scalars[0].Instance = "i" }, column: "i", says: `was in column "survey_id"`,
		},
		"another offset": {
			change: func(m *projection.Model) { m.Scalars[0].Offset = 11 }, column: "survey_version",
			says: "the offset of source survey was 10 and is 11 now",
		},
		"another table": {
			change: func(m *projection.Model) { m.Table = "desks" }, says: `the projection's rows are in table "desk"`,
		},
		"the table of another projection": {
			change: func(m *projection.Model) { m.Projection = "Desks" }, says: "it holds the rows of projection Desk",
		},
		"the table of another projection in capitals": {
			change: func(m *projection.Model) { m.Projection, m.Table = "Desks", "DESK" }, says: "it holds the rows of projection Desk",
		},
		"somebody's table": {
			change: func(m *projection.Model) { m.Projection, m.Table = "Desks", "Mine" }, sql: `CREATE TABLE mine (a)`,
			says: "the database has a table of that name: choose another table",
		},
		"somebody's column": {
			change: func(m *projection.Model) {
				m.Columns = append(m.Columns, projection.Column{Name: "note", Kind: projection.KindText})
			},
			sql: `ALTER TABLE rowfold_rows_desk ADD COLUMN note INTEGER`, column: "note", says: "the table has it with type INTEGER",
		},
		"equal values in a unique column": {
			change: func(m *projection.Model) { m.Columns[2].Unique = true }, column: "total", says: "rows have equal values there",
		},
		"no name":                    {change: func(m *projection.Model) { m.Table = "" }, says: "the name is empty"},
		"a reserved name":            {change: func(m *projection.Model) { m.Table = "Rowfold_x" }, says: "belong to the store"},
		"a name of SQLite":           {change: func(m *projection.Model) { m.Table = "sqlite_x" }, says: "belong to SQLite"},
		"a reserved column":          {change: func(m *projection.Model) { m.Columns[1].Name = "ROWFOLD_key" }, column: "ROWFOLD_key", says: "belong to the store"},
		"a reserved revision":        {change: func(m *projection.Model) { m.Revision = "rowfold_emits" }, column: "rowfold_emits", says: "belong to the store"},
		"a column without a name":    {change: func(m *projection.Model) { m.Columns[1].Name = "" }, says: "a column's name is empty"},
		"a column twice":             {change: func(m *projection.Model) { m.Columns[1].Name = "CODE" }, column: "CODE", says: "upper and lower case are the same"},
		"a column of both, in books": {change: func(m *projection.Model) { m.Checkpoints = "Total" }, column: "Total", says: "the name occurs twice"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, model := desks(t, sqlite.Config{})
			committed(t, store, model, deskWrite("A", "1"), deskWrite("B", "2"))
			if test.sql != "" {
				run(t, store, test.sql)
			}
			const everything = `SELECT group_concat(name || coalesce(sql, '') || (SELECT group_concat(model) FROM rowfold_models)) FROM sqlite_schema`
			before := texts(t, store, everything)
			changed := deskModel()
			test.change(changed)
			other := deskModel()
			other.Projection, other.Table = "Other", "other"

			err := store.Prepare(t.Context(), other, changed)
			conflict := &sqlite.TableConflict{}
			require.ErrorAs(t, err, &conflict)
			require.Equal(t, changed.Projection, conflict.Projection)
			require.Equal(t, changed.Table, conflict.Table)
			require.Equal(t, test.column, conflict.Column)
			require.ErrorContains(t, err, test.says)
			require.Equal(t, event.ClassPermanent, event.Classify(err))
			require.Equal(t, before, texts(t, store, everything), "nothing was changed")
			require.NoError(t, store.Prepare(t.Context(), model))
		})
	}
}

func TestAColumnBecomesUniqueAndIsNoLonger(t *testing.T) {
	t.Parallel()
	store, model := desks(t, sqlite.Config{})
	committed(t, store, model, deskWrite("A", "1"))
	common := deskModel()
	common.Columns[1].Unique = false
	require.NoError(t, store.Prepare(t.Context(), common))
	committed(t, store, common, deskWrite("B", "1"))
	conflict := &sqlite.TableConflict{}
	require.ErrorAs(t, store.Prepare(t.Context(), model), &conflict)
	committed(t, store, common, tombstoneOver(load(t, store, common, "A")))
	require.NoError(t, store.Prepare(t.Context(), model))
	violation := &sqlite.UniqueViolation{}
	require.ErrorAs(t, store.Commit(t.Context(), model, []projection.Write{deskWrite("C", "1")})[0], &violation)
}

// Names that run together are two tables with two indexes all the same.
func TestTablesWithSimilarNamesStayApart(t *testing.T) {
	t.Parallel()
	store := open(t, sqlite.Config{})
	named := func(table, column string, unique bool) *projection.Model {
		model := deskModel()
		model.Projection, model.Table = table, table
		model.Columns[1] = projection.Column{Name: column, Kind: projection.KindText, Nullable: true, Unique: unique}
		return model
	}
	one, two, common := named("a", "b_c", true), named("a_b", "c", true), named("a_b_c", "", false)
	common.Columns = slices.Delete(common.Columns, 1, 2)
	require.NoError(t, store.Prepare(t.Context(), one, two, common))
	for _, model := range []*projection.Model{one, two} {
		committed(t, store, model, deskWrite("A", "1"))
		violation := &sqlite.UniqueViolation{}
		require.ErrorAs(t, store.Commit(t.Context(), model, []projection.Write{deskWrite("B", "1")})[0], &violation, model.Table)
	}
	require.NoError(t, store.Prepare(t.Context(), named("a", "b_c", false)))
	violation := &sqlite.UniqueViolation{}
	require.ErrorAs(t, store.Commit(t.Context(), two, []projection.Write{deskWrite("B", "1")})[0], &violation)
}

func TestSeveralProcessesPrepareAtOnce(t *testing.T) {
	t.Parallel()
	config := inFile(t)
	config.BusyTimeout = sqlite.DefaultBusyTimeout
	larger := deskModel()
	larger.Columns = append(larger.Columns, projection.Column{Name: "email", Kind: projection.KindText, Nullable: true})
	stores := make([]*sqlite.Store, 6)
	errs := make([]error, len(stores))
	var group sync.WaitGroup
	for i := range stores {
		group.Go(func() {
			if stores[i], errs[i] = sqlite.Open(t.Context(), config); errs[i] == nil {
				errs[i] = stores[i].Prepare(t.Context(), []*projection.Model{deskModel(), larger}[i%2])
			}
		})
	}
	group.Wait()
	for i, store := range stores {
		require.NoError(t, errs[i])
		t.Cleanup(func() { require.NoError(t, store.Close()) })
	}
	write := deskWrite("A", "1")
	write.Values = append(write.Values, "a@example.org")
	committed(t, stores[0], larger, write)
	require.Equal(t, write.Values, load(t, stores[1], larger, "A").Values)
}

// A drain knows a projection by its name: the model is the one that another process prepared.
func TestAnotherProcessFindsTheTableOfAProjection(t *testing.T) {
	t.Parallel()
	config := inFile(t)
	one, model := desks(t, config)
	committed(t, one, model, deskWrite("A", "1", "a"))
	two := open(t, config)
	head, err := two.Head(t.Context(), outbox.Row{Projection: "Desk", Key: "A"}, 10)
	require.NoError(t, err)
	require.Equal(t, int64(1), head.Revision)
	require.Len(t, head.Items, 1)

	unprepared := &sqlite.UnpreparedProjection{}
	_, err = two.Head(t.Context(), outbox.Row{Projection: "Chair", Key: "A"}, 10)
	require.ErrorAs(t, err, &unprepared)
	require.Equal(t, "Chair", unprepared.Projection)
	require.Equal(t, event.ClassPermanent, event.Classify(err))
}
