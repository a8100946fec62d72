package projection

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
)

// ProcessorConfig configures a [Processor].
type ProcessorConfig struct {
	// Definitions are the projections that records are routed to. Required.
	Definitions []Definition
	// Store keeps rows, parks and outboxes. Required.
	Store Store
	// Events is where missing versions are read. Required.
	Events event.Reader
	// BatchRows is how many rows are loaded and committed at a time. Defaults to 500.
	BatchRows int
	// Parallelism is how many such groups are in the works at a time. Defaults to
	// GOMAXPROCS.
	Parallelism int
	// Attempts is how many races a row may lose before it fails with
	// *[ProjectionConflict]. Defaults to 10.
	Attempts int
	// BackoffMin and BackoffMax bound the full-jitter wait after a lost race. Default
	// to 10 ms and 500 ms.
	BackoffMin, BackoffMax time.Duration
	// Deliver drains the rows of a batch, in this process, right after their writes;
	// by projection. A projection without an entry is not drained here.
	Deliver map[string]outbox.Deliverer
	// Wake is told which rows have committed or pending effects, once per batch, before
	// ProcessBatch returns. It must not fail a commit. nil = nobody is told. Rows of
	// projections in Deliver are not told.
	Wake func(ctx context.Context, rows []outbox.Row)
	// Meter makes the instruments; see docs/metrics. Defaults to none.
	Meter metric.MeterProvider
	// Log defaults to discarding.
	Log *slog.Logger
	// Now defaults to time.Now.
	Now func() time.Time
}

// Validate reports all faults at once, as an *event.DefinitionError.
func (c ProcessorConfig) Validate() error {
	var faults []string
	if len(c.Definitions) == 0 {
		faults = append(faults, "Definitions is empty")
	}
	names := map[string]bool{}
	for i, definition := range c.Definitions {
		if definition == nil {
			faults = append(faults, fmt.Sprintf("Definitions[%d] is nil", i))
			continue
		}
		if names[definition.Name()] {
			faults = append(faults, fmt.Sprintf("Definitions: %q occurs twice", definition.Name()))
		}
		names[definition.Name()] = true
	}
	if c.Store == nil {
		faults = append(faults, "Store is nil")
	}
	if c.Events == nil {
		faults = append(faults, "Events is nil")
	}
	if c.BatchRows < 0 || c.Parallelism < 0 || c.Attempts < 0 || c.BackoffMin < 0 || c.BackoffMax < 0 {
		faults = append(faults, "BatchRows, Parallelism, Attempts and the backoff must not be negative")
	}
	for _, name := range sortedKeys(c.Deliver) {
		if !names[name] {
			faults = append(faults, fmt.Sprintf("Deliver[%q]: there is no such projection", name))
		}
	}
	if len(faults) > 0 {
		return &event.DefinitionError{What: "processor", Faults: faults}
	}
	return nil
}

// Processor applies batches of records to every projection that reads their streams.
// It is safe for use by several goroutines.
type Processor struct {
	config  ProcessorConfig
	streams map[string][]Definition // by stream name
	metrics instruments
}

// NewProcessor builds a processor. The error is that of [ProcessorConfig.Validate].
func NewProcessor(config ProcessorConfig) (*Processor, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config.BatchRows = orDefault(config.BatchRows, 500)
	config.Parallelism = orDefault(config.Parallelism, runtime.GOMAXPROCS(0))
	config.Attempts = orDefault(config.Attempts, 10)
	config.BackoffMin = orDefault(config.BackoffMin, 10*time.Millisecond)
	config.BackoffMax = orDefault(config.BackoffMax, 500*time.Millisecond)
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.Meter == nil {
		config.Meter = noop.NewMeterProvider()
	}
	metrics, err := newInstruments(config.Meter)
	if err != nil {
		return nil, err
	}
	p := &Processor{config: config, streams: map[string][]Definition{}, metrics: metrics}
	for _, definition := range config.Definitions {
		seen := map[string]bool{}
		for _, source := range definition.Sources() {
			if !seen[source.Stream] {
				p.streams[source.Stream] = append(p.streams[source.Stream], definition)
			}
			seen[source.Stream] = true
		}
	}
	return p, nil
}

// BatchOptions are options of one batch.
type BatchOptions struct {
	// CatchUp names parked instances that this batch applies all the same; by
	// projection.
	CatchUp map[string][]Instance
	// Only restricts the batch to some projections; empty = all.
	Only []string
}

// BatchResult reports a batch.
type BatchResult struct {
	// Rows are the outcomes of all rows, ordered by projection and key.
	Rows []Outcome
	// Failures are the instances that failed, ordered by their earliest record. An
	// instance that was parked before is in Parked and not here.
	Failures []InstanceFailure
	// Parked are instances that are parked; newer versions were noted.
	Parked []Park
	// Enqueued counts the effects that the batch committed.
	Enqueued int
}

// InstanceFailure is an instance of a projection that was not applied.
type InstanceFailure struct {
	Projection string
	Instance   Instance
	Stream     string
	// Record is the index of the earliest record that was not applied for it.
	Record int
	// From and Newest are the lowest and the highest version not applied.
	From, Newest int64
	// Rows are the keys of the rows that it failed for, as far as they are known.
	Rows []string
	Err  error
}

// Class returns what can be done about the failure.
func (f InstanceFailure) Class() event.Class { return event.Classify(f.Err) }

// Error implements error.
func (f InstanceFailure) Error() string {
	return fmt.Sprintf("projection %s, instance %s, versions %d to %d: %v", f.Projection, f.Instance, f.From, f.Newest, f.Err)
}

// Unwrap returns the cause.
func (f InstanceFailure) Unwrap() error { return f.Err }

// Park returns the record that sets the failed instance aside.
func (f InstanceFailure) Park(at time.Time) Park {
	return Park{
		Projection: f.Projection, Instance: f.Instance, Stream: f.Stream, Rows: f.Rows,
		Reason: f.Err.Error(), Class: f.Class(), From: f.From, Newest: f.Newest, ParkedAt: at.UTC(),
	}
}

// ParkFailures records the failures that choose accepts as parked instances, so that
// the feed can go on without them. It returns how many.
func (p *Processor) ParkFailures(ctx context.Context, result BatchResult, choose func(InstanceFailure) bool) (int, error) {
	parked := 0
	for _, failure := range result.Failures {
		if !choose(failure) {
			continue
		}
		if err := p.config.Store.Park(ctx, failure.Park(p.config.Now())); err != nil {
			return parked, fmt.Errorf("park instance %s of projection %s: %w", failure.Instance, failure.Projection, err)
		}
		parked++
	}
	return parked, nil
}

func orDefault[T comparable](value, preset T) T {
	var zero T
	if value == zero {
		return preset
	}
	return value
}
