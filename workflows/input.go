package workflows

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/rowfold/rowfold/activities"
)

// input is what every workflow's and update's input can do.
type input[T any] interface {
	// WithDefaults returns the input with every empty field at its default.
	WithDefaults() T
	// Validate names every field that is wrong and the fix, in one error of the type
	// [ErrorInvalidInput].
	Validate() error
}

// decode reads an input strictly and returns it with its defaults. The error is of the
// type [ErrorInvalidInput].
func decode[T input[T]](what string, raw json.RawMessage) (T, error) {
	var value T
	if len(raw) == 0 {
		raw = json.RawMessage("{}")
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&value)
	if err == nil {
		if _, more := decoder.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("there is more than one JSON value")
		}
	}
	if err != nil {
		return value, invalid(what, []string{describe[T](raw, err)})
	}
	value = value.WithDefaults()
	return value, value.Validate()
}

// describe names the field that does not decode.
func describe[T any](raw json.RawMessage, err error) string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return fmt.Sprintf("the input is no JSON object (%v): write one such as {\"projection\": \"…\"}", err)
	}
	for _, name := range workflow.DeterministicKeys(fields) {
		var value T
		single, encodeErr := json.Marshal(map[string]json.RawMessage{name: fields[name]})
		if encodeErr != nil {
			continue
		}
		decoder := json.NewDecoder(bytes.NewReader(single))
		decoder.DisallowUnknownFields()
		fault := decoder.Decode(&value)
		if fault == nil {
			continue
		}
		if strings.Contains(fault.Error(), "unknown field") {
			return fmt.Sprintf("%s: there is no such field: correct the name or leave it out", name)
		}
		if wrongType, ok := errors.AsType[*json.UnmarshalTypeError](fault); ok {
			return fmt.Sprintf("%s: a JSON %s does not fit: write a %s", name, wrongType.Value, wrongType.Type)
		}
		return fmt.Sprintf("%s: %v", name, fault)
	}
	return err.Error()
}

// invalid makes the error of an input with faults; nil without any.
func invalid(what string, faults []string) error {
	if len(faults) == 0 {
		return nil
	}
	return temporal.NewNonRetryableApplicationError(
		fmt.Sprintf("input of %s: %s", what, strings.Join(faults, "; ")), ErrorInvalidInput, nil)
}

// checks collects the faults of an input.
type checks []string

func (c *checks) required(field, value string) {
	if value == "" {
		*c = append(*c, field+": it is empty: fill it in")
	}
}

func (c *checks) positive(field string, value int) {
	if value < 1 {
		*c = append(*c, fmt.Sprintf("%s: %d is too low: write 1 or more, or leave it out for the default", field, value))
	}
}

func (c *checks) duration(field string, value activities.Duration) {
	if value <= 0 {
		*c = append(*c, fmt.Sprintf("%s: %s is too short: write a duration such as \"30s\", or leave it out for the default", field, value))
	}
}

func (c *checks) backoff(field string, low, high activities.Duration) {
	c.duration(field+"Min", low)
	c.duration(field+"Max", high)
	if high < low {
		*c = append(*c, fmt.Sprintf("%sMax: %s is below %sMin, %s: raise it", field, high, field, low))
	}
}

func (c *checks) faultf(field, format string, args ...any) {
	*c = append(*c, field+": "+fmt.Sprintf(format, args...))
}

func orDefault[T comparable](value, preset T) T {
	var zero T
	if value == zero {
		return preset
	}
	return value
}
