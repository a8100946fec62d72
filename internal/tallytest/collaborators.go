package tallytest

import (
	"context"
	"slices"
	"sync"

	"github.com/rowfold/rowfold/activities"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
)

// Waker notes which rows are woken. It is safe for concurrent use.
type Waker struct {
	mu    sync.Mutex
	rows  []outbox.Row
	fresh int
}

// Wake implements activities.Waker.
func (w *Waker) Wake(_ context.Context, rows []outbox.Row) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rows = append(w.rows, rows...)
	w.fresh += len(rows)
}

// Flush implements activities.Waker.
func (w *Waker) Flush(context.Context) activities.Wakes {
	w.mu.Lock()
	defer w.mu.Unlock()
	sent := w.fresh
	w.fresh = 0
	return activities.Wakes{Sent: sent}
}

// Rows returns the keys of the rows that were woken, in order.
func (w *Waker) Rows() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	keys := make([]string, 0, len(w.rows))
	for _, row := range w.rows {
		keys = append(keys, row.Key)
	}
	return keys
}

// CatchUps notes which catch-ups are started. It is safe for concurrent use.
type CatchUps struct {
	// Start is called for each one; nil = nothing happens.
	Start func(ctx context.Context, name string, instance projection.Instance) error

	mu      sync.Mutex
	started []projection.Instance
}

// EnsureCatchUp implements activities.CatchUps.
func (c *CatchUps) EnsureCatchUp(ctx context.Context, name string, instance projection.Instance) error {
	if c.Start != nil {
		if err := c.Start(ctx, name, instance); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.started = append(c.started, instance)
	return nil
}

// Started returns the instances whose catch-up was started, in order.
func (c *CatchUps) Started() []projection.Instance {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.started)
}

var (
	_ activities.Waker    = (*Waker)(nil)
	_ activities.CatchUps = (*CatchUps)(nil)
)
