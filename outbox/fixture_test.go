package outbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
	"github.com/rowfold/rowfold/store/sqlite"
)

var (
	noon  = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)
	board = &projection.Model{
		Projection: "Board", Table: "board",
		Columns:     []projection.Column{{Name: "code", Kind: projection.KindText, Key: true}},
		Checkpoints: "checkpoints", Revision: "revision", HasOutbox: true, HasRemoval: true,
	}
	zrh = outbox.Row{Projection: "Board", Key: "ZRH"}
)

// mail is an effect in its second shape; the first one had the receiver in "to_whom".
type mail struct {
	Number int    `json:"number"`
	To     string `json:"to"`
}

// call is another effect.
type call struct {
	Phone string `json:"phone"`
}

func types(tb testing.TB) *event.Registry {
	tb.Helper()
	registry, err := event.NewRegistry("Board effects",
		event.Type[mail]("Mail", event.SchemaVersion(2), event.Upcast(1, func(old json.RawMessage) (json.RawMessage, error) {
			return []byte(strings.Replace(string(old), "to_whom", "to", 1)), nil
		})),
		event.Type[call]("Call"))
	require.NoError(tb, err)
	return registry
}

// fixture is a store with one projection, a clock, and what was delivered.
type fixture struct {
	*testing.T

	store *sqlite.Store
	clock *clock
	got   *recorder
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	return &fixture{T: t, store: openStore(t), clock: &clock{now: noon}, got: &recorder{}}
}

func openStore(t *testing.T) *sqlite.Store {
	t.Helper()
	store, err := sqlite.Open(t.Context(), sqlite.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	require.NoError(t, store.Prepare(t.Context(), board))
	return store
}

// options wait in virtual time, without jitter: the longest wait that a policy allows.
func (f *fixture) options() outbox.Options {
	return outbox.Options{Types: types(f.T), Now: f.clock.Now, Wait: f.clock.Wait, Rand: func() float64 { return 1 }}
}

// drain drains Zurich and requires that nothing went wrong.
func (f *fixture) drain(opts outbox.Options) outbox.Result {
	f.Helper()
	result, err := outbox.Drain(f.Context(), f.store, zrh, f.got.deliver, opts)
	require.NoError(f, err)
	return result
}

// enqueue commits one write of Zurich with a mail of each number.
func (f *fixture) enqueue(numbers ...int) []outbox.Item {
	f.Helper()
	return f.write(zrh.Key, func(*projection.Write) {}, numbers...)
}

// write commits one write of a row with a mail of each number, after it was changed.
func (f *fixture) write(key string, change func(*projection.Write), numbers ...int) []outbox.Item {
	f.Helper()
	items, err := commit(f.Context(), f.store, key, change, numbers...)
	require.NoError(f, err)
	return items
}

func commit(ctx context.Context, store projection.Store, key string, change func(*projection.Write), numbers ...int) ([]outbox.Item, error) {
	rows, err := store.Load(ctx, board, []string{key})
	if err != nil {
		return nil, err
	}
	read, revision := rows[0], int64(1)
	if read.Books.Revision != nil {
		revision = *read.Books.Revision + 1
	}
	row := outbox.Row{Projection: "Board", Key: key}
	write := projection.Write{
		Key: key, Guard: read.Books, GuardStatus: read.Status, Values: []any{key}, ID: outbox.NewNonce(),
		Books: projection.Bookkeeping{Revision: new(revision), Checkpoints: map[string]int64{"flight#LX1": revision}},
	}
	for index, number := range numbers {
		write.Effects = append(write.Effects, outbox.Item{
			Row: row, Sequence: outbox.SequenceOf(revision, index), ID: outbox.EffectID(row, "flight", "LX1", revision, index),
			Source: "flight", Stream: "Flight", StreamID: "LX1", Version: revision, Index: index,
			Type: "Mail", SchemaVersion: 2, Payload: fmt.Appendf(nil, `{"number":%d,"to":"ann"}`, number), EnqueuedAt: noon,
		})
	}
	change(&write)
	return write.Effects, store.Commit(ctx, board, []projection.Write{write})[0]
}

// remove commits a tombstone over Zurich.
func (f *fixture) remove(numbers ...int) {
	f.Helper()
	f.write(zrh.Key, func(write *projection.Write) { write.Tombstone = true }, numbers...)
}

// pending returns the whole queue of Zurich.
func (f *fixture) pending() []outbox.Item {
	f.Helper()
	head, err := f.store.Head(f.Context(), zrh, outbox.MaxIndex)
	require.NoError(f, err)
	return head.Items
}

// claim claims the first n effects of Zurich for somebody else.
func (f *fixture) claim(owner outbox.Owner, n int) {
	f.Helper()
	claimFirst(f.Context(), f.T, f.store, owner, n)
}

func claimFirst(ctx context.Context, tb testing.TB, store outbox.Store, owner outbox.Owner, n int) {
	tb.Helper()
	head, err := store.Head(ctx, zrh, n)
	require.NoError(tb, err)
	refs := make([]outbox.Ref, 0, n)
	for _, item := range head.Items {
		refs = append(refs, item.Ref())
	}
	claimed, err := store.Claim(ctx, zrh, refs, owner)
	require.NoError(tb, err)
	require.Equal(tb, n, claimed)
}

// clock is a time that passes by waiting only.
type clock struct {
	mu    sync.Mutex
	now   time.Time
	waits []time.Duration
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(delay time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(delay)
}

func (c *clock) Wait(ctx context.Context, delay time.Duration) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(delay)
	c.waits = append(c.waits, delay)
	return nil
}

func (c *clock) waited() []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.waits)
}

// recorder is a deliverer that remembers. It is safe for use by several drains.
type recorder struct {
	// before, if set, decides about each delivery; n counts all tries from 1.
	before func(ctx context.Context, n int, delivery outbox.Delivery) error

	mu    sync.Mutex
	tries int
	all   []outbox.Delivery
}

func (r *recorder) deliver(ctx context.Context, delivery outbox.Delivery) error {
	r.mu.Lock()
	r.tries++
	n := r.tries
	r.mu.Unlock()
	if r.before != nil {
		if err := r.before(ctx, n, delivery); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, delivery)
	return nil
}

func (r *recorder) deliveries() []outbox.Delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

// numbers returns the numbers of the mails, in the order of their deliveries.
func (r *recorder) numbers() []int {
	var numbers []int
	for _, delivery := range r.deliveries() {
		numbers = append(numbers, delivery.Effect.(mail).Number)
	}
	return numbers
}

// failing returns what fails the first n tries with err.
func failing(n int, err error) func(context.Context, int, outbox.Delivery) error {
	return func(_ context.Context, try int, _ outbox.Delivery) error {
		if try <= n {
			return err
		}
		return nil
	}
}

// intercepted is a store in which something happens before some calls.
type intercepted struct {
	outbox.Store

	head   func(ctx context.Context) error
	claim  func(ctx context.Context, refs []outbox.Ref, owner outbox.Owner) error
	delete func(ctx context.Context, ref outbox.Ref) error
	defers func(ctx context.Context, ref outbox.Ref) error
	decide func(ctx context.Context, ref outbox.Ref) error
	free   func(ctx context.Context, refs []outbox.Ref) error
	expire func(ctx context.Context) error
}

func (s *intercepted) Head(ctx context.Context, row outbox.Row, limit int) (outbox.Head, error) {
	if s.head != nil {
		if err := s.head(ctx); err != nil {
			return outbox.Head{}, err
		}
	}
	return s.Store.Head(ctx, row, limit)
}

func (s *intercepted) Claim(ctx context.Context, row outbox.Row, refs []outbox.Ref, owner outbox.Owner) (int, error) {
	if s.claim != nil {
		if err := s.claim(ctx, refs, owner); err != nil {
			return 0, err
		}
	}
	return s.Store.Claim(ctx, row, refs, owner)
}

func (s *intercepted) Delete(ctx context.Context, row outbox.Row, ref outbox.Ref) (outbox.Deleted, error) {
	if s.delete != nil {
		if err := s.delete(ctx, ref); err != nil {
			return outbox.Deleted{}, err
		}
	}
	return s.Store.Delete(ctx, row, ref)
}

func (s *intercepted) Defer(ctx context.Context, row outbox.Row, ref outbox.Ref, deferral outbox.Deferral) (bool, error) {
	if s.defers != nil {
		if err := s.defers(ctx, ref); err != nil {
			return false, err
		}
	}
	return s.Store.Defer(ctx, row, ref, deferral)
}

func (s *intercepted) Decide(ctx context.Context, row outbox.Row, ref outbox.Ref, decision outbox.Decision) (bool, error) {
	if s.decide != nil {
		if err := s.decide(ctx, ref); err != nil {
			return false, err
		}
	}
	return s.Store.Decide(ctx, row, ref, decision)
}

func (s *intercepted) Release(ctx context.Context, row outbox.Row, refs []outbox.Ref, nonce string) error {
	if s.free != nil {
		if err := s.free(ctx, refs); err != nil {
			return err
		}
	}
	return s.Store.Release(ctx, row, refs, nonce)
}

func (s *intercepted) ExpireTombstone(ctx context.Context, row outbox.Row, revision int64, at time.Time) (bool, error) {
	if s.expire != nil {
		if err := s.expire(ctx); err != nil {
			return false, err
		}
	}
	return s.Store.ExpireTombstone(ctx, row, revision, at)
}

var (
	errNobody = errors.New("nobody answers")
	errBroken = errors.New("broken")
)
