// Package event holds what a service records: streams of versioned facts.
//
// A stream is a named kind of event stream together with the fields that make
// up its id. Orders are the stream "Order" with the id field "orderId"; the
// events of one order have the versions 1, 2, 3 … without a hole. A stream is
// declared once, with the Go types of its events:
//
//	var Orders = event.MustStream[OrderEvent]("Order", []string{"orderId"},
//		event.Type[ParcelAdded]("ParcelAdded"),
//		event.Type[OrderCancelled]("OrderCancelled"),
//	)
//
// OrderEvent is an interface that both types implement (or, for a stream with
// one type of event, that type itself). Events are appended with the version
// that the writer last saw, so that two writers never record the same version:
//
//	id, err := Orders.ID("o-1")
//	_, err = Orders.Append(ctx, store, id, 0, ParcelAdded{ShipmentID: "sh-1", Parcels: 2})
//
// # When a type changes its shape
//
// A type's schema version is stored with every event. When the shape changes,
// raise [SchemaVersion] and add an [Upcast] from the version before; old events
// are brought to the newest shape when they are read, so that the rest of the
// program knows one shape only.
//
// # Stores and feeds
//
// [Store] is what an event store implements, [Feed] what a change feed over it
// does. Both deal in an [Envelope]: an event whose payload is still bytes.
//
// # Errors
//
// Every error of the module answers one question, through [Classify]: what to
// do about it. Retries, metrics and workflow retry policies read that [Class]
// and nothing else.
package event
