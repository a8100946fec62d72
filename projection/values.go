package projection

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"time"
)

// setOptional sets a field, or what an optional field points to. A missing value is
// the field's zero.
func setOptional[T any](field reflect.Value, value *T) {
	switch {
	case value == nil:
		field.SetZero()
	case field.Kind() == reflect.Pointer:
		target := reflect.New(field.Type().Elem())
		target.Elem().Set(reflect.ValueOf(*value).Convert(target.Elem().Type()))
		field.Set(target)
	default:
		field.Set(reflect.ValueOf(*value).Convert(field.Type()))
	}
}

// plainValue returns the value of a key field.
func plainValue(field reflect.Value) any {
	switch {
	case field.Kind() == reflect.String:
		return field.String()
	case field.CanInt():
		return field.Int()
	default:
		return int64(field.Uint()) //nolint:gosec // at most 32 bits, see kindOf
	}
}

var errNotFinite = errors.New("it is not a finite number")

// columnValue returns the canonical value of a field, see [Kind].
func columnValue(field reflect.Value, column Column) (any, error) {
	if field.Kind() == reflect.Pointer {
		if field.IsNil() {
			return nil, nil //nolint:nilnil // nil is the value of an empty column
		}
		field = field.Elem()
	}
	switch column.Kind {
	case KindText, KindInt:
		return plainValue(field), nil
	case KindBool:
		return field.Bool(), nil
	case KindFloat:
		if number := field.Float(); math.IsNaN(number) || math.IsInf(number, 0) {
			return nil, errNotFinite
		}
		return field.Float(), nil
	case KindTime:
		at, _ := reflect.TypeAssert[time.Time](field)
		return at.UTC().Truncate(time.Microsecond), nil
	case KindBytes:
		if field.IsNil() {
			return nil, nil //nolint:nilnil // as above
		}
		return slices.Clone(field.Bytes()), nil
	case KindJSON:
		switch field.Kind() {
		case reflect.Map, reflect.Slice, reflect.Interface:
			if field.IsNil() {
				return nil, nil //nolint:nilnil // as above
			}
		default:
		}
		encoded, err := json.Marshal(field.Interface())
		if err != nil {
			return nil, fmt.Errorf("encode as JSON: %w", err)
		}
		return json.RawMessage(encoded), nil
	default:
		return nil, fmt.Errorf("unknown kind %q", column.Kind)
	}
}

// setValue puts a canonical value into a field. nil is the field's zero.
func setValue(field reflect.Value, column Column, value any) error {
	if value == nil {
		field.SetZero()
		return nil
	}
	if field.Kind() == reflect.Pointer {
		target := reflect.New(field.Type().Elem())
		field.Set(target)
		field = target.Elem()
	}
	switch v := value.(type) {
	case string:
		if column.Kind == KindText {
			field.SetString(v)
			return nil
		}
	case int64:
		return setInt(field, column, v)
	case bool:
		if column.Kind == KindBool {
			field.SetBool(v)
			return nil
		}
	case float64:
		if column.Kind == KindFloat {
			field.SetFloat(v)
			return nil
		}
	case time.Time:
		if column.Kind == KindTime {
			field.Set(reflect.ValueOf(v))
			return nil
		}
	case []byte:
		if column.Kind == KindBytes {
			field.SetBytes(slices.Clone(v))
			return nil
		}
	case json.RawMessage:
		if column.Kind == KindJSON {
			if err := json.Unmarshal(v, field.Addr().Interface()); err != nil {
				return fmt.Errorf("decode the stored JSON: %w", err)
			}
			return nil
		}
	}
	return fmt.Errorf("the store returned a %T for a %s column", value, column.Kind)
}

func setInt(field reflect.Value, column Column, number int64) error {
	switch {
	case column.Kind != KindInt:
		return fmt.Errorf("the store returned an int64 for a %s column", column.Kind)
	case field.CanInt() && !field.OverflowInt(number):
		field.SetInt(number)
	case field.CanUint() && number >= 0 && !field.OverflowUint(uint64(number)):
		field.SetUint(uint64(number))
	default:
		return fmt.Errorf("the stored number %d does not fit in a %v", number, field.Type())
	}
	return nil
}
