// Package tallytest gives tests of activities and workflows something real to run on: a small
// projection over a SQLite store in memory, whose fold can be broken and mended, and feeds and
// collaborators that do what a test tells them.
package tallytest
