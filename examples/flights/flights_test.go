package flights_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/examples/flights"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
	"github.com/rowfold/rowfold/store/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The whole example in one process, without Temporal: the rows and the notices add up to what
// an independent count over the raw file says.
func TestTheBoardAddsUpToTheRawFile(t *testing.T) {
	t.Parallel()
	board, err := flights.NewBoard()
	require.NoError(t, err)
	store, err := sqlite.Open(t.Context(), sqlite.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	require.NoError(t, store.Prepare(t.Context(), board.Model()))

	recording, err := flights.NewRecording(0)
	require.NoError(t, err)
	require.Equal(t, 20_000, recording.Flights)
	require.NoError(t, recording.Record(t.Context(), store, nil))

	processor, err := projection.NewProcessor(projection.ProcessorConfig{
		Definitions: []projection.Definition{board}, Store: store, Events: store,
	})
	require.NoError(t, err)
	rejected := 0
	for _, stream := range []string{"Airport", "Day"} {
		rejected += follow(t, store, processor, stream)
	}
	require.Equal(t, 2, rejected, "the impossible flight, for its origin and for its destination")

	path := filepath.Join(t.TempDir(), "notices.jsonl")
	notices, err := flights.OpenNotices(path)
	require.NoError(t, err)
	swept, err := outbox.DrainPending(t.Context(), store, "AirportBoard", notices.Deliverer(), outbox.Options{Types: board.EffectTypes()})
	require.NoError(t, err)
	require.Equal(t, 1089, swept.Delivered)
	require.NoError(t, notices.Close())

	want, err := flights.Count(0)
	require.NoError(t, err)
	require.Equal(t, 224, want.Rows)
	require.Equal(t, 1089, want.Notices)
	require.Equal(t, 130, want.Notified)
	delivered, err := flights.ReadNotices(path)
	require.NoError(t, err)
	require.Len(t, delivered, 1089)
	require.Empty(t, flights.OutOfOrder(delivered))
	got, err := flights.Summarize(t.Context(), board, store, delivered)
	require.NoError(t, err)
	require.Equal(t, want, got)
	differences, err := flights.Differences(t.Context(), board, store, delivered, 0)
	require.NoError(t, err)
	require.Empty(t, differences)
}

// follow applies a feed to its end and returns how many events were rejected.
func follow(t *testing.T, store *sqlite.Store, processor *projection.Processor, stream string) int {
	t.Helper()
	feed, err := store.Feed(stream, 1)
	require.NoError(t, err)
	rejected, after := 0, event.Position("")
	for {
		page, err := feed.Read(t.Context(), "0of1", after, 500)
		require.NoError(t, err)
		if len(page.Records) == 0 {
			return rejected
		}
		result, err := processor.ProcessBatch(t.Context(), page.Records, projection.BatchOptions{})
		require.NoError(t, err)
		require.Empty(t, result.Failures)
		for _, row := range result.Rows {
			for _, instance := range row.Instances {
				rejected += len(instance.Rejected)
			}
		}
		after = page.Next
	}
}

func TestOutOfOrderFindsWhatIsOutOfOrder(t *testing.T) {
	t.Parallel()
	notice := func(airport, id string, sequence outbox.Sequence) flights.Notice {
		return flights.Notice{LateArrival: flights.LateArrival{Airport: airport}, ID: id, Sequence: sequence}
	}
	require.Empty(t, flights.OutOfOrder([]flights.Notice{notice("A", "1", "1"), notice("B", "2", "0"), notice("A", "3", "2"), notice("A", "1", "1")}))
	require.Equal(t, "3", flights.OutOfOrder([]flights.Notice{notice("A", "2", "2"), notice("A", "3", "1")}))
}
