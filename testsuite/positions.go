package testsuite

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/projection"
)

// Positions proves the position records of T-15 on a row store.
func Positions(t *testing.T, h Harness) {
	t.Helper()
	runCases(t, h, []testCase{
		{"APositionComesBackAsItWas", positionRoundTrip},
		{"APositionNeverGoesBack", positionMonotone},
		{"APositionIsMonotoneAmongMany", positionRace},
	})
}

func positionRecord(position event.Position) projection.PositionRecord {
	return projection.PositionRecord{Consumer: "dev", Stream: "Day", Shard: "0/2", Position: position, At: noon}
}

func savedPosition(t testing.TB, b Backend, shard string) projection.PositionRecord {
	t.Helper()
	records, err := b.Store.Positions(t.Context(), "dev", "Day")
	require.NoError(t, err)
	return records[shard]
}

// T-15
func positionRoundTrip(t *testing.T, b Backend) {
	prepare(t, b, boardModel())
	records, err := b.Store.Positions(t.Context(), "dev", "Day")
	require.NoError(t, err)
	require.Empty(t, records)
	first, second := positionRecord("0001"), positionRecord("0007")
	second.Shard = "1/2"
	other := positionRecord("0009")
	other.Consumer = "other"
	elsewhere := positionRecord("0009")
	elsewhere.Stream = "Airport"
	for _, record := range []projection.PositionRecord{first, second, other, elsewhere} {
		require.NoError(t, b.Store.SavePosition(t.Context(), record))
	}
	records, err = b.Store.Positions(t.Context(), "dev", "Day")
	require.NoError(t, err)
	require.Equal(t, map[string]projection.PositionRecord{"0/2": first, "1/2": second}, records)
}

// T-15
func positionMonotone(t *testing.T, b Backend) {
	prepare(t, b, boardModel())
	save := func(record projection.PositionRecord) {
		t.Helper()
		require.NoError(t, b.Store.SavePosition(t.Context(), record))
	}
	save(positionRecord("0005"))
	back := positionRecord("0004")
	back.At = noon.Add(time.Hour)
	save(back)
	require.Equal(t, positionRecord("0005"), savedPosition(t, b, "0/2"), "a zombie does not take it back")
	end := positionRecord("0005")
	end.Done = true
	save(end)
	require.True(t, savedPosition(t, b, "0/2").Done, "the end of a shard is news at the same position")
	save(positionRecord("0005"))
	require.True(t, savedPosition(t, b, "0/2").Done, "and does not go away")
	save(positionRecord("0004"))
	require.True(t, savedPosition(t, b, "0/2").Done)
	// Positions compare bytewise, neither as numbers nor as a language would sort them.
	for _, further := range []event.Position{"9", "Z", "a"} {
		save(positionRecord(further))
		require.Equal(t, positionRecord(further), savedPosition(t, b, "0/2"))
		for _, behind := range []event.Position{"10", "Y", "0005"} {
			if behind < further {
				save(positionRecord(behind))
			}
		}
		require.Equal(t, positionRecord(further), savedPosition(t, b, "0/2"))
	}
}

// T-7, T-15: zombies that save what they know cannot take a record back.
func positionRace(t *testing.T, b Backend) {
	prepare(t, b, boardModel())
	const writers, each = 8, 10
	position := func(i, n int) event.Position { return event.Position(fmt.Sprintf("%04d", (n*13+i*7)%100)) }
	together(t, writers, func(i int) error {
		highest := event.Position("")
		for n := range each {
			highest = max(highest, position(i, n))
			if err := b.Store.SavePosition(t.Context(), positionRecord(position(i, n))); err != nil {
				return err
			}
			records, err := b.Store.Positions(t.Context(), "dev", "Day")
			if err != nil {
				return err
			}
			if saved := records["0/2"].Position; saved < highest {
				return fmt.Errorf("saved %s, and read %s", highest, saved)
			}
		}
		return nil
	})
	highest := event.Position("")
	for i := range writers {
		for n := range each {
			highest = max(highest, position(i, n))
		}
	}
	require.Equal(t, positionRecord(highest), savedPosition(t, b, "0/2"))
}
