// Package worker runs rowfold's workflows and activities for a set of projections, inside a
// service or alone.
//
//	w, err := worker.New(worker.Config{
//		Starter:     s, // a starter.Starter
//		Store:       store,
//		Events:      store,
//		Projections: []projection.Definition{board},
//		Feeds:       map[string]event.Feed{"Day": days},
//		Deliver:     map[string]outbox.Deliverer{"AirportBoard": outbox.Handle(send)},
//	})
//	err = w.Run(ctx) // until ctx ends
//
// A worker prepares nothing: call the store's Prepare with the models first.
package worker
