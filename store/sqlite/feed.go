package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rowfold/rowfold/event"
)

// maxPartitions is how many partitions a feed can have: each needs a bucket.
const maxPartitions = buckets

// behindEvents is how many events of the stream, of all partitions, a page looks at to count
// those that are left. It takes about 2 ms, as long as a page itself.
const behindEvents = 10_000

// InvalidFeed is returned for a feed, a shard, a position or a limit that cannot be.
type InvalidFeed struct {
	Field  string // partitions, stream, shard, position or limit
	Value  string
	Reason string
}

// Error implements error.
func (e *InvalidFeed) Error() string {
	return fmt.Sprintf("sqlite: feed: %s %q: %s", e.Field, e.Value, e.Reason)
}

// Class is [event.ClassPermanent].
func (e *InvalidFeed) Class() event.Class { return event.ClassPermanent }

// Feed returns the feed of a stream, in a number of partitions, 1 to 1024. An instance is in
// one partition, by the hash of its id. A shard's name says which part it is of how many
// ("0of4"), so a position is never taken up with another number of partitions: after a change of
// the number every follower begins anew. Positions are 20 digits. SQLite commits one transaction
// after the other, so positions rise in the order of commits and a follower misses nothing.
//
// A page may end before its limit where events are large. Its Behind counts among the next
// 10,000 events of the stream; there may be more.
//
// Errors, of Feed and of its feed: *[InvalidFeed]. A position that the stream never reached is one,
// as a follower has it after the database was restored from an older copy. The events of a
// position that was trimmed are gone: *event.Trimmed.
func (s *Store) Feed(stream string, partitions int) (event.Feed, error) {
	if partitions < 1 || partitions > maxPartitions {
		return nil, &InvalidFeed{Field: "partitions", Value: strconv.Itoa(partitions), Reason: fmt.Sprintf("use 1 to %d", maxPartitions)}
	}
	if stream == "" || strings.Contains(stream, "#") {
		return nil, &InvalidFeed{Field: "stream", Value: stream, Reason: "a stream has a name, without '#'"}
	}
	feed := &feed{store: s, stream: stream, partitions: map[string]partition{}}
	for i := range partitions {
		shard := fmt.Sprintf("%dof%d", i, partitions)
		feed.shards = append(feed.shards, event.Shard{ID: shard})
		feed.partitions[shard] = partition{from: i * buckets / partitions, below: (i + 1) * buckets / partitions}
	}
	return feed, nil
}

// partition is a range of buckets.
type partition struct{ from, below int }

type feed struct {
	store      *Store
	stream     string
	shards     []event.Shard
	partitions map[string]partition
}

// Shards implements event.Feed.
func (f *feed) Shards(context.Context) ([]event.Shard, error) { return slices.Clone(f.shards), nil }

// Read implements event.Feed.
func (f *feed) Read(ctx context.Context, shard string, after event.Position, limit int) (event.Page, error) {
	part, known := f.partitions[shard]
	if !known {
		return event.Page{}, &InvalidFeed{
			Field: "shard", Value: shard, Reason: "this feed has no such shard; was its number of partitions changed?",
		}
	}
	if limit < 1 {
		return event.Page{}, &InvalidFeed{Field: "limit", Value: strconv.Itoa(limit), Reason: "use 1 or more"}
	}
	from, err := parsePosition(after)
	if err != nil {
		return event.Page{}, err
	}
	var page event.Page
	err = f.store.read(ctx, "read the feed of stream "+f.stream, func(t *tx) error {
		newest, err := f.check(ctx, t, shard, from)
		if err != nil {
			return err
		}
		page, err = f.page(ctx, t, part, from, newest, limit)
		return err
	})
	if err != nil {
		return event.Page{}, err
	}
	return page, nil
}

// page reads a page. All of it is one snapshot, so that what is not there is not there.
func (f *feed) page(ctx context.Context, t *tx, part partition, from, newest int64, limit int) (page event.Page, err error) {
	last := from
	more, err := t.page(ctx, `SELECT position, `+envelopeColumns+` FROM rowfold_events
		WHERE stream = ? AND position > ? AND bucket >= ? AND bucket < ? ORDER BY position LIMIT ?`,
		[]any{f.stream, from, part.from, part.below}, limit, func(rows *sql.Rows) (int, error) {
			envelope, err := scanEnvelope(rows, &last)
			record := event.Record{Position: formatPosition(last), Envelope: envelope}
			// An event that cannot be read is its instance's matter, the shard goes on.
			if unreadable, is := errors.AsType[*event.RecordError](err); is {
				record.Err, err = unreadable, nil
			}
			page.Records = append(page.Records, record)
			return len(envelope.Payload), err
		})
	switch {
	case err != nil:
		return page, err
	case more:
		_, err = t.one(ctx, `SELECT COUNT(*) FROM
			(SELECT bucket FROM rowfold_events WHERE stream = ? AND position > ? ORDER BY position LIMIT ?)
			WHERE bucket >= ? AND bucket < ?`, []any{f.stream, last, behindEvents, part.from, part.below}, &page.Behind)
	default:
		// What other partitions have is passed, so that it is not looked through again.
		last = newest
	}
	page.Next = formatPosition(last)
	return page, err
}

// check refuses to go on where records may be missing. It returns the newest position of the
// stream.
func (f *feed) check(ctx context.Context, t *tx, shard string, from int64) (newest int64, err error) {
	var trimmed int64
	_, err = t.one(ctx, `SELECT COALESCE((SELECT position FROM rowfold_trims WHERE stream = ?1), 0),
		COALESCE((SELECT MAX(position) FROM rowfold_events WHERE stream = ?1), 0)`, []any{f.stream}, &trimmed, &newest)
	newest = max(newest, trimmed)
	switch {
	case err != nil:
		return 0, err
	case from < trimmed:
		return 0, &event.Trimmed{Shard: shard, After: formatPosition(from), Oldest: formatPosition(trimmed)}
	case from > newest:
		return 0, &InvalidFeed{
			Field: "position", Value: string(formatPosition(from)),
			Reason: fmt.Sprintf("the stream ends at %q: was the database restored from an older copy?", formatPosition(newest)),
		}
	}
	return newest, nil
}

func formatPosition(position int64) event.Position {
	if position == 0 {
		return ""
	}
	return event.Position(fmt.Sprintf("%020d", position))
}

func parsePosition(position event.Position) (int64, error) {
	if position == "" {
		return 0, nil
	}
	number, err := strconv.ParseInt(string(position), 10, 64)
	if err != nil || number < 1 || formatPosition(number) != position {
		return 0, &InvalidFeed{Field: "position", Value: string(position), Reason: "it is not a position of this store: 20 digits"}
	}
	return number, nil
}
