package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"time"

	"github.com/rowfold/rowfold/event"
)

// maxPartitions is how many partitions a feed can have: each needs a bucket.
const maxPartitions = buckets

// behindLimit is up to where a page counts what is left: the count says how far a follower
// is behind, not how long a stream is.
const behindLimit = 100_000

// InvalidFeed is returned for a feed, a shard or a position that cannot be.
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
// ("0of4"), so a position is never taken up with another number of partitions; positions
// are 20 digits. SQLite commits one transaction after the other, so positions rise in
// the order of commits and a follower misses nothing. The error is an *[InvalidFeed].
func (s *Store) Feed(stream string, partitions int) (event.Feed, error) {
	if partitions < 1 || partitions > maxPartitions {
		return nil, &InvalidFeed{Field: "partitions", Value: strconv.Itoa(partitions), Reason: fmt.Sprintf("use 1 to %d", maxPartitions)}
	}
	if stream == "" {
		return nil, &InvalidFeed{Field: "stream", Reason: "it is empty"}
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
func (f *feed) Shards(context.Context) ([]event.Shard, error) { return f.shards, nil }

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
	page := event.Page{Next: after}
	err = f.store.read(ctx, "read the feed of stream "+f.stream, func(t *tx) error {
		if err := f.checkTrim(ctx, t, shard, from); err != nil {
			return err
		}
		return f.fill(ctx, t, part, from, limit, &page)
	})
	if err != nil {
		return event.Page{}, err
	}
	return page, nil
}

// fill reads a page. All of it is one snapshot, so that what is not there is not there.
func (f *feed) fill(ctx context.Context, t *tx, part partition, from int64, limit int, page *event.Page) error {
	last := from
	err := t.query(ctx, `SELECT position, `+envelopeColumns+` FROM rowfold_events
		WHERE stream = ? AND position > ? AND bucket >= ? AND bucket < ? ORDER BY position LIMIT ?`,
		[]any{f.stream, from, part.from, part.below, limit}, func(rows *sql.Rows) error {
			envelope, err := scanEnvelope(rows, &last)
			page.Records = append(page.Records, event.Record{Position: formatPosition(last), Envelope: envelope})
			return err
		})
	if err != nil {
		return err
	}
	if len(page.Records) < limit {
		// What other partitions have is passed, so that it is not looked through again.
		if _, err := t.one(ctx, `SELECT MAX(?, COALESCE(MAX(position), 0)) FROM rowfold_events WHERE stream = ?`,
			[]any{last, f.stream}, &last); err != nil {
			return err
		}
	} else if _, err := t.one(ctx, `SELECT COUNT(*) FROM (SELECT 1 FROM rowfold_events
		WHERE stream = ? AND position > ? AND bucket >= ? AND bucket < ? LIMIT ?)`,
		[]any{f.stream, last, part.from, part.below, behindLimit}, &page.Behind); err != nil {
		return err
	}
	if last > from {
		page.Next = formatPosition(last)
	}
	return nil
}

// checkTrim refuses to go on where records may be missing.
func (f *feed) checkTrim(ctx context.Context, t *tx, shard string, from int64) error {
	var trimmed int64
	if _, err := t.one(ctx, `SELECT position FROM rowfold_trims WHERE stream = ?`, []any{f.stream}, &trimmed); err != nil {
		return err
	}
	if from < trimmed {
		return &event.Trimmed{Shard: shard, After: formatPosition(from), Oldest: formatPosition(trimmed)}
	}
	return nil
}

// TrimEvents removes a stream's events that were recorded before a time, oldest first, up to
// the first one that is younger, and returns how many. Versions go on where they were.
// Followers that had not read them meet *event.Trimmed, gap reads projection.HistoryTrimmed.
func (s *Store) TrimEvents(ctx context.Context, stream string, before time.Time) (removed int64, err error) {
	err = s.write(ctx, "trim stream "+stream, func(t *tx) error {
		var upTo int64
		if _, err := t.one(ctx, `SELECT COALESCE(
			(SELECT MIN(position) - 1 FROM rowfold_events WHERE stream = ?1 AND time >= ?2),
			(SELECT MAX(position) FROM rowfold_events WHERE stream = ?1), 0)`,
			[]any{stream, before.UnixMilli()}, &upTo); err != nil {
			return err
		}
		removed, err = t.exec(ctx, `DELETE FROM rowfold_events WHERE stream = ? AND position <= ?`, stream, upTo)
		if err != nil || removed == 0 {
			return err
		}
		_, err := t.exec(ctx, `INSERT INTO rowfold_trims (stream, position) VALUES (?, ?)
			ON CONFLICT DO UPDATE SET position = MAX(position, excluded.position)`, stream, upTo)
		return err
	})
	return removed, err
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
