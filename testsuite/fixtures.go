package testsuite

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
)

const tombstoneTTL = 48 * time.Hour

// noon is a time that every store keeps as it is.
var noon = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC) //nolint:gochecknoglobals // time.Time has no constants

// boardModel has everything that a model can have: an outbox, removal, a map and a
// scalar.
func boardModel() *projection.Model {
	return &projection.Model{
		Projection: "Board", Table: "board",
		Columns: []projection.Column{
			{Name: "code", Kind: projection.KindText, Key: true},
			{Name: "total", Kind: projection.KindInt},
			{Name: "note", Kind: projection.KindText, Nullable: true},
		},
		Checkpoints: "checkpoints", Revision: "revision",
		Scalars:   []projection.ScalarColumns{{Source: "survey", Version: "survey_version", Instance: "survey_id", Offset: 10}},
		HasOutbox: true, HasRemoval: true, TombstoneTTL: tombstoneTTL,
	}
}

// mirrorModel has rows and outboxes under the keys of boardModel, in another projection.
func mirrorModel() *projection.Model {
	model := boardModel()
	model.Projection, model.Table = "Mirror", "mirror"
	return model
}

// ledgerModel has one source and no revision: its scalar checkpoint is the guard.
func ledgerModel() *projection.Model {
	return &projection.Model{
		Projection: "Ledger", Table: "ledger",
		Columns: []projection.Column{
			{Name: "account", Kind: projection.KindText, Key: true},
			{Name: "total", Kind: projection.KindInt},
		},
		Scalars: []projection.ScalarColumns{{Source: "account", Version: "account_version", Instance: "account_id"}},
	}
}

// journalModel has one source and no revision: its map of checkpoints is the guard.
func journalModel() *projection.Model {
	return &projection.Model{
		Projection: "Journal", Table: "journal",
		Columns: []projection.Column{
			{Name: "account", Kind: projection.KindText, Key: true},
			{Name: "total", Kind: projection.KindInt},
		},
		Checkpoints: "checkpoints",
	}
}

// kindsModel has a column of each kind, once required and once not, and a key of two.
func kindsModel() *projection.Model {
	model := &projection.Model{
		Projection: "Kinds", Table: "kinds",
		Columns: []projection.Column{
			{Name: "tenant", Kind: projection.KindText, Key: true},
			{Name: "number", Kind: projection.KindInt, Key: true},
		},
		Checkpoints: "checkpoints", Revision: "revision",
	}
	for _, kind := range allKinds() {
		model.Columns = append(model.Columns,
			projection.Column{Name: "a_" + string(kind), Kind: kind},
			projection.Column{Name: "b_" + string(kind), Kind: kind, Nullable: true})
	}
	return model
}

func allKinds() []projection.Kind {
	return []projection.Kind{
		projection.KindText, projection.KindInt, projection.KindFloat, projection.KindBool,
		projection.KindTime, projection.KindBytes, projection.KindJSON,
	}
}

func boardRow(key string) outbox.Row { return outbox.Row{Projection: "Board", Key: key} }

// prepare makes the tables of models and returns the first one.
func prepare(t testing.TB, b Backend, models ...*projection.Model) *projection.Model {
	t.Helper()
	require.NoError(t, b.Store.Prepare(t.Context(), models...))
	return models[0]
}

// boardWrite is the write that follows a row as read: total is set, the revision is
// one higher, and effects are given their sequences.
func boardWrite(read projection.Stored, total int64, effects ...int) projection.Write {
	books := read.Books.Clone()
	revision := int64(1)
	if read.Books.Revision != nil {
		revision = *read.Books.Revision + 1
	}
	books.Revision = new(revision)
	if books.Checkpoints == nil {
		books.Checkpoints = map[string]int64{}
	}
	books.Checkpoints["day#d-1"] = revision
	write := projection.Write{
		Key: read.Key, Guard: read.Books, GuardStatus: read.Status,
		Values: []any{read.Key, total, nil}, Books: books, ID: outbox.NewNonce(),
	}
	for index, number := range effects {
		write.Effects = append(write.Effects, noticeItem(boardRow(read.Key), revision, index, number))
	}
	return write
}

// notice is the effect of all suites.
type notice struct {
	Number int `json:"number"`
}

func noticeTypes(t testing.TB) *event.Registry {
	t.Helper()
	types, err := event.NewRegistry("Board effects", event.Type[notice]("Notice"))
	require.NoError(t, err)
	return types
}

func noticeItem(row outbox.Row, revision int64, index, number int) outbox.Item {
	payload, err := json.Marshal(notice{Number: number})
	if err != nil {
		panic(err) // a struct of one int always encodes
	}
	return outbox.Item{
		Row: row, Sequence: outbox.SequenceOf(revision, index),
		ID:     outbox.EffectID(row, "day", "d-1", revision, index),
		Source: "day", Stream: "Day", StreamID: "d-1", Version: revision, Index: index,
		Type: "Notice", SchemaVersion: 1, Payload: payload, EnqueuedAt: noon,
		TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
	}
}

func load(t testing.TB, b Backend, model *projection.Model, key string) projection.Stored {
	t.Helper()
	rows, err := b.Store.Load(t.Context(), model, []string{key})
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.Equal(t, key, rows[0].Key)
	return rows[0]
}

func commit(t testing.TB, b Backend, model *projection.Model, writes ...projection.Write) {
	t.Helper()
	results := b.Store.Commit(t.Context(), model, writes)
	require.Len(t, results, len(writes))
	for i, err := range results {
		require.NoError(t, err, "write %d", i)
	}
}

// enqueue commits one write of a row with effects of these numbers.
func enqueue(t testing.TB, b Backend, model *projection.Model, key string, numbers ...int) projection.Write {
	t.Helper()
	write := boardWrite(load(t, b, model, key), int64(len(numbers)), numbers...)
	commit(t, b, model, write)
	return write
}

// remove commits a tombstone over a row.
func remove(t testing.TB, b Backend, model *projection.Model, key string, effects ...int) projection.Write {
	t.Helper()
	write := tombstoneWrite(load(t, b, model, key), effects...)
	commit(t, b, model, write)
	return write
}

func tombstoneWrite(read projection.Stored, effects ...int) projection.Write {
	write := boardWrite(read, 0, effects...)
	write.Tombstone = true
	write.Values = []any{read.Key, nil, nil}
	return write
}

func head(t testing.TB, b Backend, key string, limit int) outbox.Head {
	t.Helper()
	head, err := b.Store.Head(t.Context(), boardRow(key), limit)
	require.NoError(t, err)
	return head
}

func sequences(items []outbox.Item) []outbox.Sequence {
	sequences := make([]outbox.Sequence, 0, len(items))
	for _, item := range items {
		sequences = append(sequences, item.Sequence)
	}
	return sequences
}

func refs(items []outbox.Item) []outbox.Ref {
	refs := make([]outbox.Ref, 0, len(items))
	for _, item := range items {
		refs = append(refs, item.Ref())
	}
	return refs
}

// together runs n functions side by side and requires that none fails.
func together(t testing.TB, n int, run func(i int) error) {
	t.Helper()
	errs := make([]error, n)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { errs[i] = run(i) })
	}
	group.Wait()
	for i, err := range errs {
		require.NoError(t, err, "goroutine %d", i)
	}
}

// sameItem compares an item as it was enqueued with the one that a store returns.
func sameItem(t testing.TB, want, got outbox.Item) {
	t.Helper()
	require.JSONEq(t, string(want.Payload), string(got.Payload))
	require.True(t, want.EnqueuedAt.Equal(got.EnqueuedAt), "enqueued at %v, got %v", want.EnqueuedAt, got.EnqueuedAt)
	want.Payload, got.Payload = nil, nil
	want.EnqueuedAt, got.EnqueuedAt = time.Time{}, time.Time{}
	require.Equal(t, want, got)
}

// untilWon repeats a conditional write until it wins a race, with what it reads anew.
func untilWon(ctx context.Context, store projection.Store, model *projection.Model, key string, next func(projection.Stored) projection.Write) error {
	for {
		rows, err := store.Load(ctx, model, []string{key})
		if err != nil {
			return fmt.Errorf("load: %w", err)
		}
		err = store.Commit(ctx, model, []projection.Write{next(rows[0])})[0]
		if err == nil {
			return nil
		}
		switch event.Classify(err) {
		case event.ClassStale, event.ClassThrottled, event.ClassRetry:
		case event.ClassPermanent, event.ClassFenced, event.ClassUnknownOutcome:
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}
