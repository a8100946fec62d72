package workflows

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/rowfold/rowfold/activities"
)

// MaxRanges is how many event ranges one ApplyBatch takes, so that its input stays small;
// the starter makes several batches of more.
const MaxRanges = 200

// ApplyBatch is the input of the workflow of that name, which applies events that it is
// given by reference: for a feed that wants a batch to be durable before it acknowledges
// it. When it completes every event is applied, or its instance is parked and a
// CatchUpInstance is running.
type ApplyBatch struct {
	// Events are references, at most [MaxRanges]. Required.
	Events []activities.EventRange `json:"events"`
	// Projections restricts the batch; empty = every projection of the worker.
	Projections []string `json:"projections,omitempty"`
	// PageSize is how many events are applied at a time. Defaults to 500.
	PageSize int `json:"pageSize,omitempty"`
	// Attempts is how often a page is tried before what fails for now is parked.
	// Defaults to 5.
	Attempts int `json:"attempts,omitempty"`
	// RetryMin and RetryMax bound the wait between those tries; it doubles each time.
	// Default to 200ms and 5s.
	RetryMin activities.Duration `json:"retryMin,omitempty"`
	RetryMax activities.Duration `json:"retryMax,omitempty"`
	// ActivityTimeout is the longest that the activity runs. Defaults to 1h.
	ActivityTimeout activities.Duration `json:"activityTimeout,omitempty"`
	// HeartbeatTimeout is how long the activity may be silent. Defaults to 10s.
	HeartbeatTimeout activities.Duration `json:"heartbeatTimeout,omitempty"`
}

// WithDefaults returns the input with every empty field at its default.
func (in ApplyBatch) WithDefaults() ApplyBatch {
	in.PageSize = orDefault(in.PageSize, 500)
	in.Attempts = orDefault(in.Attempts, 5)
	in.RetryMin = in.RetryMin.Or(200 * time.Millisecond)
	in.RetryMax = in.RetryMax.Or(max(5*time.Second, in.RetryMin.Std()))
	in.ActivityTimeout = in.ActivityTimeout.Or(time.Hour)
	in.HeartbeatTimeout = in.HeartbeatTimeout.Or(defaultHeartbeat)
	return in
}

// Validate names every field that is wrong, in an error of the type
// [ErrorInvalidInput]. It expects the defaults to be filled in.
func (in ApplyBatch) Validate() error {
	var c checks
	if len(in.Events) == 0 {
		c.faultf("events", "there are none: name a stream, a stream id and the versions from and to")
	}
	if len(in.Events) > MaxRanges {
		c.faultf("events", "there are %d: start several batches of at most %d", len(in.Events), MaxRanges)
	}
	for i, events := range in.Events {
		field := fmt.Sprintf("events[%d]", i)
		c.required(field+".stream", events.Stream)
		c.required(field+".streamId", string(events.StreamID))
		if events.From < 1 {
			c.faultf(field+".from", "%d is too low: versions begin at 1", events.From)
		}
		if events.To < events.From {
			c.faultf(field+".to", "%d is below from, %d: write the last version", events.To, events.From)
		}
	}
	c.positive("pageSize", in.PageSize)
	c.positive("attempts", in.Attempts)
	c.backoff("retry", in.RetryMin, in.RetryMax)
	c.duration("activityTimeout", in.ActivityTimeout)
	c.duration("heartbeatTimeout", in.HeartbeatTimeout)
	return invalid(TypeApplyBatch, c)
}

func applyBatch(ctx workflow.Context, raw json.RawMessage, _ Options) (activities.Applied, error) {
	var applied activities.Applied
	in, err := decode[ApplyBatch](TypeApplyBatch, raw)
	if err != nil {
		return applied, err
	}
	summary := fmt.Sprintf("apply %d ranges of events", len(in.Events))
	ctx = workflow.WithActivityOptions(ctx, long("", summary, in.ActivityTimeout, in.HeartbeatTimeout))
	err = workflow.ExecuteActivity(ctx, activities.ApplyEvents, activities.ApplyInput{
		Events: in.Events, Projections: in.Projections, PageSize: in.PageSize,
		Attempts: in.Attempts, RetryMin: in.RetryMin, RetryMax: in.RetryMax,
	}).Get(ctx, &applied)
	if err != nil {
		return applied, fmt.Errorf("%s: %w", summary, err)
	}
	workflow.SetCurrentDetails(ctx, "**applied**\n\n"+appliedTable(applied))
	return applied, nil
}

func appliedTable(applied activities.Applied) string {
	return table(
		[2]string{"events", strconv.Itoa(applied.Events)}, [2]string{"rows written", strconv.Itoa(applied.Written)},
		[2]string{"rejected", strconv.Itoa(applied.Rejected)}, [2]string{"effects", strconv.Itoa(applied.Enqueued)},
		[2]string{"instances parked", strconv.Itoa(applied.Parked)}, [2]string{"wakes dropped", strconv.Itoa(applied.Wakes.Dropped)})
}
