package workflows

import (
	"encoding/json"

	"go.temporal.io/sdk/workflow"
)

// Registry is where workflows are registered: a worker, a replayer, or a test
// environment.
type Registry interface {
	RegisterWorkflowWithOptions(workflow any, options workflow.RegisterOptions)
}

// Options are what a worker tells the workflows.
type Options struct {
	// DeliveryTaskQueue is the task queue of the activities that deliver. Empty = the
	// workflow's own.
	DeliveryTaskQueue string
	// Versioned pins the short workflows to the worker version that began them and lets
	// the long ones move on. It is for workers with a build id.
	Versioned bool
}

// Register registers every workflow under its type name. Workers, tests and the
// replayer share it.
func Register(registry Registry, options Options) {
	pinned, moving := workflow.VersioningBehaviorUnspecified, workflow.VersioningBehaviorUnspecified
	if options.Versioned {
		pinned, moving = workflow.VersioningBehaviorPinned, workflow.VersioningBehaviorAutoUpgrade
	}
	register(registry, TypeDrainRow, pinned, options, drainRow)
	register(registry, TypeSweepOutbox, pinned, options, sweepOutbox)
	register(registry, TypeApplyBatch, pinned, options, applyBatch)
	register(registry, TypePurgeTombstones, pinned, options, purgeTombstones)
	register(registry, TypeCatchUpInstance, moving, options, catchUpInstance)
	register(registry, TypeConsumeStream, moving, options, consumeStream)
	register(registry, TypeConsumeShard, moving, options, consumeShard)
}

func register[R any](
	registry Registry, name string, versioning workflow.VersioningBehavior, options Options,
	run func(workflow.Context, json.RawMessage, Options) (R, error),
) {
	registry.RegisterWorkflowWithOptions(func(ctx workflow.Context, raw json.RawMessage) (R, error) {
		return run(ctx, raw, options)
	}, workflow.RegisterOptions{Name: name, VersioningBehavior: versioning})
}
