// Package projection folds several event streams into the rows of a read model.
//
// A projection names its sources, and for each of them which row an event contributes
// to and how it changes that row. The row, the checkpoints of everything that
// contributed, and the side effects are committed in one transaction; whatever is
// delivered twice, late or out of order is recognised by the checkpoints.
//
//	var Shipments = projection.Must(projection.Config[string, Shipment]{
//		Name:    "Shipments",
//		Initial: func(id string) Shipment { return Shipment{} },
//		Sources: []projection.AnySource[string, Shipment]{
//			projection.Source[string, Shipment, ParcelAdded]{
//				Name:   "order",
//				Stream: Orders,
//				Key:    func(e event.Event[ParcelAdded]) (string, bool) { return e.Data.ShipmentID, true },
//				Evolve: func(_ context.Context, s Shipment, e event.Event[ParcelAdded], _ projection.Instance) (Shipment, error) {
//					s.Parcels += e.Data.Parcels
//					return s, nil
//				},
//			},
//		},
//		Checkpoints: projection.Checkpoints{Map: "checkpoints"},
//		Revision:    projection.Revision{Field: "revision"},
//	})
//
// # What happens in a batch
//
// [Processor.ProcessBatch] decodes each record once and sends it to every projection
// that reads its stream. Rows are loaded many at a time; versions that a batch lacks
// are read from the event store; [Projection.Fold], which is pure, computes one
// conditional write for each row; the store commits them; rows that lost a race are
// read and computed again. A failure belongs to the instance that it comes from: its
// checkpoint stays, and the row's other instances apply in the same write.
//
// An instance that cannot be applied is parked, see [Park], so that its feed goes on.
//
// # Reading and writing rows by hand
//
// [Rows] is the way for everybody else: removed rows are absent to it, and what it
// writes raises the revision and keeps the checkpoints.
package projection
