package testsuite

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
)

// Feed proves that the feed of an event store shows each event once, in order.
// Features.Feed says whether there is one.
func Feed(t *testing.T, h Harness) {
	t.Helper()
	if !h.Features.Feed {
		t.Run("ThereIsNone", func(t *testing.T) {
			t.Parallel()
			require.Nil(t, h.Open(t).Feed, "Backend.Feed is set: claim Features.Feed")
		})
		return
	}
	runCases(t, h, []testCase{
		{"AnEmptyStreamHasAnEmptyFeed", emptyFeed},
		{"EveryEventIsShownOnceInOrder", feedOnceInOrder},
		{"PartitionsAreDisjointAndComplete", feedPartitions},
		{"AFeedResumesAtAnyPosition", feedResumes},
		{"AFeedShowsItsStreamOnly", feedOfOneStream},
		{"ConcurrentAppendsAreNotLost", feedUnderAppends},
		{"AnUnknownShardIsAnError", feedUnknownShard},
		{"ACancelledContextIsAnError", feedCancelled},
	})
}

func openFeed(t testing.TB, b Backend, partitions int) (event.Feed, []string) {
	t.Helper()
	require.NotNil(t, b.Feed, "Features.Feed is claimed: set Backend.Feed")
	feed, err := b.Feed("Order", partitions)
	require.NoError(t, err)
	shards, err := feed.Shards(t.Context())
	require.NoError(t, err)
	require.Len(t, shards, partitions)
	ids := make([]string, 0, len(shards))
	for _, shard := range shards {
		require.NotEmpty(t, shard.ID)
		require.NotContains(t, ids, shard.ID)
		ids = append(ids, shard.ID)
	}
	return feed, ids
}

// readShard reads what a shard has now, in pages of limit records.
func readShard(t testing.TB, feed event.Feed, shard string, after event.Position, limit int) ([]event.Record, event.Position) {
	t.Helper()
	var records []event.Record
	for {
		page, err := feed.Read(t.Context(), shard, after, limit)
		require.NoError(t, err)
		require.LessOrEqual(t, len(page.Records), limit)
		require.GreaterOrEqual(t, page.Behind, int64(-1))
		require.False(t, page.End, "an open stream does not end")
		last := after
		for _, record := range page.Records {
			require.NoError(t, record.Err)
			require.Greater(t, record.Position, last, "positions rise, bytewise")
			last = record.Position
		}
		require.GreaterOrEqual(t, page.Next, last)
		records = append(records, page.Records...)
		if len(page.Records) == 0 && page.Next == after {
			require.LessOrEqual(t, page.Behind, int64(0), "nothing was read, so nothing is known to be left")
			return records, after
		}
		after = page.Next
	}
}

type eventKey struct {
	id      event.ID
	version int64
}

func keyOf(envelope event.Envelope) eventKey {
	return eventKey{envelope.StreamID, envelope.Version}
}

// T-15
func emptyFeed(t *testing.T, b Backend) {
	feed, shards := openFeed(t, b, 2)
	for _, shard := range shards {
		records, _ := readShard(t, feed, shard, "", 10)
		require.Empty(t, records)
	}
}

// R-7, T-15
func feedOnceInOrder(t *testing.T, b Backend) {
	const instances, rounds = 7, 6
	for round := range rounds {
		for i := range instances {
			appendN(t, b.Events, "Order", event.ID(fmt.Sprintf("o-%d", i)), int64(round*2), 2)
		}
	}
	for _, limit := range []int{1, 3, 1000} {
		feed, shards := openFeed(t, b, 1)
		records, _ := readShard(t, feed, shards[0], "", limit)
		require.Len(t, records, instances*rounds*2)
		last := map[event.ID]int64{}
		for _, record := range records {
			require.Equal(t, last[record.Envelope.StreamID]+1, record.Envelope.Version, "each instance in its own order")
			last[record.Envelope.StreamID] = record.Envelope.Version
			require.Equal(t, "Order", record.Envelope.Stream)
			require.Equal(t, "Counted", record.Envelope.Type)
			require.JSONEq(t, fmt.Sprintf(`{"n":%d}`, record.Envelope.Version), string(record.Envelope.Payload))
			require.Equal(t, noon, record.Envelope.Time)
		}
	}
}

// T-15: partitions by a hash of the stream id.
func feedPartitions(t *testing.T, b Backend) {
	const instances = 60
	for i := range instances {
		appendN(t, b.Events, "Order", event.ID(fmt.Sprintf("o-%d", i)), 0, 2)
	}
	feed, shards := openFeed(t, b, 4)
	where, seen := map[event.ID]string{}, map[eventKey]bool{}
	used := map[string]bool{}
	for _, shard := range shards {
		records, _ := readShard(t, feed, shard, "", 7)
		for _, record := range records {
			key := keyOf(record.Envelope)
			require.False(t, seen[key], "%v is in two partitions", key)
			seen[key] = true
			if home, known := where[key.id]; known {
				require.Equal(t, home, shard, "an instance stays in one partition")
			}
			where[key.id], used[shard] = shard, true
		}
	}
	require.Len(t, seen, instances*2)
	require.Greater(t, len(used), 1, "60 instances spread over the partitions")
	again, err := b.Feed("Order", 4)
	require.NoError(t, err)
	for _, shard := range shards { // the home of an instance is no matter of the process
		records, _ := readShard(t, again, shard, "", 100)
		for _, record := range records {
			require.Equal(t, where[record.Envelope.StreamID], shard)
		}
	}
}

// T-15: a consumer that starts at a position record misses nothing and repeats nothing.
func feedResumes(t *testing.T, b Backend) {
	for i := range 10 {
		appendN(t, b.Events, "Order", event.ID(fmt.Sprintf("o-%d", i%3)), int64(i/3*2), 2)
	}
	feed, shards := openFeed(t, b, 1)
	all, end := readShard(t, feed, shards[0], "", 100)
	require.Len(t, all, 20)
	for i, record := range all {
		rest, _ := readShard(t, feed, shards[0], record.Position, 4)
		require.Len(t, rest, len(all)-i-1)
		if len(rest) > 0 {
			require.Equal(t, keyOf(all[i+1].Envelope), keyOf(rest[0].Envelope))
		}
	}
	appendN(t, b.Events, "Order", "late", 0, 1)
	rest, _ := readShard(t, feed, shards[0], end, 4)
	require.Len(t, rest, 1)
	require.Equal(t, event.ID("late"), rest[0].Envelope.StreamID)
}

// T-15
func feedOfOneStream(t *testing.T, b Backend) {
	appendN(t, b.Events, "Order", "o-1", 0, 1)
	appendN(t, b.Events, "Cart", "o-1", 0, 5)
	appendN(t, b.Events, "Order", "o-1", 1, 1)
	feed, shards := openFeed(t, b, 1)
	records, _ := readShard(t, feed, shards[0], "", 1)
	require.Len(t, records, 2)
	for i, record := range records {
		require.Equal(t, "Order", record.Envelope.Stream)
		require.Equal(t, int64(i+1), record.Envelope.Version)
	}
}

// a reader that follows while many append sees every event exactly once, whatever
// the order in which the appends commit.
func feedUnderAppends(t *testing.T, b Backend) {
	const appenders, each = 6, 25
	feed, shards := openFeed(t, b, 2)
	ctx, done := t.Context(), make(chan struct{})
	seen := make([]map[eventKey]int, len(shards))
	errs := make([]error, len(shards))
	var readers sync.WaitGroup
	for i, shard := range shards {
		seen[i] = map[eventKey]int{}
		readers.Go(func() {
			after, over := event.Position(""), false
			for {
				page, err := feed.Read(ctx, shard, after, 5)
				if err != nil {
					errs[i] = err
					return
				}
				for _, record := range page.Records {
					seen[i][keyOf(record.Envelope)]++
				}
				if len(page.Records) == 0 && page.Next == after && over {
					return
				}
				after = page.Next
				select {
				case <-done:
					over = len(page.Records) == 0 // what committed before done is shown to the reads after it
				default:
					runtime.Gosched() // follow closely, and let the appenders append
				}
			}
		})
	}
	together(t, appenders, func(i int) error {
		id := event.ID(fmt.Sprintf("o-%d", i))
		var failed error
		for n := range each {
			_, err := b.Events.Append(ctx, event.Append{Stream: "Order", StreamID: id, Expected: int64(n), Events: newEvents(n+1, 1)})
			failed = errors.Join(failed, err)
		}
		return failed
	})
	close(done)
	readers.Wait()
	total := 0
	for i := range shards {
		require.NoError(t, errs[i])
		for key, times := range seen[i] {
			require.Equal(t, 1, times, "%v", key)
			total++
		}
	}
	require.Equal(t, appenders*each, total)
}

// T-15: a shard that is not there is never an empty one.
func feedUnknownShard(t *testing.T, b Backend) {
	feed, _ := openFeed(t, b, 2)
	_, err := feed.Read(t.Context(), "no such shard", "", 10)
	require.Error(t, err)
}

// T-15: a consumer that is stopped is told so, and not that there is nothing.
func feedCancelled(t *testing.T, b Backend) {
	appendN(t, b.Events, "Order", "o-1", 0, 1)
	feed, shards := openFeed(t, b, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := feed.Read(ctx, shards[0], "", 10)
	require.ErrorIs(t, err, context.Canceled)
}
