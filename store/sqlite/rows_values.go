package sqlite

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/rowfold/rowfold/projection"
)

// timeLayout writes a time so that texts sort as times do and SQLite's own date functions
// read them.
const timeLayout = "2006-01-02T15:04:05.000000Z"

// sqlType is the column type of a kind. Times are text, which people can read and
// SQLite's date functions take; JSON is text, which its JSON functions take.
func sqlType(kind projection.Kind) string {
	switch kind {
	case projection.KindInt, projection.KindBool:
		return "INTEGER"
	case projection.KindFloat:
		return "REAL"
	case projection.KindBytes:
		return "BLOB"
	default:
		return "TEXT"
	}
}

// toColumn returns what the driver stores of a value in its kind's Go type.
func toColumn(value any) any {
	switch v := value.(type) {
	case time.Time:
		return v.UTC().Format(timeLayout)
	case json.RawMessage:
		if v == nil {
			return nil
		}
		return string(v)
	default:
		return value
	}
}

// fromColumn returns a value in its kind's Go type.
func fromColumn(column projection.Column, value any) (any, error) {
	if value == nil {
		return nil, nil //nolint:nilnil // nil is the value of an empty column
	}
	switch column.Kind {
	case projection.KindText:
		if v, is := value.(string); is {
			return v, nil
		}
	case projection.KindInt:
		if v, is := value.(int64); is {
			return v, nil
		}
	case projection.KindFloat:
		if v, is := value.(float64); is {
			return v, nil
		}
	case projection.KindBool:
		if v, is := value.(int64); is {
			return v != 0, nil
		}
	case projection.KindTime:
		if v, is := value.(string); is {
			at, err := time.Parse(timeLayout, v)
			if err != nil {
				return nil, fmt.Errorf("decode a time: %w", err)
			}
			return at, nil
		}
	case projection.KindBytes:
		if v, is := value.([]byte); is {
			return append([]byte{}, v...), nil // the driver's empty one is nil, which reads as NULL
		}
	case projection.KindJSON:
		if v, is := value.(string); is {
			return json.RawMessage(v), nil
		}
	}
	return nil, fmt.Errorf("a %T is no value of kind %s", value, column.Kind)
}

// encodeMap returns a map as JSON with sorted keys; nil for a map that is absent.
func encodeMap(m map[string]int64) any {
	if m == nil {
		return nil
	}
	text, err := json.Marshal(m)
	if err != nil {
		panic(err) // strings and integers always encode
	}
	return string(text)
}

func decodeMap(text *string) (map[string]int64, error) {
	if text == nil {
		return nil, nil //nolint:nilnil // an absent map
	}
	var m map[string]int64
	if err := json.Unmarshal([]byte(*text), &m); err != nil {
		return nil, fmt.Errorf("decode a map of checkpoints: %w", err)
	}
	return m, nil
}

func microseconds(at *time.Time) any {
	if at == nil {
		return nil
	}
	return at.UnixMicro()
}

func fromMicroseconds(at *int64) *time.Time {
	if at == nil {
		return nil
	}
	return new(time.UnixMicro(*at).UTC())
}

// unsetIfEmpty stores an empty text as NULL: absent.
func unsetIfEmpty(text string) any {
	if text == "" {
		return nil
	}
	return text
}
