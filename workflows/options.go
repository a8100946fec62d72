package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/rowfold/rowfold/activities"
	"github.com/rowfold/rowfold/internal/clip"
)

const (
	// defaultHeartbeat is how long an activity may be silent before another attempt
	// takes over.
	defaultHeartbeat = 10 * time.Second
	// defaultContinueAfter is after how many rounds, signals and updates a run continues
	// as new by its own count.
	defaultContinueAfter = 500
	// operatorTimeout bounds what an operator waits for.
	operatorTimeout = time.Minute
)

// retryPolicy is the policy of every activity. What must not be retried says so in its
// error (activities.Failure), so there is no end here.
func retryPolicy() *temporal.RetryPolicy {
	return &temporal.RetryPolicy{InitialInterval: 200 * time.Millisecond, BackoffCoefficient: 2, MaximumInterval: 30 * time.Second}
}

// long returns the options of an activity that heartbeats.
func long(queue, summary string, timeout, heartbeat activities.Duration) workflow.ActivityOptions {
	return workflow.ActivityOptions{
		TaskQueue: queue, Summary: clip.Text(summary, maxSummary), StartToCloseTimeout: timeout.Std(), HeartbeatTimeout: heartbeat.Std(),
		WaitForCancellation: true, RetryPolicy: retryPolicy(),
	}
}

// short returns the options of an activity that an operator waits for.
func short(queue, summary string) workflow.ActivityOptions {
	return workflow.ActivityOptions{
		TaskQueue: queue, Summary: clip.Text(summary, maxSummary), RetryPolicy: retryPolicy(),
		StartToCloseTimeout: operatorTimeout / 2, ScheduleToCloseTimeout: operatorTimeout,
	}
}

// maxSummary is the longest summary that Temporal takes, in bytes.
const maxSummary = 200
