package flights

import "github.com/rowfold/rowfold/event"

// FlightLanded is an event of the stream Day: one flight of that day, in the order in which
// they landed.
type FlightLanded struct {
	Date        string `json:"date"`
	Delay       int64  `json:"delay"`    // minutes late at arrival; negative = early
	Distance    int64  `json:"distance"` // miles
	Origin      string `json:"origin"`
	Destination string `json:"destination"`
}

// AirportEvent is an event of the stream Airport.
type AirportEvent interface{ airport() }

// AirportSurveyed carries everything that is known of an airport.
type AirportSurveyed struct {
	Name      string  `json:"name"`
	City      string  `json:"city"`
	State     string  `json:"state"`
	Latitude  float64 `json:"latitude"`
	Longitude float64 `json:"longitude"`
}

// AirportClosed is the end of an airport.
type AirportClosed struct{}

func (AirportSurveyed) airport() {}
func (AirportClosed) airport()   {}

// The streams: a day by its date, an airport by its IATA code.
//
//nolint:gochecknoglobals // streams are immutable, and declared once
var (
	Days     = event.MustStream[FlightLanded]("Day", []string{"date"}, event.Type[FlightLanded]("FlightLanded"))
	Airports = event.MustStream[AirportEvent]("Airport", []string{"code"},
		event.Type[AirportSurveyed]("AirportSurveyed"), event.Type[AirportClosed]("AirportClosed"))
)

// LateArrival is the effect: a notice for each arrival that is more than an hour late.
type LateArrival struct {
	Airport string `json:"airport"`
	Origin  string `json:"origin"`
	Date    string `json:"date"`
	Delay   int64  `json:"delay"`
}
