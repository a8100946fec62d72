package testsuite

import (
	"testing"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/projection"
)

// Harness is what a store gives to its conformance tests.
type Harness struct {
	// Open returns a fresh and empty backend that nothing else uses, and closes it by
	// t.Cleanup. It is called once or more for each test, from parallel tests. Where an
	// engine is missing it fails the test: a suite is never skipped.
	Open func(t testing.TB) Backend
	// Features are what the store claims, and has to prove.
	Features Features
}

// Backend is one store under test.
type Backend struct {
	Store  projection.Store
	Events event.Store
	// Feed returns the feed of a stream of Events, in a number of partitions. Required
	// with Features.Feed.
	Feed func(stream string, partitions int) (event.Feed, error)
	// PlantForeign puts a value into a row that the row's model does not know, and
	// returns what reports whether it is still there. Required with
	// Features.ForeignColumns.
	PlantForeign func(t testing.TB, model *projection.Model, key string) (survived func() bool)
}

// Run runs every suite, in parallel.
func Run(t *testing.T, h Harness) {
	t.Helper()
	if h.Open == nil {
		t.Fatal("Harness.Open is nil")
	}
	for _, suite := range []struct {
		name string
		run  func(*testing.T, Harness)
	}{
		{"EventStore", EventStore},
		{"Feed", Feed},
		{"RowStore", RowStore},
		{"Tombstones", Tombstones},
		{"Outbox", Outbox},
		{"Parks", Parks},
		{"Positions", Positions},
		{"Drain", Drain},
		{"DrainFaults", DrainFaults},
		{"RowFaults", RowFaults},
	} {
		t.Run(suite.name, func(t *testing.T) {
			t.Parallel()
			suite.run(t, h)
		})
	}
}

// testCase is one case of a suite: it gets a backend of its own.
type testCase struct {
	name string
	run  func(t *testing.T, b Backend)
}

// runCases runs each case in parallel on a fresh backend.
func runCases(t *testing.T, h Harness, cases []testCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, h.Open(t))
		})
	}
}
