package projection

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/rowfold/rowfold/event"
)

// ProcessBatch applies a batch of records: each is decoded once and sent to every
// projection that reads its stream, and rows are loaded and committed many at a time.
//
// The error is for a batch about which nothing can be said: the store cannot be
// reached, or ctx is over. Everything else is in the result: a failing instance or row
// does not keep the others. The batch may be processed again at any time.
func (p *Processor) ProcessBatch(ctx context.Context, records []event.Record, options BatchOptions) (BatchResult, error) {
	batches := p.routeBatch(records, options)
	var result BatchResult
	for _, b := range batches {
		if err := b.prepare(ctx, options.CatchUp[b.definition.Name()]); err != nil {
			return result, err
		}
		result.Parked = append(result.Parked, b.parked...)
	}
	if err := p.applyBatches(ctx, batches); err != nil {
		return result, err
	}
	for _, b := range batches {
		for _, row := range b.sortedRows() {
			result.Rows = append(result.Rows, row.outcome)
			result.Enqueued += row.outcome.Enqueued
		}
		result.Failures = append(result.Failures, b.failures()...)
	}
	slices.SortStableFunc(result.Failures, func(a, b InstanceFailure) int { return cmp.Compare(a.Record, b.Record) })
	if err := p.sendOff(ctx, batches, &result); err != nil {
		return result, err
	}
	return result, nil
}

// definitionBatch is what a batch holds for one projection.
type definitionBatch struct {
	p          *Processor
	definition Definition
	rows       map[string]*rowWork
	records    map[Instance][]routedRecord // everything in the batch for an instance
	known      map[Instance]Versions       // the versions of records that could be read
	unreadable map[Instance]unreadable
	skips      []Skip
	parked     []Park
}

// routedRecord is a record of the batch as an event of an instance.
type routedRecord struct {
	routed

	index    int
	envelope event.Envelope
}

// unreadable is the first event of an instance that could not be decoded or routed:
// it and the later ones are not applied.
type unreadable struct {
	version int64
	err     error
}

// rowWork is a row on its way through a batch.
type rowWork struct {
	key     string
	events  []RowEvent
	stored  Stored
	outcome Outcome
	writes  []Write // computed and not yet committed
	fold    RowFold // what they were computed as
	sentID  string  // of the last write sent
	lost    int     // races lost so far
	// committed are the versions that earlier writes of this batch have committed,
	// whatever a later fold sees of them.
	committed map[Instance]map[int64]bool
	enqueued  int
	done      bool
}

// routeBatch sends every record through every projection that reads its stream.
func (p *Processor) routeBatch(records []event.Record, options BatchOptions) []*definitionBatch {
	var batches []*definitionBatch
	byName := map[string]*definitionBatch{}
	for _, definition := range p.config.Definitions {
		if len(options.Only) > 0 && !slices.Contains(options.Only, definition.Name()) {
			continue
		}
		b := &definitionBatch{
			p: p, definition: definition, rows: map[string]*rowWork{}, records: map[Instance][]routedRecord{},
			unreadable: map[Instance]unreadable{}, known: map[Instance]Versions{},
		}
		batches, byName[definition.Name()] = append(batches, b), b
	}
	for index, record := range records {
		decoded := map[any]decodeResult{}
		for _, definition := range p.streams[record.Envelope.Stream] {
			b := byName[definition.Name()]
			if b == nil {
				continue
			}
			for _, to := range definition.route(record.Envelope, decoded) {
				to.err = cmp.Or(record.Err, to.err)
				b.records[to.instance] = append(b.records[to.instance], routedRecord{routed: to, index: index, envelope: record.Envelope})
			}
		}
	}
	return batches
}

// prepare takes parked instances out of the batch, reads what operators decided, and
// gives every row its events.
func (b *definitionBatch) prepare(ctx context.Context, catchUp []Instance) error {
	if len(b.records) == 0 {
		return nil
	}
	if err := b.setAsideParked(ctx, catchUp); err != nil {
		return err
	}
	instances := slices.SortedFunc(maps.Keys(b.records), compareInstances)
	var err error
	if b.skips, err = b.p.config.Store.Skips(ctx, b.definition.Name(), instances); err != nil {
		return fmt.Errorf("read the skips of projection %s: %w", b.definition.Name(), err)
	}
	for in, records := range b.records {
		for _, r := range records {
			bad, found := b.unreadable[in]
			switch {
			case r.err == nil || b.isSkipped(in, r.envelope.Version):
				b.known[in] = b.known[in].With(Span{r.envelope.Version, r.envelope.Version})
			case !found || r.envelope.Version < bad.version:
				b.unreadable[in] = unreadable{r.envelope.Version, r.err}
			}
		}
		for _, r := range records {
			if bad, found := b.unreadable[in]; r.key == "" || r.err != nil || found && r.envelope.Version >= bad.version {
				continue
			}
			row := b.row(r.key)
			row.events = append(row.events, RowEvent{Instance: in, Envelope: r.envelope, decoded: r.decoded})
		}
	}
	return nil
}

func (b *definitionBatch) isSkipped(in Instance, version int64) bool {
	return slices.ContainsFunc(b.skips, func(skip Skip) bool { return skip.Instance == in && skip.Version == version })
}

func (b *definitionBatch) row(key string) *rowWork {
	row := b.rows[key]
	if row == nil {
		row = &rowWork{key: key, committed: map[Instance]map[int64]bool{}}
		b.rows[key] = row
	}
	return row
}

func (b *definitionBatch) sortedRows() []*rowWork {
	rows := make([]*rowWork, 0, len(b.rows))
	for _, key := range sortedKeys(b.rows) {
		rows = append(rows, b.rows[key])
	}
	return rows
}

// setAsideParked takes parked instances out of the batch, and notes their newer
// versions and rows, so that whoever catches them up applies them.
func (b *definitionBatch) setAsideParked(ctx context.Context, catchUp []Instance) error {
	instances := slices.SortedFunc(maps.Keys(b.records), compareInstances)
	parks, err := b.p.config.Store.Parked(ctx, b.definition.Name(), instances)
	if err != nil {
		return fmt.Errorf("read the parked instances of projection %s: %w", b.definition.Name(), err)
	}
	for _, park := range parks {
		if slices.Contains(catchUp, park.Instance) {
			continue
		}
		noted := park
		for _, record := range b.records[park.Instance] {
			noted.Newest = max(noted.Newest, record.envelope.Version)
			if record.key != "" && !slices.Contains(noted.Rows, record.key) {
				noted.Rows = append(noted.Rows, record.key)
			}
		}
		if noted.Newest > park.Newest || len(noted.Rows) > len(park.Rows) {
			if err := b.p.config.Store.Park(ctx, noted); err != nil {
				return fmt.Errorf("note newer versions of the parked instance %s of projection %s: %w", park.Instance, b.definition.Name(), err)
			}
		}
		b.parked = append(b.parked, noted)
		delete(b.records, park.Instance)
	}
	return nil
}

// failures returns the instances that were not applied, each with its earliest record.
func (b *definitionBatch) failures() []InstanceFailure {
	failing := map[Instance]*InstanceFailure{}
	note := func(in Instance, err error, wanted func(routedRecord) bool, row string) {
		failure := failing[in]
		if failure == nil {
			failure = &InstanceFailure{Projection: b.definition.Name(), Instance: in, Stream: b.stream(in), Record: -1, Err: err}
			failing[in] = failure
		}
		if row != "" && !slices.Contains(failure.Rows, row) {
			failure.Rows = append(failure.Rows, row)
		}
		for _, record := range b.records[in] {
			if !wanted(record) {
				continue
			}
			if failure.Record < 0 || record.index < failure.Record {
				failure.Record = record.index
			}
			if failure.From == 0 || record.envelope.Version < failure.From {
				failure.From = record.envelope.Version
			}
			failure.Newest = max(failure.Newest, record.envelope.Version)
		}
	}
	for in, bad := range b.unreadable {
		note(in, bad.err, func(r routedRecord) bool { return r.envelope.Version >= bad.version }, "")
	}
	for _, row := range b.sortedRows() {
		for _, outcome := range row.outcome.Instances {
			if outcome.Err != nil {
				note(outcome.Instance, outcome.Err, func(r routedRecord) bool {
					return r.key == row.key && r.envelope.Version > outcome.Version
				}, row.key)
			}
		}
	}
	failures := make([]InstanceFailure, 0, len(failing))
	for _, in := range slices.SortedFunc(maps.Keys(failing), compareInstances) {
		if failing[in].Record >= 0 { // otherwise all of its records are applied already
			failures = append(failures, *failing[in])
		}
	}
	return failures
}

// stream returns the stream of an instance.
func (b *definitionBatch) stream(in Instance) string {
	return b.definition.sourceInfo(in.Source).Stream
}

func compareInstances(a, b Instance) int {
	return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.StreamID, b.StreamID))
}
