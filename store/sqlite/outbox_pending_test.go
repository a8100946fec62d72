package sqlite_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
	"github.com/rowfold/rowfold/store/sqlite"
)

// T-12: the cost of a listing follows the rows that it returns. Every access to the outbox is a
// seek that names the row, or the one after it; nothing walks through the effects of a
// projection or of a row.
func TestNoOutboxIsReadFromEndToEnd(t *testing.T) {
	t.Parallel()
	store, model := desks(t, sqlite.Config{})
	for i := range 20 { // statistics of many effects in few rows, which could tempt the planner
		numbers := make([]string, 50)
		for n := range numbers {
			numbers[n] = strconv.Itoa(n)
		}
		committed(t, store, model, deskWrite(fmt.Sprintf("D%02d", i), "", numbers...))
	}
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			run(t, store, `ANALYZE`)
		}
		for name, c := range map[string]struct {
			statement string
			arguments []any
			seeks     []string // all that touch the outbox, in the order of the plan
		}{
			"pending": {sqlite.PendingRows, []any{"Desk", "", 10}, []string{
				"SEARCH rowfold_outbox USING PRIMARY KEY (projection=? AND row_key>?)",
				"SEARCH next USING PRIMARY KEY (projection=? AND row_key=? AND sequence=?)",
				"SEARCH rowfold_outbox USING PRIMARY KEY (projection=? AND row_key>?)",
				"SEARCH o USING PRIMARY KEY (projection=? AND row_key=? AND sequence=?)",
			}},
			"has pending": {sqlite.WhetherPending, []any{`["D01"]`, "Desk"}, []string{
				"SEARCH rowfold_outbox EXISTS USING PRIMARY KEY (projection=? AND row_key=?)",
			}},
			"head": {sqlite.HeadItems, []any{"Desk", "D01", "9", 2}, []string{
				"SEARCH o USING PRIMARY KEY (projection=? AND row_key=? AND sequence<?)",
			}},
		} {
			var seeks []string
			for _, line := range texts(t, store, `EXPLAIN QUERY PLAN `+c.statement, c.arguments...) {
				isCandidate := strings.HasPrefix(line, "SEARCH ") || strings.HasPrefix(line, "SCAN ")
				// p are the rows found so far, (subquery-1) is the first one, wanted the keys asked for.
				if isCandidate && line != "SCAN p" && line != "SCAN (subquery-1)" && !strings.HasPrefix(line, "SCAN wanted ") {
					seeks = append(seeks, line)
				}
			}
			require.Equal(t, c.seeks, seeks, "%s, analyzed %v", name, analyzed)
		}
	}
}

// A row of many effects costs a listing as much as a row of one: the effects behind the head
// are not even decoded.
func TestAListingLooksAtHeadsOnly(t *testing.T) {
	t.Parallel()
	store, model := desks(t, sqlite.Config{})
	committed(t, store, model, deskWrite("A", "", "1", "2", "3"), deskWrite("B", "", "4"), deskWrite("C", ""), deskWrite("D", "", "5", "6"))
	run(t, store, `UPDATE rowfold_outbox SET deferral = 'no JSON' WHERE sequence > ?`, string(outbox.SequenceOf(1, 0)))
	page, err := store.Pending(t.Context(), outbox.PendingQuery{Projection: "Desk", Limit: 10})
	require.NoError(t, err)
	var rows []string
	for _, row := range page {
		require.Equal(t, outbox.SequenceOf(1, 0), row.Head.Sequence)
		rows = append(rows, row.Row.Key)
	}
	require.Equal(t, []string{"A", "B", "D"}, rows)
}

// What somebody else wrote into a table is told with its name, and is no zero value.
func TestAnItemThatDoesNotDecodeIsTold(t *testing.T) {
	t.Parallel()
	for column, want := range map[string]string{"claim_owner": "decode the claim", "deferral": "decode the deferral"} {
		store, model := desks(t, sqlite.Config{})
		write := deskWrite("A", "", "1")
		committed(t, store, model, write)
		run(t, store, `UPDATE rowfold_outbox SET `+column+` = 'no JSON'`)
		_, err := store.Head(t.Context(), outbox.Row{Projection: "Desk", Key: "A"}, 1)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, write.Effects[0].ID)
		require.ErrorContains(t, err, "Desk/A")
	}
}

// Whoever asks about a projection that was never prepared is told so: an empty answer would say
// that nothing is pending.
func TestTheOutboxOfAnUnknownProjectionIsAnError(t *testing.T) {
	t.Parallel()
	store, _ := desks(t, sqlite.Config{})
	row := outbox.Row{Projection: "Nothing", Key: "A"}
	var unprepared *sqlite.UnpreparedProjection
	_, err := store.Head(t.Context(), row, 1)
	require.ErrorAs(t, err, &unprepared)
	require.Equal(t, "Nothing", unprepared.Projection)
	_, err = store.ExpireTombstone(t.Context(), row, 1, noon)
	require.ErrorAs(t, err, &unprepared)
}

// an expiry is set under tombstone, revision and no pending effects, each by itself.
func TestAnExpiryHasThreeConditions(t *testing.T) {
	t.Parallel()
	store, model := desks(t, sqlite.Config{})
	row := outbox.Row{Projection: "Desk", Key: "A"}
	expire := func(revision int64) bool {
		set, err := store.ExpireTombstone(t.Context(), row, revision, noon)
		require.NoError(t, err)
		require.Equal(t, set, load(t, store, model, "A").ExpiresAt != nil)
		return set
	}
	require.False(t, expire(0), "absent")
	committed(t, store, model, deskWrite("A", ""))
	require.False(t, expire(1), "live")
	write := tombstoneOver(load(t, store, model, "A"))
	write.Effects = deskWriteOver(load(t, store, model, "A"), "", "bye").Effects
	committed(t, store, model, write)
	require.False(t, expire(2), "an effect is pending")
	_, err := store.Delete(t.Context(), row, write.Effects[0].Ref())
	require.NoError(t, err)
	require.False(t, expire(1), "another revision")
	require.False(t, expire(3))
	require.True(t, expire(2))
	require.Equal(t, noon, *load(t, store, model, "A").ExpiresAt)
	require.Equal(t, projection.RowTombstone, load(t, store, model, "A").Status)
}
