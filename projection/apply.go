package projection

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
)

// applyBatches applies the rows of all projections in groups, several at a time.
func (p *Processor) applyBatches(ctx context.Context, batches []*definitionBatch) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(p.config.Parallelism)
	for _, b := range batches {
		for rows := range slices.Chunk(b.sortedRows(), p.config.BatchRows) {
			group.Go(func() error { return b.applyRows(ctx, rows) })
		}
	}
	return group.Wait() //nolint:wrapcheck // applyRows names the projection
}

// applyRows loads, folds and commits a group of rows until each is done: rows that
// lose a race are read and computed again, and throttled ones are sent again.
func (b *definitionBatch) applyRows(ctx context.Context, rows []*rowWork) error {
	gaps := newGapReader(b)
	for wait := 0; ; wait++ {
		stale := slices.DeleteFunc(slices.Clone(rows), func(row *rowWork) bool { return row.done || len(row.writes) > 0 })
		if err := b.compute(ctx, stale, gaps); err != nil {
			return err
		}
		if err := b.commit(ctx, rows); err != nil {
			return err
		}
		rows = slices.DeleteFunc(slices.Clone(rows), func(row *rowWork) bool { return row.done })
		if len(rows) == 0 {
			return nil
		}
		if err := sleep(ctx, b.p.backoff(wait)); err != nil {
			return fmt.Errorf("projection %s: %w", b.definition.Name(), err)
		}
	}
}

// compute reads rows and folds their events.
func (b *definitionBatch) compute(ctx context.Context, rows []*rowWork, gaps *gapReader) error {
	if len(rows) == 0 {
		return nil
	}
	name := b.definition.Name()
	keys := make([]string, len(rows))
	for i, row := range rows {
		keys[i] = row.key
	}
	loaded, err := b.p.config.Store.Load(ctx, b.definition.Model(), keys)
	if err != nil {
		return fmt.Errorf("load %d rows of projection %s: %w", len(rows), name, err)
	}
	for i, row := range rows {
		row.stored = loaded[i]
		if row.sentID != "" && row.stored.WriteID == row.sentID {
			b.landed(ctx, row) // the answer was lost, the write was not
		}
	}
	rows = slices.DeleteFunc(slices.Clone(rows), func(row *rowWork) bool { return row.done || len(row.writes) > 0 })
	batches, err := gaps.fill(ctx, rows)
	if err != nil {
		return err
	}
	for i := range batches {
		batches[i].Skips = b.skips
	}
	options := FoldOptions{Now: b.p.config.Now(), Limits: b.p.config.Store.Limits()}
	folds := b.definition.Fold(ctx, batches, options)
	if err := ctx.Err(); err != nil { // which may look like a failure of the instances at hand
		return fmt.Errorf("projection %s: %w", name, err)
	}
	for i, fold := range folds {
		row := rows[i]
		row.fold, row.writes = fold, fold.Writes
		if len(fold.Writes) == 0 {
			b.finish(ctx, row, fold.Outcome)
		}
	}
	return nil
}

// commit sends the next write of each row until none is left that can be sent now.
func (b *definitionBatch) commit(ctx context.Context, rows []*rowWork) error {
	model := b.definition.Model()
	for {
		var sent []*rowWork
		var writes []Write
		for _, row := range rows {
			if !row.done && len(row.writes) > 0 {
				sent, writes = append(sent, row), append(writes, row.writes[0])
				row.sentID = row.writes[0].ID
			}
		}
		if len(sent) == 0 {
			return nil
		}
		again := false
		for i, err := range b.p.config.Store.Commit(ctx, model, writes) {
			again = b.settle(ctx, sent[i], err) || again
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("projection %s: %w", b.definition.Name(), err)
		}
		if !again {
			return nil
		}
	}
}

// settle takes the result of a row's write, and reports whether the row has a further
// write that can be sent at once.
func (b *definitionBatch) settle(ctx context.Context, row *rowWork, err error) bool {
	switch class := event.Classify(err); {
	case err == nil:
		b.p.metrics.rowSize.Record(ctx, int64(b.definition.Model().Size(row.writes[0].Values, row.writes[0].Books)))
		b.landed(ctx, row)
		return !row.done
	case class == event.ClassThrottled:
		return false // the same write is sent again, under its own id, and is no lost race
	case class == event.ClassPermanent || class == event.ClassFenced:
		b.fail(ctx, row, err)
		return false
	default: // stale, unknown or passing: what is stored decides
		row.lost++
		if class == event.ClassStale {
			b.p.metrics.lostRaces.Add(ctx, 1)
		}
		row.writes = nil
		if row.lost >= b.p.config.Attempts {
			if class == event.ClassStale {
				err = &ProjectionConflict{Projection: b.definition.Name(), Key: row.key, Attempts: row.lost, Err: err}
			}
			b.fail(ctx, row, err)
		}
		return false
	}
}

// landed notes that the write sent last is committed.
func (b *definitionBatch) landed(ctx context.Context, row *rowWork) {
	at := slices.IndexFunc(row.fold.Writes, func(w Write) bool { return w.ID == row.sentID })
	if at < 0 {
		return
	}
	write := row.fold.Writes[at]
	row.writes, row.sentID = row.fold.Writes[at+1:], ""
	row.enqueued += len(write.Effects)
	row.stored.Books = write.Books // where the row is, should a further write of it fail
	for _, in := range row.fold.Outcome.Instances {
		checkpoint, err := b.definition.Model().Checkpoint(write.Books, in.Instance, row.key)
		if err != nil {
			continue
		}
		if row.committed[in.Instance] == nil {
			row.committed[in.Instance] = map[int64]bool{}
		}
		for _, version := range in.Applied {
			if version <= checkpoint {
				row.committed[in.Instance][version] = true
			}
		}
	}
	if len(row.writes) == 0 {
		b.finish(ctx, row, row.fold.Outcome)
	}
}

// finish sets a row's outcome. What an earlier write of the same batch committed was
// applied by this batch, though the last fold found it applied already.
func (b *definitionBatch) finish(ctx context.Context, row *rowWork, outcome Outcome) {
	for i := range outcome.Instances {
		in := &outcome.Instances[i]
		mine := row.committed[in.Instance]
		if len(mine) == 0 {
			continue
		}
		in.AlreadyApplied = slices.DeleteFunc(slices.Clone(in.AlreadyApplied), func(version int64) bool { return mine[version] })
		for _, version := range in.Applied {
			mine[version] = true
		}
		in.Applied = slices.Sorted(maps.Keys(mine))
		outcome.Written = true
	}
	outcome.Enqueued = row.enqueued
	row.outcome, row.done, row.writes = outcome, true, nil
	for _, in := range outcome.Instances {
		b.p.metrics.events.Add(ctx, int64(len(in.Applied)))
	}
}

// fail ends a row whose write cannot be done: every instance of it fails.
func (b *definitionBatch) fail(ctx context.Context, row *rowWork, err error) {
	err = &WriteError{Projection: b.definition.Name(), Key: row.key, Err: err}
	outcome := Outcome{Projection: b.definition.Name(), Key: row.key, Err: err}
	if row.stored.Books.Revision != nil {
		outcome.Revision = *row.stored.Books.Revision
	}
	for _, in := range row.fold.Outcome.Instances {
		checkpoint, _ := b.definition.Model().Checkpoint(row.stored.Books, in.Instance, row.key)
		failed := InstanceOutcome{
			Instance: in.Instance, Stream: in.Stream, Version: checkpoint,
			AlreadyApplied: in.AlreadyApplied, Skipped: in.Skipped, Err: in.Err,
		}
		if failed.Err == nil && in.changes() {
			failed.Skipped = nil
			failed.Err = &InstanceError{Projection: b.definition.Name(), Instance: in.Instance, Err: err}
		}
		outcome.Instances = append(outcome.Instances, failed)
	}
	b.finish(ctx, row, outcome)
}

// backoff returns a full-jitter wait: a random time up to an exponentially growing
// bound. Source: AWS Architecture Blog, "Exponential Backoff And Jitter" (2015).
func (p *Processor) backoff(attempt int) time.Duration {
	bound := outbox.Backoff{Min: p.config.BackoffMin, Max: p.config.BackoffMax}.Bound(attempt + 1)
	return time.Duration(rand.Int64N(int64(bound) + 1)) //nolint:gosec // jitter needs no secrecy
}

func sleep(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
