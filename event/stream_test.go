package event_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rowfold/rowfold/event"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type accountEvent interface{ account() }

type opened struct {
	Owner   string `json:"owner"`
	Country string `json:"country"`
}

type closed struct{}

type rated struct {
	Rate float64 `json:"rate"`
}

func (opened) account() {}
func (closed) account() {}
func (rated) account()  {}

func rename(from, to string) event.UpcastFunc {
	return func(payload json.RawMessage) (json.RawMessage, error) {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(payload, &fields); err != nil {
			return nil, fmt.Errorf("rename %s: %w", from, err)
		}
		fields[to] = fields[from]
		delete(fields, from)
		return json.Marshal(fields)
	}
}

var accounts = event.MustStream[accountEvent]("Account", []string{"bank", "number"},
	event.Type[opened]("Opened", event.SchemaVersion(3), event.Upcast(1, rename("name", "holder")), event.Upcast(2, rename("holder", "owner"))),
	event.Type[closed]("Closed"),
	event.Type[rated]("Rated"),
)

func stored(eventType string, schemaVersion int, payload string) event.Envelope {
	return event.Envelope{Stream: "Account", StreamID: "b#1", Version: 4, Type: eventType, SchemaVersion: schemaVersion, Payload: json.RawMessage(payload)}
}

func TestStreamRoundTrip(t *testing.T) {
	t.Parallel()
	encoded, err := accounts.Encode(opened{Owner: "ann", Country: "SE"})
	require.NoError(t, err)
	require.Equal(t, "Opened", encoded.Type)
	require.Equal(t, 3, encoded.SchemaVersion)
	decoded, err := accounts.Decode(stored(encoded.Type, encoded.SchemaVersion, string(encoded.Payload)))
	require.NoError(t, err)
	require.Equal(t, opened{Owner: "ann", Country: "SE"}, decoded.Data)
	require.EqualValues(t, 4, decoded.Version)
}

func TestStreamUpcasts(t *testing.T) {
	t.Parallel()
	for version, payload := range map[int]string{1: `{"name":"ann"}`, 2: `{"holder":"ann"}`, 3: `{"owner":"ann"}`} {
		decoded, err := accounts.Decode(stored("Opened", version, payload))
		require.NoError(t, err)
		require.Equal(t, opened{Owner: "ann"}, decoded.Data, "schema version %d", version)
	}
}

func TestStreamBadInput(t *testing.T) {
	t.Parallel()
	var unknown *event.UnknownType
	_, err := accounts.Decode(stored("Renamed", 1, `{}`))
	require.ErrorAs(t, err, &unknown)
	require.Equal(t, []string{"Closed", "Opened", "Rated"}, unknown.Known)

	var version *event.UnknownSchemaVersion
	_, err = accounts.Decode(stored("Opened", 4, `{}`))
	require.ErrorAs(t, err, &version)
	require.Equal(t, 3, version.Latest)

	var decode *event.DecodeError
	for _, payload := range []string{`{"rate":"high"}`, `{`, ``, `null x`} {
		_, err = accounts.Decode(stored("Rated", 1, payload))
		require.ErrorAs(t, err, &decode, payload)
		require.Equal(t, "Rated", decode.Type)
	}
	_, err = accounts.Decode(stored("Opened", 1, `[]`))
	require.ErrorAs(t, err, &decode)
	require.ErrorContains(t, err, "upcast")
	var record *event.RecordError
	require.ErrorAs(t, err, &record)
	require.EqualValues(t, 4, record.Version)
	require.Equal(t, event.ClassPermanent, event.Classify(err))

	var encode *event.EncodeError
	_, err = accounts.Encode(rated{Rate: math.NaN()})
	require.ErrorAs(t, err, &encode)
	require.Equal(t, "Rated", encode.Type)
}

func TestStreamFaults(t *testing.T) {
	t.Parallel()
	_, err := event.NewStream[accountEvent]("a#b", []string{"x", "x"},
		event.Type[int]("Int"), event.Type[opened]("Opened", event.SchemaVersion(2)), event.Type[opened]("Opened"),
		event.Type[closed]("", event.SchemaVersion(0), event.Upcast(3, rename("a", "b"))))
	for _, want := range []string{"holds '#'", "id field 2", "type Int: int is not a event_test.accountEvent", "add event.Upcast(1, …)", "the name is declared twice", "its name is empty", "leads beyond"} {
		require.ErrorContains(t, err, want)
	}
	_, err = event.NewStream[accountEvent]("", nil)
	require.ErrorContains(t, err, "3 faults")
	require.Panics(t, func() { event.MustStream[accountEvent]("", nil) })
}

// an id parses back, so a value with '#' in a multi-field id is refused.
func TestStreamID(t *testing.T) {
	t.Parallel()
	id, err := accounts.ID("b", "1")
	require.NoError(t, err)
	require.Equal(t, []string{"b", "1"}, accounts.Values(id))
	var invalid *event.InvalidStreamID
	for _, values := range [][]string{{"b"}, {"b", "1", "2"}, {"b#", "1"}, {"b", ""}, {"b", "\xff"}, {"b", "a\x00"}} {
		_, err = accounts.ID(values...)
		require.ErrorAs(t, err, &invalid, values)
	}
	single, err := event.NewID("Day", []string{"date"}, []string{"a#b"})
	require.NoError(t, err)
	require.Equal(t, []string{"a#b"}, single.Values(1))
}

func TestAppendValidate(t *testing.T) {
	t.Parallel()
	good := event.Append{Stream: "S", StreamID: "1", Events: []event.NewEvent{{Type: "T", SchemaVersion: 1, Payload: json.RawMessage(`{}`)}}}
	require.NoError(t, good.Validate())
	for field, change := range map[string]func(*event.Append){
		"Stream":               func(a *event.Append) { a.Stream = "" },
		"'#'":                  func(a *event.Append) { a.Stream = "a#b" },
		"Expected":             func(a *event.Append) { a.Expected = -1 },
		`"id"`:                 func(a *event.Append) { a.StreamID = "" },
		"Events.Type":          func(a *event.Append) { a.Events[0].Type = "" },
		"Events.SchemaVersion": func(a *event.Append) { a.Events[0].SchemaVersion = 0 },
		"Events.Payload":       func(a *event.Append) { a.Events[0].Payload = nil },
	} {
		bad := good
		bad.Events = []event.NewEvent{good.Events[0]}
		change(&bad)
		require.ErrorContains(t, bad.Validate(), field)
	}
}

// §11: one classifier, which finds the class however deep it is wrapped.
func TestClassify(t *testing.T) {
	t.Parallel()
	require.Empty(t, event.Classify(nil))
	require.Equal(t, event.ClassRetry, event.Classify(errors.New("what is this")))
	require.Equal(t, event.ClassStale, event.Classify(fmt.Errorf("append: %w", &event.VersionConflict{})))
	require.Equal(t, event.ClassPermanent, event.Classify(fmt.Errorf("deliver: %w", event.Permanent(errors.New("refused")))))
	require.Equal(t, event.ClassThrottled, event.Classify(event.WithClass(&event.VersionConflict{}, event.ClassThrottled)))
	require.NoError(t, event.Permanent(nil))
}

func FuzzDecode(f *testing.F) {
	f.Add("Opened", 1, `{"name":"ann"}`)
	f.Add("Rated", 1, `{"rate":1e999}`)
	f.Add("Closed", -1, `null`)
	f.Fuzz(func(t *testing.T, eventType string, version int, payload string) {
		decoded, err := accounts.Decode(stored(eventType, version, payload))
		if err != nil {
			require.Equal(t, event.ClassPermanent, event.Classify(err))
			require.True(t, strings.HasPrefix(err.Error(), `event Account "b#1" version 4`))
			return
		}
		require.NotNil(t, decoded.Data)
	})
}
