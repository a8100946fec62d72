package sqlite_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
	"github.com/rowfold/rowfold/store/sqlite"
)

// A row whose tombstone was purged begins again, with the sequences that it had. What was
// decided about the old effects is still known, and does not stand in the way of the new ones.
func TestDecisionsOutliveARowThatBeginsAgain(t *testing.T) {
	t.Parallel()
	store, model := desks(t, sqlite.Config{})
	row := outbox.Row{Projection: "Desk", Key: "A"}
	const lives = 3
	for life := range lives {
		write := tombstoneOver(projection.Stored{Key: "A", Status: projection.RowAbsent})
		write.ExpiresAt, write.Effects = new(noon), deskWrite("A", "", fmt.Sprintf("life %d", life)).Effects
		committed(t, store, model, write)
		decided, err := store.Decide(t.Context(), row, write.Effects[0].Ref(),
			outbox.Decision{Verb: outbox.VerbSkip, Who: "nina", Why: strconv.Itoa(life), At: noon.Add(time.Duration(life) * time.Minute)})
		require.NoError(t, err)
		require.True(t, decided)
		purged, err := store.PurgeTombstones(t.Context(), model, noon, 10)
		require.NoError(t, err)
		require.Equal(t, 1, purged.Removed)
	}
	decisions, err := store.Decisions(t.Context(), row)
	require.NoError(t, err)
	require.Len(t, decisions, lives)
	for life, decision := range decisions {
		require.Equal(t, strconv.Itoa(life), decision.Decision.Why)
		require.JSONEq(t, fmt.Sprintf(`"life %d"`, life), string(decision.Item.Payload))
	}
}

// what was parked because it could not be decoded keeps its bytes, whatever they are.
func TestADecisionKeepsBytesThatAreNoJSON(t *testing.T) {
	t.Parallel()
	store, model := desks(t, sqlite.Config{})
	write := deskWrite("A", "", "1")
	write.Effects[0].Payload = []byte("\x00\xff{")
	committed(t, store, model, write)
	row := outbox.Row{Projection: "Desk", Key: "A"}
	decided, err := store.Decide(t.Context(), row, write.Effects[0].Ref(), outbox.Decision{Verb: outbox.VerbPark, Who: "nina", Why: "x", At: noon})
	require.NoError(t, err)
	require.True(t, decided)
	decisions, err := store.Decisions(t.Context(), row)
	require.NoError(t, err)
	require.Equal(t, []byte("\x00\xff{"), []byte(decisions[0].Item.Payload))
}

func TestADecisionThatDoesNotDecodeIsTold(t *testing.T) {
	t.Parallel()
	for column, want := range map[string]string{"item": "decode the effect", "decision": "decode the decision"} {
		store, model := desks(t, sqlite.Config{})
		write := deskWrite("A", "", "1")
		committed(t, store, model, write)
		row := outbox.Row{Projection: "Desk", Key: "A"}
		_, err := store.Decide(t.Context(), row, write.Effects[0].Ref(), outbox.Decision{Verb: outbox.VerbPark, Who: "nina", Why: "x", At: noon})
		require.NoError(t, err)
		run(t, store, `UPDATE rowfold_decisions SET `+column+` = 'no JSON'`)
		_, err = store.Decisions(t.Context(), row)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "Desk/A")
	}
}
