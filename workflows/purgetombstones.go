package workflows

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/rowfold/rowfold/activities"
	"github.com/rowfold/rowfold/projection"
)

// PurgeTombstones is the input of the workflow of that name, which removes tombstones
// that have expired. It runs as a schedule or a cron workflow.
type PurgeTombstones struct {
	Projection string `json:"projection"` // required
	// PageSize is how many tombstones one statement removes. Defaults to 500.
	PageSize int `json:"pageSize,omitempty"`
	// MaxPages is how many pages one activity removes. Defaults to 100.
	MaxPages int `json:"maxPages,omitempty"`
	// MaxRounds is how many activities one run has; what is left is for the next run.
	// Defaults to 100.
	MaxRounds int `json:"maxRounds,omitempty"`
	// ActivityTimeout is the longest that one activity runs. Defaults to 10m.
	ActivityTimeout activities.Duration `json:"activityTimeout,omitempty"`
	// HeartbeatTimeout is how long an activity may be silent. Defaults to 30s.
	HeartbeatTimeout activities.Duration `json:"heartbeatTimeout,omitempty"`
}

// WithDefaults returns the input with every empty field at its default.
func (in PurgeTombstones) WithDefaults() PurgeTombstones {
	in.PageSize = orDefault(in.PageSize, 500)
	in.MaxPages = orDefault(in.MaxPages, 100)
	in.MaxRounds = orDefault(in.MaxRounds, 100)
	in.ActivityTimeout = in.ActivityTimeout.Or(10 * time.Minute)
	in.HeartbeatTimeout = in.HeartbeatTimeout.Or(30 * time.Second)
	return in
}

// Validate names every field that is wrong, in an error of the type
// [ErrorInvalidInput]. It expects the defaults to be filled in.
func (in PurgeTombstones) Validate() error {
	var c checks
	c.required("projection", in.Projection)
	c.positive("pageSize", in.PageSize)
	c.positive("maxPages", in.MaxPages)
	c.positive("maxRounds", in.MaxRounds)
	c.duration("activityTimeout", in.ActivityTimeout)
	c.duration("heartbeatTimeout", in.HeartbeatTimeout)
	return invalid(TypePurgeTombstones, c)
}

func purgeTombstones(ctx workflow.Context, raw json.RawMessage, _ Options) (projection.Purged, error) {
	var total projection.Purged
	in, err := decode[PurgeTombstones](TypePurgeTombstones, raw)
	if err != nil {
		return total, err
	}
	ctx = workflow.WithActivityOptions(ctx, long("", "purge "+in.Projection, in.ActivityTimeout, in.HeartbeatTimeout))
	for range in.MaxRounds {
		var purged projection.Purged
		err := workflow.ExecuteActivity(ctx, activities.PurgeTombstones, activities.PurgeInput{
			Projection: in.Projection, PageSize: in.PageSize, MaxPages: in.MaxPages,
		}).Get(ctx, &purged)
		if err != nil {
			return total, fmt.Errorf("purge tombstones of projection %s: %w", in.Projection, err)
		}
		total.Removed += purged.Removed
		total.Dated += purged.Dated
		total.More = purged.More
		workflow.SetCurrentDetails(ctx, "**purging**\n\n"+table(
			[2]string{"removed", strconv.Itoa(total.Removed)}, [2]string{"given an expiry", strconv.Itoa(total.Dated)}))
		if !total.More {
			break
		}
	}
	return total, nil
}
