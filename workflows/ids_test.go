package workflows_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
	"github.com/rowfold/rowfold/workflows"
)

// T-2: ids are readable, and say what they are about.
func TestIDs(t *testing.T) {
	t.Parallel()
	ids := workflows.IDs{Deployment: "flights"}
	day := projection.Instance{Source: "day", StreamID: "2026-01-01#UTC"}
	for want, got := range map[string]string{
		"flights/drain/board/JFK":                  ids.DrainRow(outbox.Row{Projection: "board", Key: "JFK"}),
		"flights/drain/board/a%2Fb%25c%7Ed":        ids.DrainRow(outbox.Row{Projection: "board", Key: "a/b%c~d"}),
		"flights/catchup/board/day/2026-01-01#UTC": ids.CatchUpInstance("board", day),
		"flights/sweep/board":                      ids.SweepOutbox("board"),
		"flights/purge/board":                      ids.PurgeTombstones("board"),
		"flights/apply/0a1b":                       ids.ApplyBatch("0a1b"),
		"flights/consume/c/Day":                    ids.ConsumeStream("c", "Day"),
		"flights/consume/c/Day/s%2F1":              workflows.ShardID(ids.ConsumeStream("c", "Day"), "s/1"),
	} {
		require.Equal(t, want, got)
	}
}

// T-2: different things have different ids, however long they are and whatever they hold.
func TestIDs_injective(t *testing.T) {
	t.Parallel()
	part := rapid.OneOf(
		rapid.StringOfN(rapid.SampledFrom([]rune("ab/%~#2F7E\x00é☂")), 0, 8, -1),
		rapid.Custom(func(t *rapid.T) string {
			return strings.Repeat(rapid.SampledFrom([]string{"x", "é", "/", "☂"}).Draw(t, "letter"), rapid.IntRange(50, 250).Draw(t, "length")) +
				rapid.StringOfN(rapid.SampledFrom([]rune("ab/")), 0, 3, -1).Draw(t, "end")
		}),
	)
	type named struct{ verb, deployment, projection, source, key string }
	ids := map[string]named{}
	rapid.Check(t, func(t *rapid.T) {
		what := named{
			verb:       rapid.SampledFrom([]string{"drain", "catchup", "shard"}).Draw(t, "verb"),
			deployment: part.Draw(t, "deployment"), projection: part.Draw(t, "projection"), key: part.Draw(t, "key"),
		}
		n := workflows.IDs{Deployment: what.deployment}
		var id string
		switch what.verb {
		case "drain":
			id = n.DrainRow(outbox.Row{Projection: what.projection, Key: what.key})
		case "catchup":
			what.source = part.Draw(t, "source")
			id = n.CatchUpInstance(what.projection, projection.Instance{Source: what.source, StreamID: event.ID(what.key)})
		case "shard":
			what.source = part.Draw(t, "feed")
			id = workflows.ShardID(n.ConsumeStream(what.projection, what.source), what.key)
		}
		if other, known := ids[id]; known {
			require.Equal(t, other, what)
		}
		ids[id] = what
		require.LessOrEqual(t, len(id), workflows.MaxID)
		require.True(t, utf8.ValidString(id))
	})
}

// T-2: personal keys do not appear; equal keys of different projections cannot be told to be equal.
func TestIDs_hmac(t *testing.T) {
	t.Parallel()
	ids := workflows.IDs{Deployment: "clinic", RowNames: workflows.RowNamesHMAC, Key: []byte("0123456789abcdef")}
	require.NoError(t, ids.Validate())
	ada := outbox.Row{Projection: "patients", Key: "ada"}
	require.Regexp(t, `^clinic/drain/patients/[0-9a-f]{32}$`, ids.DrainRow(ada))
	again := workflows.IDs{Deployment: "clinic", RowNames: workflows.RowNamesHMAC, Key: []byte("0123456789abcdef")}
	require.Equal(t, ids.DrainRow(ada), again.DrainRow(ada))
	require.NotEqual(t, ids.RowName(ada), ids.RowName(outbox.Row{Projection: "patients", Key: "bob"}))
	require.NotEqual(t, ids.RowName(ada), ids.RowName(outbox.Row{Projection: "bills", Key: "ada"}))
	require.NotContains(t, ids.CatchUpInstance("patients", projection.Instance{Source: "s", StreamID: "ada"}), "ada")
	other := ids
	other.Key = []byte("fedcba9876543210")
	require.NotEqual(t, ids.RowName(ada), other.RowName(ada))
}

func TestIDs_Validate(t *testing.T) {
	t.Parallel()
	err := workflows.IDs{RowNames: workflows.RowNamesHMAC, Key: []byte("short")}.Validate()
	require.ErrorContains(t, err, "deployment is empty")
	require.ErrorContains(t, err, "key has 5 bytes")
	require.ErrorContains(t, workflows.IDs{Deployment: "d", RowNames: "md5"}.Validate(), `RowNames is "md5"`)
}
