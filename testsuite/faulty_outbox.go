package testsuite

import (
	"context"
	"slices"
	"time"

	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
)

// Head implements outbox.Store.
func (f *Faulty) Head(ctx context.Context, row outbox.Row, limit int) (outbox.Head, error) {
	return faulted(f, "Head", func() (outbox.Head, error) {
		if f.plan.OneByOne == nil {
			return f.store.Head(ctx, row, limit)
		}
		return f.headOneByOne(ctx, row, limit)
	})
}

// headOneByOne looks at an outbox as two reads would, with a write in between of which
// only the last effect is visible yet.
func (f *Faulty) headOneByOne(ctx context.Context, row outbox.Row, limit int) (outbox.Head, error) {
	before, err := f.store.Head(ctx, row, limit)
	if err != nil {
		return before, err
	}
	f.plan.OneByOne(ctx, row)
	after, err := f.store.Head(ctx, row, outbox.MaxIndex)
	if err != nil {
		return after, err
	}
	seen := before.Items
	for i, item := range after.Items {
		if item.Sequence.Revision() <= before.Revision {
			continue
		}
		isLast := i == len(after.Items)-1 || after.Items[i+1].Sequence.Revision() != item.Sequence.Revision()
		if isLast && len(seen) < limit {
			seen = append(seen, item)
		}
	}
	before.Items = seen
	return before, nil
}

// Claim implements outbox.Store.
func (f *Faulty) Claim(ctx context.Context, row outbox.Row, refs []outbox.Ref, owner outbox.Owner) (int, error) {
	return faulted(f, "Claim", func() (int, error) { return f.store.Claim(ctx, row, slices.Clone(refs), owner) })
}

// Release implements outbox.Store.
func (f *Faulty) Release(ctx context.Context, row outbox.Row, refs []outbox.Ref, nonce string) error {
	return faultedErr(f, "Release", func() error { return f.store.Release(ctx, row, refs, nonce) })
}

// Delete implements outbox.Store.
func (f *Faulty) Delete(ctx context.Context, row outbox.Row, ref outbox.Ref) (outbox.Deleted, error) {
	return faulted(f, "Delete", func() (outbox.Deleted, error) { return f.store.Delete(ctx, row, ref) })
}

// Defer implements outbox.Store.
func (f *Faulty) Defer(ctx context.Context, row outbox.Row, ref outbox.Ref, deferral outbox.Deferral) (bool, error) {
	return faulted(f, "Defer", func() (bool, error) { return f.store.Defer(ctx, row, ref, deferral) })
}

// Decide implements outbox.Store.
func (f *Faulty) Decide(ctx context.Context, row outbox.Row, ref outbox.Ref, decision outbox.Decision) (bool, error) {
	return faulted(f, "Decide", func() (bool, error) { return f.store.Decide(ctx, row, ref, decision) })
}

// Decisions implements outbox.Store.
func (f *Faulty) Decisions(ctx context.Context, row outbox.Row) ([]outbox.Decided, error) {
	return faulted(f, "Decisions", func() ([]outbox.Decided, error) { return f.store.Decisions(ctx, row) })
}

// Pending implements outbox.Store.
func (f *Faulty) Pending(ctx context.Context, query outbox.PendingQuery) ([]outbox.PendingRow, error) {
	return faulted(f, "Pending", func() ([]outbox.PendingRow, error) { return f.store.Pending(ctx, query) })
}

// HasPending implements outbox.Store.
func (f *Faulty) HasPending(ctx context.Context, name string, keys []string) (map[string]bool, error) {
	return faulted(f, "HasPending", func() (map[string]bool, error) { return f.store.HasPending(ctx, name, keys) })
}

// ExpireTombstone implements outbox.Store.
func (f *Faulty) ExpireTombstone(ctx context.Context, row outbox.Row, revision int64, at time.Time) (bool, error) {
	return faulted(f, "ExpireTombstone", func() (bool, error) { return f.store.ExpireTombstone(ctx, row, revision, at) })
}

// Parked implements projection.ParkStore.
func (f *Faulty) Parked(ctx context.Context, name string, instances []projection.Instance) ([]projection.Park, error) {
	return faulted(f, "Parked", func() ([]projection.Park, error) { return f.store.Parked(ctx, name, instances) })
}

// Park implements projection.ParkStore.
func (f *Faulty) Park(ctx context.Context, park projection.Park) error {
	return faultedErr(f, "Park", func() error { return f.store.Park(ctx, park) })
}

// Unpark implements projection.ParkStore.
func (f *Faulty) Unpark(ctx context.Context, name string, instance projection.Instance, newest int64) (bool, error) {
	return faulted(f, "Unpark", func() (bool, error) { return f.store.Unpark(ctx, name, instance, newest) })
}

// Parks implements projection.ParkStore.
func (f *Faulty) Parks(ctx context.Context, name, after string, limit int) ([]projection.Park, error) {
	return faulted(f, "Parks", func() ([]projection.Park, error) { return f.store.Parks(ctx, name, after, limit) })
}

// RecordSkip implements projection.ParkStore.
func (f *Faulty) RecordSkip(ctx context.Context, skip projection.Skip) error {
	return faultedErr(f, "RecordSkip", func() error { return f.store.RecordSkip(ctx, skip) })
}

// Skips implements projection.ParkStore.
func (f *Faulty) Skips(ctx context.Context, name string, instances []projection.Instance) ([]projection.Skip, error) {
	return faulted(f, "Skips", func() ([]projection.Skip, error) { return f.store.Skips(ctx, name, instances) })
}

// Positions implements projection.PositionStore.
func (f *Faulty) Positions(ctx context.Context, consumer, stream string) (map[string]projection.PositionRecord, error) {
	return faulted(f, "Positions", func() (map[string]projection.PositionRecord, error) { return f.store.Positions(ctx, consumer, stream) })
}

// SavePosition implements projection.PositionStore.
func (f *Faulty) SavePosition(ctx context.Context, record projection.PositionRecord) error {
	return faultedErr(f, "SavePosition", func() error { return f.store.SavePosition(ctx, record) })
}
