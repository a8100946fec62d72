package projection

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/rowfold/rowfold/event"
)

// gapReader reads the versions that a group of rows lacks: one range read for each
// instance, whatever the number of rows, and nothing twice.
type gapReader struct {
	b      *definitionBatch
	known  map[Instance]Versions
	events map[string][]RowEvent // by row: what was read
	bad    map[Instance]unreadable
	oldest map[Instance]int64
}

func newGapReader(b *definitionBatch) *gapReader {
	return &gapReader{
		b: b, known: map[Instance]Versions{}, events: map[string][]RowEvent{},
		bad: map[Instance]unreadable{}, oldest: map[Instance]int64{},
	}
}

// fill returns the rows as input of the fold, with what they lacked.
func (g *gapReader) fill(ctx context.Context, rows []*rowWork) ([]RowBatch, error) {
	indexed := map[string]map[Instance]Versions{}
	wanted := map[Instance]Span{}
	for _, row := range rows {
		indexed[row.key] = map[Instance]Versions{}
		if err := g.want(ctx, row, indexed[row.key], wanted); err != nil {
			return nil, err
		}
	}
	for _, in := range slices.SortedFunc(maps.Keys(wanted), compareInstances) {
		if err := g.read(ctx, in, wanted[in], rows); err != nil {
			return nil, err
		}
	}
	batches := make([]RowBatch, len(rows))
	for i, row := range rows {
		batches[i] = g.batch(row, indexed[row.key])
	}
	return batches, nil
}

// want reads what a row lacks where its sources have an index, and adds the rest to what
// is wanted of the instances.
func (g *gapReader) want(ctx context.Context, row *rowWork, indexed map[Instance]Versions, wanted map[Instance]Span) error {
	for in, bounds := range g.bounds(row) {
		for _, span := range g.versions(in).Missing(bounds.First, bounds.Last) {
			covered, isIndexed, err := g.fromIndex(ctx, row, in, span)
			if err != nil {
				return err
			}
			if isIndexed {
				for _, part := range covered {
					indexed[in] = indexed[in].With(part)
				}
				continue
			}
			if whole, found := wanted[in]; found {
				span = Span{min(span.First, whole.First), max(span.Last, whole.Last)}
			}
			wanted[in] = span
		}
	}
	return nil
}

// bounds returns, for each instance of a row that has to be without holes, its
// checkpoint and its newest version.
func (g *gapReader) bounds(row *rowWork) map[Instance]Span {
	bounds := map[Instance]Span{}
	for _, e := range row.events {
		in := e.Instance
		if g.b.definition.sourceInfo(in.Source).Mode != ModeFold {
			continue
		}
		checkpoint, err := g.b.definition.Model().Checkpoint(row.stored.Books, in, row.key)
		if err != nil {
			continue // the fold reports that the instance has no place
		}
		span, found := bounds[in]
		if !found {
			span = Span{First: checkpoint}
		}
		span.Last = max(span.Last, e.Envelope.Version)
		bounds[in] = span
	}
	return bounds
}

// versions returns what need not be read: the batch's versions and those read so far.
func (g *gapReader) versions(in Instance) Versions {
	all := g.b.known[in]
	for _, span := range g.known[in] {
		all = all.With(span)
	}
	return all
}

// fromIndex reads the row's events of a span by the source's index, if it has one. It
// returns what of the span need not be waited for: the versions of other rows and those
// that could be read. An index may know an event before the event store shows it.
func (g *gapReader) fromIndex(ctx context.Context, row *rowWork, in Instance, span Span) (covered Versions, isIndexed bool, err error) {
	index := g.b.definition.sourceIndexed(in.Source)
	if index == nil {
		return nil, false, nil
	}
	versions, err := index.Versions(ctx, in, row.key, span.First-1, span.Last+1)
	if err != nil {
		return nil, false, fmt.Errorf("projection %s: event index of source %s: %w", g.b.definition.Name(), in.Source, err)
	}
	next := span.First
	for _, version := range slices.Sorted(slices.Values(versions)) {
		covered = covered.With(Span{next, version - 1})
		next = version + 1
		if err := g.readSpan(ctx, in, Span{version, version}, map[string]int64{row.key: version}); err != nil {
			return nil, false, err
		}
		if g.known[in].Has(version) {
			covered = covered.With(Span{version, version})
		} else if err := g.noteOldest(ctx, in, version); err != nil {
			return nil, false, err
		}
	}
	return covered.With(Span{next, span.Last}), true, nil
}

// read reads a span and finds out what its absence means, if it is absent.
func (g *gapReader) read(ctx context.Context, in Instance, span Span, rows []*rowWork) error {
	upTo := map[string]int64{}
	for _, row := range rows {
		if bounds, found := g.bounds(row)[in]; found {
			upTo[row.key] = bounds.Last - 1
		}
	}
	if err := g.readSpan(ctx, in, span, upTo); err != nil {
		return err
	}
	if g.versions(in).Has(span.First) {
		return nil
	}
	return g.noteOldest(ctx, in, span.First)
}

// noteOldest notes where the event store begins, if that is above a missing version.
func (g *gapReader) noteOldest(ctx context.Context, in Instance, missing int64) error {
	oldest, err := g.b.p.config.Events.Oldest(ctx, g.b.stream(in), in.StreamID)
	if err != nil {
		return fmt.Errorf("projection %s: oldest version of instance %s: %w", g.b.definition.Name(), in, err)
	}
	if oldest > missing {
		g.oldest[in] = oldest
	}
	return nil
}

// readSpan reads a span of an instance and keeps the events of rows, of each up to a
// version.
func (g *gapReader) readSpan(ctx context.Context, in Instance, span Span, upTo map[string]int64) error {
	part := event.Range{After: span.First - 1, UpTo: span.Last, Consistent: true}
	count := int64(0)
	for envelope, err := range g.b.p.config.Events.Read(ctx, g.b.stream(in), in.StreamID, part) {
		if err != nil {
			return fmt.Errorf("projection %s: read the gap of instance %s from version %d to %d: %w", g.b.definition.Name(), in, span.First, span.Last, err)
		}
		count++
		g.known[in] = g.known[in].With(Span{envelope.Version, envelope.Version})
		for _, to := range g.b.definition.route(envelope, map[any]decodeResult{}) {
			if to.instance == in {
				g.keep(to, envelope, upTo)
			}
		}
	}
	g.b.p.metrics.gapEvents.Add(ctx, count)
	return nil
}

// keep keeps an event that was read, or notes that it could not be.
func (g *gapReader) keep(to routed, envelope event.Envelope, upTo map[string]int64) {
	if to.err != nil {
		bad, found := g.bad[to.instance]
		if !g.b.isSkipped(to.instance, envelope.Version) && (!found || envelope.Version < bad.version) {
			g.bad[to.instance] = unreadable{envelope.Version, to.err}
		}
		return
	}
	if last, wanted := upTo[to.key]; wanted && envelope.Version <= last {
		g.events[to.key] = append(g.events[to.key], RowEvent{Instance: to.instance, Envelope: envelope, decoded: to.decoded})
	}
}

// batch returns a row as input of the fold.
func (g *gapReader) batch(row *rowWork, indexed map[Instance]Versions) RowBatch {
	batch := RowBatch{Row: row.stored, Known: map[Instance]Versions{}, Failed: map[Instance]error{}}
	batch.Events = append(slices.Clone(row.events), g.events[row.key]...)
	for in, bounds := range g.bounds(row) {
		known := g.versions(in)
		for _, span := range indexed[in] {
			known = known.With(span)
		}
		missing := known.Missing(bounds.First, bounds.Last)
		oldest := g.oldest[in]
		bad, found := g.bad[in]
		switch {
		case found && bad.version > bounds.First && bad.version < bounds.Last:
			batch.Failed[in] = bad.err
		case len(missing) > 0 && missing[0].First < oldest && g.b.definition.sourceInfo(in.Source).FromOldest:
			known = known.With(Span{1, oldest - 1})
		case len(missing) > 0 && missing[0].First < oldest:
			batch.Failed[in] = &HistoryTrimmed{Instance: in, Missing: missing[0].First, Oldest: oldest}
		}
		batch.Known[in] = known
	}
	for _, e := range row.events {
		if _, bounded := batch.Known[e.Instance]; !bounded {
			batch.Known[e.Instance] = g.versions(e.Instance)
		}
	}
	return batch
}
