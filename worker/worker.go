package worker

import (
	"context"
	"fmt"
	"sync"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/worker"

	"github.com/rowfold/rowfold/activities"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
	"github.com/rowfold/rowfold/workflows"
)

// Worker serves workflows and activities. Use [New].
type Worker struct {
	config  Config
	workers []worker.Worker
	failed  chan error // a part of it cannot go on
}

// New builds a worker and starts nothing. The error is that of [Config.Validate].
func New(config Config) (*Worker, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	set, err := activitiesOf(config)
	if err != nil {
		return nil, err
	}
	w := &Worker{config: config, failed: make(chan error, 1)}
	options := config.Options
	options.WorkerStopTimeout = config.Grace
	options.OnFatalError = w.fatal
	client, queue := config.Starter.Client(), config.Starter.TaskQueue()
	main := worker.New(client, queue, options)
	workflows.Register(main, workflows.Options{
		DeliveryTaskQueue: config.DeliveryTaskQueue,
		Versioned:         options.DeploymentOptions.UseVersioning,
	})
	set.register(main)
	w.workers = []worker.Worker{main}
	if config.DeliveryTaskQueue != "" && config.DeliveryTaskQueue != queue {
		options.DisableWorkflowWorker = true
		deliveries := worker.New(client, config.DeliveryTaskQueue, options)
		set.registerDrains(deliveries)
		w.workers = append(w.workers, deliveries)
	} else {
		set.registerDrains(main)
	}
	return w, nil
}

// Start begins to poll and returns. The error is Temporal's.
func (w *Worker) Start() error {
	for i, part := range w.workers {
		if err := part.Start(); err != nil {
			for _, started := range w.workers[:i] {
				started.Stop()
			}
			return fmt.Errorf("start the worker of task queue %s: %w", w.config.Starter.TaskQueue(), err)
		}
	}
	return nil
}

// Stop lets running batches finish within Config.Grace and returns when nothing runs any
// more.
func (w *Worker) Stop() {
	var stopped sync.WaitGroup
	for _, part := range w.workers {
		stopped.Go(part.Stop)
	}
	stopped.Wait()
}

// Run serves until ctx ends, or until Temporal refuses the worker for good. The error is that
// of [Worker.Start], or of the refusal.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.Start(); err != nil {
		return err
	}
	defer w.Stop()
	select {
	case <-ctx.Done():
		return nil
	case err := <-w.failed:
		return fmt.Errorf("the worker of task queue %s cannot go on: %w", w.config.Starter.TaskQueue(), err)
	}
}

// fatal is called when Temporal refuses a part of the worker for good.
func (w *Worker) fatal(err error) {
	select {
	case w.failed <- err:
	default: // the first one tells enough
	}
	if tell := w.config.Options.OnFatalError; tell != nil {
		tell(err)
	}
}

// activitySet are the activities of one worker.
type activitySet struct {
	drains    *activities.Drains
	sweeps    *activities.Sweeps
	applies   *activities.Applies
	consumers *activities.Consumers
	parked    *activities.Parked
	purges    *activities.Purges
}

func activitiesOf(config Config) (*activitySet, error) {
	s := config.Starter
	processor, err := projection.NewProcessor(projection.ProcessorConfig{
		Definitions: config.Projections, Store: config.Store, Events: config.Events,
		BatchRows: config.BatchRows, Parallelism: config.Parallelism,
		Wake: s.Wake, Meter: config.Meter, Log: config.Log, Now: config.Now,
	})
	if err != nil {
		return nil, err
	}
	outboxes, models := map[string]activities.Outbox{}, map[string]*projection.Model{}
	for _, definition := range config.Projections {
		model := definition.Model()
		models[definition.Name()] = model
		if deliver := config.Deliver[definition.Name()]; deliver != nil {
			outboxes[definition.Name()] = activities.Outbox{
				Types: definition.EffectTypes(), Deliver: deliver, TombstoneTTL: model.TombstoneTTL,
			}
		}
	}
	temporal := s.Client().WorkflowService()
	applier := activities.Applier{Processor: processor, Waker: s, CatchUps: s}
	return &activitySet{
		drains: &activities.Drains{
			Store: config.Store, Outboxes: outboxes, Log: config.Log,
			Judge: activities.Judge{Temporal: temporal, Clock: outbox.ClockJudge{Now: config.Now}},
		},
		sweeps:  &activities.Sweeps{Store: config.Store, Waker: s, Now: config.Now},
		applies: &activities.Applies{Applier: applier, Events: config.Events},
		consumers: &activities.Consumers{
			Applier: applier, Feeds: config.Feeds, Positions: config.Store, Temporal: temporal, Now: config.Now,
		},
		parked: &activities.Parked{Processor: processor, Store: config.Store, Events: config.Events, Waker: s},
		purges: &activities.Purges{Store: config.Store, Models: models, Now: config.Now},
	}, nil
}

// ActivityRegistry is where activities are registered: a worker or a test environment.
type ActivityRegistry interface {
	RegisterActivityWithOptions(activity any, options activity.RegisterOptions)
}

// registerDrains registers what needs deliverers.
func (a *activitySet) registerDrains(registry ActivityRegistry) {
	register(registry, map[string]any{
		activities.DrainOutbox: a.drains.DrainOutbox,
		activities.RetryHead:   a.drains.RetryHead,
		activities.DecideHead:  a.drains.DecideHead,
	})
}

// register registers everything else.
func (a *activitySet) register(registry ActivityRegistry) {
	register(registry, map[string]any{
		activities.SweepRows:       a.sweeps.SweepRows,
		activities.ApplyEvents:     a.applies.ApplyEvents,
		activities.FollowShard:     a.consumers.FollowShard,
		activities.DiscoverShards:  a.consumers.DiscoverShards,
		activities.CloseShard:      a.consumers.CloseShard,
		activities.CatchUp:         a.parked.CatchUp,
		activities.RecordSkip:      a.parked.RecordSkip,
		activities.PurgeTombstones: a.purges.PurgeTombstones,
	})
}

func register(registry ActivityRegistry, functions map[string]any) {
	for name, function := range functions {
		registry.RegisterActivityWithOptions(function, activity.RegisterOptions{Name: name})
	}
}
