// Package activities holds what workflows let workers do: drain an outbox, sweep, apply
// events, follow a shard, catch up a parked instance, purge. Each one is thin: it decodes
// its input, calls the packages projection and outbox over the worker's stores, reports
// itself alive by heartbeats, and gives every error its class, from which Temporal takes
// whether to retry ([Failure]).
//
// Activities are grouped by what they need: [Drains], [Sweeps], [Applies], [Consumers], [Parked]
// and [Purges]. A worker registers the ones that it can serve; package worker does it.
//
// Histories carry references, never rows or effects: inputs and results are names,
// versions and counts.
package activities
