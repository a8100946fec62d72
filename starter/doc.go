// Package starter is the client side of rowfold's workflows: what services, handlers and
// operators start, wake and ask, with types.
//
//	temporal, err := starter.Dial(ctx, starter.DialOptions{}) // as the temporal CLI is configured
//	s, err := starter.New(starter.Config{Client: temporal, Deployment: "flights"})
//	defer s.Close()
//
//	run, err := s.ConsumeStream(ctx, workflows.ConsumeStream{
//		Following: workflows.Following{Consumer: "board", Feed: "Day"},
//	})
//
// # Wakes
//
// A commit with effects wakes the drain of its row: [Starter.Wake] asks for it and returns at
// once, [Starter.Flush] waits until Temporal has answered. Wakes of one row coalesce, and a
// Temporal outage never fails a commit: after its bound a wake is dropped and counted, and the
// next sweep ([Starter.ScheduleSweep]) heals it.
//
// # One run for each thing
//
// Workflow ids name what a run is about (workflows.IDs), so an open run is a lock on it. A
// second start with the same input joins the run; with another input it is
// *[AlreadyRunning], which names the difference.
package starter
