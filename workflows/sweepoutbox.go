package workflows

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/rowfold/rowfold/activities"
)

// SweepOutbox is the input of the workflow of that name, which wakes the drains of rows
// whose wake got lost. It runs as a schedule or a cron workflow: a run goes on where
// the one before it had used up its wakes.
type SweepOutbox struct {
	Projection string `json:"projection"` // required
	// Grace is how old a pending head must be before its row is woken. Defaults to 30s.
	Grace activities.Duration `json:"grace,omitempty"`
	// MaxWakes is how many rows one run wakes. Defaults to 1000.
	MaxWakes int `json:"maxWakes,omitempty"`
	// PageSize is how many rows one read of the pending index returns. Defaults to 200.
	PageSize int `json:"pageSize,omitempty"`
	// After is the row key after which to begin. Defaults to where the last run stopped.
	After string `json:"after,omitempty"`
	// ActivityTimeout is the longest that the sweep runs. Defaults to 10m.
	ActivityTimeout activities.Duration `json:"activityTimeout,omitempty"`
	// HeartbeatTimeout is how long the activity may be silent. Defaults to 30s.
	HeartbeatTimeout activities.Duration `json:"heartbeatTimeout,omitempty"`
}

// WithDefaults returns the input with every empty field at its default.
func (in SweepOutbox) WithDefaults() SweepOutbox {
	in.Grace = in.Grace.Or(30 * time.Second)
	in.MaxWakes = orDefault(in.MaxWakes, 1000)
	in.PageSize = orDefault(in.PageSize, 200)
	in.ActivityTimeout = in.ActivityTimeout.Or(10 * time.Minute)
	in.HeartbeatTimeout = in.HeartbeatTimeout.Or(30 * time.Second)
	return in
}

// Validate names every field that is wrong, in an error of the type
// [ErrorInvalidInput]. It expects the defaults to be filled in.
func (in SweepOutbox) Validate() error {
	var c checks
	c.required("projection", in.Projection)
	c.duration("grace", in.Grace)
	c.positive("maxWakes", in.MaxWakes)
	c.positive("pageSize", in.PageSize)
	c.duration("activityTimeout", in.ActivityTimeout)
	c.duration("heartbeatTimeout", in.HeartbeatTimeout)
	return invalid(TypeSweepOutbox, c)
}

func sweepOutbox(ctx workflow.Context, raw json.RawMessage, _ Options) (activities.SweepCounts, error) {
	in, err := decode[SweepOutbox](TypeSweepOutbox, raw)
	if err != nil {
		return activities.SweepCounts{}, err
	}
	var counts activities.SweepCounts
	if in.After == "" && workflow.HasLastCompletionResult(ctx) {
		if err := workflow.GetLastCompletionResult(ctx, &counts); err != nil {
			return counts, fmt.Errorf("read the last run's result: %w", err)
		}
		in.After = counts.Next
	}
	counts = activities.SweepCounts{}
	ctx = workflow.WithActivityOptions(ctx, long("", "sweep "+in.Projection, in.ActivityTimeout, in.HeartbeatTimeout))
	err = workflow.ExecuteActivity(ctx, activities.SweepRows, activities.SweepInput{
		Projection: in.Projection, After: in.After, Grace: in.Grace, MaxWakes: in.MaxWakes, PageSize: in.PageSize,
	}).Get(ctx, &counts)
	if err != nil {
		return counts, fmt.Errorf("sweep projection %s: %w", in.Projection, err)
	}
	workflow.SetCurrentDetails(ctx, "**swept**\n\n"+table(
		[2]string{"pending rows", strconv.Itoa(counts.Pending)}, [2]string{"woken", strconv.Itoa(counts.Woken)},
		[2]string{"wakes dropped", strconv.Itoa(counts.Dropped)}, [2]string{"not due yet", strconv.Itoa(counts.Waiting)},
		[2]string{"young", strconv.Itoa(counts.Young)},
		[2]string{"parked", strconv.Itoa(counts.Parked)}, [2]string{"goes on after", counts.Next}))
	return counts, nil
}
