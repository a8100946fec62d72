// Package temporaltest gives tests a real Temporal server: the binary rowfold-dev, started as a child process.
//
// It runs the binary rather than the package devserver, so that this module does not inherit the dependencies of a
// Temporal server. `make engines` builds it; without it a test that asks for a server fails.
//
// # One server for all tests of a package
//
// Most tests share one server per test binary, in memory, started by the first test that asks. What keeps them apart is
// a prefix for workflow ids and task queues:
//
//	func TestMain(m *testing.M) { os.Exit(temporaltest.Main(m)) }
//
//	func TestDrain(t *testing.T) {
//		t.Parallel()
//
//		temporal := temporaltest.Client(t)
//		queue := temporaltest.Prefix(t)
//		...
//	}
//
// [Main] ends the server and then looks for leaked goroutines. Tests that list workflows restrict the query to their
// prefix: WorkflowId STARTS_WITH "<prefix>".
//
// The search attributes RowfoldProjection, RowfoldRow and RowfoldState are registered, schedules, updates, standalone
// activities, fairness keys and the pause commands are on.
//
// # A server of one's own
//
// A test that kills the server starts one with [StartProcess], usually on a file. [Process.Kill] is SIGKILL, and
// [Process.Restart] brings the server back on the same file and the same port, where clients and workers find it again.
//
// # No server is left behind
//
// Every server stops when its standard input ends, and the other end is held by the test process: whatever way that one
// dies, the server follows.
package temporaltest
