package projection_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
	"github.com/rowfold/rowfold/store/sqlite"
)

// Every fault of a configuration is reported at once.
func TestProcessorConfigFaults(t *testing.T) {
	t.Parallel()
	_, err := projection.NewProcessor(projection.ProcessorConfig{
		BatchRows: -1, Deliver: map[string]outbox.Deliverer{"Ghosts": nil},
	})
	var definition *event.DefinitionError
	require.ErrorAs(t, err, &definition)
	require.Equal(t, "processor", definition.What)
	require.Equal(t, []string{
		"Definitions is empty", "Store is nil", "Events is nil",
		"BatchRows, Parallelism, Attempts and the backoff must not be negative", `Deliver["Ghosts"]: there is no such projection`,
	}, definition.Faults)

	store := openStore(t, sqlite.Config{})
	_, err = projection.NewProcessor(projection.ProcessorConfig{
		Definitions: []projection.Definition{crates(t), nil, crates(t)}, Store: store, Events: store,
	})
	require.ErrorAs(t, err, &definition)
	require.Equal(t, []string{"Definitions[1] is nil", `Definitions: "Crates" occurs twice`}, definition.Faults)
}

// brokenMeter cannot make one instrument.
type brokenMeter struct {
	noop.MeterProvider

	name string
}

type brokenInstruments struct {
	noop.Meter

	name string
}

func (b brokenMeter) Meter(string, ...metric.MeterOption) metric.Meter {
	return brokenInstruments{name: b.name}
}

func (b brokenInstruments) Int64Counter(name string, options ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	if name == b.name {
		return nil, errDown
	}
	return b.Meter.Int64Counter(name, options...)
}

func (b brokenInstruments) Int64Histogram(name string, options ...metric.Int64HistogramOption) (metric.Int64Histogram, error) {
	if name == b.name {
		return nil, errDown
	}
	return b.Meter.Int64Histogram(name, options...)
}

// A meter that fails is a fault that names the instrument.
func TestProcessorInstruments(t *testing.T) {
	t.Parallel()
	store := openStore(t, sqlite.Config{})
	for _, name := range []string{"rowfold.gap_events_read", "rowfold.lost_races", "rowfold.events_applied", "rowfold.row_size"} {
		_, err := projection.NewProcessor(projection.ProcessorConfig{
			Definitions: []projection.Definition{crates(t)}, Store: store, Events: store, Meter: brokenMeter{name: name},
		})
		require.ErrorIs(t, err, errDown)
		require.ErrorContains(t, err, name)
	}
}

// An instance's failure says what failed, and becomes a park.
func TestInstanceFailure(t *testing.T) {
	t.Parallel()
	failure := projection.InstanceFailure{
		Projection: "Crates", Instance: order1, Stream: "Order", Record: 3, From: 4, Newest: 6, Rows: []string{"c1"}, Err: event.Permanent(errBroken),
	}
	require.EqualError(t, failure, "projection Crates, instance order#o1, versions 4 to 6: the scale is broken")
	require.ErrorIs(t, failure, errBroken)
	zone := time.FixedZone("east", 3600)
	require.Equal(t, projection.Park{
		Projection: "Crates", Instance: order1, Stream: "Order", Rows: []string{"c1"}, Reason: "the scale is broken",
		Class: event.ClassPermanent, From: 4, Newest: 6, ParkedAt: time.Date(2026, 6, 1, 11, 0, 0, 0, time.UTC),
	}, failure.Park(time.Date(2026, 6, 1, 12, 0, 0, 0, zone)))
}

// fragile has a method that panics.
type fragile struct {
	Text string
}

func (f fragile) MarshalJSON() ([]byte, error) {
	if f.Text == "encode" {
		panic("cannot encode")
	}
	return []byte(`{"text":"fine"}`), nil
}

// a panic in user code is an error of the instance, wherever that code is called.
func TestPanicsOfUserCode(t *testing.T) {
	t.Parallel()
	boom := func() { panic(errors.New("boom")) }
	effects := func(values ...any) func(*crate, event.Event[weighed], projection.Instance) ([]any, error) {
		return func(*crate, event.Event[weighed], projection.Instance) ([]any, error) { return values, nil }
	}
	for name, change := range map[string]func(*projection.Source[string, crate, weighed], *projection.Config[string, crate]){
		"key": func(s *projection.Source[string, crate, weighed], _ *projection.Config[string, crate]) {
			s.Key = func(event.Event[weighed]) (string, bool) { boom(); return "", false }
		},
		"evolve": func(s *projection.Source[string, crate, weighed], _ *projection.Config[string, crate]) {
			s.Evolve = func(context.Context, crate, event.Event[weighed], projection.Instance) (crate, error) {
				boom()
				return crate{}, nil
			}
		},
		"terminal": func(s *projection.Source[string, crate, weighed], _ *projection.Config[string, crate]) {
			s.Evolve = func(_ context.Context, c crate, _ event.Event[weighed], _ projection.Instance) (crate, error) {
				return c, errBroken
			}
			s.Terminal = func(error, event.Event[weighed]) bool { boom(); return true }
		},
		"effects": func(s *projection.Source[string, crate, weighed], _ *projection.Config[string, crate]) {
			s.Effects = func(*crate, event.Event[weighed], projection.Instance) ([]any, error) { boom(); return nil, nil }
		},
		"closes": func(s *projection.Source[string, crate, weighed], _ *projection.Config[string, crate]) {
			s.Closes = func(event.Event[weighed]) bool { boom(); return true }
		},
		"decode": func(s *projection.Source[string, crate, weighed], _ *projection.Config[string, crate]) {
			s.Stream = event.MustStream[weighed]("Scale", []string{"sessionId"}, event.Type[weighed]("Weighed", event.SchemaVersion(2),
				event.Upcast(1, func(_ json.RawMessage) (json.RawMessage, error) { boom(); return nil, nil })))
		},
		"encode": func(s *projection.Source[string, crate, weighed], c *projection.Config[string, crate]) {
			s.Effects = effects(fragile{"encode"})
			c.Outbox.Effects = append(c.Outbox.Effects, event.Type[fragile]("Fragile"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, setup{definition: func(c *projection.Config[string, crate]) {
				source := scaleSource()
				change(&source, c)
				c.Sources[2] = source
			}})
			result := l.apply(l.record("Scale", "s1", weighed{"c1", 1}), l.record("Order", "o1", loaded{"c1", 1}))
			require.Len(t, result.Failures, 1)
			require.Equal(t, projection.Instance{Source: "scale", StreamID: "s1"}, result.Failures[0].Instance)
			var panicked *projection.EvolvePanic
			require.ErrorAs(t, result.Failures[0], &panicked)
			require.Equal(t, name, panicked.Func)
			require.NotEmpty(t, panicked.Stack)
			require.Equal(t, event.ClassPermanent, result.Failures[0].Class())
			require.EqualValues(t, 1, l.row("c1").Count, "the row's other instance applies")
		})
	}
}

type brittle struct {
	ID          string `row:"id,key"`
	Data        fragile
	Checkpoints map[string]int64
}

// code of the row as a whole fails the row, and no other.
func TestPanicsOfRowCode(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"initial", "columns"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := projection.New(projection.Config[string, brittle]{
				Name: "Brittle", Checkpoints: projection.Checkpoints{Map: "checkpoints"},
				Initial: func(id string) brittle {
					if name == "initial" && id == "c1" {
						panic("no beginning")
					}
					return brittle{}
				},
				Sources: []projection.AnySource[string, brittle]{projection.Source[string, brittle, weighed]{
					Name: "scale", Stream: scales, Key: func(e event.Event[weighed]) (string, bool) { return e.Data.Crate, true },
					Evolve: func(_ context.Context, b brittle, e event.Event[weighed], _ projection.Instance) (brittle, error) {
						if b.Data.Text = "fine"; e.Data.Crate == "c1" && name == "columns" {
							b.Data.Text = "encode"
						}
						return b, nil
					},
				}},
			})
			require.NoError(t, err)
			store := openStore(t, sqlite.Config{}, p)
			processor, err := projection.NewProcessor(projection.ProcessorConfig{Definitions: []projection.Definition{p}, Store: store, Events: store})
			require.NoError(t, err)
			result, err := processor.ProcessBatch(t.Context(), []event.Record{
				{Envelope: envelope(t, "Scale", "s1", 1, weighed{"c1", 1})}, {Envelope: envelope(t, "Scale", "s2", 1, weighed{"c2", 1})},
			}, projection.BatchOptions{})
			require.NoError(t, err)
			require.Len(t, result.Failures, 1)
			var panicked *projection.EvolvePanic
			require.ErrorAs(t, result.Failures[0], &panicked)
			require.Equal(t, name, panicked.Func)
			require.Equal(t, []string{"c1"}, result.Failures[0].Rows)
			require.True(t, outcomeOf(t, result, "c2").Written)
		})
	}
}
