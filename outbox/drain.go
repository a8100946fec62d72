package outbox

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/internal/clip"
)

// settleFor bounds what a drain still has to write when its context has ended.
const settleFor = 5 * time.Second

// Drain delivers the pending effects of a row in order, until the outbox is empty or
// the head cannot be delivered now. Plain processes and workflow activities run the
// same algorithm:
//
//   - Read the row's revision and then the head of its outbox up to it. A head that is
//     parked or not yet due ends the drain.
//   - Ask the judge about a claim of somebody else. Unless the owner is gone, the drain
//     ends. Claim the first effects under the condition that their claims are as read.
//   - Hand them to deliver, one after the other, each with its own deadline; delete
//     each one afterwards, whoever has claimed it by then. When the delete finds it
//     gone or claimed by somebody else, this drain was overtaken: it forgets its
//     claims and reads the head again. So it repeats at most one effect.
//   - A failed delivery is tried again in place a few times and then recorded on the
//     item, which stays the head. The other claims are released.
//
// A delivery that fails is no error of the drain: it is in [Result.Failed]. The error
// is the context's cause, an *event.DefinitionError for bad options, *[ClaimsLost],
// or a *[DrainError] around a fault of the store. The result counts what was
// delivered in any case.
//
// When ctx ends, a running delivery is cancelled, what it did is still recorded and
// the claims are released, within a few seconds.
func Drain(ctx context.Context, store Store, row Row, deliver Deliverer, opts Options) (Result, error) {
	faults := opts.faults()
	if store == nil {
		faults = append(faults, "store is nil")
	}
	if deliver == nil {
		faults = append(faults, "deliver is nil")
	}
	if row.Projection == "" || row.Key == "" {
		faults = append(faults, "row needs a projection and a key")
	}
	if len(faults) > 0 {
		return Result{}, &event.DefinitionError{What: "outbox.Drain", Faults: faults}
	}
	opts = opts.withDefaults()
	if opts.Owner == (Owner{}) {
		opts.Owner = ProcessOwner(opts.Now(), opts.ClaimFor)
	}
	d := &drain{store: store, row: row, deliver: deliver, Options: opts, marked: map[Sequence]Ref{}}
	err := d.run(ctx)
	if releaseErr := d.release(ctx); err == nil {
		err = releaseErr
	} else if releaseErr != nil {
		err = errors.Join(err, releaseErr)
	}
	return d.result, err
}

// drain is one run of [Drain].
type drain struct {
	Options

	store   Store
	row     Row
	deliver Deliverer
	result  Result

	held      []Item           // claimed and not yet delivered, the head first
	marked    map[Sequence]Ref // everything that may carry this drain's claim
	fruitless int              // rounds in a row without a delivery
}

// errLost ends a round: a claim was not as it had been read.
var errLost = event.WithClass(errors.New("claimed by another drain meanwhile"), event.ClassStale)

func (d *drain) run(ctx context.Context) error {
	for {
		done, err := d.round(ctx)
		switch {
		case ctx.Err() != nil && err != nil:
			return context.Cause(ctx)
		case done:
			return err
		case err == nil:
			continue
		case d.worthARound(err):
		case errors.Is(err, errLost):
			return &ClaimsLost{Row: d.row, Rounds: d.fruitless}
		default:
			return err
		}
		if waitErr := d.Wait(ctx, d.Contention.full(d.fruitless, d.Rand)); waitErr != nil {
			return waitErr
		}
	}
}

// worthARound counts the rounds without a delivery and reports whether another one
// may help.
func (d *drain) worthARound(err error) bool {
	if !repeatable(err) {
		return false
	}
	d.fruitless++
	return d.fruitless < d.Rounds
}

// repeatable reports whether the same call may succeed later.
func repeatable(err error) bool {
	class := event.Classify(err)
	return class != event.ClassPermanent && class != event.ClassFenced
}

// round reads the head, claims and delivers. It is done when the result says why the
// drain returns.
func (d *drain) round(ctx context.Context) (done bool, err error) {
	if ctx.Err() != nil {
		return true, context.Cause(ctx)
	}
	done, err = d.take(ctx)
	if done || err != nil {
		return done, err
	}
	return d.work(ctx)
}

// work delivers what is held, in order.
func (d *drain) work(ctx context.Context) (done bool, err error) {
	for len(d.held) > 0 {
		if ctx.Err() != nil {
			return true, context.Cause(ctx)
		}
		tried, err := d.attempt(ctx)
		switch {
		case err != nil:
			return false, err
		case tried.err == nil:
		case ctx.Err() != nil:
			return true, context.Cause(ctx) // it was cancelled, which is no failure
		default:
			return d.fail(ctx, tried)
		}
		owned, err := d.settle(ctx)
		if err != nil {
			return true, err
		}
		if !owned {
			return false, nil // whoever took over may be further by now: look again
		}
	}
	return false, nil
}

// settle deletes the head, which was delivered. It reports whether it was this
// drain's own until then.
func (d *drain) settle(ctx context.Context) (owned bool, err error) {
	item := d.held[0]
	d.held = d.held[1:]
	d.result.Delivered++
	d.fruitless = 0
	if d.Progress != nil {
		d.Progress(d.result.Delivered)
	}
	var found Deleted
	err = d.write(ctx, "delete a delivered effect", func(ctx context.Context) (err error) {
		found, err = d.store.Delete(ctx, d.row, item.Ref())
		return err
	})
	if err != nil {
		return false, err
	}
	delete(d.marked, item.Sequence)
	if !found.Found || found.Claim.Nonce != d.Owner.Nonce {
		d.result.Overtaken++
		d.held = nil
		return false, nil
	}
	return true, nil
}

// fail records that the head was not delivered.
func (d *drain) fail(ctx context.Context, tried tried) (done bool, err error) {
	item, now := d.held[0], d.Now()
	deferral := Deferral{
		Attempts: item.Deferral.Attempts + tried.failed,
		Class:    event.Classify(tried.err),
		Error:    clip.Text(tried.err.Error(), MaxErrorBytes),
	}
	deferral.Parked = deferral.Class == event.ClassPermanent || d.ParkAfter > 0 && deferral.Attempts >= d.ParkAfter
	if !deferral.Parked {
		drains := (deferral.Attempts + d.Attempts - 1) / d.Attempts
		deferral.Until = now.Add(d.Deferral.half(drains, d.Rand)).UTC()
	}
	recorded := false
	err = d.write(ctx, "record a failed delivery", func(ctx context.Context) (err error) {
		recorded, err = d.store.Defer(ctx, d.row, item.Ref(), deferral)
		return err
	})
	if err != nil {
		return true, err
	}
	if !recorded {
		d.result.Overtaken++
		return false, errLost
	}
	d.result.Failed = failureOf(item, deferral, now)
	return true, nil
}

// release takes this drain's claims off whatever still has them.
func (d *drain) release(ctx context.Context) error {
	if len(d.marked) == 0 {
		return nil
	}
	refs := make([]Ref, 0, len(d.marked))
	for _, ref := range d.marked {
		refs = append(refs, ref)
	}
	slices.SortFunc(refs, func(a, b Ref) int { return cmp.Compare(a.Sequence, b.Sequence) })
	return d.write(ctx, "release claims", func(ctx context.Context) error {
		return d.store.Release(ctx, d.row, refs, d.Owner.Nonce)
	})
}

// write does a write that may be repeated and that must not get lost when ctx ends:
// what a delivery did is known only here.
func (d *drain) write(ctx context.Context, step string, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleFor)
	defer cancel()
	for n := 1; ; n++ {
		err := do(ctx)
		if err == nil {
			return nil
		}
		if !repeatable(err) || n >= d.Rounds || ctx.Err() != nil {
			return &DrainError{Row: d.row, Step: step, Err: err}
		}
		if waitErr := d.Wait(ctx, d.Contention.full(n, d.Rand)); waitErr != nil {
			return &DrainError{Row: d.row, Step: step, Err: err}
		}
	}
}
