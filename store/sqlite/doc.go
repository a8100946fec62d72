// Package sqlite keeps events, rows and outboxes in one SQLite database, in a file or in
// memory. It is the embedded default: nothing to install, every guarantee of the larger
// stores, one writer at a time.
//
//	store, err := sqlite.Open(ctx, sqlite.Config{Path: "rows.db"})
//
// # Rows are ordinary tables
//
// Prepare creates a table for each read model, with a column of its type for each field of
// the row type, and a view with the read model's own name that shows the live rows:
//
//	sqlite3 rows.db 'select code, total from airport_board order by total desc limit 5'
//
// Rows lie in rowfold_rows_<table>, with the columns of the bookkeeping and some that
// begin with rowfold_. Columns that you add yourself survive every write.
//
// # Several processes
//
// Any number of processes may open one file on one machine: it is in WAL mode, readers wait
// for nobody, and writers wait for each other up to Config.BusyTimeout, then fail as
// throttled (event.ClassThrottled), which retries. Not on a network file system: see
// https://www.sqlite.org/wal.html.
package sqlite
