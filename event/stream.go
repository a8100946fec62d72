package event

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Stream declares a kind of event stream: its name, the fields of its id and the
// types of its events, which all are or implement E. It is immutable and safe for
// use by several goroutines.
type Stream[E any] struct {
	name   string
	fields []string
	types  *Registry
}

// NewStream declares a stream. Every fault is reported at once, as a
// *[DefinitionError]: an empty name or one with '#', no id field, a type that
// neither is nor implements E, a missing upcaster.
func NewStream[E any](name string, idFields []string, types ...TypeDef) (*Stream[E], error) {
	owner := "stream " + name
	var faults []string
	if name == "" {
		faults = append(faults, "its name is empty")
	}
	if strings.Contains(name, idSeparator) {
		faults = append(faults, "its name holds '#', which separates a name from an id")
	}
	if len(idFields) == 0 {
		faults = append(faults, "it has no id field")
	}
	for i, field := range idFields {
		if field == "" || slices.Contains(idFields[:i], field) {
			faults = append(faults, fmt.Sprintf("id field %d is empty or named twice", i+1))
		}
	}
	want := reflect.TypeFor[E]()
	for _, def := range types {
		if def.goType != want && (want.Kind() != reflect.Interface || !def.goType.Implements(want)) {
			faults = append(faults, fmt.Sprintf("type %s: %v is not a %v", def.name, def.goType, want))
		}
	}
	registry, err := NewRegistry(owner, types...)
	if err != nil {
		if definition, ok := errors.AsType[*DefinitionError](err); ok {
			faults = append(faults, definition.Faults...)
		}
	}
	if len(faults) > 0 {
		return nil, &DefinitionError{What: owner, Faults: faults}
	}
	return &Stream[E]{name: name, fields: slices.Clone(idFields), types: registry}, nil
}

// MustStream is [NewStream] for package-level variables: it panics on a fault.
func MustStream[E any](name string, idFields []string, types ...TypeDef) *Stream[E] {
	stream, err := NewStream[E](name, idFields, types...)
	if err != nil {
		panic(err)
	}
	return stream
}

// Name returns the stream's name.
func (s *Stream[E]) Name() string { return s.name }

// IDFields returns the names of the fields that make up the stream's id.
func (s *Stream[E]) IDFields() []string { return slices.Clone(s.fields) }

// ID makes the id of one instance from the values of its id fields, in declared
// order. The error is an *[InvalidStreamID].
func (s *Stream[E]) ID(values ...string) (ID, error) { return NewID(s.name, s.fields, values) }

// Values returns the values of an id's fields, in declared order.
func (s *Stream[E]) Values(id ID) []string { return id.Values(len(s.fields)) }

// Encode returns the stored form of an event that has no version yet. Errors:
// *[UnknownType], *[EncodeError].
func (s *Stream[E]) Encode(data E) (NewEvent, error) { return s.types.Encode(data) }

// Decode returns the event of an envelope, in its newest shape. Errors, in a
// *[RecordError] that names the event: *[UnknownType], *[UnknownSchemaVersion],
// *[DecodeError].
func (s *Stream[E]) Decode(envelope Envelope) (Event[E], error) {
	value, err := s.types.Decode(envelope.Type, envelope.SchemaVersion, envelope.Payload)
	if err != nil {
		return Event[E]{}, &RecordError{Stream: envelope.Stream, StreamID: envelope.StreamID, Version: envelope.Version, Err: err}
	}
	data, isE := value.(E)
	if !isE { // NewStream has checked every type, so this is a broken registry
		return Event[E]{}, &UnknownType{Owner: s.name, Type: fmt.Sprintf("%T", value), Known: s.types.names}
	}
	return Event[E]{Envelope: envelope, Data: data}, nil
}

// Append records events as the versions expected+1 … of one instance, all or
// nothing. An empty append sends nothing. Errors: those of [Stream.Encode] and of
// [Appender].
func (s *Stream[E]) Append(ctx context.Context, store Appender, id ID, expected int64, data ...E) (Appended, error) {
	request := Append{Stream: s.name, StreamID: id, Expected: expected, Events: make([]NewEvent, 0, len(data))}
	for _, d := range data {
		encoded, err := s.Encode(d)
		if err != nil {
			return Appended{}, err
		}
		request.Events = append(request.Events, encoded)
	}
	appended, err := store.Append(ctx, request)
	if err != nil {
		return Appended{}, fmt.Errorf("append to stream %s %q: %w", s.name, id, err)
	}
	return appended, nil
}
