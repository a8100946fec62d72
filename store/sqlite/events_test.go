package sqlite_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/store/sqlite"
)

// dawn is when the events of these tests happened, unless a test says otherwise.
func dawn() time.Time { return time.Date(2026, 5, 1, 6, 0, 0, 0, time.UTC) }

func counted(n int, at time.Time) []event.NewEvent {
	events := make([]event.NewEvent, n)
	for i := range events {
		events[i] = event.NewEvent{Type: "Counted", SchemaVersion: 1, Time: at, Payload: json.RawMessage(`{}`)}
	}
	return events
}

// large are events whose payloads have a size each.
func large(n, size int) []event.NewEvent {
	events := counted(n, dawn())
	for i := range events {
		events[i].Payload = json.RawMessage(`"` + strings.Repeat("x", size-2) + `"`)
	}
	return events
}

func record(tb testing.TB, store *sqlite.Store, stream string, id event.ID, expected int64, events []event.NewEvent) {
	tb.Helper()
	appended, err := store.Append(tb.Context(), event.Append{Stream: stream, StreamID: id, Expected: expected, Events: events})
	require.NoError(tb, err)
	require.Equal(tb, event.Appended{First: expected + 1, Last: expected + int64(len(events))}, appended)
}

// read returns the versions that a read yields, and the error that ends it. meanwhile runs
// in the loop, at the first event.
func read(store *sqlite.Store, id event.ID, part event.Range, meanwhile func()) (versions []int64, err error) {
	for envelope, err := range store.Read(context.Background(), "Order", id, part) {
		if err != nil {
			return versions, err
		}
		if versions = append(versions, envelope.Version); len(versions) == 1 && meanwhile != nil {
			meanwhile()
		}
	}
	return versions, nil
}

func filePath(tb testing.TB) string {
	tb.Helper()
	return filepath.Join(tb.TempDir(), "rows.db")
}

func file(path string) sqlite.Config {
	return sqlite.Config{Path: path, Synchronous: sqlite.SynchronousNormal}
}

func TestEventsWithoutATimeGetTheStoresOwn(t *testing.T) {
	t.Parallel()
	now := dawn()
	store := open(t, sqlite.Config{Now: func() time.Time {
		now = now.Add(time.Hour + time.Microsecond)
		return now
	}})
	before := now
	events := counted(3, time.Time{})
	events[1].Time = dawn().Add(-time.Hour)
	record(t, store, "Order", "o-1", 0, events)

	var times []time.Time
	for envelope, err := range store.Read(t.Context(), "Order", "o-1", event.Range{}) {
		require.NoError(t, err)
		times = append(times, envelope.Time)
	}
	appendedAt := before.Add(time.Hour).Truncate(time.Millisecond)
	require.Equal(t, []time.Time{appendedAt, dawn().Add(-time.Hour), appendedAt}, times, "one append, one time")
}

// two processes that append to one file leave no hole and lose nothing.
func TestTwoStoresAppendToOneFile(t *testing.T) {
	t.Parallel()
	const writers, each = 3, 15
	path := filePath(t)
	stores := []*sqlite.Store{open(t, file(path)), open(t, file(path))}
	ctx := t.Context()
	errs := make([]error, len(stores)*writers)
	var group sync.WaitGroup
	for i := range errs {
		store, own := stores[i%len(stores)], event.ID(fmt.Sprintf("own-%d", i))
		group.Go(func() {
			for n := range int64(each) {
				errs[i] = errors.Join(errs[i], appendContended(ctx, store, "shared"))
				_, err := store.Append(ctx, event.Append{Stream: "Order", StreamID: own, Expected: n, Events: counted(1, dawn())})
				errs[i] = errors.Join(errs[i], err)
			}
		})
	}
	group.Wait()
	require.NoError(t, errors.Join(errs...))
	for _, store := range stores {
		versions, err := read(store, "shared", event.Range{}, nil)
		require.NoError(t, err)
		require.Len(t, versions, len(errs)*each)
		for i, version := range versions {
			require.Equal(t, int64(i+1), version)
		}
		head, err := store.Version(ctx, "Order", "own-1")
		require.NoError(t, err)
		require.Equal(t, int64(each), head)
	}
}

// appendContended appends an event behind whatever is there.
func appendContended(ctx context.Context, store *sqlite.Store, id event.ID) error {
	expected := int64(0)
	for {
		_, err := store.Append(ctx, event.Append{Stream: "Order", StreamID: id, Expected: expected, Events: counted(1, dawn())})
		conflict, lost := errors.AsType[*event.VersionConflict](err)
		if !lost {
			return err
		}
		if conflict.Actual <= expected {
			return fmt.Errorf("a conflict that is none: %w", err)
		}
		expected = conflict.Actual
	}
}

// a command that another process has recorded is a duplicate here, also after a restart.
func TestACommandIsKnownToEveryStoreOfAFile(t *testing.T) {
	t.Parallel()
	path := filePath(t)
	command := event.Append{Stream: "Order", StreamID: "o-1", Events: counted(2, dawn()), CommandID: "c-1"}
	first, err := sqlite.Open(t.Context(), file(path))
	require.NoError(t, err)
	second := open(t, file(path))
	_, err = first.Append(t.Context(), command)
	require.NoError(t, err)
	require.NoError(t, first.Close())

	for _, store := range []*sqlite.Store{second, open(t, file(path))} {
		_, err = store.Append(t.Context(), command)
		duplicate, is := errors.AsType[*event.DuplicateCommand](err)
		require.True(t, is, "%v", err)
		require.Equal(t, event.DuplicateCommand{CommandID: "c-1", Stream: "Order", StreamID: "o-1", First: 1, Last: 2}, *duplicate)
	}
}

// whoever waits too long for another process's transaction may try again; readers do
// not wait at all.
func TestAnAppendBehindALongWriteIsThrottled(t *testing.T) {
	t.Parallel()
	path := filePath(t)
	config := file(path)
	config.BusyTimeout = time.Millisecond
	store := open(t, config)
	record(t, store, "Order", "o-1", 0, counted(1, dawn()))

	other, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	defer func() { require.NoError(t, other.Close()) }()
	other.SetMaxOpenConns(1)
	_, err = other.ExecContext(t.Context(), `BEGIN IMMEDIATE`)
	require.NoError(t, err)
	_, err = store.Append(t.Context(), event.Append{Stream: "Order", StreamID: "o-1", Expected: 1, Events: counted(1, dawn())})
	require.ErrorContains(t, err, `append to stream Order "o-1"`)
	require.Equal(t, event.ClassThrottled, event.Classify(err))
	versions, err := read(store, "o-1", event.Range{}, nil)
	require.NoError(t, err)
	require.Equal(t, []int64{1}, versions)

	_, err = other.ExecContext(t.Context(), `ROLLBACK`)
	require.NoError(t, err)
	record(t, store, "Order", "o-1", 1, counted(1, dawn()))
}

// all or nothing, when the caller goes away as well.
func TestACancelledAppendLeavesNothing(t *testing.T) {
	t.Parallel()
	store := open(t, sqlite.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := store.Append(ctx, event.Append{Stream: "Order", StreamID: "o-1", Events: counted(3, dawn()), CommandID: "c-1"})
	require.ErrorIs(t, err, context.Canceled)
	head, err := store.Version(t.Context(), "Order", "o-1")
	require.NoError(t, err)
	require.Zero(t, head)
	_, err = store.Append(t.Context(), event.Append{Stream: "Order", StreamID: "o-1", Events: counted(1, dawn()), CommandID: "c-1"})
	require.NoError(t, err, "the command is not used up")
}

// pages of large events are short. That a page has ended shows in what a trim takes
// away from under the read: at the second page.
func TestAReadOfLargeEventsTakesBoundedMemory(t *testing.T) {
	t.Parallel()
	for _, reverse := range []bool{false, true} {
		store := open(t, sqlite.Config{})
		record(t, store, "Order", "o-1", 0, large(6, 1<<20))
		versions, err := read(store, "o-1", event.Range{Reverse: reverse}, nil)
		require.NoError(t, err)
		require.Len(t, versions, 6)

		versions, err = read(store, "o-1", event.Range{Reverse: reverse}, func() { trim(t, store, "Order", dawn().Add(1), 0) })
		require.NoError(t, err)
		require.Len(t, versions, 6, "nothing was old enough")
		versions, err = read(store, "o-1", event.Range{Reverse: reverse}, func() { trim(t, store, "Order", dawn().Add(time.Hour), 6) })
		require.NoError(t, err)
		require.Len(t, versions, 4, "4 MiB are a page")
	}
}

// nothing is yielded beyond a hole.
func TestATrimUnderAReadIsNoHole(t *testing.T) {
	t.Parallel()
	store := open(t, sqlite.Config{})
	record(t, store, "Order", "o-1", 0, counted(300, dawn()))
	record(t, store, "Order", "o-1", 300, counted(300, dawn().Add(time.Hour)))
	versions, err := read(store, "o-1", event.Range{}, func() { trim(t, store, "Order", dawn().Add(time.Hour), 300) })
	require.Len(t, versions, 256)
	broken, is := errors.AsType[*event.RecordError](err)
	require.True(t, is, "%v", err)
	require.Equal(t, int64(257), broken.Version)
	require.Equal(t, event.ClassRetry, event.Classify(err))

	versions, err = read(store, "o-1", event.Range{}, nil)
	require.NoError(t, err)
	require.Len(t, versions, 300)
	require.Equal(t, int64(301), versions[0])
}

func TestARangeBelowTheFirstEventBeginsThere(t *testing.T) {
	t.Parallel()
	store := open(t, sqlite.Config{})
	record(t, store, "Order", "o-1", 0, counted(2, dawn()))
	versions, err := read(store, "o-1", event.Range{After: -7}, nil)
	require.NoError(t, err)
	require.Equal(t, []int64{1, 2}, versions)
}

// what somebody else has written into an event ends a read at it, and fails that record
// of a feed only.
func TestAnUnreadableEventIsNamed(t *testing.T) {
	t.Parallel()
	store := open(t, sqlite.Config{})
	record(t, store, "Order", "o-1", 0, counted(2, dawn()))
	record(t, store, "Order", "o-2", 0, counted(1, dawn()))
	require.NoError(t, store.Exec(t.Context(), `UPDATE rowfold_events SET metadata = '{' WHERE stream_id = 'o-1' AND version = 2`))

	versions, err := read(store, "o-1", event.Range{}, nil)
	require.Empty(t, versions)
	require.ErrorContains(t, err, `event Order "o-1" version 2`)
	require.Equal(t, event.ClassPermanent, event.Classify(err))

	feed, err := store.Feed("Order", 1)
	require.NoError(t, err)
	page, err := feed.Read(t.Context(), "0of1", "", 10)
	require.NoError(t, err)
	require.Len(t, page.Records, 3)
	require.NoError(t, page.Records[0].Err)
	require.Equal(t, event.ClassPermanent, event.Classify(page.Records[1].Err))
	require.Equal(t, event.ID("o-1"), page.Records[1].Envelope.StreamID)
	require.Equal(t, int64(2), page.Records[1].Envelope.Version)
	require.NoError(t, page.Records[2].Err)
}

func TestAClosedStoreRefusesEverything(t *testing.T) {
	t.Parallel()
	for _, config := range []sqlite.Config{{}, file(filePath(t))} {
		store := open(t, config)
		record(t, store, "Order", "o-1", 0, counted(1, dawn()))
		feed, err := store.Feed("Order", 1)
		require.NoError(t, err)
		require.NoError(t, store.Close())

		_, appended := store.Append(t.Context(), event.Append{Stream: "Order", StreamID: "o-1", Expected: 1, Events: counted(1, dawn())})
		_, failedRead := read(store, "o-1", event.Range{}, nil)
		_, version := store.Version(t.Context(), "Order", "o-1")
		_, oldest := store.Oldest(t.Context(), "Order", "o-1")
		_, followed := feed.Read(t.Context(), "0of1", "", 1)
		_, trimmed := store.TrimEvents(t.Context(), "Order", dawn())
		for _, err := range []error{appended, failedRead, version, oldest, followed, trimmed} {
			require.ErrorContains(t, err, "closed")
			require.Equal(t, event.ClassPermanent, event.Classify(err), "%v", err)
		}
	}
}
