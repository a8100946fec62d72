// Package testsuite holds what every store of the module has to do, as tests that a
// store runs in one call, and the faults under which it has to do it.
//
//	func TestConformance(t *testing.T) {
//		testsuite.Run(t, testsuite.Harness{
//			Features: testsuite.Features{Store: "SQLite", Feed: true, SnapshotHead: true},
//			Open: func(t testing.TB) testsuite.Backend {
//				store := open(t) // fresh and empty, closed by t.Cleanup
//				return testsuite.Backend{Store: store, Events: store, Feed: func(stream string, partitions int) (event.Feed, error) {
//					return store.Feed(stream, partitions)
//				}}
//			},
//		})
//	}
//
// [Features] says in which respects stores differ. Its fields are the table of
// guarantees in the documentation, see [GuaranteeTable]: what a store claims there is
// what the suite makes it prove. Everything else is the same on every store.
//
// Each suite is exported, to be run by itself while a store grows. They write rows by
// hand, against a [projection.Model], and depend on no fold; only [RowFaults] runs a
// projection.
//
// # Faults
//
// [NewFaulty] wraps a store and lets calls fail by a [Plan]: a request or its answer gets lost, a
// write meets a conflict or a throttle, the process crashes before or after any call,
// the effects of one write become visible one by one. A plan is deterministic, so that
// what a property test found can be played again.
package testsuite
