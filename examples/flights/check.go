package flights

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/rowfold/rowfold/projection"
)

// airportTotals is what one row and its notices have to add up to.
type airportTotals struct {
	Departures, Arrivals, TotalDelay, WorstDelay, Distance, Notices int64
	Name, City, State, Latitude, Longitude                          string
}

// Differences compares every row, and the notices of its airport, with a count over the raw
// files that knows nothing of the library. It names each airport that differs, sorted. Sums
// over all airports would hide an event that went to another one's row.
//
// Errors are those of the files and of the store.
func Differences(
	ctx context.Context, board *projection.Projection[string, BoardRow], store projection.Store, notices []Notice, flights int,
) ([]string, error) {
	want, err := countEach(flights)
	if err != nil {
		return nil, err
	}
	got := map[string]airportTotals{}
	for row, err := range projection.NewRows(board, store).All(ctx) {
		if err != nil {
			return nil, err
		}
		got[row.Code] = airportTotals{
			Departures: row.Departures, Arrivals: row.Arrivals,
			TotalDelay: row.TotalDelay, WorstDelay: row.WorstDelay, Distance: row.Distance,
			Name: row.Name, City: row.City, State: row.State,
			Latitude: fmt.Sprint(row.Latitude), Longitude: fmt.Sprint(row.Longitude),
		}
	}
	seen := map[string]bool{}
	for _, notice := range notices {
		if !seen[notice.ID] {
			seen[notice.ID] = true
			totals := got[notice.Airport]
			totals.Notices++
			got[notice.Airport] = totals
		}
	}
	codes := maps.Clone(want)
	maps.Copy(codes, got)
	var differences []string
	for _, code := range slices.Sorted(maps.Keys(codes)) {
		if got[code] != want[code] {
			differences = append(differences, fmt.Sprintf("%s is %+v and not %+v", code, got[code], want[code]))
		}
	}
	return differences, nil
}

// countEach works the totals of each airport out from the raw files.
func countEach(flights int) (map[string]airportTotals, error) {
	records, err := readAirports()
	if err != nil {
		return nil, err
	}
	counts := map[string]airportTotals{}
	for _, record := range records {
		counts[record[0]] = airportTotals{
			Name: record[1], City: record[2], State: record[3], Latitude: record[5], Longitude: record[6],
		}
	}
	err = eachFlight(flights, func(flight FlightLanded) error {
		from := counts[flight.Origin]
		from.Departures++
		from.Distance += flight.Distance
		counts[flight.Origin] = from
		to := counts[flight.Destination] // read after the origin is stored: both may be one airport
		if to.Arrivals == 0 || flight.Delay > to.WorstDelay {
			to.WorstDelay = flight.Delay
		}
		to.Arrivals++
		to.TotalDelay += flight.Delay
		if flight.Delay > lateAfter {
			to.Notices++
		}
		counts[flight.Destination] = to
		return nil
	})
	return counts, err
}
