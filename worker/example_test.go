package worker_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/internal/temporaltest"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
	"github.com/rowfold/rowfold/starter"
	"github.com/rowfold/rowfold/store/sqlite"
	"github.com/rowfold/rowfold/worker"
	"github.com/rowfold/rowfold/workflows"
)

type placed struct {
	Amount int64 `json:"amount"`
}

type order struct {
	ID          string           `row:"id,key"`
	Total       int64            `row:"total"`
	Checkpoints map[string]int64 `row:"checkpoints"`
	Revision    int64            `row:"revision"`
}

type receipt struct {
	Total int64 `json:"total"`
}

// A service that follows its own events and sends a receipt for each order, in order and
// whatever crashes. Temporal's address, TLS and keys come from its environment configuration.
func Example() { //nolint:testableexamples // it needs a Temporal server; TestExample gives it one
	err := serve(context.Background(), "orders.db", starter.DialOptions{})
	fmt.Println(err)
}

// TestExample runs the example until its consumer follows.
func TestExample(t *testing.T) {
	t.Parallel()
	temporal := temporaltest.Client(t)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- serve(ctx, filepath.Join(t.TempDir(), "orders.db"), starter.DialOptions{Address: temporaltest.Address(t)})
	}()
	shop, err := starter.New(starter.Config{Client: temporal, Deployment: "shop"})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		state, err := shop.Progress(t.Context(), "orders", "Order")
		return err == nil && len(state.Running) == 4
	}, patience, tick)
	require.NoError(t, shop.StopConsumer(t.Context(), "orders", "Order"))
	require.NoError(t, temporal.GetWorkflow(t.Context(), shop.IDs().ConsumeStream("orders", "Order"), "").Get(t.Context(), nil))
	stop()
	require.NoError(t, <-served)
}

func serve(ctx context.Context, database string, where starter.DialOptions) error {
	stream, err := event.NewStream[placed]("Order", []string{"id"}, event.Type[placed]("Placed"))
	if err != nil {
		return err
	}
	orders, err := projection.New(projection.Config[string, order]{
		Name:    "Orders",
		Initial: func(string) order { return order{} },
		Sources: []projection.AnySource[string, order]{projection.Source[string, order, placed]{
			Name: "order", Stream: stream,
			Key: func(e event.Event[placed]) (string, bool) { return string(e.StreamID), true },
			Evolve: func(_ context.Context, row order, e event.Event[placed], _ projection.Instance) (order, error) {
				row.Total += e.Data.Amount
				return row, nil
			},
			Effects: func(next *order, _ event.Event[placed], _ projection.Instance) ([]any, error) {
				return []any{receipt{Total: next.Total}}, nil
			},
		}},
		Checkpoints: projection.Checkpoints{Map: "checkpoints"},
		Revision:    projection.Revision{Field: "revision"},
		Outbox:      &projection.Outbox{Effects: []event.TypeDef{event.Type[receipt]("Receipt")}},
	})
	if err != nil {
		return err
	}
	store, err := sqlite.Open(ctx, sqlite.Config{Path: database})
	if err != nil {
		return err
	}
	defer store.Close()
	if err := store.Prepare(ctx, orders.Model()); err != nil {
		return err
	}
	feed, err := store.Feed("Order", 4)
	if err != nil {
		return err
	}

	temporal, namespace, err := starter.Dial(ctx, where)
	if err != nil {
		return err
	}
	defer temporal.Close()
	start, err := starter.New(starter.Config{Client: temporal, Namespace: namespace, Deployment: "shop"})
	if err != nil {
		return err
	}
	defer start.Close()

	send := func(_ context.Context, r receipt, d outbox.Delivery) error {
		fmt.Printf("order %s: %d (%s)\n", d.Row.Key, r.Total, d.ID)
		return nil
	}
	serving, err := worker.New(worker.Config{
		Starter: start, Store: store, Events: store,
		Projections: []projection.Definition{orders},
		Feeds:       map[string]event.Feed{"Order": feed},
		Deliver:     map[string]outbox.Deliverer{"Orders": outbox.Handle(send)},
	})
	if err != nil {
		return err
	}
	if _, err := start.ConsumeStream(ctx, workflows.ConsumeStream{
		Following: workflows.Following{Consumer: "orders", Feed: "Order"},
	}); err != nil {
		return err
	}
	if err := start.ScheduleSweep(ctx, time.Minute, workflows.SweepOutbox{Projection: "Orders"}); err != nil {
		return err
	}
	return serving.Run(ctx)
}
