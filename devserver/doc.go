// Package devserver runs a real Temporal server, with its web UI, inside the current process.
//
// It is what `rowfold-dev server` starts, what the tests of rowfold run against, and what a demo or an evaluation needs:
// no containers, no database to install, one binary. It is not for production: everything runs in one process on one
// SQLite database.
//
// # Start
//
//	server, err := devserver.Start(ctx, devserver.Config{})
//	if err != nil {
//		return err
//	}
//	defer server.Stop()
//
//	temporal, err := client.DialContext(ctx, client.Options{HostPort: server.HostPort()})
//
// Start returns when the server answers: its namespaces exist, the search attributes of rowfold ([SearchAttributes]) are
// registered in them, and a workflow can be started at once. The zero Config listens on free ports of the loopback
// interface and keeps everything in memory. [Server.UIURL] is the address of the web UI.
//
// # Keep the state
//
// With [Config.Database] the state lives in a SQLite file (write-ahead log, one connection). It survives a stop as well as
// a kill: start again on the same file, with the same [Config.Port] when clients should find the server where it was, and
// running workflows go on. A file belongs to one process at a time; a second one fails to start. It also belongs to one
// version of the Temporal server: delete it after an upgrade.
//
//	server, err := devserver.Start(ctx, devserver.Config{
//		Database: "dev.db",
//		Port:     7233,
//		UIPort:   8233,
//	})
//
// # What is set differently from a stock server
//
// One history shard and one partition per task queue, because one SQLite connection serialises all writes anyway. The
// queue processors may poll a thousand times a second instead of twenty, which otherwise adds up to 50 ms to every hop.
// Most indexes of the visibility table are dropped, since each costs a write per workflow and a table of a development
// server is small. Workers that leave their pollers at the defaults are told to scale them automatically. Fairness keys,
// standalone activities and the pause commands are on. [Config.Settings] overrides any of it.
//
// # Limits
//
// A stopped server leaves about a hundred goroutines and its SQLite connection behind, both Temporal's own: start one
// server per process and separate the tests in it by namespace or by id prefix. For the same reason a database file stays
// locked until the process ends, except for a Start of the same process.
package devserver
