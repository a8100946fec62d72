package activities

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/projection"
)

// DiscoverInput asks for the shards of a feed as one consumer has to see them.
type DiscoverInput struct {
	Consumer string `json:"consumer"`
	Feed     string `json:"feed"`
	// Running are the workflow ids of the shards that are being followed as far as is
	// known, by shard.
	Running map[string]string `json:"running,omitempty"`
	// MaxReady bounds Discovered.Ready.
	MaxReady int `json:"maxReady"`
}

// ShardRef is a shard that can be followed now.
type ShardRef struct {
	ID string `json:"id"`
	// Child says that the shard has parents, all of which are done or trimmed.
	Child bool `json:"child,omitempty"`
}

// Discovered is what a consumer has to know about a feed's shards. It does not grow
// with the number of shards that are done.
type Discovered struct {
	Ready   []ShardRef `json:"ready,omitempty"`   // to be followed and not running
	Ended   []string   `json:"ended,omitempty"`   // thought to be running, and not
	Waiting int        `json:"waiting,omitempty"` // wait for their parents
	Done    int        `json:"done,omitempty"`    // closed and read to their end
	// Vanished are shards that the feed does not list any more and that were not read
	// to their end: a gap that an operator has to accept.
	Vanished []string `json:"vanished,omitempty"`
}

// DiscoverShards lists the feed's shards, compares them with the position records, and
// asks Temporal which followers have ended. Errors: *[UnknownFeed], faults of the feed,
// the store and Temporal.
func (a *Consumers) DiscoverShards(ctx context.Context, in DiscoverInput) (Discovered, error) {
	feed, known := a.Feeds[in.Feed]
	if !known {
		return Discovered{}, Failure(&UnknownFeed{Feed: in.Feed, Known: slices.Sorted(maps.Keys(a.Feeds))})
	}
	stop := heartbeat(ctx, func() any { return nil })
	defer stop()
	shards, err := feed.Shards(ctx)
	if err != nil {
		return Discovered{}, Failure(err)
	}
	records, err := a.Positions.Positions(ctx, in.Consumer, in.Feed)
	if err != nil {
		return Discovered{}, Failure(err)
	}
	ended, err := a.ended(ctx, in.Running)
	if err != nil {
		return Discovered{}, Failure(err)
	}
	return discover(in, shards, records, ended), nil
}

// discover is the pure part of DiscoverShards.
func discover(in DiscoverInput, shards []event.Shard, records map[string]projection.PositionRecord, ended []string) Discovered {
	result := Discovered{Ended: ended}
	listed := map[string]bool{}
	for _, shard := range shards {
		listed[shard.ID] = true
	}
	for _, shard := range shards {
		_, running := in.Running[shard.ID]
		blocked := slices.ContainsFunc(shard.Parents, func(parent string) bool { return listed[parent] && !records[parent].Done })
		switch {
		case records[shard.ID].Done:
			result.Done++
		case blocked:
			result.Waiting++
		case running && !slices.Contains(ended, shard.ID):
		case len(result.Ready) < in.MaxReady:
			result.Ready = append(result.Ready, ShardRef{ID: shard.ID, Child: len(shard.Parents) > 0})
		default:
			result.Waiting++
		}
	}
	for _, id := range slices.Sorted(maps.Keys(records)) {
		switch {
		case listed[id]:
		case records[id].Done:
			result.Done++
		default:
			result.Vanished = append(result.Vanished, id)
		}
	}
	return result
}

// ended returns the shards whose follower is closed or not found.
func (a *Consumers) ended(ctx context.Context, running map[string]string) ([]string, error) {
	var ended []string
	namespace := activity.GetInfo(ctx).Namespace
	for _, shard := range slices.Sorted(maps.Keys(running)) {
		described, err := a.Temporal.DescribeWorkflowExecution(ctx, &workflowservice.DescribeWorkflowExecutionRequest{
			Namespace: namespace, Execution: &commonpb.WorkflowExecution{WorkflowId: running[shard]},
		})
		var notFound *serviceerror.NotFound
		switch {
		case errors.As(err, &notFound):
			ended = append(ended, shard)
		case err != nil:
			return nil, err
		default:
			status := described.GetWorkflowExecutionInfo().GetStatus()
			if status != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING && status != enumspb.WORKFLOW_EXECUTION_STATUS_PAUSED {
				ended = append(ended, shard)
			}
		}
	}
	return ended, nil
}

// CloseInput names a shard that vanished before its end.
type CloseInput struct {
	Consumer string `json:"consumer"`
	Feed     string `json:"feed"`
	Shard    string `json:"shard"`
}

// CloseShard records a vanished shard as done: an operator has accepted that the rest of
// it is lost. Errors are faults of the store.
func (a *Consumers) CloseShard(ctx context.Context, in CloseInput) error {
	records, err := a.Positions.Positions(ctx, in.Consumer, in.Feed)
	if err != nil {
		return Failure(err)
	}
	now := time.Now
	if a.Now != nil {
		now = a.Now
	}
	return Failure(a.Positions.SavePosition(ctx, projection.PositionRecord{
		Consumer: in.Consumer, Stream: in.Feed, Shard: in.Shard, Position: records[in.Shard].Position, Done: true, At: now().UTC(),
	}))
}
