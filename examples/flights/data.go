package flights

import (
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/rowfold/rowfold/event"
)

//go:embed data/flights-20k.jsonl.gz
var flightsFile []byte

//go:embed data/airports.csv
var airportsFile []byte

// chunk is how many events one append carries.
const chunk = 100

// The example's own airport, which is surveyed and closed, and its own day, on which one
// impossible flight lands.
const (
	closedAirport = "XXX"
	impossibleDay = "2001-04-01"
)

// step is one append.
type step struct {
	count int // events
	run   func(ctx context.Context, store event.Appender) error
}

// Recording is everything that the example records, cut into appends in the order of the
// files.
type Recording struct {
	steps   []step
	Events  int // how many events all steps have
	Flights int // how many of them are real flights
}

// NewRecording reads the first flights of the file, all of them for 0, and the airports. The
// error is that of the files.
func NewRecording(flights int) (*Recording, error) {
	r := &Recording{}
	if err := r.addFlights(flights); err != nil {
		return nil, err
	}
	if err := r.addAirports(); err != nil {
		return nil, err
	}
	return r, nil
}

// Record appends everything. Progress is called with the number of events so far after each
// append; nil = not called.
func (r *Recording) Record(ctx context.Context, store event.Appender, progress func(events int)) error {
	recorded := 0
	for _, s := range r.steps {
		if err := s.run(ctx, store); err != nil {
			return err
		}
		recorded += s.count
		if progress != nil {
			progress(recorded)
		}
	}
	return nil
}

func (r *Recording) addFlights(limit int) error {
	versions := map[event.ID]int64{}
	var day event.ID
	var landed []FlightLanded
	flush := func() {
		for part := range slices.Chunk(landed, chunk) {
			r.add(Days, day, versions[day], part...)
			versions[day] += int64(len(part))
		}
		landed = nil
	}
	err := eachFlight(limit, func(flight FlightLanded) error {
		id, err := Days.ID(strings.ReplaceAll(flight.Date[:len("2001/01/01")], "/", "-"))
		if err != nil {
			return err
		}
		if id != day {
			flush()
			day = id
		}
		landed = append(landed, flight)
		r.Flights++
		return nil
	})
	if err != nil {
		return err
	}
	flush()
	r.add(Days, impossibleDay, 0, FlightLanded{Date: "2001/04/01 00:00", Distance: -1, Origin: "ORD", Destination: "DFW"})
	return nil
}

func (r *Recording) add(stream *event.Stream[FlightLanded], id event.ID, after int64, flights ...FlightLanded) {
	r.addStep(len(flights), func(ctx context.Context, store event.Appender) error {
		_, err := stream.Append(ctx, store, id, after, flights...)
		return err
	})
}

func (r *Recording) addAirports() error {
	records, err := readAirports()
	if err != nil {
		return err
	}
	for _, record := range records {
		latitude, err := strconv.ParseFloat(record[5], 64)
		if err != nil {
			return fmt.Errorf("airport %s: latitude: %w", record[0], err)
		}
		longitude, err := strconv.ParseFloat(record[6], 64)
		if err != nil {
			return fmt.Errorf("airport %s: longitude: %w", record[0], err)
		}
		seen := AirportSurveyed{Name: record[1], City: record[2], State: record[3], Latitude: latitude, Longitude: longitude}
		r.addAirport(event.ID(record[0]), 0, seen)
		if record[0] == "JFK" { // surveyed again, and nothing has changed
			r.addAirport("JFK", 1, seen)
		}
	}
	r.addAirport(closedAirport, 0, AirportSurveyed{Name: "A Field", City: "Nowhere"})
	r.addAirport(closedAirport, 1, AirportClosed{})
	return nil
}

func (r *Recording) addAirport(id event.ID, after int64, happened AirportEvent) {
	r.addStep(1, func(ctx context.Context, store event.Appender) error {
		_, err := Airports.Append(ctx, store, id, after, happened)
		return err
	})
}

func (r *Recording) addStep(count int, run func(ctx context.Context, store event.Appender) error) {
	r.steps = append(r.steps, step{count: count, run: run})
	r.Events += count
}

// readAirports reads the airports of the file: code, name, city, state, country, latitude,
// longitude.
func readAirports() ([][]string, error) {
	records, err := csv.NewReader(bytes.NewReader(airportsFile)).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("read the airports: %w", err)
	}
	return records[1:], nil
}

// eachFlight reads the first flights of the file, all of them for 0.
func eachFlight(limit int, yield func(FlightLanded) error) error {
	unzipped, err := gzip.NewReader(bytes.NewReader(flightsFile))
	if err != nil {
		return fmt.Errorf("read the flights: %w", err)
	}
	decoder := json.NewDecoder(unzipped)
	for n := 1; limit == 0 || n <= limit; n++ {
		var flight FlightLanded
		switch err := decoder.Decode(&flight); {
		case err == io.EOF:
			return nil
		case err != nil:
			return fmt.Errorf("flight %d: %w", n, err)
		}
		if err := yield(flight); err != nil {
			return err
		}
	}
	return nil
}
