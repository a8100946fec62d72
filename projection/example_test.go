package projection_test

import (
	"context"
	"fmt"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
	"github.com/rowfold/rowfold/store/sqlite"
)

// Two streams: orders add parcels to a shipment, scanners say where it is.
type (
	ParcelAdded struct {
		Shipment string
		Parcels  int64
	}
	Scanned struct{ Place string }
)

var (
	Orders = event.MustStream[ParcelAdded]("Order", []string{"orderId"}, event.Type[ParcelAdded]("ParcelAdded"))
	Scans  = event.MustStream[Scanned]("Scan", []string{"shipmentId"}, event.Type[Scanned]("Scanned"))
)

// Shipment is the row that both are folded into, and Arrival its side effect.
type (
	Shipment struct {
		ID          string `row:"id,key"`
		Parcels     int64
		Place       string
		Checkpoints map[string]int64
		Revision    int64
	}
	Arrival struct{ Text string }
)

var Shipments = projection.Must(projection.Config[string, Shipment]{
	Name:    "Shipments",
	Initial: func(id string) Shipment { return Shipment{ID: id, Place: "nowhere"} },
	Sources: []projection.AnySource[string, Shipment]{
		projection.Source[string, Shipment, ParcelAdded]{
			Name: "order", Stream: Orders,
			Key: func(e event.Event[ParcelAdded]) (string, bool) { return e.Data.Shipment, true },
			Evolve: func(_ context.Context, s Shipment, e event.Event[ParcelAdded], _ projection.Instance) (Shipment, error) {
				s.Parcels += e.Data.Parcels
				return s, nil
			},
		},
		projection.Source[string, Shipment, Scanned]{
			Name: "scan", Stream: Scans,
			Key: func(e event.Event[Scanned]) (string, bool) { return string(e.StreamID), true },
			Evolve: func(_ context.Context, s Shipment, e event.Event[Scanned], _ projection.Instance) (Shipment, error) {
				s.Place = e.Data.Place
				return s, nil
			},
			Effects: func(s *Shipment, _ event.Event[Scanned], _ projection.Instance) ([]any, error) {
				return []any{Arrival{fmt.Sprintf("%d parcels are in %s", s.Parcels, s.Place)}}, nil
			},
		},
	},
	Checkpoints: projection.Checkpoints{Map: "checkpoints"},
	Revision:    projection.Revision{Field: "revision"},
	Outbox:      &projection.Outbox{Effects: []event.TypeDef{event.Type[Arrival]("Arrival")}},
})

// A read model of two streams, with an effect: recorded, folded and delivered.
func Example() {
	ctx := context.Background()
	store := must(sqlite.Open(ctx, sqlite.Config{})) // in memory
	defer store.Close()
	check(store.Prepare(ctx, Shipments.Model()))

	must(Orders.Append(ctx, store, "order-1", 0, ParcelAdded{"sh-1", 2}, ParcelAdded{"sh-1", 1}))
	must(Orders.Append(ctx, store, "order-2", 0, ParcelAdded{"sh-1", 4}))
	must(Scans.Append(ctx, store, "sh-1", 0, Scanned{"Bremen"}, Scanned{"Oslo"}))

	// Apply what the feeds hold: one write for the row, its checkpoints and its effects.
	processor := must(projection.NewProcessor(projection.ProcessorConfig{
		Definitions: []projection.Definition{Shipments}, Store: store, Events: store,
	}))
	var records []event.Record
	for _, stream := range []string{"Order", "Scan"} {
		feed := must(store.Feed(stream, 1))
		records = append(records, must(feed.Read(ctx, "0of1", "", 100)).Records...)
	}
	must(processor.ProcessBatch(ctx, records, projection.BatchOptions{}))
	must(processor.ProcessBatch(ctx, records, projection.BatchOptions{})) // delivered twice, applied once

	shipment := must(projection.NewRows(Shipments, store).Get(ctx, "sh-1"))
	fmt.Println(shipment.ID, shipment.Parcels, shipment.Place, shipment.Checkpoints, "revision", shipment.Revision)

	// Deliver the effects, in order.
	mail := outbox.Handle(func(_ context.Context, a Arrival, _ outbox.Delivery) error {
		fmt.Println("mail:", a.Text)
		return nil
	})
	drained := must(outbox.Drain(ctx, store, outbox.Row{Projection: "Shipments", Key: "sh-1"}, mail,
		outbox.Options{Types: Shipments.EffectTypes()}))
	fmt.Println("delivered", drained.Delivered)
	// Output:
	// sh-1 7 Oslo map[order#order-1:2 order#order-2:1 scan#sh-1:2] revision 1
	// mail: 7 parcels are in Bremen
	// mail: 7 parcels are in Oslo
	// delivered 2
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
