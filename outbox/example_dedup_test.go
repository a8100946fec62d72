package outbox_test

import (
	"context"
	"fmt"

	"github.com/rowfold/rowfold/outbox"
)

// A delivery is at least once. First deliveries are in order, so the last sequence of each
// row is all that a consumer has to remember.
func ExampleDedup() {
	ctx := context.Background()
	deliver := outbox.Dedup(outbox.NewRecentRows(1000), func(_ context.Context, delivery outbox.Delivery) error {
		fmt.Println(delivery.Row.Key, delivery.Sequence)
		return nil
	})
	row := outbox.Row{Projection: "Seats", Key: "LX1"}
	for _, sequence := range []outbox.Sequence{
		outbox.SequenceOf(1, 0),
		outbox.SequenceOf(1, 0), // a process ended between the delivery and its delete
		outbox.SequenceOf(2, 0),
		outbox.SequenceOf(1, 0), // a drain that was overtaken comes late
	} {
		if err := deliver(ctx, outbox.Delivery{Item: outbox.Item{Row: row, Sequence: sequence}}); err != nil {
			panic(err)
		}
	}
	// Output:
	// LX1 0000000000000001000
	// LX1 0000000000000002000
}

// A consumer with a database of its own accepts an effect in the transaction of its work.
func ExampleAccept() {
	ctx := context.Background()
	memory := outbox.NewRecentRows(1000) // in a service: a table, read and written in the transaction
	row := outbox.Row{Projection: "Seats", Key: "LX1"}
	for _, sequence := range []outbox.Sequence{outbox.SequenceOf(1, 0), outbox.SequenceOf(1, 0), outbox.SequenceOf(1, 1)} {
		isNew, err := outbox.Accept(ctx, memory, row, sequence)
		if err != nil {
			panic(err)
		}
		fmt.Println(sequence, isNew)
	}
	// Output:
	// 0000000000000001000 true
	// 0000000000000001000 false
	// 0000000000000001001 true
}
