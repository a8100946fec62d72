package flights_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/examples/flights"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
	"github.com/rowfold/rowfold/store/sqlite"
)

// Two airports that have swapped a part of their rows add up to the same totals.
func TestDifferencesFindWhatTotalsHide(t *testing.T) {
	t.Parallel()
	const taken = 300
	board, store := folded(t, taken)
	rows := projection.NewRows(board, store)
	notices := drained(t, board, store)

	differences, err := flights.Differences(t.Context(), board, store, notices, taken)
	require.NoError(t, err)
	require.Empty(t, differences)

	jfk, err := rows.Get(t.Context(), "JFK")
	require.NoError(t, err)
	ord, err := rows.Get(t.Context(), "ORD")
	require.NoError(t, err)
	require.NotEqual(t, jfk.Departures, ord.Departures)
	for code, departures := range map[string]int64{"JFK": ord.Departures, "ORD": jfk.Departures} {
		require.NoError(t, rows.Update(t.Context(), code, func(row flights.BoardRow) (flights.BoardRow, error) {
			row.Departures = departures
			return row, nil
		}))
	}
	want, err := flights.Count(taken)
	require.NoError(t, err)
	got, err := flights.Summarize(t.Context(), board, store, notices)
	require.NoError(t, err)
	require.Equal(t, want, got, "the totals see nothing")
	differences, err = flights.Differences(t.Context(), board, store, notices, taken)
	require.NoError(t, err)
	require.Len(t, differences, 2)
	require.Contains(t, differences[0], "JFK")
	require.Contains(t, differences[1], "ORD")
}

func TestDifferencesFindANoticeThatIsMissing(t *testing.T) {
	t.Parallel()
	const taken = 300
	board, store := folded(t, taken)
	notices := drained(t, board, store)
	require.NotEmpty(t, notices)
	differences, err := flights.Differences(t.Context(), board, store, notices[1:], taken)
	require.NoError(t, err)
	require.Len(t, differences, 1)
	require.Contains(t, differences[0], notices[0].Airport)
}

//
func TestANoticeThatIsDeliveredAgainStandsInTheFileOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "notices.jsonl")
	delivery := func(airport string, sequence outbox.Sequence) outbox.Delivery {
		return outbox.Delivery{
			Item:   outbox.Item{Row: outbox.Row{Projection: "AirportBoard", Key: airport}, ID: airport + string(sequence), Sequence: sequence},
			Effect: flights.LateArrival{Airport: airport, Delay: 61},
		}
	}
	deliver := func(deliveries ...outbox.Delivery) {
		notices, err := flights.OpenNotices(path)
		require.NoError(t, err)
		for _, d := range deliveries {
			require.NoError(t, notices.Deliverer()(t.Context(), d))
		}
		require.NoError(t, notices.Close())
	}
	deliver(delivery("SFO", "1"), delivery("SFO", "2"), delivery("SFO", "1"), delivery("LAX", "1"))
	deliver(delivery("SFO", "2"), delivery("SFO", "3")) // by another process, which reads the file first

	written, err := flights.ReadNotices(path)
	require.NoError(t, err)
	ids := make([]string, 0, len(written))
	for _, notice := range written {
		ids = append(ids, notice.ID)
	}
	require.Equal(t, []string{"SFO1", "SFO2", "LAX1", "SFO3"}, ids)
}

// folded returns a store in which the first flights are applied.
func folded(t *testing.T, taken int) (*projection.Projection[string, flights.BoardRow], *sqlite.Store) {
	t.Helper()
	board, err := flights.NewBoard()
	require.NoError(t, err)
	store, err := sqlite.Open(t.Context(), sqlite.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	require.NoError(t, store.Prepare(t.Context(), board.Model()))
	recording, err := flights.NewRecording(taken)
	require.NoError(t, err)
	require.NoError(t, recording.Record(t.Context(), store, nil))
	processor, err := projection.NewProcessor(projection.ProcessorConfig{
		Definitions: []projection.Definition{board}, Store: store, Events: store,
	})
	require.NoError(t, err)
	for _, stream := range []string{"Airport", "Day"} {
		follow(t, store, processor, stream)
	}
	return board, store
}

// drained delivers what is pending.
func drained(t *testing.T, board *projection.Projection[string, flights.BoardRow], store *sqlite.Store) []flights.Notice {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notices.jsonl")
	notices, err := flights.OpenNotices(path)
	require.NoError(t, err)
	_, err = outbox.DrainPending(t.Context(), store, board.Name(), notices.Deliverer(), outbox.Options{Types: board.EffectTypes()})
	require.NoError(t, err)
	require.NoError(t, notices.Close())
	written, err := flights.ReadNotices(path)
	require.NoError(t, err)
	return written
}

// a survey that finds everything as it was leaves the row alone.
func TestASurveyThatFindsNothingNewIsSkipped(t *testing.T) {
	t.Parallel()
	board, store := folded(t, 1)
	rows := projection.NewRows(board, store)
	before, err := rows.Get(t.Context(), "SEA")
	require.NoError(t, err)
	_, err = flights.Airports.Append(t.Context(), store, "SEA", 1, flights.AirportSurveyed{
		Name: before.Name, City: before.City, State: before.State, Latitude: before.Latitude, Longitude: before.Longitude,
	})
	require.NoError(t, err)
	processor, err := projection.NewProcessor(projection.ProcessorConfig{
		Definitions: []projection.Definition{board}, Store: store, Events: store,
	})
	require.NoError(t, err)
	feed, err := store.Feed("Airport", 1)
	require.NoError(t, err)
	page, err := feed.Read(t.Context(), "0of1", "", 1000)
	require.NoError(t, err)
	newest := page.Records[len(page.Records)-1:]
	require.Equal(t, event.ID("SEA"), newest[0].Envelope.StreamID)
	result, err := processor.ProcessBatch(t.Context(), newest, projection.BatchOptions{})
	require.NoError(t, err)
	require.Len(t, result.Rows, 1)
	require.Equal(t, []int64{2}, result.Rows[0].Instances[0].Skipped)
	require.False(t, result.Rows[0].Written)
	after, err := rows.Get(t.Context(), "SEA")
	require.NoError(t, err)
	require.Equal(t, before, after)
}
