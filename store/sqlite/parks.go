package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/rowfold/rowfold/projection"
)

const parkColumns = `projection, source, stream_id, stream, row_keys, reason, class, lowest, newest, parked_at`

// Parked implements projection.ParkStore.
func (s *Store) Parked(ctx context.Context, name string, instances []projection.Instance) ([]projection.Park, error) {
	if len(instances) == 0 {
		return nil, nil
	}
	wanted, err := encodeInstances(instances)
	if err != nil {
		return nil, err
	}
	return s.parks(ctx, name, `SELECT `+parkColumns+` FROM rowfold_parks
		WHERE projection = ? AND instance IN (SELECT value FROM json_each(?)) ORDER BY instance`, name, wanted)
}

// Parks implements projection.ParkStore.
func (s *Store) Parks(ctx context.Context, name, after string, limit int) ([]projection.Park, error) {
	return s.parks(ctx, name, `SELECT `+parkColumns+` FROM rowfold_parks
		WHERE projection = ? AND instance > ? ORDER BY instance LIMIT ?`, name, after, limit)
}

func (s *Store) parks(ctx context.Context, name, query string, args ...any) ([]projection.Park, error) {
	var parks []projection.Park
	err := s.read(ctx, "list the parked instances of projection "+name, func(t *tx) error {
		return t.query(ctx, query, args, func(rows *sql.Rows) error {
			park, err := scanPark(rows)
			parks = append(parks, park)
			return err
		})
	})
	return parks, err
}

func scanPark(rows *sql.Rows) (projection.Park, error) {
	var (
		park projection.Park
		keys []byte
		at   int64
	)
	if err := rows.Scan(&park.Projection, &park.Instance.Source, &park.Instance.StreamID, &park.Stream, &keys, &park.Reason, &park.Class,
		&park.From, &park.Newest, &at); err != nil {
		return park, err //nolint:wrapcheck // the caller names the step
	}
	park.ParkedAt = time.UnixMicro(at).UTC()
	if err := json.Unmarshal(keys, &park.Rows); err != nil {
		return park, fmt.Errorf("decode the rows of parked instance %s: %w", park.Instance, err)
	}
	return park, nil
}

// Park implements projection.ParkStore.
func (s *Store) Park(ctx context.Context, park projection.Park) error {
	key := park.Instance.CheckpointKey()
	return s.write(ctx, fmt.Sprintf("park instance %s of projection %s", key, park.Projection), func(t *tx) error {
		err := t.query(ctx, `SELECT `+parkColumns+` FROM rowfold_parks WHERE projection = ? AND instance = ?`,
			[]any{park.Projection, key}, func(rows *sql.Rows) error {
				before, err := scanPark(rows)
				if err == nil {
					park = mergeParks(before, park)
				}
				return err
			})
		if err != nil {
			return err
		}
		if park.Rows == nil {
			park.Rows = []string{}
		}
		keys, err := json.Marshal(park.Rows)
		if err != nil {
			return fmt.Errorf("encode the rows: %w", err)
		}
		_, err = t.exec(ctx, `INSERT OR REPLACE INTO rowfold_parks (instance, `+parkColumns+`) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			key, park.Projection, park.Instance.Source, string(park.Instance.StreamID), park.Stream, string(keys),
			park.Reason, string(park.Class), park.From, park.Newest, park.ParkedAt.UnixMicro())
		return err
	})
}

// mergeParks adds to a park what was found out since: why and when it began stays.
func mergeParks(before, later projection.Park) projection.Park {
	for _, key := range later.Rows {
		if !slices.Contains(before.Rows, key) {
			before.Rows = append(before.Rows, key)
		}
	}
	before.From = min(before.From, later.From)
	before.Newest = max(before.Newest, later.Newest)
	return before
}

// Unpark implements projection.ParkStore.
func (s *Store) Unpark(ctx context.Context, name string, instance projection.Instance, newest int64) (bool, error) {
	var ended int64
	err := s.write(ctx, fmt.Sprintf("end the park of instance %s of projection %s", instance, name), func(t *tx) (err error) {
		ended, err = t.exec(ctx, `DELETE FROM rowfold_parks WHERE projection = ? AND instance = ? AND newest = ?`,
			name, instance.CheckpointKey(), newest)
		return err
	})
	return err == nil && ended > 0, err
}

// RecordSkip implements projection.ParkStore.
func (s *Store) RecordSkip(ctx context.Context, skip projection.Skip) error {
	return s.write(ctx, fmt.Sprintf("record a skip in instance %s of projection %s", skip.Instance, skip.Projection), func(t *tx) error {
		_, err := t.exec(ctx, `INSERT INTO rowfold_skips (projection, instance, version, source, stream_id, who, why, decided_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
			skip.Projection, skip.Instance.CheckpointKey(), skip.Version, skip.Instance.Source, string(skip.Instance.StreamID),
			skip.Who, skip.Why, skip.At.UnixMicro())
		return err
	})
}

// Skips implements projection.ParkStore.
func (s *Store) Skips(ctx context.Context, name string, instances []projection.Instance) ([]projection.Skip, error) {
	if len(instances) == 0 {
		return nil, nil
	}
	wanted, err := encodeInstances(instances)
	if err != nil {
		return nil, err
	}
	var skips []projection.Skip
	err = s.read(ctx, "list the skips of projection "+name, func(t *tx) error {
		return t.query(ctx, `SELECT projection, source, stream_id, version, who, why, decided_at FROM rowfold_skips
			WHERE projection = ? AND instance IN (SELECT value FROM json_each(?)) ORDER BY instance, version`,
			[]any{name, wanted}, func(rows *sql.Rows) error {
				var (
					skip projection.Skip
					at   int64
				)
				err := rows.Scan(&skip.Projection, &skip.Instance.Source, &skip.Instance.StreamID, &skip.Version, &skip.Who, &skip.Why, &at)
				skip.At = time.UnixMicro(at).UTC()
				skips = append(skips, skip)
				return err //nolint:wrapcheck // the caller names the step
			})
	})
	return skips, err
}

func encodeInstances(instances []projection.Instance) (string, error) {
	keys := make([]string, len(instances))
	for i, instance := range instances {
		keys[i] = instance.CheckpointKey()
	}
	text, err := json.Marshal(keys)
	if err != nil {
		return "", fmt.Errorf("sqlite: encode the instances: %w", err)
	}
	return string(text), nil
}
