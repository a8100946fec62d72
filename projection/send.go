package projection

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/rowfold/rowfold/outbox"
)

// sendOff delivers the effects of the batch's rows in this process, or tells whoever
// drains them. Rows that a redelivered batch found fully applied are among them when
// they have pending effects: a process may have died between commit and delivery.
func (p *Processor) sendOff(ctx context.Context, batches []*definitionBatch, result *BatchResult) error {
	outcomes := map[outbox.Row]*Outcome{}
	for i := range result.Rows {
		outcomes[outbox.Row{Projection: result.Rows[i].Projection, Key: result.Rows[i].Key}] = &result.Rows[i]
	}
	var wake []outbox.Row
	for _, b := range batches {
		rows, err := b.pendingRows(ctx)
		if err != nil {
			return err
		}
		if deliver := p.config.Deliver[b.definition.Name()]; deliver != nil {
			p.deliver(ctx, b.definition, rows, deliver, outcomes)
			continue
		}
		wake = append(wake, rows...)
	}
	if p.config.Wake != nil && len(wake) > 0 {
		p.config.Wake(ctx, wake)
	}
	return nil
}

// pendingRows returns the rows of the batch that have effects to deliver.
func (b *definitionBatch) pendingRows(ctx context.Context) ([]outbox.Row, error) {
	if !b.definition.Model().HasOutbox {
		return nil, nil
	}
	var rows []outbox.Row
	var ask []string
	for _, row := range b.sortedRows() {
		switch {
		case row.outcome.Enqueued > 0:
			rows = append(rows, outbox.Row{Projection: b.definition.Name(), Key: row.key})
		case !row.outcome.Written:
			ask = append(ask, row.key)
		}
	}
	if len(ask) == 0 {
		return rows, nil
	}
	pending, err := b.p.config.Store.HasPending(ctx, b.definition.Name(), ask)
	if err != nil {
		return nil, fmt.Errorf("look for pending effects of projection %s: %w", b.definition.Name(), err)
	}
	for _, key := range ask {
		if pending[key] {
			rows = append(rows, outbox.Row{Projection: b.definition.Name(), Key: key})
		}
	}
	return rows, nil
}

// deliver drains rows side by side, each in order. A failing delivery stays in its
// outbox: the effects are committed, so it never fails the record.
func (p *Processor) deliver(
	ctx context.Context, definition Definition, rows []outbox.Row, deliver outbox.Deliverer, outcomes map[outbox.Row]*Outcome,
) {
	var group errgroup.Group
	var mutex sync.Mutex
	group.SetLimit(p.config.Parallelism)
	for _, row := range rows {
		group.Go(func() error {
			drained, err := outbox.Drain(ctx, p.config.Store, row, deliver, outbox.Options{
				Types: definition.EffectTypes(), TombstoneTTL: definition.Model().TombstoneTTL,
			})
			mutex.Lock()
			defer mutex.Unlock()
			if outcome := outcomes[row]; outcome != nil {
				outcome.Delivered, outcome.Undelivered = drained.Delivered, cmp.Or(err, undelivered(row, drained))
			}
			return nil
		})
	}
	_ = group.Wait() // no function returns an error
}

// undelivered returns why a drain left effects in the outbox; nil = it left none.
func undelivered(row outbox.Row, result outbox.Result) error {
	if result.Failed == nil && result.Blocked == nil {
		return nil
	}
	return &Undelivered{Row: row, Failed: result.Failed, Blocked: result.Blocked}
}
