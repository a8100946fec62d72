package projection

import (
	"maps"
	"strings"
	"time"

	"github.com/rowfold/rowfold/event"
)

// closedPrefix marks the reserved entries of a checkpoint map that hold when an
// instance was closed. No source's name is empty, so no instance's key begins so.
const closedPrefix = "#closed#"

// scalarOf returns the columns of a source's own checkpoint.
func (m *Model) scalarOf(source string) (ScalarColumns, bool) {
	for _, scalar := range m.Scalars {
		if scalar.Source == source {
			return scalar, true
		}
	}
	return ScalarColumns{}, false
}

// Checkpoint returns the version up to which the bookkeeping has considered an
// instance; 0 = none. An unowned scalar counts for whichever instance adopts it. The
// error is a *[ProjectionSourceConflict]: there is no place for the instance.
func (m *Model) Checkpoint(books Bookkeeping, in Instance, rowKey string) (int64, error) {
	if version, found := books.Checkpoints[in.CheckpointKey()]; found {
		return version, nil
	}
	scalar, declared := m.scalarOf(in.Source)
	if !declared {
		return 0, nil
	}
	stored := books.Scalars[in.Source]
	if stored.Owner == "" || stored.Owner == string(in.StreamID) {
		if stored.Stored == nil {
			return 0, nil
		}
		return max(0, *stored.Stored-scalar.Offset), nil
	}
	if m.Checkpoints != "" {
		return 0, nil
	}
	return 0, &ProjectionSourceConflict{Projection: m.Projection, Key: rowKey, Instance: in, Owner: event.ID(stored.Owner)}
}

// land writes an instance's checkpoint into the bookkeeping: where it is already, or
// into its source's scalar when nobody owns that, or into the map.
func (m *Model) land(books *Bookkeeping, in Instance, version int64) {
	key := in.CheckpointKey()
	_, inMap := books.Checkpoints[key]
	stored := books.Scalars[in.Source]
	scalar, declared := m.scalarOf(in.Source)
	if !inMap && declared && (stored.Owner == "" || stored.Owner == string(in.StreamID)) {
		if books.Scalars == nil {
			books.Scalars = map[string]ScalarCheckpoint{}
		}
		books.Scalars[in.Source] = ScalarCheckpoint{Stored: new(version + scalar.Offset), Owner: string(in.StreamID)}
		return
	}
	if books.Checkpoints == nil {
		books.Checkpoints = map[string]int64{}
	}
	books.Checkpoints[key] = version
}

// markClosed notes when an instance was closed, if its checkpoint is in the map.
func markClosed(books *Bookkeeping, in Instance, now time.Time) {
	if _, inMap := books.Checkpoints[in.CheckpointKey()]; inMap {
		books.Checkpoints[closedPrefix+in.CheckpointKey()] = now.Unix()
	}
}

// dropClosed drops the entries of instances that were closed before a time, other
// than those at hand.
func dropClosed(books *Bookkeeping, before time.Time, atHand map[Instance]bool) {
	for key, closed := range maps.Clone(books.Checkpoints) {
		of, isMark := strings.CutPrefix(key, closedPrefix)
		if !isMark || closed >= before.Unix() {
			continue
		}
		if instance, ok := ParseCheckpointKey(of); ok && !atHand[instance] {
			delete(books.Checkpoints, key)
			delete(books.Checkpoints, of)
		}
	}
}
