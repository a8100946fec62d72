package projection

import (
	"fmt"

	"go.opentelemetry.io/otel/metric"
)

// instruments are the measurements of a processor. Their names are in docs/metrics.md.
type instruments struct {
	gapEvents metric.Int64Counter
	lostRaces metric.Int64Counter
	rowSize   metric.Int64Histogram
	events    metric.Int64Counter
}

func newInstruments(provider metric.MeterProvider) (instruments, error) {
	meter := provider.Meter("github.com/rowfold/rowfold/projection")
	var m instruments
	var err error
	if m.gapEvents, err = meter.Int64Counter("rowfold.gap_events_read",
		metric.WithDescription("Events that were read since a batch did not hold them.")); err != nil {
		return m, fmt.Errorf("instrument rowfold.gap_events_read: %w", err)
	}
	if m.lostRaces, err = meter.Int64Counter("rowfold.lost_races",
		metric.WithDescription("Writes whose row was written by somebody else meanwhile.")); err != nil {
		return m, fmt.Errorf("instrument rowfold.lost_races: %w", err)
	}
	if m.events, err = meter.Int64Counter("rowfold.events_applied",
		metric.WithDescription("Events applied to rows.")); err != nil {
		return m, fmt.Errorf("instrument rowfold.events_applied: %w", err)
	}
	if m.rowSize, err = meter.Int64Histogram("rowfold.row_size", metric.WithUnit("By"),
		metric.WithDescription("Size of written rows with their checkpoints.")); err != nil {
		return m, fmt.Errorf("instrument rowfold.row_size: %w", err)
	}
	return m, nil
}
