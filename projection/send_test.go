package projection_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
)

// postbox takes deliveries, by row and in order.
type postbox struct {
	mu    sync.Mutex
	byRow map[string][]string
	fail  func(outbox.Delivery) error
}

func (b *postbox) deliver(_ context.Context, d outbox.Delivery) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail != nil {
		if err := b.fail(d); err != nil {
			return err
		}
	}
	if b.byRow == nil {
		b.byRow = map[string][]string{}
	}
	b.byRow[d.Row.Key] = append(b.byRow[d.Row.Key], d.Effect.(note).Text)
	return nil
}

func (b *postbox) processor(c *projection.ProcessorConfig) {
	c.Deliver = map[string]outbox.Deliverer{"Crates": b.deliver}
	c.Wake = func(context.Context, []outbox.Row) { panic("rows that are drained here are not told to others") }
}

// a batch call with a deliverer drains right after the write, each row in order.
func TestSendDelivers(t *testing.T) {
	t.Parallel()
	box := &postbox{}
	l := newLab(t, setup{processor: box.processor})
	result := l.apply(l.record("Order", "o1", loaded{"c1", 2}, loaded{"c2", 3}, loaded{"c1", 4}), l.record("Track", "c1", moved{"dock"}), l.record("Scale", "s1", weighed{"c3", 1}))
	require.Equal(t, map[string][]string{"c1": {"c1 has 2", "c1 has 6", "at dock"}, "c2": {"c2 has 3"}}, box.byRow)
	require.Equal(t, 4, result.Enqueued)
	require.Equal(t, 3, outcomeOf(t, result, "c1").Delivered)
	require.Equal(t, 1, outcomeOf(t, result, "c2").Delivered)
	require.Zero(t, outcomeOf(t, result, "c3").Delivered)
	require.NoError(t, outcomeOf(t, result, "c1").Undelivered)
	require.Empty(t, l.pending("c1"))
}

// a failing delivery stays at the head of its row, never fails the record, and
// does not hold up other rows.
func TestSendFails(t *testing.T) {
	t.Parallel()
	refused := event.Permanent(errors.New("refused"))
	box := &postbox{fail: func(d outbox.Delivery) error {
		if d.Row.Key == "c1" && d.Version == 2 {
			return refused
		}
		return nil
	}}
	l := newLab(t, setup{processor: box.processor})
	result := l.apply(l.record("Order", "o1", loaded{"c1", 2}, loaded{"c1", 3}, loaded{"c1", 4}, loaded{"c2", 5}))
	require.Empty(t, result.Failures)
	outcome := outcomeOf(t, result, "c1")
	require.Equal(t, 1, outcome.Delivered)
	require.NoError(t, outcome.Err)
	var undelivered *projection.Undelivered
	require.ErrorAs(t, outcome.Undelivered, &undelivered)
	require.True(t, undelivered.Failed.Parked)
	require.EqualValues(t, 2, undelivered.Failed.Version)
	require.Equal(t, event.ClassPermanent, undelivered.Class())
	require.ErrorContains(t, undelivered, "is not delivered after 1 attempts: refused")
	require.Len(t, l.pending("c1"), 2, "the head and what stands behind it")
	require.Equal(t, []string{"c2 has 5"}, box.byRow["c2"])

	again := outcomeOf(t, l.apply(l.record("Order", "o1", loaded{"c1", 6})), "c1")
	require.Zero(t, again.Delivered, "nothing overtakes a parked head")
	require.ErrorAs(t, again.Undelivered, &undelivered)
}

// who else works at the head is waited for.
func TestSendIsBlocked(t *testing.T) {
	t.Parallel()
	box := &postbox{}
	l := newLab(t, setup{})
	records := l.record("Order", "o1", loaded{"c1", 2})
	l.apply(records)
	head := l.pending("c1")[0]
	claimed, err := l.store.Claim(t.Context(), head.Row, []outbox.Ref{head.Ref()}, outbox.ProcessOwner(time.Now(), time.Hour))
	require.NoError(t, err)
	require.Equal(t, 1, claimed)
	config := projection.ProcessorConfig{Definitions: []projection.Definition{l.p}, Store: l.store, Events: l.store}
	box.processor(&config)
	processor, err := projection.NewProcessor(config)
	require.NoError(t, err)
	result, err := processor.ProcessBatch(t.Context(), records, projection.BatchOptions{})
	require.NoError(t, err)
	var undelivered *projection.Undelivered
	require.ErrorAs(t, outcomeOf(t, result, "c1").Undelivered, &undelivered)
	require.NotNil(t, undelivered.Blocked)
	require.Equal(t, event.ClassRetry, undelivered.Class())
	require.ErrorContains(t, undelivered, "is claimed by process")
	require.Empty(t, box.byRow)
}

// a redelivery of a row that is applied and has pending effects drains it, after one
// look for all such rows; one without pending effects is not drained.
func TestSendDrainsARedelivery(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{})
	records := batch(l.record("Order", "o1", loaded{"c1", 2}, loaded{"c2", 2}), l.record("Scale", "s1", weighed{"c3", 1}))
	l.apply(records)
	box, looks := &postbox{}, &pendingCounter{Store: l.store}
	config := projection.ProcessorConfig{Definitions: []projection.Definition{l.p}, Store: looks, Events: l.store}
	box.processor(&config)
	processor, err := projection.NewProcessor(config)
	require.NoError(t, err)
	result, err := processor.ProcessBatch(t.Context(), records, projection.BatchOptions{})
	require.NoError(t, err)
	require.Zero(t, result.Enqueued)
	require.Equal(t, map[string][]string{"c1": {"c1 has 2"}, "c2": {"c2 has 2"}}, box.byRow)
	require.Equal(t, 1, outcomeOf(t, result, "c1").Delivered)
	require.Equal(t, [][]string{{"c1", "c2", "c3"}}, looks.asked)
	_, err = processor.ProcessBatch(t.Context(), records, projection.BatchOptions{})
	require.NoError(t, err)
	require.Len(t, box.byRow["c1"], 1, "delivered once")
}

type pendingCounter struct {
	projection.Store

	asked [][]string
	err   error
}

func (s *pendingCounter) HasPending(ctx context.Context, name string, keys []string) (map[string]bool, error) {
	s.asked = append(s.asked, keys)
	if s.err != nil {
		return nil, s.err
	}
	return s.Store.HasPending(ctx, name, keys)
}

// When the look for pending effects fails, the batch does: it may be given again.
func TestSendCannotLook(t *testing.T) {
	t.Parallel()
	l := newLab(t, setup{processor: func(c *projection.ProcessorConfig) { c.Store = &pendingCounter{Store: c.Store, err: errDown} }})
	result, err := l.processor.ProcessBatch(t.Context(), l.record("Scale", "s1", weighed{"c1", 0}), projection.BatchOptions{})
	require.ErrorIs(t, err, errDown)
	require.ErrorContains(t, err, "look for pending effects of projection Crates")
	require.Len(t, result.Rows, 1, "what was done is told all the same")
}

// without effects nobody is woken; with effects it is told once per batch which rows.
func TestSendWakes(t *testing.T) {
	t.Parallel()
	var woken [][]outbox.Row
	l := newLab(t, setup{processor: func(c *projection.ProcessorConfig) {
		c.Wake = func(_ context.Context, rows []outbox.Row) { woken = append(woken, rows) }
	}})
	records := l.record("Order", "o1", loaded{"c2", 2}, loaded{"c1", 2}, loaded{"c3", 1})
	row := func(key string) outbox.Row { return outbox.Row{Projection: "Crates", Key: key} }
	l.apply(records)
	require.Equal(t, [][]outbox.Row{{row("c1"), row("c2")}}, woken)
	l.apply(records)
	require.Len(t, woken, 2, "R-39: they are still pending")
	require.Equal(t, []outbox.Row{row("c1"), row("c2")}, woken[1])
	l.apply(l.record("Scale", "s1", weighed{"c9", 1}))
	require.Len(t, woken, 2)
}

// the drain dates the tombstone when it has removed the last effect.
func TestSendDatesATombstone(t *testing.T) {
	t.Parallel()
	const ttl = 60 * 24 * time.Hour
	box := &postbox{}
	l := newLab(t, setup{processor: box.processor, definition: func(c *projection.Config[string, crate]) { c.Removal.TTL = ttl }})
	before := time.Now()
	l.apply(l.record("Order", "o1", loaded{"c1", 2}, scrapped{"c1"}))
	require.Equal(t, []string{"c1 has 2", "scrapped"}, box.byRow["c1"])
	stored := l.stored("c1")
	require.Equal(t, projection.RowTombstone, stored.Status)
	require.WithinRange(t, *stored.ExpiresAt, before.Add(ttl).Add(-time.Second), time.Now().Add(ttl))
}

type oldNote struct {
	Words []string `json:"words"`
}

func withNotes(def event.TypeDef) func(*projection.Config[string, crate]) {
	return func(c *projection.Config[string, crate]) {
		source := trackSource()
		source.Effects = func(next *crate, _ event.Event[moved], _ projection.Instance) ([]any, error) {
			if def.LatestSchema() == 1 {
				return []any{oldNote{[]string{"at", next.Place}}}, nil
			}
			return []any{note{"at " + next.Place}}, nil
		}
		c.Sources, c.Outbox = []projection.AnySource[string, crate]{source}, &projection.Outbox{Effects: []event.TypeDef{def}}
	}
}

// effects carry type and schema version, and are brought to the newest shape when
// they are delivered, not before.
func TestSendUpcasts(t *testing.T) {
	t.Parallel()
	old := newLab(t, setup{definition: withNotes(event.Type[oldNote]("Note"))})
	records := old.record("Track", "c1", moved{"dock"})
	old.apply(records)
	item := old.pending("c1")[0]
	require.Equal(t, "Note", item.Type)
	require.Equal(t, 1, item.SchemaVersion)
	require.Equal(t, `{"words":["at","dock"]}`, string(item.Payload)) //nolint:testifylint // R-34: the bytes as encoded

	join := func(payload json.RawMessage) (json.RawMessage, error) {
		var before oldNote
		if err := json.Unmarshal(payload, &before); err != nil {
			return nil, err
		}
		return json.Marshal(note{fmt.Sprint(before.Words)})
	}
	p := crates(t, withNotes(event.Type[note]("Note", event.SchemaVersion(2), event.Upcast(1, join))))
	box := &postbox{}
	config := projection.ProcessorConfig{Definitions: []projection.Definition{p}, Store: old.store, Events: old.store}
	box.processor(&config)
	processor, err := projection.NewProcessor(config)
	require.NoError(t, err)
	_, err = processor.ProcessBatch(t.Context(), batch(records, old.record("Track", "c1", moved{"quay"})), projection.BatchOptions{})
	require.NoError(t, err)
	require.Equal(t, []string{"[at dock]", "at quay"}, box.byRow["c1"])
}

// an effect that does not decode waits for an operator, with its raw bytes.
func TestSendUndecodable(t *testing.T) {
	t.Parallel()
	newer := newLab(t, setup{definition: withNotes(event.Type[note]("Memo", event.SchemaVersion(2),
		event.Upcast(1, func(payload json.RawMessage) (json.RawMessage, error) { return payload, nil })))})
	records := newer.record("Track", "c1", moved{"dock"})
	newer.apply(records)
	box := &postbox{}
	config := projection.ProcessorConfig{Definitions: []projection.Definition{crates(t)}, Store: newer.store, Events: newer.store}
	box.processor(&config)
	processor, err := projection.NewProcessor(config)
	require.NoError(t, err)
	result, err := processor.ProcessBatch(t.Context(), records, projection.BatchOptions{})
	require.NoError(t, err)
	require.Empty(t, result.Failures)
	var undelivered *projection.Undelivered
	require.ErrorAs(t, outcomeOf(t, result, "c1").Undelivered, &undelivered)
	require.True(t, undelivered.Failed.Parked)
	require.ErrorContains(t, undelivered, `does not declare the type "Memo"`)
	require.Equal(t, `{"text":"at dock"}`, string(newer.pending("c1")[0].Payload)) //nolint:testifylint // the raw bytes
}

// whoever computes an event's effects, and however often, gives them the same ids and
// the same bytes.
func TestSendIsDeterministic(t *testing.T) {
	t.Parallel()
	var first []outbox.Item
	for range 2 {
		l := newLab(t, setup{processor: func(c *projection.ProcessorConfig) {
			c.Now = func() time.Time { return time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC) }
		}})
		records := batch(l.record("Order", "o|1", loaded{"c%1", 2}, loaded{"c%1", 3}), l.record("Track", "c%1", moved{"dock"}))
		l.spy.beforeCommit = func(call int, writes []projection.Write) []error {
			if call > 1 {
				return nil
			}
			return []error{&projection.LostRace{Projection: "Crates", Key: writes[0].Key}}
		}
		l.apply(records)
		items := l.pending("c%251")
		require.Len(t, items, 3)
		if first == nil {
			first = items
		}
		require.Equal(t, first, items)
	}
	require.Equal(t, "Crates|c%25251|order|o%7C1|1|0", first[0].ID)
	require.Equal(t, event.ID("o|1"), first[0].StreamID)
	require.Equal(t, "Order", first[0].Stream)
	require.EqualValues(t, 2, first[1].Version)
}

// The trace of an event goes on in its effects.
func TestSendKeepsTheTrace(t *testing.T) {
	t.Parallel()
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	l := newLab(t, setup{})
	env := envelope(t, "Order", "o1", 1, loaded{"c1", 2})
	env.Metadata = map[string]string{"traceparent": parent}
	l.apply([]event.Record{{Envelope: env}})
	require.Equal(t, parent, l.pending("c1")[0].TraceParent)
}
