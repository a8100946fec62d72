// Package flights is rowfold's main example: a board of airports, kept from real flight
// records. It shows everything that a service defines: streams with typed events (flights.go),
// a projection of three sources with effects and removal (board.go), and a deliverer
// (notices.go). data.go has the records; count.go counts the same totals over the raw file,
// without the library, so that the result can be checked.
//
// `make demo` runs it on an embedded Temporal server.
package flights
