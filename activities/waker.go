package activities

import (
	"context"

	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
)

// Wakes counts what became of wakes.
type Wakes struct {
	Sent    int `json:"sent"`              // answered by Temporal
	Dropped int `json:"dropped,omitempty"` // given up; the sweep wakes the row later
}

// Waker wakes the drains of rows. It is implemented by the starter; an activity knows
// no workflow.
type Waker interface {
	// Wake asks for the rows to be woken and returns at once. It never fails.
	Wake(ctx context.Context, rows []outbox.Row)
	// Flush waits until every wake asked for before is answered or given up, and
	// counts both.
	Flush(ctx context.Context) Wakes
}

// CatchUps starts the workflows that bring parked instances up to date. It is
// implemented by the starter.
type CatchUps interface {
	// EnsureCatchUp starts the instance's catch-up unless one is running.
	EnsureCatchUp(ctx context.Context, projection string, instance projection.Instance) error
}
