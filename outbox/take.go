package outbox

import (
	"context"

	"github.com/rowfold/rowfold/internal/clip"
)

// take reads the head of the queue and claims it. It is done when there is nothing to
// deliver now.
func (d *drain) take(ctx context.Context) (done bool, err error) {
	d.held = nil
	limit, full := d.ClaimAhead, false
	if d.MaxEffects > 0 {
		left := d.MaxEffects - d.result.Delivered
		full = left <= 0 // look once more, to tell "more" from "empty"
		limit = max(1, min(limit, left))
	}
	head, err := d.store.Head(ctx, d.row, limit)
	if err != nil {
		return false, d.stepError("read the head", err)
	}
	d.result.Revision = head.Revision
	// Of a write above the revision one may see a part only. Stores hold it back; where
	// one does not, the order of deliveries must not depend on it.
	for i, item := range head.Items {
		if item.Sequence.Revision() > head.Revision {
			head.Items = head.Items[:i]
			break
		}
	}
	switch now := d.Now(); {
	case len(head.Items) == 0:
		err = d.finish(ctx, head)
		return err == nil, err
	case full:
		d.result.More = true
		return true, nil
	case !head.Items[0].Deferral.due(now):
		d.result.Failed = failureOf(head.Items[0], head.Items[0].Deferral, now)
		return true, nil
	}
	free, blocked, err := d.free(ctx, head.Items)
	if err != nil {
		return true, err
	}
	if len(free) == 0 {
		d.result.Blocked = blocked
		return true, nil
	}
	return false, d.claim(ctx, free)
}

// finish reports an empty outbox. A removed row may expire from now on.
func (d *drain) finish(ctx context.Context, head Head) error {
	d.result.Empty = true
	if !head.Tombstone || head.Expires || d.TombstoneTTL == 0 {
		return nil
	}
	// When the condition no longer holds, the row was written again: nothing is lost.
	at := d.Now().Add(d.TombstoneTTL).UTC()
	if _, err := d.store.ExpireTombstone(ctx, d.row, head.Revision, at); err != nil {
		d.result.Empty = false
		return d.stepError("set a tombstone's expiry", err)
	}
	return nil
}

// free returns the first items that this drain may claim: they are due and either its
// own, or unclaimed, or their owner is gone. Without any, it returns who blocks.
func (d *drain) free(ctx context.Context, items []Item) ([]Item, *Blocked, error) {
	verdicts := map[string]Verdict{"": VerdictGone, d.Owner.Nonce: VerdictGone}
	for i, item := range items {
		if i > 0 && !item.Deferral.IsZero() {
			return items[:i], nil, nil // it is looked at when it is the head
		}
		verdict, known := verdicts[item.Claim.Nonce]
		var reason error
		if !known {
			verdict, reason = d.Judge.Judge(ctx, item.Claim)
			if ctx.Err() != nil {
				return nil, nil, context.Cause(ctx)
			}
			verdicts[item.Claim.Nonce] = verdict
		}
		if verdict != VerdictGone || reason != nil {
			return items[:i], d.blocked(item, reason), nil
		}
	}
	return items, nil, nil
}

func (d *drain) blocked(item Item, reason error) *Blocked {
	blocked := &Blocked{Sequence: item.Sequence, ID: item.ID, Claim: item.Claim, Since: item.EnqueuedAt}
	if item.Claim.Kind == OwnerProcess {
		blocked.RetryIn = max(0, item.Claim.Until.Sub(d.Now()))
	}
	if reason != nil {
		blocked.Reason = clip.Text(reason.Error(), MaxErrorBytes)
	}
	return blocked
}

// claim puts this drain's claim on the items that do not have it yet, and holds them.
func (d *drain) claim(ctx context.Context, items []Item) error {
	own := 0
	for own < len(items) && items[own].Claim.Nonce == d.Owner.Nonce {
		d.marked[items[own].Sequence] = items[own].Ref()
		own++
	}
	if own > 0 { // such as after a claim whose answer was lost
		d.held = items[:own]
		return nil
	}
	if d.Owner.Kind == OwnerProcess {
		d.Owner.Until = d.Now().Add(d.ClaimFor).UTC()
	}
	return d.mark(ctx, items)
}

// mark writes this drain's claim on the items and holds those that it got.
func (d *drain) mark(ctx context.Context, items []Item) error {
	refs := make([]Ref, len(items))
	for i, item := range items {
		refs[i] = item.Ref()
		d.marked[item.Sequence] = refs[i]
	}
	d.held = nil
	claimed, err := d.store.Claim(ctx, d.row, refs, d.Owner)
	if err != nil {
		return d.stepError("claim the head", err)
	}
	for i := range items {
		if i >= claimed {
			if items[i].Claim.Nonce != d.Owner.Nonce {
				delete(d.marked, items[i].Sequence)
			}
			continue
		}
		items[i].Claim = Claim{Owner: d.Owner, Epoch: items[i].Claim.Epoch + 1}
	}
	d.held = items[:claimed]
	if claimed == 0 {
		return errLost
	}
	return nil
}

// renew extends the claims of a process that has used up half of their time.
func (d *drain) renew(ctx context.Context) error {
	now := d.Now()
	if d.Owner.Kind != OwnerProcess || d.held[0].Claim.Until.Sub(now) >= d.ClaimFor/2 {
		return nil
	}
	d.Owner.Until = now.Add(d.ClaimFor).UTC()
	return d.mark(ctx, d.held)
}

func (d *drain) stepError(step string, err error) error {
	return &DrainError{Row: d.row, Step: step, Err: err}
}
