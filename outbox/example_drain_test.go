package outbox_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
	"github.com/rowfold/rowfold/store/sqlite"
)

type (
	// Booked is an event, Seats the row that it is folded into, Receipt its effect.
	Booked struct{ Flight, Passenger string }
	Seats  struct {
		Flight      string `row:"flight,key"`
		Taken       int64
		Checkpoints map[string]int64
		Revision    int64
	}
	Receipt struct {
		Passenger string `json:"passenger"`
		Seat      int64  `json:"seat"`
	}
)

var (
	bookings = event.MustStream[Booked]("Booking", []string{"bookingId"}, event.Type[Booked]("Booked"))
	seats    = projection.Must(projection.Config[string, Seats]{
		Name:    "Seats",
		Initial: func(flight string) Seats { return Seats{Flight: flight} },
		Sources: []projection.AnySource[string, Seats]{projection.Source[string, Seats, Booked]{
			Name: "booking", Stream: bookings,
			Key: func(e event.Event[Booked]) (string, bool) { return e.Data.Flight, true },
			Evolve: func(_ context.Context, s Seats, _ event.Event[Booked], _ projection.Instance) (Seats, error) {
				s.Taken++
				return s, nil
			},
			Effects: func(s *Seats, e event.Event[Booked], _ projection.Instance) ([]any, error) {
				return []any{Receipt{e.Data.Passenger, s.Taken}}, nil
			},
		}},
		Checkpoints: projection.Checkpoints{Map: "checkpoints"},
		Revision:    projection.Revision{Field: "revision"},
		Outbox:      &projection.Outbox{Effects: []event.TypeDef{event.Type[Receipt]("Receipt")}},
	})
)

// book records a booking of each passenger and applies it: rows and effects are committed.
func book(ctx context.Context, store *sqlite.Store, passengers ...string) error {
	if err := store.Prepare(ctx, seats.Model()); err != nil {
		return err
	}
	for _, passenger := range passengers {
		if _, err := bookings.Append(ctx, store, event.ID(passenger), 0, Booked{"LX1", passenger}); err != nil {
			return err
		}
	}
	feed, err := store.Feed("Booking", 1)
	if err != nil {
		return err
	}
	page, err := feed.Read(ctx, "0of1", "", 100)
	if err != nil {
		return err
	}
	processor, err := projection.NewProcessor(projection.ProcessorConfig{
		Definitions: []projection.Definition{seats}, Store: store, Events: store,
	})
	if err != nil {
		return err
	}
	_, err = processor.ProcessBatch(ctx, page.Records, projection.BatchOptions{})
	return err
}

// A receipt that cannot be sent holds up the receipts behind it, until somebody decides.
func ExampleDrain() {
	ctx := context.Background()
	store, err := sqlite.Open(ctx, sqlite.Config{}) // in memory
	if err != nil {
		panic(err)
	}
	defer store.Close()
	if err := book(ctx, store, "ann", "bob", "cleo"); err != nil {
		panic(err)
	}

	send := outbox.Handle(func(_ context.Context, receipt Receipt, delivery outbox.Delivery) error {
		if receipt.Passenger == "bob" {
			return event.Permanent(errors.New("bob has no address"))
		}
		fmt.Printf("seat %d for %s (%s)\n", receipt.Seat, receipt.Passenger, delivery.ID)
		return nil
	})
	row := outbox.Row{Projection: "Seats", Key: "LX1"}
	options := outbox.Options{Types: seats.EffectTypes()}
	result, err := outbox.Drain(ctx, store, row, send, options)
	if err != nil {
		panic(err)
	}
	fmt.Println("delivered", result.Delivered, "parked", result.Failed.Parked, "because", result.Failed.Error)

	// An operator looks, and sets the receipt aside.
	order := outbox.Order{EffectID: result.Failed.ID, Who: "nina", Why: "he pays in cash", At: noon}
	if err := outbox.ParkHead(ctx, store, row, order); err != nil {
		panic(err)
	}
	result, err = outbox.Drain(ctx, store, row, send, options)
	if err != nil {
		panic(err)
	}
	fmt.Println("delivered", result.Delivered, "empty", result.Empty)
	// Output:
	// seat 1 for ann (Seats|LX1|booking|ann|1|0)
	// delivered 1 parked true because bob has no address
	// seat 3 for cleo (Seats|LX1|booking|cleo|1|0)
	// delivered 1 empty true
}
