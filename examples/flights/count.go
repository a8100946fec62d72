package flights

import (
	"context"
	"fmt"

	"github.com/rowfold/rowfold/projection"
)

// Totals are sums over all airports.
type Totals struct {
	Rows       int   // live rows
	Tombstones int   // removed rows
	Departures int64 // flights
	Arrivals   int64 // flights
	TotalDelay int64 // minutes
	WorstDelay int64 // minutes
	Distance   int64 // miles
	Notices    int   // different ones
	Notified   int   // airports that got one
}

// Count works the totals out from the raw file, without any of the library: what rows and
// notices have to add up to.
func Count(flights int) (Totals, error) {
	totals := Totals{Tombstones: 1} // the example's own airport
	airports, err := readAirports()
	if err != nil {
		return totals, err
	}
	totals.Rows = len(airports)
	notified := map[string]bool{}
	err = eachFlight(flights, func(flight FlightLanded) error {
		totals.Departures++
		totals.Arrivals++
		totals.TotalDelay += flight.Delay
		totals.WorstDelay = max(totals.WorstDelay, flight.Delay)
		totals.Distance += flight.Distance
		if flight.Delay > lateAfter {
			totals.Notices++
			notified[flight.Destination] = true
		}
		return nil
	})
	totals.Notified = len(notified)
	return totals, err
}

// Summarize adds up the rows and the notices.
func Summarize(
	ctx context.Context, board *projection.Projection[string, BoardRow], store projection.Store, notices []Notice,
) (Totals, error) {
	var totals Totals
	for row, err := range projection.NewRows(board, store).All(ctx) {
		if err != nil {
			return totals, err
		}
		totals.Rows++
		totals.Departures += row.Departures
		totals.Arrivals += row.Arrivals
		totals.TotalDelay += row.TotalDelay
		totals.WorstDelay = max(totals.WorstDelay, row.WorstDelay)
		totals.Distance += row.Distance
	}
	removed, err := countTombstones(ctx, board.Model(), store)
	if err != nil {
		return totals, err
	}
	totals.Tombstones = removed
	ids, notified := map[string]bool{}, map[string]bool{}
	for _, notice := range notices {
		ids[notice.ID] = true
		notified[notice.Airport] = true
	}
	totals.Notices, totals.Notified = len(ids), len(notified)
	return totals, nil
}

func countTombstones(ctx context.Context, model *projection.Model, store projection.RowStore) (int, error) {
	const page = 500
	removed, after := 0, ""
	for {
		rows, err := store.Rows(ctx, model, projection.RowPage{After: after, Limit: page, Tombstones: true})
		if err != nil {
			return removed, fmt.Errorf("list the rows: %w", err)
		}
		for _, row := range rows {
			if row.Status == projection.RowTombstone {
				removed++
			}
			after = row.Key
		}
		if len(rows) < page {
			return removed, nil
		}
	}
}

// OutOfOrder returns the first notice that came, for the first time, after a later one of its
// airport; "" = every airport's notices are in order.
func OutOfOrder(notices []Notice) string {
	last, seen := map[string]Notice{}, map[string]bool{}
	for _, notice := range notices {
		if seen[notice.ID] {
			continue // a repeat: delivery is at least once
		}
		seen[notice.ID] = true
		if notice.Sequence <= last[notice.Airport].Sequence {
			return notice.ID
		}
		last[notice.Airport] = notice
	}
	return ""
}
