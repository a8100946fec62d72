package activities_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	sdk "go.temporal.io/sdk/testsuite"

	"github.com/rowfold/rowfold/activities"
	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/internal/tallytest"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
	"github.com/rowfold/rowfold/store/sqlite"
)

// draining is what the activities of drains are tested on: a real store, and a mailbox that
// can be broken.
type draining struct {
	*tallytest.Lab

	drains *activities.Drains

	mu        sync.Mutex
	delivered []int64 // the totals that the effects tell
	fault     error
	before    func(ctx context.Context, delivery outbox.Delivery)
}

func newDraining(tb testing.TB) *draining {
	tb.Helper()
	d := &draining{Lab: tallytest.New(tb, sqlite.Config{})}
	d.drains = &activities.Drains{
		Store: d.Store, Judge: activities.Judge{Temporal: describer{}}, Log: slog.New(slog.DiscardHandler),
		Outboxes: map[string]activities.Outbox{tallytest.Projection: {
			Types: d.Definition.EffectTypes(), Deliver: outbox.Handle(d.deliver),
		}},
	}
	return d
}

func (d *draining) deliver(ctx context.Context, effect tallytest.Added, delivery outbox.Delivery) error {
	if d.before != nil {
		d.before(ctx, delivery)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fault != nil {
		return d.fault
	}
	d.delivered = append(d.delivered, effect.Total)
	return nil
}

// fill gives a tally n pending effects.
func (d *draining) fill(tb testing.TB, tally string, n int) {
	tb.Helper()
	d.Append(tb, event.ID("day-"+tally), tallytest.Entries(tally, n)...)
	_, err := d.Processor(tb, nil).ProcessBatch(tb.Context(), d.Records(tb, event.ID("day-"+tally)), projection.BatchOptions{})
	require.NoError(tb, err)
}

func (d *draining) drain(tb testing.TB, env *sdk.TestActivityEnvironment, change func(*activities.DrainInput)) outbox.Result {
	tb.Helper()
	result, err := run[outbox.Result](env, d.drains.DrainOutbox, drainOf(change))
	require.NoError(tb, err)
	return result
}

func drainOf(change func(*activities.DrainInput)) activities.DrainInput {
	in := activities.DrainInput{
		Row: tallyRow, MaxEffects: 100, ClaimAhead: 4, Attempts: 1, DeliveryTimeout: activities.Duration(time.Second),
		RetryMin: activities.Duration(time.Hour), RetryMax: activities.Duration(time.Hour),
	}
	if change != nil {
		change(&in)
	}
	return in
}

var tallyRow = outbox.Row{Projection: tallytest.Projection, Key: "a"}

func count(n int64) []int64 {
	totals := make([]int64, 0, n)
	for i := range n {
		totals = append(totals, i+1)
	}
	return totals
}

// T-9: one activity delivers many effects, in order, claiming them in pieces.
func TestDrainOutbox(t *testing.T) {
	t.Parallel()
	d := newDraining(t)
	d.fill(t, "a", 10)
	result := d.drain(t, environment(), nil)
	require.Equal(t, 10, result.Delivered)
	require.True(t, result.Empty)
	require.Positive(t, result.Revision)
	require.Equal(t, count(10), d.delivered)
}

// T-9: it delivers no more than it may, and says that there are more.
func TestDrainOutbox_maxEffects(t *testing.T) {
	t.Parallel()
	d := newDraining(t)
	d.fill(t, "a", 10)
	seven := func(in *activities.DrainInput) { in.MaxEffects = 7 }
	result := d.drain(t, environment(), seven)
	require.Equal(t, 7, result.Delivered)
	require.True(t, result.More)
	require.Equal(t, count(7), d.delivered)
	result = d.drain(t, environment(), seven)
	require.Equal(t, 3, result.Delivered)
	require.True(t, result.Empty)
	require.Equal(t, count(10), d.delivered)
}

// T-6: when the worker stops, the claimed piece is finished and no other one is begun.
func TestDrainOutbox_workerStops(t *testing.T) {
	t.Parallel()
	d := newDraining(t)
	d.fill(t, "a", 10)
	stop := make(chan struct{})
	env := environment()
	env.SetWorkerStopChannel(stop)
	once := sync.OnceFunc(func() { close(stop) })
	d.before = func(context.Context, outbox.Delivery) { once() }
	result := d.drain(t, env, nil)
	require.Equal(t, 4, result.Delivered)
	require.True(t, result.More)
	pending, err := d.Store.Head(t.Context(), tallyRow, 1)
	require.NoError(t, err)
	require.True(t, pending.Items[0].Claim.IsZero()) // nobody has to wait for this one
}

// T-10: every claim carries the execution that it is, with a nonce of its own.
func TestDrainOutbox_claims(t *testing.T) {
	t.Parallel()
	d := newDraining(t)
	d.fill(t, "a", 5)
	var claims []outbox.Claim
	d.before = func(ctx context.Context, _ outbox.Delivery) {
		head, err := d.Store.Head(ctx, tallyRow, 1)
		if err == nil && len(head.Items) > 0 {
			claims = append(claims, head.Items[0].Claim)
		}
	}
	d.drain(t, environment(), nil)
	require.Len(t, claims, 5)
	for _, claim := range claims {
		require.Equal(t, outbox.OwnerTemporal, claim.Kind)
		require.NotEmpty(t, claim.Namespace)
		require.NotEmpty(t, claim.WorkflowID)
		require.NotEmpty(t, claim.RunID)
		require.NotEmpty(t, claim.ActivityID)
		require.WithinDuration(t, time.Now(), claim.StartedAt, time.Minute)
		require.Equal(t, claims[0].Nonce, claim.Nonce)
		require.EqualValues(t, 1, claim.Epoch)
	}
	d.fill(t, "a", 1)
	d.drain(t, environment(), nil)
	require.NotEqual(t, claims[0].Nonce, claims[5].Nonce)
}

// T-11: a failed delivery is no error of the activity: the result tells the head, its class and when it is due.
func TestDrainOutbox_failure(t *testing.T) {
	t.Parallel()
	d := newDraining(t)
	d.fill(t, "a", 3)
	d.fault = classed{event.ClassThrottled}
	result := d.drain(t, environment(), func(in *activities.DrainInput) { in.Attempts = 2; in.ParkAfter = 5 })
	require.Zero(t, result.Delivered)
	require.Equal(t, event.ClassThrottled, result.Failed.Class)
	require.Equal(t, 2, result.Failed.Attempts)
	require.False(t, result.Failed.Parked)
	require.Greater(t, result.Failed.NextDelay, 29*time.Minute)
	require.Equal(t, event.ID("day-a"), result.Failed.StreamID)

	// A permanent class parks the queue at once.
	other := newDraining(t)
	other.fill(t, "a", 1)
	other.fault = classed{event.ClassPermanent}
	result = other.drain(t, environment(), func(in *activities.DrainInput) { in.Attempts = 3 })
	require.True(t, result.Failed.Parked)
	require.Equal(t, 1, result.Failed.Attempts)
}

// A worker that was not given the projection says which ones it was given, and is not asked again.
func TestDrainOutbox_unknownProjection(t *testing.T) {
	t.Parallel()
	d := newDraining(t)
	_, err := run[outbox.Result](environment(), d.drains.DrainOutbox, drainOf(func(in *activities.DrainInput) { in.Projection = "Other" }))
	requireClass(t, err, event.ClassPermanent, false)
	require.ErrorContains(t, err, `projection "Other" is not among this worker's [Tally]`)
}

// T-11: a retry makes the head due, and says whether there was something to do.
func TestRetryHead(t *testing.T) {
	t.Parallel()
	d := newDraining(t)
	d.fill(t, "a", 2)
	head := activities.HeadInput{Row: tallyRow}
	waited, err := run[bool](environment(), d.drains.RetryHead, head)
	require.NoError(t, err)
	require.False(t, waited)
	d.fault = classed{event.ClassPermanent}
	require.True(t, d.drain(t, environment(), nil).Failed.Parked)
	waited, err = run[bool](environment(), d.drains.RetryHead, head)
	require.NoError(t, err)
	require.True(t, waited)
	d.fault = nil
	require.Equal(t, 2, d.drain(t, environment(), nil).Delivered)
}

// T-11: skip drops the head, park keeps it; both are recorded with who and why.
func TestDecideHead(t *testing.T) {
	t.Parallel()
	for _, verb := range []outbox.Verb{outbox.VerbSkip, outbox.VerbPark} {
		t.Run(string(verb), func(t *testing.T) {
			t.Parallel()
			d := newDraining(t)
			d.fill(t, "a", 3)
			d.fault = classed{event.ClassPermanent}
			failed := d.drain(t, environment(), nil).Failed
			in := activities.DecideInput{
				Row: tallyRow, Verb: verb, EffectID: failed.ID, Who: "ada", Why: "sent by hand", At: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
			}
			for range 2 { // an activity may be repeated after it has done its work
				_, err := run[struct{}](environment(), d.decide, in)
				require.NoError(t, err)
			}
			d.fault = nil
			require.Equal(t, 2, d.drain(t, environment(), nil).Delivered)
			require.Equal(t, []int64{2, 3}, d.delivered)
			decided, err := d.Store.Decisions(t.Context(), tallyRow)
			require.NoError(t, err)
			require.Len(t, decided, 1)
			require.Equal(t, failed.ID, decided[0].Item.ID)
			require.Equal(t, verb, decided[0].Decision.Verb)
			require.Equal(t, "ada", decided[0].Decision.Who)
			require.Equal(t, "sent by hand", decided[0].Decision.Why)
			require.Equal(t, event.ClassPermanent, decided[0].Decision.Class)

			// Another effect is the head now, or none.
			in.EffectID, in.At = "other", in.At.Add(time.Second)
			_, err = run[struct{}](environment(), d.decide, in)
			requireType(t, err, activities.ErrorHeadMoved)
			in.Why = ""
			_, err = run[struct{}](environment(), d.decide, in)
			requireType(t, err, activities.ErrorIncompleteOrder)
		})
	}
}

func (d *draining) decide(ctx context.Context, in activities.DecideInput) (struct{}, error) {
	return struct{}{}, d.drains.DecideHead(ctx, in)
}

func requireType(tb testing.TB, err error, kind string) {
	tb.Helper()
	var application *temporal.ApplicationError
	require.ErrorAs(tb, err, &application)
	require.Equal(tb, kind, application.Type())
	require.True(tb, application.NonRetryable())
}
