package activities

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rowfold/rowfold/projection"
)

// PurgeTombstones is the name of the activity of [Purges].
const PurgeTombstones = "PurgeTombstones"

// Purger removes expired tombstones. Every projection.RowStore is one.
type Purger interface {
	PurgeTombstones(ctx context.Context, model *projection.Model, now time.Time, limit int) (projection.Purged, error)
}

// Purges are the activities that remove expired tombstones.
type Purges struct {
	Store  Purger                       // required
	Models map[string]*projection.Model // by projection; required
	// Now defaults to time.Now.
	Now func() time.Time
}

// PurgeInput asks for a purge of one projection.
type PurgeInput struct {
	Projection string `json:"projection"`
	PageSize   int    `json:"pageSize"`
	// MaxPages bounds one activity; what is left is for the next one.
	MaxPages int `json:"maxPages"`
}

// PurgeTombstones removes tombstones that have expired, and gives those that missed it
// an expiry, page by page. More in the result says that there may be others. Errors:
// *[UnknownProjection], faults of the store.
func (a *Purges) PurgeTombstones(ctx context.Context, in PurgeInput) (projection.Purged, error) {
	model, known := a.Models[in.Projection]
	if !known {
		return projection.Purged{}, Failure(&UnknownProjection{Projection: in.Projection, Known: slices.Sorted(maps.Keys(a.Models))})
	}
	now := clock(a.Now)
	var mu sync.Mutex
	var total projection.Purged
	stop := heartbeat(ctx, func() any {
		mu.Lock()
		defer mu.Unlock()
		return total
	})
	defer stop()
	for range in.MaxPages {
		purged, err := a.Store.PurgeTombstones(ctx, model, now(), in.PageSize)
		mu.Lock()
		total.Removed += purged.Removed
		total.Dated += purged.Dated
		total.More = purged.More
		mu.Unlock()
		if err != nil {
			return total, Failure(err)
		}
		if !purged.More || stopping(ctx) {
			break
		}
	}
	return total, nil
}
