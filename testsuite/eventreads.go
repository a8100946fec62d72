package testsuite

import (
	"context"
	"iter"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
)

func collect(events iter.Seq2[event.Envelope, error]) ([]event.Envelope, error) {
	var envelopes []event.Envelope
	for envelope, err := range events {
		if err != nil {
			return envelopes, err
		}
		envelopes = append(envelopes, envelope)
	}
	return envelopes, nil
}

func versionsOf(t testing.TB, store event.Store, stream string, id event.ID, part event.Range) []int64 {
	t.Helper()
	part.Consistent = true
	envelopes, err := collect(store.Read(t.Context(), stream, id, part))
	require.NoError(t, err)
	versions := make([]int64, 0, len(envelopes))
	for _, envelope := range envelopes {
		require.Equal(t, stream, envelope.Stream)
		require.Equal(t, id, envelope.StreamID)
		versions = append(versions, envelope.Version)
	}
	return versions
}

//
func ranges(t *testing.T, b Backend) {
	appendN(t, b.Events, "Order", "o-1", 0, 10)
	for _, c := range []struct {
		part event.Range
		want []int64
	}{
		{event.Range{After: 7}, []int64{8, 9, 10}},
		{event.Range{UpTo: 3}, []int64{1, 2, 3}},
		{event.Range{After: 3, UpTo: 5}, []int64{4, 5}},
		{event.Range{After: 3, UpTo: 4}, []int64{4}},
		{event.Range{After: 5, UpTo: 5}, []int64{}},
		{event.Range{After: 6, UpTo: 5}, []int64{}},
		{event.Range{After: 10}, []int64{}},
		{event.Range{After: 8, UpTo: 99}, []int64{9, 10}},
		{event.Range{After: 7, Reverse: true}, []int64{10, 9, 8}},
		{event.Range{After: 3, UpTo: 5, Reverse: true}, []int64{5, 4}},
		{event.Range{UpTo: 2, Reverse: true}, []int64{2, 1}},
	} {
		require.Equal(t, c.want, versionsOf(t, b.Events, "Order", "o-1", c.part), "%+v", c.part)
	}
}

//
func unknownInstance(t *testing.T, b Backend) {
	require.Empty(t, versionsOf(t, b.Events, "Order", "nobody", event.Range{}))
	version, err := b.Events.Version(t.Context(), "Order", "nobody")
	require.NoError(t, err)
	require.Zero(t, version)
	oldest, err := b.Events.Oldest(t.Context(), "Order", "nobody")
	require.NoError(t, err)
	require.Zero(t, oldest)
}

// a reader that has seen enough holds nothing any more.
func readStops(t *testing.T, b Backend) {
	appendN(t, b.Events, "Order", "o-1", 0, 20)
	for range 30 { // more often than any pool has connections
		for envelope, err := range b.Events.Read(t.Context(), "Order", "o-1", event.Range{}) {
			require.NoError(t, err)
			if envelope.Version == 3 {
				break
			}
		}
	}
	require.Len(t, versionsOf(t, b.Events, "Order", "o-1", event.Range{}), 20)
}

// a loop over events holds nothing that the store needs for another call.
func readAndWrite(t *testing.T, b Backend) {
	appendN(t, b.Events, "Order", "o-1", 0, 10)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	seen := 0
	for envelope, err := range b.Events.Read(ctx, "Order", "o-1", event.Range{UpTo: 10, Consistent: true}) {
		require.NoError(t, err)
		seen++
		_, err = b.Events.Append(ctx, event.Append{Stream: "Copy", StreamID: "c-1", Expected: envelope.Version - 1, Events: newEvents(1, 1)})
		require.NoError(t, err)
		version, err := b.Events.Version(ctx, "Order", "o-1")
		require.NoError(t, err)
		require.Equal(t, int64(10), version)
	}
	require.Equal(t, 10, seen)
}

// a stream of any length is read in pages that nobody notices.
func longStream(t *testing.T, b Backend) {
	const events, batch = 2500, 50
	for at := int64(0); at < events; at += batch {
		appendN(t, b.Events, "Order", "o-1", at, batch)
	}
	for _, reverse := range []bool{false, true} {
		versions := versionsOf(t, b.Events, "Order", "o-1", event.Range{After: 10, Reverse: reverse})
		require.Len(t, versions, events-10)
		for i, version := range versions {
			want := int64(11 + i)
			if reverse {
				want = int64(events - i)
			}
			require.Equal(t, want, version)
		}
	}
}

//
func cancelledRead(t *testing.T, b Backend) {
	appendN(t, b.Events, "Order", "o-1", 0, 3)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := collect(b.Events.Read(ctx, "Order", "o-1", event.Range{}))
	require.ErrorIs(t, err, context.Canceled)
}
