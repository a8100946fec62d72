// Package workflows holds what rowfold runs on Temporal: draining a row's outbox, sweeping
// for lost wakes, applying batches, following streams, catching up parked instances, purging
// tombstones. Workflows are deterministic and know activities by name and input only.
//
// Each is started with one JSON object, from code (package starter), from the CLI, or from
// the Temporal UI's form:
//
//	temporal workflow start --type DrainRow --task-queue rowfold \
//		--input '{"projection": "AirportBoard", "row": "JFK"}'
//
// A wrong input fails at once with an error of the type [ErrorInvalidInput] that names the
// field and the fix. docs/workflows.md lists all inputs with their defaults.
//
// # What people see
//
// Every run has a summary, current details as Markdown with the next command to type, and,
// where they are registered, the search attributes [AttributeProjection], [AttributeRow] and
// [AttributeState]. A memo ([MemoState]) says what a run waits for, also without a worker.
//
// # Long runs
//
// A run carries its state over continue-as-new in one struct, the field carried of its
// input. Before that, and before it ends, signals are drained and updates are answered.
package workflows
