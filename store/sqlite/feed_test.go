package sqlite_test

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/store/sqlite"
)

func follow(tb testing.TB, feed event.Feed, shard string, after event.Position, limit int) event.Page {
	tb.Helper()
	page, err := feed.Read(tb.Context(), shard, after, limit)
	require.NoError(tb, err)
	return page
}

func position(n int) event.Position { return event.Position(fmt.Sprintf("%020d", n)) }

func requireInvalid(tb testing.TB, err error, field, value string) {
	tb.Helper()
	invalid, is := errors.AsType[*sqlite.InvalidFeed](err)
	require.True(tb, is, "%v", err)
	require.Equal(tb, []string{field, value}, []string{invalid.Field, invalid.Value})
	require.NotEmpty(tb, invalid.Reason)
	require.Equal(tb, event.ClassPermanent, event.Classify(err))
}

func TestFeedsThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	store := open(t, sqlite.Config{})
	for _, partitions := range []int{-1, 0, 1025} {
		_, err := store.Feed("Order", partitions)
		requireInvalid(t, err, "partitions", strconv.Itoa(partitions))
	}
	for _, stream := range []string{"", "Order#1"} {
		_, err := store.Feed(stream, 1)
		requireInvalid(t, err, "stream", stream)
	}
}

func TestReadsOfAFeedThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	store := open(t, sqlite.Config{})
	record(t, store, "Order", "o-1", 0, counted(1, dawn()))
	feed, err := store.Feed("Order", 4)
	require.NoError(t, err)
	for _, shard := range []string{"", "4of4", "0of3", "00of4", "0", "0/4"} {
		_, err := feed.Read(t.Context(), shard, "", 1)
		requireInvalid(t, err, "shard", shard)
	}
	for _, malformed := range []event.Position{
		"1", "x", "00000000000000000000", "0000000000000000001", "000000000000000000001", "-0000000000000000001",
		"+0000000000000000001", "0000000000000000000x", " 0000000000000000001", "99999999999999999999",
	} {
		_, err := feed.Read(t.Context(), "0of4", malformed, 1)
		requireInvalid(t, err, "position", string(malformed))
	}
	for _, limit := range []int{0, -1} {
		_, err := feed.Read(t.Context(), "0of4", "", limit)
		requireInvalid(t, err, "limit", strconv.Itoa(limit))
	}
}

// An instance must stay in its partition through every release: its later events would
// overtake earlier ones otherwise. These homes are FNV-1a, 64 bits, modulo 1024.
func TestTheHomeOfAnInstanceNeverChanges(t *testing.T) {
	t.Parallel()
	store := open(t, sqlite.Config{})
	feed, err := store.Feed("Order", 1024)
	require.NoError(t, err)
	for id, shard := range map[event.ID]string{
		"o-1":    "616of1024",
		"o-2":    "897of1024",
		"a#b":    "525of1024",
		"Zürich": "448of1024",
		"4711":   "402of1024",
	} {
		record(t, store, "Order", id, 0, counted(1, dawn()))
		page := follow(t, feed, shard, "", 1000)
		require.Len(t, page.Records, 1, "%s is not in %s", id, shard)
		require.Equal(t, id, page.Records[0].Envelope.StreamID)
	}
}

func TestEveryNumberOfPartitionsCoversTheStream(t *testing.T) {
	t.Parallel()
	const instances = 50
	store := open(t, sqlite.Config{})
	for i := range instances {
		record(t, store, "Order", event.ID(fmt.Sprintf("o-%d", i)), 0, counted(1, dawn()))
	}
	for _, partitions := range []int{1, 2, 3, 7, 100, 1024} {
		feed, err := store.Feed("Order", partitions)
		require.NoError(t, err)
		shards, err := feed.Shards(t.Context())
		require.NoError(t, err)
		require.Len(t, shards, partitions)
		seen := map[event.ID]int{}
		for _, shard := range shards {
			require.Empty(t, shard.Parents)
			for _, record := range follow(t, feed, shard.ID, "", instances).Records {
				seen[record.Envelope.StreamID]++
			}
		}
		require.Len(t, seen, instances)
		for id, times := range seen {
			require.Equal(t, 1, times, "%s with %d partitions", id, partitions)
		}
	}
}

func TestShardsAreTheCallersOwn(t *testing.T) {
	t.Parallel()
	feed, err := open(t, sqlite.Config{}).Feed("Order", 2)
	require.NoError(t, err)
	shards, err := feed.Shards(t.Context())
	require.NoError(t, err)
	shards[0].ID = "changed"
	shards, err = feed.Shards(t.Context())
	require.NoError(t, err)
	require.Equal(t, []event.Shard{{ID: "0of2"}, {ID: "1of2"}}, shards)
}

func TestAPageMovesBehindWhatOthersHave(t *testing.T) {
	t.Parallel()
	store := open(t, sqlite.Config{})
	feed, err := store.Feed("Order", 1024)
	require.NoError(t, err)
	require.Equal(t, event.Page{}, follow(t, feed, "616of1024", "", 10), "nothing there, nowhere to go")

	record(t, store, "Order", "o-1", 0, counted(3, dawn()))
	require.Equal(t, event.Page{Next: position(3)}, follow(t, feed, "617of1024", "", 10))
	require.Equal(t, event.Page{Next: position(3)}, follow(t, feed, "617of1024", position(3), 10))
	record(t, store, "Cart", "o-1", 0, counted(1, dawn()))
	require.Equal(t, event.Page{Next: position(3)}, follow(t, feed, "617of1024", position(3), 10), "another stream is no progress")

	page := follow(t, feed, "616of1024", position(1), 10)
	require.Len(t, page.Records, 2)
	require.Equal(t, position(3), page.Next)
	require.Equal(t, position(2), page.Records[0].Position)
	require.Equal(t, position(3), page.Records[1].Position)
}

func TestBehindCountsWhatIsLeftOfAPartition(t *testing.T) {
	t.Parallel()
	store := open(t, sqlite.Config{})
	feed, err := store.Feed("Order", 1024)
	require.NoError(t, err)
	for round := range int64(5) {
		record(t, store, "Order", "o-1", round, counted(1, dawn()))
		record(t, store, "Order", "o-2", round, counted(1, dawn()))
		record(t, store, "Cart", "o-1", round, counted(1, dawn()))
	}
	after := event.Position("")
	for _, left := range []int64{3, 1, 0} {
		page := follow(t, feed, "616of1024", after, 2)
		require.Equal(t, left, page.Behind)
		after = page.Next
	}
	require.Zero(t, follow(t, feed, "616of1024", "", 5).Behind, "a full page with nothing behind it")
}

func TestBehindIsCountedUpToALimit(t *testing.T) {
	t.Parallel()
	store := open(t, sqlite.Config{})
	feed, err := store.Feed("Order", 1)
	require.NoError(t, err)
	// As many appends would take a while.
	require.NoError(t, store.Exec(t.Context(), `WITH RECURSIVE numbers(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM numbers WHERE n < 10003)
		INSERT INTO rowfold_events
		(stream, stream_id, version, bucket, type, schema_version, time, data)
		SELECT 'Order', 'o-1', n, 616, 'Counted', 1, 0, CAST('{}' AS BLOB) FROM numbers`))
	require.Equal(t, int64(10_000), follow(t, feed, "0of1", "", 1).Behind)
	require.Equal(t, int64(9_999), follow(t, feed, "0of1", position(3), 1).Behind)
}

func TestAPageOfLargeEventsEndsEarly(t *testing.T) {
	t.Parallel()
	store := open(t, sqlite.Config{})
	feed, err := store.Feed("Order", 1)
	require.NoError(t, err)
	record(t, store, "Order", "o-1", 0, large(6, 1<<20))
	record(t, store, "Order", "huge", 0, large(1, 5<<20))
	for _, want := range []struct {
		after         event.Position
		records, next int
		behind        int64
	}{{"", 4, 4, 3}, {position(4), 3, 7, 0}, {position(6), 1, 7, 0}, {position(7), 0, 7, 0}} {
		page := follow(t, feed, "0of1", want.after, 100)
		require.Len(t, page.Records, want.records)
		require.Equal(t, position(want.next), page.Next)
		require.Equal(t, want.behind, page.Behind)
	}
}

// A position belongs to the file: another process goes on with it, and sees what was committed
// at once.
func TestAFeedGoesOnInAnotherStoreOfTheFile(t *testing.T) {
	t.Parallel()
	path := filePath(t)
	writer, reader := open(t, file(path)), open(t, file(path))
	feed, err := writer.Feed("Order", 1)
	require.NoError(t, err)
	other, err := reader.Feed("Order", 1)
	require.NoError(t, err)
	after := event.Position("")
	for i := range int64(5) {
		record(t, writer, "Order", "o-1", i, counted(1, dawn()))
		page := follow(t, other, "0of1", after, 10)
		require.Len(t, page.Records, 1)
		require.Equal(t, i+1, page.Records[0].Envelope.Version)
		after = page.Next
		require.Empty(t, follow(t, feed, "0of1", after, 10).Records)
	}
}

// A follower that is ahead of its database would miss what is appended until it is caught up
// with.
func TestARestoredDatabaseIsNoticed(t *testing.T) {
	t.Parallel()
	path := filePath(t)
	store, err := sqlite.Open(t.Context(), file(path))
	require.NoError(t, err)
	record(t, store, "Order", "o-1", 0, counted(2, dawn()))
	require.NoError(t, store.Close())
	saved, err := os.ReadFile(path)
	require.NoError(t, err)

	store, err = sqlite.Open(t.Context(), file(path))
	require.NoError(t, err)
	record(t, store, "Order", "o-1", 2, counted(1, dawn()))
	feed, err := store.Feed("Order", 1)
	require.NoError(t, err)
	ahead := follow(t, feed, "0of1", "", 10).Next
	require.NoError(t, store.Close())

	require.NoError(t, os.WriteFile(path, saved, 0o600))
	store = open(t, file(path))
	record(t, store, "Cart", "c-1", 0, counted(9, dawn()))
	feed, err = store.Feed("Order", 1)
	require.NoError(t, err)
	_, err = feed.Read(t.Context(), "0of1", ahead, 10)
	requireInvalid(t, err, "position", string(ahead))
	require.Len(t, follow(t, feed, "0of1", "", 10).Records, 2)
}
