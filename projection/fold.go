package projection

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/rowfold/rowfold/outbox"
)

// Fold implements [Definition]. Each row is folded by itself: within it, sources in
// declared order, then stream ids bytewise, then versions.
func (p *Projection[K, R]) Fold(ctx context.Context, rows []RowBatch, options FoldOptions) []RowFold {
	if options.WriteID == nil {
		options.WriteID = outbox.NewNonce
	}
	folds := make([]RowFold, len(rows))
	for i := range rows {
		folds[i] = p.foldRow(ctx, &rows[i], &options)
	}
	return folds
}

// step is an event that changed the row or moved a checkpoint. The steps of a row are
// where its write may be cut.
type step[R any] struct {
	row     R
	live    bool
	in      Instance
	version int64 // the instance's checkpoint after the step
	applied bool
	closes  bool
	effects []outbox.Item
}

// rowFolder folds one row.
type rowFolder[K, R any] struct {
	p       *Projection[K, R]
	batch   *RowBatch
	options *FoldOptions
	ref     outbox.Row
	key     K
	keyVals []any
	row     R    // the row so far, or the initial one
	live    bool // whether the row so far exists
	books   Bookkeeping
	skips   map[Instance]map[int64]Skip
	steps   []step[R]
}

func (p *Projection[K, R]) foldRow(ctx context.Context, batch *RowBatch, options *FoldOptions) RowFold {
	f := &rowFolder[K, R]{
		p: p, batch: batch, options: options, books: batch.Row.Books.Clone(),
		ref: outbox.Row{Projection: p.name, Key: batch.Row.Key},
	}
	fold := RowFold{Outcome: Outcome{Projection: p.name, Key: batch.Row.Key}}
	if err := f.begin(); err != nil {
		return f.failRow(fold, err)
	}
	for _, in := range f.instances() {
		fold.Outcome.Instances = append(fold.Outcome.Instances, f.foldInstance(ctx, in.in, in.events))
	}
	if err := allFailed(fold.Outcome.Instances); err != nil {
		fold.Outcome.Err = err
		return fold
	}
	if !f.needsWrite() {
		f.steps = nil
		f.report(&fold.Outcome, batch.Row.Books)
		return fold
	}
	writes, err := f.writes()
	if err != nil {
		return f.failRow(fold, err)
	}
	fold.Writes = writes
	f.report(&fold.Outcome, writes[len(writes)-1].Books)
	fold.Outcome.Written = true
	return fold
}

// begin sets the row as read.
func (f *rowFolder[K, R]) begin() error {
	var err error
	if f.keyVals, err = f.p.model.ParseKey(f.batch.Row.Key); err != nil {
		return err
	}
	if f.key, err = f.p.rows.keyOf(f.keyVals); err != nil {
		return err
	}
	f.skips = map[Instance]map[int64]Skip{}
	for _, skip := range f.batch.Skips {
		if f.skips[skip.Instance] == nil {
			f.skips[skip.Instance] = map[int64]Skip{}
		}
		f.skips[skip.Instance][skip.Version] = skip
	}
	if f.batch.Row.Status != RowLive {
		return f.restart()
	}
	f.live = true
	f.row, err = f.p.rows.state(f.batch.Row.Values, f.batch.Row.Books)
	return err
}

// restart sets the row to what it is before its first event.
func (f *rowFolder[K, R]) restart() (err error) {
	defer recovered("initial", &err)
	f.live = false
	f.row = f.p.initial(f.key)
	return f.p.rows.setKey(&f.row, f.keyVals)
}

type instanceEvents struct {
	in     Instance
	events []RowEvent
}

// instances groups the events by instance in fold order, each without repeats and in
// version order. Instances that failed before the fold are among them.
func (f *rowFolder[K, R]) instances() []instanceEvents {
	byInstance := map[Instance][]RowEvent{}
	for _, e := range f.batch.Events {
		byInstance[e.Instance] = append(byInstance[e.Instance], e)
	}
	for in := range f.batch.Failed {
		byInstance[in] = append(byInstance[in], nil...)
	}
	groups := make([]instanceEvents, 0, len(byInstance))
	for in, events := range byInstance {
		slices.SortStableFunc(events, func(a, b RowEvent) int { return cmp.Compare(a.Envelope.Version, b.Envelope.Version) })
		events = slices.CompactFunc(events, func(a, b RowEvent) bool { return a.Envelope.Version == b.Envelope.Version })
		groups = append(groups, instanceEvents{in, events})
	}
	slices.SortFunc(groups, func(a, b instanceEvents) int {
		if order := cmp.Compare(f.p.sourceIndex(a.in.Source), f.p.sourceIndex(b.in.Source)); order != 0 {
			return order
		}
		return cmp.Compare(a.in.StreamID, b.in.StreamID)
	})
	return groups
}

// foldInstance folds one instance. On an error that terminal does not accept the
// whole instance leaves the write: the row goes back to before its first event.
func (f *rowFolder[K, R]) foldInstance(ctx context.Context, in Instance, events []RowEvent) InstanceOutcome {
	source := f.p.sourceIndex(in.Source)
	out := InstanceOutcome{Instance: in, Stream: f.p.infos[source].Stream}
	checkpoint, placeErr := f.p.model.Checkpoint(f.books, in, f.batch.Row.Key)
	out.Version = checkpoint
	fresh := events
	for len(fresh) > 0 && fresh[0].Envelope.Version <= checkpoint {
		out.AlreadyApplied = append(out.AlreadyApplied, fresh[0].Envelope.Version)
		fresh = fresh[1:]
	}
	fail := func(version int64, err error) InstanceOutcome {
		return InstanceOutcome{
			Instance: in, Stream: out.Stream, AlreadyApplied: out.AlreadyApplied, Version: checkpoint,
			Err: &InstanceError{Projection: f.p.name, Instance: in, Version: version, Err: err},
		}
	}
	if err := f.batch.Failed[in]; err != nil {
		return fail(0, err)
	}
	if len(fresh) == 0 {
		return out
	}
	if placeErr != nil {
		return fail(fresh[0].Envelope.Version, placeErr)
	}
	row, live, steps := f.row, f.live, len(f.steps)
	w := &instanceFold[K, R]{rowFolder: f, in: in, source: f.p.sources[source], checkpoint: checkpoint, out: &out}
	foldEvents := w.foldAll
	if f.p.infos[source].Mode == ModeLatest {
		foldEvents = w.foldLatest
	}
	if version, err := foldEvents(ctx, fresh); err != nil {
		f.row, f.live, f.steps = row, live, f.steps[:steps]
		return fail(version, err)
	}
	if out.Version > checkpoint {
		f.p.model.land(&f.books, in, out.Version)
	}
	return out
}

// needsWrite says whether the steps change anything: rejections alone create no row.
func (f *rowFolder[K, R]) needsWrite() bool {
	if f.batch.Row.Status == RowLive {
		return len(f.steps) > 0
	}
	return slices.ContainsFunc(f.steps, func(s step[R]) bool { return s.applied })
}

// report fills in what the row is after the batch.
func (f *rowFolder[K, R]) report(outcome *Outcome, books Bookkeeping) {
	if len(f.steps) == 0 && f.batch.Row.Status != RowLive {
		f.live = false
		for i := range outcome.Instances { // what was only rejected has moved nothing
			in := outcome.Instances[i].Instance
			if checkpoint, err := f.p.model.Checkpoint(books, in, f.batch.Row.Key); err == nil {
				outcome.Instances[i].Version = checkpoint
			}
		}
	}
	if books.Revision != nil {
		outcome.Revision = *books.Revision
	}
	for _, s := range f.steps {
		outcome.Enqueued += len(s.effects)
	}
	if f.live {
		row := f.row
		f.p.rows.setBooks(&row, books)
		outcome.State = row
		return
	}
	outcome.Removed = len(f.steps) > 0 || f.batch.Row.Status == RowTombstone
}

// failRow reports a row that cannot be folded or written as a whole. What would have
// changed it fails; instances that were applied before or only skip do not.
func (f *rowFolder[K, R]) failRow(fold RowFold, err error) RowFold {
	err = &WriteError{Projection: f.p.name, Key: f.batch.Row.Key, Err: err}
	fold.Outcome.Err, fold.Writes = err, nil
	folded := len(fold.Outcome.Instances) > 0
	if !folded {
		for _, group := range f.instances() {
			fold.Outcome.Instances = append(fold.Outcome.Instances, InstanceOutcome{Instance: group.in})
		}
	}
	for i, in := range fold.Outcome.Instances {
		checkpoint, _ := f.p.model.Checkpoint(f.batch.Row.Books, in.Instance, f.batch.Row.Key)
		failed := InstanceOutcome{
			Instance: in.Instance, Stream: f.p.sourceInfo(in.Source).Stream, Version: checkpoint,
			AlreadyApplied: in.AlreadyApplied, Skipped: in.Skipped, Err: in.Err,
		}
		if failed.Err == nil && (!folded || in.changes()) {
			failed.Skipped = nil
			failed.Err = &InstanceError{Projection: f.p.name, Instance: in.Instance, Err: err}
		}
		fold.Outcome.Instances[i] = failed
	}
	return fold
}

// allFailed returns an error when there are instances and all of them failed.
func allFailed(instances []InstanceOutcome) error {
	var failures []error
	for _, in := range instances {
		if in.Err == nil {
			return nil
		}
		failures = append(failures, in.Err)
	}
	return errors.Join(failures...)
}
