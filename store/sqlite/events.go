package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"

	"github.com/rowfold/rowfold/event"
)

// buckets is how many groups the instances of a stream fall into. A partition of a feed
// is a range of them, so feeds can be partitioned otherwise later.
const buckets = 1024

// bucketOf returns the group of an instance, the same in every process: FNV-1a of its id
// (http://www.isthe.com/chongo/tech/comp/fnv/).
func bucketOf(id event.ID) int {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(id)) // never fails
	return int(hash.Sum64() % buckets)
}

// Append implements event.Appender. It has no limits of its own: *event.AppendTooLarge is never
// returned. Events without a time get Config.Now, one time for the whole append. A command id
// is kept for good, and an append that failed does not use it up.
func (s *Store) Append(ctx context.Context, request event.Append) (event.Appended, error) {
	if err := request.Validate(); err != nil {
		return event.Appended{}, err
	}
	if len(request.Events) == 0 {
		return event.Appended{}, nil
	}
	var appended event.Appended
	err := s.write(ctx, fmt.Sprintf("append to stream %s %q", request.Stream, request.StreamID), func(t *tx) error {
		var err error
		appended, err = s.append(ctx, t, request)
		return err
	})
	if err != nil {
		return event.Appended{}, err
	}
	return appended, nil
}

func (s *Store) append(ctx context.Context, t *tx, request event.Append) (event.Appended, error) {
	appended := event.Appended{First: request.Expected + 1, Last: request.Expected + int64(len(request.Events))}
	if err := recordCommand(ctx, t, request, appended); err != nil {
		return appended, err
	}
	head, err := versionOf(ctx, t, request.Stream, request.StreamID)
	if err != nil {
		return appended, err
	}
	if head != request.Expected {
		return appended, &event.VersionConflict{
			Stream: request.Stream, StreamID: request.StreamID, Expected: request.Expected, Actual: head,
		}
	}
	bucket, now := bucketOf(request.StreamID), s.config.Now()
	for i, fresh := range request.Events {
		if fresh.Time.IsZero() {
			fresh.Time = now
		}
		var metadata *string
		if len(fresh.Metadata) > 0 {
			text, err := json.Marshal(fresh.Metadata)
			if err != nil {
				return appended, fmt.Errorf("encode the metadata: %w", err)
			}
			metadata = new(string(text))
		}
		if _, err := t.exec(ctx, `INSERT INTO rowfold_events
			(stream, stream_id, version, bucket, type, schema_version, time, data, metadata) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			request.Stream, string(request.StreamID), appended.First+int64(i), bucket,
			fresh.Type, fresh.SchemaVersion, fresh.Time.UnixMilli(), []byte(fresh.Payload), metadata); err != nil {
			return appended, err
		}
	}
	_, err = t.exec(ctx, `INSERT INTO rowfold_heads (stream, stream_id, version) VALUES (?, ?, ?)
		ON CONFLICT DO UPDATE SET version = excluded.version`, request.Stream, string(request.StreamID), appended.Last)
	return appended, err
}

// recordCommand notes the command of an append, which comes before the version: who repeats
// a command has not seen what it did, so that its expected version is stale as well.
func recordCommand(ctx context.Context, t *tx, request event.Append, appended event.Appended) error {
	if request.CommandID == "" {
		return nil
	}
	before := event.DuplicateCommand{CommandID: request.CommandID}
	used, err := t.one(ctx, `SELECT stream, stream_id, first_version, last_version FROM rowfold_commands WHERE command_id = ?`,
		[]any{request.CommandID}, &before.Stream, &before.StreamID, &before.First, &before.Last)
	if err != nil {
		return err
	}
	if used {
		return &before
	}
	_, err = t.exec(ctx, `INSERT INTO rowfold_commands (command_id, stream, stream_id, first_version, last_version) VALUES (?, ?, ?, ?, ?)`,
		request.CommandID, request.Stream, string(request.StreamID), appended.First, appended.Last)
	return err
}

// versionOf returns the current version of an instance; 0 = none.
func versionOf(ctx context.Context, t *tx, stream string, id event.ID) (int64, error) {
	var version int64
	_, err := t.one(ctx, `SELECT version FROM rowfold_heads WHERE stream = ? AND stream_id = ?`, []any{stream, string(id)}, &version)
	return version, err
}
