package tallytest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/rowfold/rowfold/event"
)

// Feed is a feed in memory whose shards a test opens, closes, trims and takes away. It is
// safe for concurrent use.
type Feed struct {
	mu     sync.Mutex
	shards []*feedShard
	reads  []Read
	fault  error
}

// Read is one read that a [Feed] was asked for.
type Read struct {
	Shard string
	After event.Position
	Limit int
}

type feedShard struct {
	event.Shard

	records []event.Record
	trimmed int // records that are gone
	closed  bool
}

// Open adds a shard.
func (f *Feed) Open(id string, parents ...string) {
	f.change(func() {
		f.shards = append(f.shards, &feedShard{Shard: event.Shard{ID: id, Parents: parents}})
	})
}

// Put adds records to a shard. Their positions are "0001", "0002" and so on.
func (f *Feed) Put(shard string, records ...event.Record) {
	f.change(func() {
		s := f.find(shard)
		for _, record := range records {
			record.Position = At(len(s.records) + 1)
			s.records = append(s.records, record)
		}
	})
}

// At is the position of a shard's n-th record; 0 = before the first one.
func At(n int) event.Position {
	if n == 0 {
		return ""
	}
	return event.Position(fmt.Sprintf("%04d", n))
}

// CloseShard ends a shard: nothing comes after what it holds.
func (f *Feed) CloseShard(shard string) { f.change(func() { f.find(shard).closed = true }) }

// Trim takes a shard's first n records away.
func (f *Feed) Trim(shard string, n int) { f.change(func() { f.find(shard).trimmed = n }) }

// Vanish takes a shard away.
func (f *Feed) Vanish(shard string) {
	f.change(func() {
		f.shards = slices.DeleteFunc(f.shards, func(s *feedShard) bool { return s.ID == shard })
	})
}

// Break lets every read and listing fail; nil lets them succeed again.
func (f *Feed) Break(err error) { f.change(func() { f.fault = err }) }

// Reads returns the reads so far.
func (f *Feed) Reads() []Read {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.reads)
}

// Shards implements event.Feed.
func (f *Feed) Shards(context.Context) ([]event.Shard, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	shards := make([]event.Shard, 0, len(f.shards))
	for _, shard := range f.shards {
		shards = append(shards, shard.Shard)
	}
	return shards, f.fault
}

// Read implements event.Feed.
func (f *Feed) Read(_ context.Context, shard string, after event.Position, limit int) (event.Page, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads = append(f.reads, Read{Shard: shard, After: after, Limit: limit})
	if f.fault != nil {
		return event.Page{}, f.fault
	}
	s := f.find(shard)
	if s == nil {
		return event.Page{}, fmt.Errorf("shard %s is not there", shard)
	}
	if oldest := At(s.trimmed); after < oldest {
		return event.Page{}, &event.Trimmed{Shard: shard, After: after, Oldest: oldest}
	}
	page := event.Page{Next: after}
	rest := s.records[positionOf(after):]
	page.Records = slices.Clone(rest[:min(limit, len(rest))])
	if len(page.Records) > 0 {
		page.Next = page.Records[len(page.Records)-1].Position
	}
	page.Behind = int64(len(rest) - len(page.Records))
	page.End = s.closed && page.Behind == 0
	return page, nil
}

func positionOf(position event.Position) int {
	var n int
	if position != "" {
		if _, err := fmt.Sscanf(string(position), "%d", &n); err != nil {
			panic(err) // no position of this feed
		}
	}
	return n
}

func (f *Feed) change(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *Feed) find(id string) *feedShard {
	for _, shard := range f.shards {
		if shard.ID == id {
			return shard
		}
	}
	return nil
}

var _ event.Feed = (*Feed)(nil)
