package activities

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"

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
	// Child says that the shard has parents and that all of them were read to their end, so
	// that its oldest record is where this consumer has to begin.
	Child bool `json:"child,omitempty"`
}

// Discovered is what a consumer has to know about a feed's shards. It does not grow
// with the number of shards that are done.
type Discovered struct {
	Ready []ShardRef `json:"ready,omitempty"` // to be followed and not running
	// Ended are shards that were thought to be running and whose follower has completed;
	// the follower of those in Lost has failed, was terminated, or was never there.
	Ended   []string `json:"ended,omitempty"`
	Lost    []string `json:"lost,omitempty"`
	Waiting int      `json:"waiting,omitempty"` // wait for their parents, or for their turn
	Done    int      `json:"done,omitempty"`    // closed and read to their end
	// Behind is how many records are left in the shards that are being followed, as their
	// followers have last reported; those that have reported no number are left out.
	Behind map[string]int64 `json:"behind,omitempty"`
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
	result, err := a.askFollowers(ctx, in.Running)
	if err != nil {
		return Discovered{}, Failure(err)
	}
	return discover(in, shards, records, result), nil
}

// discover is the pure part of DiscoverShards; result has what the followers say.
func discover(in DiscoverInput, shards []event.Shard, records map[string]projection.PositionRecord, result Discovered) Discovered {
	listed := map[string]bool{}
	for _, shard := range shards {
		listed[shard.ID] = true
	}
	for _, shard := range shards {
		_, running := in.Running[shard.ID]
		running = running && !slices.Contains(result.Ended, shard.ID) && !slices.Contains(result.Lost, shard.ID)
		unread := func(parent string) bool { return !records[parent].Done }
		blocked := slices.ContainsFunc(shard.Parents, func(parent string) bool { return listed[parent] && unread(parent) })
		switch {
		case records[shard.ID].Done:
			result.Done++
		case blocked:
			result.Waiting++
		case running:
		case len(result.Ready) < in.MaxReady:
			child := len(shard.Parents) > 0 && !slices.ContainsFunc(shard.Parents, unread)
			result.Ready = append(result.Ready, ShardRef{ID: shard.ID, Child: child})
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

// askFollowers describes the follower of each shard: whether it runs, and how far it says
// to be behind.
func (a *Consumers) askFollowers(ctx context.Context, running map[string]string) (Discovered, error) {
	result := Discovered{Behind: map[string]int64{}}
	namespace := activity.GetInfo(ctx).Namespace
	for _, shard := range slices.Sorted(maps.Keys(running)) {
		described, err := a.Temporal.DescribeWorkflowExecution(ctx, &workflowservice.DescribeWorkflowExecutionRequest{
			Namespace: namespace, Execution: &commonpb.WorkflowExecution{WorkflowId: running[shard]},
		})
		var notFound *serviceerror.NotFound
		switch status := described.GetWorkflowExecutionInfo().GetStatus(); {
		case errors.As(err, &notFound):
			result.Lost = append(result.Lost, shard)
		case err != nil:
			return result, fmt.Errorf("describe the follower %s: %w", running[shard], err)
		case isOpen(status):
			if behind, told := a.behind(described.GetPendingActivities()); told {
				result.Behind[shard] = behind
			}
		case status == enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED:
			result.Ended = append(result.Ended, shard)
		default:
			result.Lost = append(result.Lost, shard)
		}
	}
	return result, nil
}

// behind returns what the running FollowShard has told by its heartbeats.
func (a *Consumers) behind(pending []*workflowpb.PendingActivityInfo) (records int64, told bool) {
	decode := a.Converter
	if decode == nil {
		decode = converter.GetDefaultDataConverter()
	}
	for _, one := range pending {
		progress := Progress{Behind: -1}
		if one.GetActivityType().GetName() == FollowShard && one.GetHeartbeatDetails() != nil &&
			decode.FromPayloads(one.GetHeartbeatDetails(), &progress) == nil && progress.Behind >= 0 {
			return progress.Behind, true
		}
	}
	return 0, false
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
	return Failure(a.Positions.SavePosition(ctx, projection.PositionRecord{
		Consumer: in.Consumer, Stream: in.Feed, Shard: in.Shard, Position: records[in.Shard].Position, Done: true, At: clock(a.Now)().UTC(),
	}))
}
