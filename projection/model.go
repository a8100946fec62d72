package projection

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rowfold/rowfold/event"
)

// Kind is the kind of a column's values. Each kind has one Go type, in which values
// go to a store and come back from it; a nullable column may also hold nil.
type Kind string

// The kinds of columns, with the Go type of their values.
const (
	KindText  Kind = "text"  // string
	KindInt   Kind = "int"   // int64
	KindFloat Kind = "float" // float64, never NaN or infinite
	KindBool  Kind = "bool"  // bool
	KindTime  Kind = "time"  // time.Time, UTC, to the microsecond
	KindBytes Kind = "bytes" // []byte
	KindJSON  Kind = "json"  // json.RawMessage
)

// Column is a column of a read model that belongs to the user, as opposed to
// bookkeeping.
type Column struct {
	Name     string
	Kind     Kind
	Key      bool
	Nullable bool
	Unique   bool
}

// ScalarColumns maps one source's checkpoint to columns of its own.
type ScalarColumns struct {
	Source   string
	Version  string // the column of the stored number = version + Offset
	Instance string // the column of the owning stream id
	Offset   int64
}

// Model describes a read model to a store: its table and columns, and which columns
// hold the bookkeeping. It is derived from the row type when a projection is built.
type Model struct {
	Projection  string
	Table       string
	Columns     []Column // the user's columns, key columns among them, in order
	Checkpoints string   // the column of the checkpoint map; empty = none declared
	Revision    string   // the revision column; empty = none declared
	Scalars     []ScalarColumns
	HasOutbox   bool
	HasRemoval  bool
	// TombstoneTTL is how long a tombstone is kept; 0 = for ever.
	TombstoneTTL time.Duration
}

// KeyColumns returns the key columns, in order.
func (m *Model) KeyColumns() []Column {
	keys := make([]Column, 0, 1)
	for _, column := range m.Columns {
		if column.Key {
			keys = append(keys, column)
		}
	}
	return keys
}

// KeyValues returns the values of the key columns among values, which are in the
// order of Columns.
func (m *Model) KeyValues(values []any) []any {
	keys := make([]any, 0, 1)
	for i, column := range m.Columns {
		if column.Key {
			keys = append(keys, values[i])
		}
	}
	return keys
}

// KeyText returns the text that names a row: the values of its key, with '%' and '#'
// percent-escaped, joined by '#'. The error is an *[IncompleteKey].
func (m *Model) KeyText(key []any) (string, error) {
	columns := m.KeyColumns()
	if len(key) != len(columns) {
		return "", m.incompleteKey(columns, min(len(key), len(columns)-1), "the key has another number of values")
	}
	parts := make([]string, len(key))
	for i, value := range key {
		switch v := value.(type) {
		case string:
			if v == "" {
				return "", m.incompleteKey(columns, i, "it is empty")
			}
			// JSON, in which keys travel, would make another key of it: a row that is
			// written and never found.
			if !utf8.ValidString(v) {
				return "", m.incompleteKey(columns, i, "it is not valid UTF-8")
			}
			parts[i] = escapeKey.Replace(v)
		case int64:
			parts[i] = strconv.FormatInt(v, 10)
		default:
			return "", m.incompleteKey(columns, i, fmt.Sprintf("a %T is no key value", value))
		}
	}
	return strings.Join(parts, "#"), nil
}

// ParseKey is the reverse of [Model.KeyText]. The error is an *[IncompleteKey].
func (m *Model) ParseKey(text string) ([]any, error) {
	columns := m.KeyColumns()
	parts := strings.Split(text, "#")
	if len(parts) != len(columns) {
		return nil, m.incompleteKey(columns, min(len(parts), len(columns))-1,
			fmt.Sprintf("%q has %d values, the key has %d", text, len(parts), len(columns)))
	}
	values := make([]any, len(parts))
	for i, part := range parts {
		switch {
		case part == "":
			return nil, m.incompleteKey(columns, i, "it is empty")
		case columns[i].Kind == KindInt:
			number, err := strconv.ParseInt(part, 10, 64)
			if err != nil {
				return nil, m.incompleteKey(columns, i, fmt.Sprintf("%q is not a whole number", part))
			}
			values[i] = number
		default:
			values[i] = unescapeKey.Replace(part)
		}
	}
	return values, nil
}

var (
	escapeKey   = strings.NewReplacer("%", "%25", "#", "%23")
	unescapeKey = strings.NewReplacer("%25", "%", "%23", "#")
)

func (m *Model) incompleteKey(columns []Column, at int, reason string) *IncompleteKey {
	field := ""
	if at >= 0 && at < len(columns) {
		field = columns[at].Name
	}
	return &IncompleteKey{Projection: m.Projection, Field: field, Reason: reason}
}

// Size returns the approximate stored size of a row in bytes: names and values of
// the user's columns and the bookkeeping.
func (m *Model) Size(values []any, books Bookkeeping) int {
	size := 0
	for i, value := range values {
		size += len(m.Columns[i].Name) + valueSize(value)
	}
	for key := range books.Checkpoints {
		size += len(key) + 8
	}
	for _, scalar := range books.Scalars {
		size += len(scalar.Owner) + 8
	}
	return size + len(m.Checkpoints) + len(m.Revision)
}

func valueSize(value any) int {
	switch v := value.(type) {
	case string:
		return len(v)
	case []byte:
		return len(v)
	case json.RawMessage:
		return len(v)
	case nil:
		return 0
	default:
		return 8
	}
}

// Bookkeeping is what a row carries for its projection, next to the user's values.
type Bookkeeping struct {
	// Revision is raised by every write and guards every write; nil = absent.
	Revision *int64
	// Checkpoints is the checkpoint map, by [Instance.CheckpointKey]; nil = absent.
	// Keys that begin with '#' are reserved: "#closed#<source>#<id>" holds the Unix
	// time in seconds at which an instance was closed.
	Checkpoints map[string]int64
	// Scalars are the checkpoints in columns of their own, by source.
	Scalars map[string]ScalarCheckpoint
	// Definition is the version of the definition that wrote the row; 0 = unknown.
	Definition int
	// Emits says whether writes of this row emit effects; nil = they do. Who emits is
	// a field of the row and never a process's view.
	Emits *bool
	// EmitAbove holds, per instance, the version up to which nothing is emitted.
	EmitAbove map[string]int64
}

// ScalarCheckpoint is a checkpoint in a column of its own.
type ScalarCheckpoint struct {
	Stored *int64 // as stored, that is version + offset; nil = absent
	Owner  string // the owning stream id; empty = unowned
}

// Clone returns a copy that shares nothing with b.
func (b Bookkeeping) Clone() Bookkeeping {
	clone := b
	clone.Revision = clonePointer(b.Revision)
	clone.Emits = clonePointer(b.Emits)
	clone.Checkpoints = maps.Clone(b.Checkpoints)
	clone.EmitAbove = maps.Clone(b.EmitAbove)
	clone.Scalars = maps.Clone(b.Scalars)
	for source, scalar := range clone.Scalars {
		scalar.Stored = clonePointer(scalar.Stored)
		clone.Scalars[source] = scalar
	}
	return clone
}

// Instances returns every instance that the bookkeeping knows, ordered by
// [Instance.Less].
func (b Bookkeeping) Instances() []Instance {
	var instances []Instance
	for key := range b.Checkpoints {
		if instance, ok := ParseCheckpointKey(key); ok {
			instances = append(instances, instance)
		}
	}
	for source, scalar := range b.Scalars {
		if scalar.Owner != "" {
			instances = append(instances, Instance{Source: source, StreamID: event.ID(scalar.Owner)})
		}
	}
	slices.SortFunc(instances, func(a, b Instance) int {
		if a == b {
			return 0
		}
		if a.Less(b) {
			return -1
		}
		return 1
	})
	return slices.Compact(instances)
}

func clonePointer[T any](pointer *T) *T {
	if pointer == nil {
		return nil
	}
	return new(*pointer)
}
