package projection

import (
	"strings"

	"github.com/rowfold/rowfold/event"
)

// Instance is one stream id of one source of a projection: what a checkpoint
// belongs to, and what is parked when it cannot be applied.
type Instance struct {
	Source   string   `json:"source"`
	StreamID event.ID `json:"streamId"`
}

// CheckpointKey is the instance's key in a checkpoint map: "<source>#<stream id>".
func (i Instance) CheckpointKey() string { return i.Source + "#" + string(i.StreamID) }

// String implements fmt.Stringer.
func (i Instance) String() string { return i.CheckpointKey() }

// ParseCheckpointKey returns the instance of a key in a checkpoint map. Keys that
// begin with '#' are not instances: they are reserved, see [Bookkeeping].
func ParseCheckpointKey(key string) (Instance, bool) {
	source, id, found := strings.Cut(key, "#")
	if !found || source == "" || id == "" {
		return Instance{}, false
	}
	return Instance{Source: source, StreamID: event.ID(id)}, true
}

// Less orders instances by source name, then by stream id, bytewise. The fold's own
// order takes the declaration order of sources instead.
func (i Instance) Less(other Instance) bool {
	if i.Source != other.Source {
		return i.Source < other.Source
	}
	return i.StreamID < other.StreamID
}
