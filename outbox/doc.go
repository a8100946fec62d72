// Package outbox delivers the side effects that rows have committed: in order per
// row, at least once.
//
// A projection's write puts effects into the row's outbox in the same transaction
// as the row itself. Nothing is sent before the commit, and nothing that was
// committed is forgotten. Afterwards a drain hands the effects to a [Deliverer]:
// it claims the head of the row's queue, delivers, deletes, and repeats.
//
//	deliver := outbox.Handle(func(ctx context.Context, n LateArrival, d outbox.Delivery) error {
//		return mailer.Send(ctx, d.ID, n)
//	})
//	result, err := outbox.Drain(ctx, store, row, deliver, outbox.Options{Types: types})
//
// # What is promised
//
// First deliveries are in sequence order per row. An effect is deleted only after
// a successful delivery, or by an operator's recorded [Decision]. Rows do not wait
// for one another: a failing delivery keeps its own row's queue and nothing else.
//
// An effect can be delivered again: after a crash between delivery and delete, or
// when a drain was overtaken in the middle of a delivery. An overtaken drain
// repeats at most one effect, but its repeat may land after a later effect. So
// consumers deduplicate, on [Item.ID] or, since first deliveries are ordered, on the
// last sequence per row: [Dedup] and [Accept] do the latter.
//
// # Claims
//
// A claim only limits repeats; the order does not depend on it. Its owner is either
// a process, whose claim is good for [DefaultClaimFor] and then expires, or a workflow
// execution, whose claim is good for as long as the orchestrator says that the
// execution is running. See [Judge].
package outbox
