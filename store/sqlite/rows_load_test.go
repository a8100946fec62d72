package sqlite_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/projection"
	"github.com/rowfold/rowfold/store/sqlite"
)

// What somebody wrote into a row by hand and no program can read names the row and the column.
func TestABrokenRowIsNamed(t *testing.T) {
	t.Parallel()
	for column, sql := range map[string]string{
		"checkpoints":        `UPDATE rowfold_rows_desk SET checkpoints = '{"day#d-1": "three"}'`,
		"rowfold_emit_above": `UPDATE rowfold_rows_desk SET rowfold_emit_above = '[]'`,
		"seen":               `UPDATE rowfold_rows_desk SET seen = 'yesterday'`,
	} {
		t.Run(column, func(t *testing.T) {
			t.Parallel()
			store, model := open(t, sqlite.Config{}), deskModel()
			model.Columns = append(model.Columns, projection.Column{Name: "seen", Kind: projection.KindTime})
			require.NoError(t, store.Prepare(t.Context(), model))
			write := deskWrite("A", "1")
			write.Values = append(write.Values, noon)
			committed(t, store, model, write)
			require.Equal(t, write.Values, load(t, store, model, "A").Values)
			run(t, store, sql)
			_, err := store.Load(t.Context(), model, []string{"A"})
			require.ErrorContains(t, err, fmt.Sprintf(`row "A" of projection Desk, column %q`, column))
			require.Equal(t, event.ClassPermanent, event.Classify(err))
			_, err = store.Rows(t.Context(), model, projection.RowPage{Limit: 1})
			require.ErrorContains(t, err, column)
		})
	}
}

func TestAReaderOfAFileWaitsForNobody(t *testing.T) {
	t.Parallel()
	config := inFile(t)
	store, model := desks(t, config)
	committed(t, store, model, deskWrite("A", "1"))
	release := lock(t, config.Path)
	defer release()
	require.Equal(t, projection.RowLive, load(t, store, model, "A").Status)
	rows, err := store.Rows(t.Context(), model, projection.RowPage{Limit: 10})
	require.NoError(t, err)
	require.Len(t, rows, 1)
}

// Keys with anything that a text can hold are told apart, zero bytes among it.
func TestKeysWithAnythingInThem(t *testing.T) {
	t.Parallel()
	store, model := desks(t, sqlite.Config{})
	strange := []string{"a", "a\x00", "a\x00b", "\x00", "<&>", "\u2028", `\u0041`, `"`, "K", "\u212a", "{}", "1", "1.0"}
	for _, key := range strange {
		committed(t, store, model, deskWrite(key, key))
	}
	rows, err := store.Load(t.Context(), model, strange)
	require.NoError(t, err)
	for i, key := range strange {
		require.Equal(t, key, rows[i].Key)
		require.Equal(t, []any{key, key, int64(1)}, rows[i].Values)
	}
}
