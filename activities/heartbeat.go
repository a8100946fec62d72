package activities

import (
	"context"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
)

// beats is how many heartbeats fit in one time-out. The SDK sends fewer when they
// would be needless.
const beats = 4

// heartbeat reports the activity as alive by a ticker, whatever it is doing, with the
// details as they are at that time. The returned function ends it and waits for its
// goroutine. When heartbeats fail for one time-out the SDK cancels ctx: that is how an
// activity that was cut off ends itself.
func heartbeat(ctx context.Context, details func() any) (stop func()) {
	timeout := activity.GetInfo(ctx).HeartbeatTimeout
	if timeout <= 0 {
		return func() {}
	}
	done := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		ticker := time.NewTicker(max(timeout/beats, time.Millisecond))
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ctx.Done():
				return
			case <-ticker.C:
				activity.RecordHeartbeat(ctx, details())
			}
		}
	})
	return func() {
		close(done)
		wait.Wait()
	}
}

// stopping reports whether the worker is about to stop: a batch that runs is finished
// within its grace time, and no other one is begun.
func stopping(ctx context.Context) bool {
	select {
	case <-activity.GetWorkerStopChannel(ctx):
		return true
	default:
		return false
	}
}
