package flights

import (
	"context"
	"errors"
	"time"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/projection"
)

// BoardRow is an airport as people see it, fed by every day on which a flight touched it.
type BoardRow struct {
	Code        string           `row:"code,key"`
	Name        string           `row:"name"`
	City        string           `row:"city"`
	State       string           `row:"state"`
	Latitude    float64          `row:"latitude"`
	Longitude   float64          `row:"longitude"`
	Departures  int64            `row:"departures"`
	Arrivals    int64            `row:"arrivals"`
	TotalDelay  int64            `row:"total_delay"` // minutes, of all arrivals
	WorstDelay  int64            `row:"worst_delay"` // minutes, of any arrival
	Distance    int64            `row:"distance"`    // miles, of all departures
	Checkpoints map[string]int64 `row:"checkpoints"`
	Revision    int64            `row:"revision"`
}

// errDistance rejects a flight that cannot be: no repetition makes it possible.
var errDistance = errors.New("a flight of a negative distance")

const (
	lateAfter   = 60 // minutes
	keepRemoved = 30 * 24 * time.Hour
)

// NewBoard returns the projection: a row for each airport, from three sources.
func NewBoard() (*projection.Projection[string, BoardRow], error) {
	return projection.New(projection.Config[string, BoardRow]{
		Name:        "AirportBoard",
		Initial:     func(code string) BoardRow { return BoardRow{Code: code} },
		Sources:     []projection.AnySource[string, BoardRow]{departures(), arrivals(), survey()},
		Checkpoints: projection.Checkpoints{Map: "checkpoints"},
		Revision:    projection.Revision{Field: "revision"},
		Removal:     &projection.Removal{TTL: keepRemoved},
		Outbox:      &projection.Outbox{Effects: []event.TypeDef{event.Type[LateArrival]("LateArrival")}},
	})
}

// departures and arrivals read one stream, keyed by its two airports.
func departures() projection.Source[string, BoardRow, FlightLanded] {
	return projection.Source[string, BoardRow, FlightLanded]{
		Name: "departures", Stream: Days,
		Key: func(e event.Event[FlightLanded]) (string, bool) { return e.Data.Origin, true },
		Evolve: func(_ context.Context, row BoardRow, e event.Event[FlightLanded], _ projection.Instance) (BoardRow, error) {
			if e.Data.Distance < 0 {
				return row, errDistance
			}
			row.Departures++
			row.Distance += e.Data.Distance
			return row, nil
		},
		Terminal: isImpossible,
	}
}

func arrivals() projection.Source[string, BoardRow, FlightLanded] {
	return projection.Source[string, BoardRow, FlightLanded]{
		Name: "arrivals", Stream: Days,
		Key: func(e event.Event[FlightLanded]) (string, bool) { return e.Data.Destination, true },
		Evolve: func(_ context.Context, row BoardRow, e event.Event[FlightLanded], _ projection.Instance) (BoardRow, error) {
			if e.Data.Distance < 0 {
				return row, errDistance
			}
			if row.Arrivals == 0 || e.Data.Delay > row.WorstDelay {
				row.WorstDelay = e.Data.Delay
			}
			row.Arrivals++
			row.TotalDelay += e.Data.Delay
			return row, nil
		},
		Terminal: isImpossible,
		Effects: func(_ *BoardRow, e event.Event[FlightLanded], _ projection.Instance) ([]any, error) {
			if e.Data.Delay <= lateAfter {
				return nil, nil
			}
			return []any{LateArrival{
				Airport: e.Data.Destination, Origin: e.Data.Origin, Date: e.Data.Date, Delay: e.Data.Delay,
			}}, nil
		},
	}
}

func isImpossible(err error, _ event.Event[FlightLanded]) bool { return errors.Is(err, errDistance) }

// survey takes the newest survey as it is, and ends the row when the airport closes.
func survey() projection.Source[string, BoardRow, AirportEvent] {
	return projection.Source[string, BoardRow, AirportEvent]{
		Name: "survey", Stream: Airports, Mode: projection.ModeLatest,
		Key: func(e event.Event[AirportEvent]) (string, bool) { return string(e.StreamID), true },
		Evolve: func(_ context.Context, row BoardRow, e event.Event[AirportEvent], _ projection.Instance) (BoardRow, error) {
			seen, isSurvey := e.Data.(AirportSurveyed)
			if !isSurvey {
				return row, projection.RemoveRow
			}
			next := row
			next.Name, next.City, next.State = seen.Name, seen.City, seen.State
			next.Latitude, next.Longitude = seen.Latitude, seen.Longitude
			if next.survey() == row.survey() {
				return row, projection.SkipEvent // nothing new: the row is not even written
			}
			return next, nil
		},
	}
}

func (r BoardRow) survey() AirportSurveyed {
	return AirportSurveyed{Name: r.Name, City: r.City, State: r.State, Latitude: r.Latitude, Longitude: r.Longitude}
}
