package worker_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/activities"
	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/internal/tallytest"
	"github.com/rowfold/rowfold/internal/temporaltest"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
	"github.com/rowfold/rowfold/worker"
	"github.com/rowfold/rowfold/workflows"
)

// Validate names all faults at once.
func TestConfig_Validate(t *testing.T) {
	t.Parallel()
	lab := tallytest.New(t, sqliteConfig())
	_, err := worker.New(worker.Config{
		Projections: []projection.Definition{lab.Definition, lab.Definition},
		Deliver:     map[string]outbox.Deliverer{"Other": nil, tallytest.Projection: nil},
		Feeds:       map[string]event.Feed{"days": nil},
		Grace:       -1, Parallelism: -1,
	})
	require.Equal(t, []string{"Starter", "Store", "Events", "Projections", "Deliver", "Deliver", "Feeds", "Grace", "BatchRows"}, faults(err))
	require.ErrorContains(t, err, `"Tally" occurs twice`)
	require.ErrorContains(t, err, `"Other" is no projection of this worker`)
	require.ErrorContains(t, err, `the deliverer of "Tally" is nil`)
	require.Equal(t, []string{"Starter", "Store", "Events", "Projections"}, faults(worker.Config{}.Validate()))
}

func faults(err error) []string {
	joined, is := err.(interface{ Unwrap() []error })
	if !is {
		return nil
	}
	var fields []string
	for _, fault := range joined.Unwrap() {
		if invalid, is := errors.AsType[*worker.InvalidConfig](fault); is {
			fields = append(fields, invalid.Field)
		}
	}
	return fields
}

// T-24: one worker serves everything: it follows a feed, applies, and delivers.
func TestWorker_servesAll(t *testing.T) {
	t.Parallel()
	s := newSite(t, temporaltest.Client(t))
	feed := &tallytest.Feed{}
	feed.Open("s-1")
	s.Append(t, "day-1", tallytest.Entries("a", 5)...)
	s.Append(t, "day-2", tallytest.Entries("b", 3)...)
	feed.Put("s-1", slices.Concat(s.Records(t, "day-1"), s.Records(t, "day-2"))...)
	config := s.config(s.mailbox.deliverer())
	config.Feeds = map[string]event.Feed{"days": feed}
	w, err := worker.New(config)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- w.Run(ctx) }()
	run, err := s.starter.ConsumeStream(t.Context(), workflows.ConsumeStream{
		Following: workflows.Following{Consumer: tallytest.Consumer, Feed: "days", StopAtHead: true},
	})
	require.NoError(t, err)
	require.NoError(t, run.Get(t.Context(), nil))
	s.mailbox.await(t, "a", 5)
	s.mailbox.await(t, "b", 3)
	s.finished(t, "a")
	s.finished(t, "b")
	require.Equal(t, upTo(5), s.mailbox.of("a"))
	require.EqualValues(t, 5, s.Tally(t, "a").Total)

	// The consumer itself woke the drains.
	runs, err := s.starter.ApplyBatch(t.Context(), workflows.ApplyBatch{
		Events: []activities.EventRange{{Stream: tallytest.Stream, StreamID: "day-1", From: 1, To: s.Append(t, "day-1", tallytest.Entries("a", 1)...)}},
	})
	require.NoError(t, err)
	require.Len(t, runs, 1)
	require.NoError(t, runs[0].Get(t.Context(), nil))
	s.mailbox.await(t, "a", 6)
	s.finished(t, "a")
	stop()
	require.NoError(t, <-served)
}

// A worker that Temporal cannot be reached for does not start, and says which one.
func TestWorker_doesNotStart(t *testing.T) {
	t.Parallel()
	cut := newLine()
	s := newSite(t, cut.client(t))
	w, err := worker.New(s.config(s.mailbox.deliverer()))
	require.NoError(t, err)
	cut.cut()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.ErrorContains(t, w.Run(ctx), "start the worker of task queue "+s.prefix)
}
