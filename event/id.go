package event

import (
	"strings"
	"unicode/utf8"
)

// ID names one instance of a stream: the values of its id fields, in declared
// order, joined by '#'. It is made by [Stream.ID], which refuses values that could
// not be told apart again.
type ID string

// idSeparator joins the values of an id, and a source's name with an id.
const idSeparator = "#"

// NewID joins the values of a stream's id fields. With several fields no value may
// hold a '#', so that the id can be parsed back; no value may be empty. The error
// is an *[InvalidStreamID].
func NewID(stream string, fields, values []string) (ID, error) {
	if len(values) != len(fields) {
		return "", &InvalidStreamID{Stream: stream, Reason: "it takes the values of " + strings.Join(fields, ", ")}
	}
	for i, value := range values {
		fault := ""
		switch {
		case value == "":
			fault = "it must not be empty"
		case len(values) > 1 && strings.Contains(value, idSeparator):
			fault = "it must not hold '#', which separates the fields"
		case !utf8.ValidString(value):
			fault = "it must be valid UTF-8"
		case strings.ContainsRune(value, 0):
			fault = "it must not hold a zero byte"
		}
		if fault != "" {
			return "", &InvalidStreamID{Stream: stream, Field: fields[i], Value: value, Reason: fault}
		}
	}
	return ID(strings.Join(values, idSeparator)), nil
}

// Values returns the n values that the id was made from. An id of one field is
// that value, whatever it holds.
func (id ID) Values(n int) []string {
	if n <= 1 {
		return []string{string(id)}
	}
	return strings.SplitN(string(id), idSeparator, n)
}
