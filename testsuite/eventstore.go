package testsuite

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
)

// EventStore proves R-1 … R-5 on an event store.
func EventStore(t *testing.T, h Harness) {
	t.Helper()
	runCases(t, h, []testCase{
		{"VersionsAreAssignedWithoutHoles", versionsWithoutHoles},
		{"AWrongExpectedVersionIsAConflict", wrongExpectedVersion},
		{"AnEmptyAppendSendsNothing", emptyAppend},
		{"ACommandIsRecordedOnce", commandOnce},
		{"ACommandOfAFailedAppendIsFree", commandOfAFailure},
		{"ACommandIsRecordedOnceAmongMany", commandRace},
		{"ConcurrentAppendersLeaveNoHole", concurrentAppenders},
		{"AnEnvelopeComesBackAsItWas", envelopeRoundTrip},
		{"TheStoresClockFillsInTheTime", storeClock},
		{"IdsAreToldApart", strangeIDs},
		{"Ranges", ranges},
		{"AnUnknownInstanceIsEmpty", unknownInstance},
		{"InvalidAppendsAreRefused", invalidAppends},
		{"AReadCanStopEarly", readStops},
		{"AReaderMayUseTheStoreInItsLoop", readAndWrite},
		{"ALongStreamIsReadInOrder", longStream},
		{"ACancelledReadEndsWithTheError", cancelledRead},
	})
	t.Run("AnAppendOverTheLimitsIsRefused", func(t *testing.T) {
		t.Parallel()
		appendLimits(t, h.Open(t), h.Features)
	})
}

func newEvents(from, n int) []event.NewEvent {
	events := make([]event.NewEvent, 0, n)
	for i := range n {
		events = append(events, event.NewEvent{
			Type: "Counted", SchemaVersion: 1, Time: noon, Payload: json.RawMessage(fmt.Sprintf(`{"n":%d}`, from+i)),
		})
	}
	return events
}

func appendN(t testing.TB, store event.Store, stream string, id event.ID, expected int64, n int) event.Appended {
	t.Helper()
	appended, err := store.Append(t.Context(), event.Append{
		Stream: stream, StreamID: id, Expected: expected, Events: newEvents(int(expected)+1, n),
	})
	require.NoError(t, err)
	return appended
}

//
func versionsWithoutHoles(t *testing.T, b Backend) {
	require.Equal(t, event.Appended{First: 1, Last: 2}, appendN(t, b.Events, "Order", "o-1", 0, 2))
	require.Equal(t, event.Appended{First: 3, Last: 5}, appendN(t, b.Events, "Order", "o-1", 2, 3))
	require.Equal(t, []int64{1, 2, 3, 4, 5}, versionsOf(t, b.Events, "Order", "o-1", event.Range{}))
	version, err := b.Events.Version(t.Context(), "Order", "o-1")
	require.NoError(t, err)
	require.Equal(t, int64(5), version)
	oldest, err := b.Events.Oldest(t.Context(), "Order", "o-1")
	require.NoError(t, err)
	require.Equal(t, int64(1), oldest)
}

// stale and ahead are the same conflict, and nothing of the append is there.
func wrongExpectedVersion(t *testing.T, b Backend) {
	appendN(t, b.Events, "Order", "o-1", 0, 3)
	for _, expected := range []int64{0, 1, 2, 4, 100} {
		_, err := b.Events.Append(t.Context(), event.Append{
			Stream: "Order", StreamID: "o-1", Expected: expected, Events: newEvents(1, 2),
		})
		var conflict *event.VersionConflict
		require.ErrorAs(t, err, &conflict, "expected %d", expected)
		require.Equal(t, event.VersionConflict{Stream: "Order", StreamID: "o-1", Expected: expected, Actual: 3}, *conflict)
		require.Equal(t, event.ClassStale, event.Classify(err))
	}
	_, err := b.Events.Append(t.Context(), event.Append{Stream: "Order", StreamID: "o-2", Expected: 1, Events: newEvents(1, 1)})
	var conflict *event.VersionConflict
	require.ErrorAs(t, err, &conflict)
	require.Zero(t, conflict.Actual)
	require.Equal(t, []int64{1, 2, 3}, versionsOf(t, b.Events, "Order", "o-1", event.Range{}))
	require.Empty(t, versionsOf(t, b.Events, "Order", "o-2", event.Range{}))
}

//
func emptyAppend(t *testing.T, b Backend) {
	appended, err := b.Events.Append(t.Context(), event.Append{Stream: "Order", StreamID: "o-1", Expected: 7, CommandID: "c-1"})
	require.NoError(t, err)
	require.Zero(t, appended)
	// Nothing was sent, so the command is not used up either.
	_, err = b.Events.Append(t.Context(), event.Append{Stream: "Order", StreamID: "o-1", Events: newEvents(1, 1), CommandID: "c-1"})
	require.NoError(t, err)
}

//
func appendLimits(t *testing.T, b Backend, features Features) {
	t.Helper()
	refused := func(request event.Append) *event.AppendTooLarge {
		t.Helper()
		_, err := b.Events.Append(t.Context(), request)
		var tooLarge *event.AppendTooLarge
		require.ErrorAs(t, err, &tooLarge)
		require.Equal(t, event.ClassPermanent, event.Classify(err))
		require.Empty(t, versionsOf(t, b.Events, request.Stream, request.StreamID, event.Range{}))
		return tooLarge
	}
	if limit := features.MaxAppendEvents; limit > 0 {
		tooLarge := refused(event.Append{Stream: "Order", StreamID: "many", Events: newEvents(1, limit+1)})
		require.Equal(t, limit+1, tooLarge.Events)
		require.Equal(t, limit, tooLarge.MaxEvents)
		appendN(t, b.Events, "Order", "many", 0, limit)
	} else {
		appendN(t, b.Events, "Order", "many", 0, 2000)
	}
	large := event.Append{Stream: "Order", StreamID: "large", Events: newEvents(1, 1)}
	size := 8 << 20
	if features.MaxAppendBytes > 0 {
		size = features.MaxAppendBytes
	}
	large.Events[0].Payload = json.RawMessage(`{"text":"` + strings.Repeat("x", size) + `"}`)
	if features.MaxAppendBytes > 0 {
		require.Equal(t, features.MaxAppendBytes, refused(large).MaxBytes)
		return
	}
	_, err := b.Events.Append(t.Context(), large)
	require.NoError(t, err)
	require.Equal(t, []int64{1}, versionsOf(t, b.Events, "Order", "large", event.Range{}))
}

//
func commandOnce(t *testing.T, b Backend) {
	request := event.Append{Stream: "Order", StreamID: "o-1", Events: newEvents(1, 2), CommandID: "c-1"}
	_, err := b.Events.Append(t.Context(), request)
	require.NoError(t, err)
	again := []event.Append{request, request, request}
	again[1].Expected = 2                            // as a caller that has read the stream meanwhile
	again[2].Stream, again[2].StreamID = "Cart", "k" // a command names an intention, not a stream
	for _, request := range again {
		_, err = b.Events.Append(t.Context(), request)
		var duplicate *event.DuplicateCommand
		require.ErrorAs(t, err, &duplicate)
		require.Equal(t, event.DuplicateCommand{CommandID: "c-1", Stream: "Order", StreamID: "o-1", First: 1, Last: 2}, *duplicate)
	}
	require.Equal(t, []int64{1, 2}, versionsOf(t, b.Events, "Order", "o-1", event.Range{}))
	require.Empty(t, versionsOf(t, b.Events, "Cart", "k", event.Range{}))
}

//
func commandOfAFailure(t *testing.T, b Backend) {
	request := event.Append{Stream: "Order", StreamID: "o-1", Expected: 3, Events: newEvents(1, 1), CommandID: "c-1"}
	_, err := b.Events.Append(t.Context(), request)
	var conflict *event.VersionConflict
	require.ErrorAs(t, err, &conflict)
	request.Expected = 0
	_, err = b.Events.Append(t.Context(), request)
	require.NoError(t, err)
}

//
func commandRace(t *testing.T, b Backend) {
	var recorded atomic.Int64
	together(t, 8, func(int) error {
		_, err := b.Events.Append(t.Context(), event.Append{Stream: "Order", StreamID: "o-1", Events: newEvents(1, 1), CommandID: "c-1"})
		var duplicate *event.DuplicateCommand
		var conflict *event.VersionConflict
		switch {
		case err == nil:
			recorded.Add(1)
			return nil
		case errors.As(err, &duplicate), errors.As(err, &conflict):
			return nil
		default:
			return err
		}
	})
	require.Equal(t, int64(1), recorded.Load())
	require.Equal(t, []int64{1}, versionsOf(t, b.Events, "Order", "o-1", event.Range{}))
}

//
func concurrentAppenders(t *testing.T, b Backend) {
	const appenders, each = 8, 15
	together(t, appenders, func(i int) error {
		for n := 0; n < each; {
			version, err := b.Events.Version(t.Context(), "Order", "o-1")
			if err != nil {
				return err
			}
			_, err = b.Events.Append(t.Context(), event.Append{
				Stream: "Order", StreamID: "o-1", Expected: version, Events: newEvents(i*each+n, 1),
			})
			var conflict *event.VersionConflict
			switch {
			case err == nil:
				n++
			case errors.As(err, &conflict) && conflict.Actual > version:
			default:
				return err
			}
		}
		return nil
	})
	envelopes, err := collect(b.Events.Read(t.Context(), "Order", "o-1", event.Range{Consistent: true}))
	require.NoError(t, err)
	require.Len(t, envelopes, appenders*each)
	seen := map[string]bool{}
	for i, envelope := range envelopes {
		require.Equal(t, int64(i+1), envelope.Version)
		seen[string(envelope.Payload)] = true
	}
	require.Len(t, seen, appenders*each, "every append is there once")
}

// whatever the layout, an envelope is what was appended.
func envelopeRoundTrip(t *testing.T, b Backend) {
	at := time.Date(2026, 2, 28, 23, 59, 59, 987_000_000, time.FixedZone("", 3600))
	payload := json.RawMessage(`{"text":"Zürich 🛬 \"quoted\" \\ #%","big":9007199254740991,"list":[1,2.5,null,true],"nested":{"a":{"b":[]}}}`)
	_, err := b.Events.Append(t.Context(), event.Append{Stream: "Order", StreamID: "o-1", Events: []event.NewEvent{
		{Type: "Noted", SchemaVersion: 7, Time: at, Metadata: map[string]string{"user": "ü", "traceparent": "00-ab"}, Payload: payload},
		{Type: "Noted", SchemaVersion: 1, Time: at, Payload: json.RawMessage(`{}`)},
	}})
	require.NoError(t, err)
	envelopes, err := collect(b.Events.Read(t.Context(), "Order", "o-1", event.Range{Consistent: true}))
	require.NoError(t, err)
	require.Len(t, envelopes, 2)
	require.JSONEq(t, string(payload), string(envelopes[0].Payload))
	require.Equal(t, at.UTC(), envelopes[0].Time, "UTC, to the millisecond")
	require.Equal(t, "Noted", envelopes[0].Type)
	require.Equal(t, 7, envelopes[0].SchemaVersion)
	require.Equal(t, map[string]string{"user": "ü", "traceparent": "00-ab"}, envelopes[0].Metadata)
	require.Empty(t, envelopes[1].Metadata)
}

//
func storeClock(t *testing.T, b Backend) {
	before := time.Now().Add(-time.Minute)
	events := newEvents(1, 1)
	events[0].Time = time.Time{}
	_, err := b.Events.Append(t.Context(), event.Append{Stream: "Order", StreamID: "o-1", Events: events})
	require.NoError(t, err)
	envelopes, err := collect(b.Events.Read(t.Context(), "Order", "o-1", event.Range{Consistent: true}))
	require.NoError(t, err)
	require.WithinRange(t, envelopes[0].Time, before, time.Now().Add(time.Minute))
	require.Equal(t, envelopes[0].Time.Truncate(time.Millisecond), envelopes[0].Time)
}

// an id of one field may hold anything, and no id is a prefix of another one's range.
func strangeIDs(t *testing.T, b Backend) {
	ids := []event.ID{"a", "a#b", "a#b#c", "a%23b", "A", "a ", "ä", "🛫", "a_b", "a'b\"", "a/b", "0", "00", event.ID(strings.Repeat("x", 500))}
	for i, id := range ids {
		appendN(t, b.Events, "Order", id, 0, i+1)
		appendN(t, b.Events, "Orders", id, 0, 1)
	}
	for i, id := range ids {
		require.Len(t, versionsOf(t, b.Events, "Order", id, event.Range{}), i+1, "id %q", id)
		version, err := b.Events.Version(t.Context(), "Order", id)
		require.NoError(t, err)
		require.Equal(t, int64(i+1), version, "id %q", id)
	}
}

//
func invalidAppends(t *testing.T, b Backend) {
	for name, request := range map[string]event.Append{
		"a stream with '#'":     {Stream: "Or#der", StreamID: "o-1", Events: newEvents(1, 1)},
		"no stream":             {StreamID: "o-1", Events: newEvents(1, 1)},
		"no id":                 {Stream: "Order", Events: newEvents(1, 1)},
		"an id with zero bytes": {Stream: "Order", StreamID: "a\x00b", Events: newEvents(1, 1)},
		"a negative version":    {Stream: "Order", StreamID: "o-1", Expected: -1, Events: newEvents(1, 1)},
		"no type":               {Stream: "Order", StreamID: "o-1", Events: []event.NewEvent{{SchemaVersion: 1, Payload: json.RawMessage(`{}`)}}},
	} {
		_, err := b.Events.Append(t.Context(), request)
		require.Error(t, err, name)
		require.Equal(t, event.ClassPermanent, event.Classify(err), name)
	}
}
