package projection

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
)

// instanceFold folds the new events of one instance into the row at hand.
type instanceFold[K, R any] struct {
	*rowFolder[K, R]

	in         Instance
	source     AnySource[K, R]
	checkpoint int64
	out        *InstanceOutcome
}

// verdict is what became of one event.
type verdict int

const (
	applied verdict = iota
	skipped
	rejected
)

// foldAll folds every event in version order. It returns the version at which the
// instance failed, with the error.
func (w *instanceFold[K, R]) foldAll(ctx context.Context, fresh []RowEvent) (int64, error) {
	newest := fresh[len(fresh)-1].Envelope.Version
	if missing := w.known(fresh).Missing(w.checkpoint, newest); len(missing) > 0 {
		before := newest
		for _, e := range fresh {
			if e.Envelope.Version > missing[0].First {
				before = e.Envelope.Version
				break
			}
		}
		return before, &Gap{Instance: w.in, Missing: missing[0].First, Before: before}
	}
	for _, e := range fresh {
		version := e.Envelope.Version
		v, reason, err := w.apply(ctx, e)
		switch {
		case err != nil:
			return version, err
		case v == applied:
			w.out.Applied = append(w.out.Applied, version)
			w.out.Version = version
		case v == rejected:
			w.reject(e, reason)
			w.out.Version = version
			w.steps = append(w.steps, step[R]{row: w.row, live: w.live, in: w.in, version: version})
		default:
			w.out.Skipped = append(w.out.Skipped, version)
		}
	}
	return 0, nil
}

// foldLatest applies the newest event that is neither rejected nor skipped.
func (w *instanceFold[K, R]) foldLatest(ctx context.Context, fresh []RowEvent) (int64, error) {
	known := w.known(fresh)
	highestRejected, highestCovered := int64(0), int64(0)
	for i, e := range slices.Backward(fresh) {
		version := e.Envelope.Version
		v, reason, err := w.apply(ctx, e)
		switch {
		case err != nil:
			return version, err
		case v == skipped:
			w.out.Skipped = append([]int64{version}, w.out.Skipped...)
		case v == rejected:
			w.reject(e, reason)
			highestRejected = max(highestRejected, version)
			if len(known.Missing(w.checkpoint, version)) == 0 {
				highestCovered = max(highestCovered, version)
			}
		default:
			w.out.Applied = []int64{version}
			w.out.Version = max(version, highestRejected)
			w.steps[len(w.steps)-1].version = w.out.Version
			for _, older := range fresh[:i] {
				w.out.Superseded = append(w.out.Superseded, older.Envelope.Version)
			}
			return 0, nil
		}
	}
	if highestCovered > 0 {
		w.out.Version = highestCovered
		w.steps = append(w.steps, step[R]{row: w.row, live: w.live, in: w.in, version: highestCovered})
	}
	return 0, nil
}

// known returns the versions that need not be read.
func (w *instanceFold[K, R]) known(fresh []RowEvent) Versions {
	known := w.batch.Known[w.in]
	for _, e := range fresh {
		if version := e.Envelope.Version; !known.Has(version) {
			known = known.With(Span{version, version})
		}
	}
	return known
}

func (w *instanceFold[K, R]) reject(e RowEvent, reason error) {
	rejection := Rejection{Version: e.Envelope.Version, Err: reason}
	at, _ := slices.BinarySearchFunc(w.out.Rejected, rejection.Version, func(r Rejection, version int64) int {
		return cmp.Compare(r.Version, version)
	})
	w.out.Rejected = slices.Insert(w.out.Rejected, at, rejection)
}

// apply evolves the row by one event. Of a rejected event it returns the reason; an
// error fails the instance.
func (w *instanceFold[K, R]) apply(ctx context.Context, e RowEvent) (v verdict, reason, err error) {
	if skip, decided := w.skips[w.in][e.Envelope.Version]; decided {
		return rejected, &SkippedByOperator{Skip: skip}, nil
	}
	if err := ctx.Err(); err != nil {
		return 0, nil, err
	}
	next, err := w.source.evolve(ctx, w.row, e.decoded, w.in)
	remove := errors.Is(err, RemoveRow)
	switch {
	case errors.Is(err, SkipEvent):
		return skipped, nil, nil
	case remove && !w.p.model.HasRemoval:
		return 0, nil, &RemovalNotDeclared{Projection: w.p.name}
	case err != nil && !remove:
		terminal, panicked := w.source.terminal(err, e.decoded)
		if panicked != nil {
			return 0, nil, panicked
		}
		if terminal {
			return rejected, err, nil
		}
		return 0, nil, err
	}
	return applied, nil, w.accept(e, next, remove)
}

// accept makes next the row at hand, and a step of the write.
func (w *instanceFold[K, R]) accept(e RowEvent, next R, remove bool) error {
	var after *R
	if !remove {
		if key, err := w.p.model.KeyText(w.p.rows.rowKey(&next)); err != nil || key != w.batch.Row.Key {
			return &RowKeyChanged{Projection: w.p.name, From: w.batch.Row.Key, To: key}
		}
		after = &next
	}
	effects, err := w.emit(e, after)
	if err != nil {
		return err
	}
	closes, err := w.source.closes(e.decoded)
	if err != nil {
		return err
	}
	w.row, w.live = next, !remove
	s := step[R]{row: next, live: w.live, in: w.in, version: e.Envelope.Version, applied: true, closes: closes, effects: effects}
	if remove {
		if err := w.restart(); err != nil {
			return err
		}
		s.row = w.row
	}
	w.steps = append(w.steps, s)
	return nil
}

// emit returns the effects of an applied event, without their sequence.
func (w *instanceFold[K, R]) emit(e RowEvent, after *R) ([]outbox.Item, error) {
	books := w.batch.Row.Books
	if books.Emits != nil && !*books.Emits || e.Envelope.Version <= books.EmitAbove[w.in.CheckpointKey()] {
		return nil, nil
	}
	if after != nil {
		after = new(*after) // effects get a copy: the row must not be changed by them
	}
	values, err := w.source.effects(after, e.decoded, w.in)
	if err != nil || len(values) == 0 {
		return nil, err
	}
	items := make([]outbox.Item, len(values))
	bytes := 0
	for i, value := range values {
		encoded, err := encodeEffect(w.p.effectTypes, value)
		if err != nil {
			return nil, err
		}
		items[i] = outbox.Item{
			Row: w.ref, ID: outbox.EffectID(w.ref, w.in.Source, w.in.StreamID, e.Envelope.Version, i),
			Source: w.in.Source, Stream: e.Envelope.Stream, StreamID: w.in.StreamID, Version: e.Envelope.Version, Index: i,
			Type: encoded.Type, SchemaVersion: encoded.SchemaVersion, Payload: encoded.Payload,
			EnqueuedAt: w.options.Now.UTC(), TraceParent: e.Envelope.Metadata["traceparent"],
		}
		bytes += effectSize(&items[i])
	}
	if limit := w.options.effectLimits(); len(items) > limit.MaxEffects || limit.MaxBytes > 0 && bytes > limit.MaxBytes {
		return nil, &TooManyEffects{Instance: w.in, Version: e.Envelope.Version, Effects: len(items), Bytes: bytes, Limits: limit}
	}
	return items, nil
}

// encodeEffect calls what the effect's type has of its own for that.
func encodeEffect(types *event.Registry, value any) (encoded event.NewEvent, err error) {
	defer recovered("encode", &err)
	return types.Encode(value)
}
