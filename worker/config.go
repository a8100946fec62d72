package worker

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.temporal.io/sdk/worker"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
	"github.com/rowfold/rowfold/starter"
)

// DefaultGrace is how long a worker that stops lets a running batch finish.
const DefaultGrace = 20 * time.Second

// Config says what a [Worker] serves.
type Config struct {
	// Starter has the client, the task queue and the deployment, and sends the wakes.
	// Required. The worker does not close it.
	Starter *starter.Starter
	// Store keeps rows, outboxes, parks and positions. Required.
	Store projection.Store
	// Events is where missing versions are read. Required.
	Events event.Reader
	// Projections are applied and drained. Required.
	Projections []projection.Definition
	// Feeds are what ConsumeStream can follow, by name: their stream's, usually.
	Feeds map[string]event.Feed
	// Deliver delivers the effects, by projection. One with an outbox and without a
	// deliverer here is applied, and not drained, by this worker.
	Deliver map[string]outbox.Deliverer

	// DeliveryTaskQueue separates the activities that deliver from the others. Defaults to
	// the starter's task queue, on which this worker always serves the rest.
	DeliveryTaskQueue string
	// BatchRows and Parallelism are those of projection.ProcessorConfig.
	BatchRows, Parallelism int
	// Grace is how long a worker that stops lets a running batch finish. Defaults to
	// [DefaultGrace].
	Grace time.Duration
	// Options are the SDK's: concurrency, pollers, deployment version. Its WorkerStopTimeout
	// is Grace.
	Options worker.Options
	// Meter makes the instruments, see docs/metrics.md. Defaults to none.
	Meter metric.MeterProvider
	// Log defaults to discarding.
	Log *slog.Logger
	// Now defaults to time.Now.
	Now func() time.Time
}

// InvalidConfig is a fault of a [Config]. New reports all at once, joined.
type InvalidConfig struct {
	Field  string // of Config
	Reason string
}

// Error implements error.
func (e *InvalidConfig) Error() string { return fmt.Sprintf("worker.Config.%s: %s", e.Field, e.Reason) }

// Validate reports every fault at once, as joined *[InvalidConfig] errors.
func (c Config) Validate() error {
	var faults []error
	fault := func(field, reason string) { faults = append(faults, &InvalidConfig{Field: field, Reason: reason}) }
	if c.Starter == nil {
		fault("Starter", "it is nil: use starter.New")
	}
	if c.Store == nil {
		fault("Store", "it is nil")
	}
	if c.Events == nil {
		fault("Events", "it is nil")
	}
	if len(c.Projections) == 0 {
		fault("Projections", "there are none")
	}
	known := map[string]projection.Definition{}
	for _, definition := range c.Projections {
		if known[definition.Name()] != nil {
			fault("Projections", fmt.Sprintf("%q occurs twice", definition.Name()))
		}
		known[definition.Name()] = definition
	}
	for _, name := range slices.Sorted(maps.Keys(c.Deliver)) {
		switch definition := known[name]; {
		case definition == nil:
			fault("Deliver", fmt.Sprintf("%q is no projection of this worker", name))
		case definition.EffectTypes() == nil:
			fault("Deliver", fmt.Sprintf("projection %q has no outbox", name))
		case c.Deliver[name] == nil:
			fault("Deliver", fmt.Sprintf("the deliverer of %q is nil", name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Feeds)) {
		if c.Feeds[name] == nil {
			fault("Feeds", fmt.Sprintf("feed %q is nil", name))
		}
	}
	if c.Grace < 0 {
		fault("Grace", "it is negative; 0 takes the default")
	}
	if c.BatchRows < 0 || c.Parallelism < 0 {
		fault("BatchRows", "BatchRows and Parallelism must not be negative; 0 takes the default")
	}
	return errors.Join(faults...)
}

func (c Config) withDefaults() Config {
	if c.Grace == 0 {
		c.Grace = DefaultGrace
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}
