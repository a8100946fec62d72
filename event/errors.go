package event

import (
	"fmt"
	"strings"
)

// VersionConflict is returned by an append whose expected version is not the
// stream's current one, whether stale or ahead. Nothing was written.
type VersionConflict struct {
	Stream   string
	StreamID ID
	Expected int64 // what the caller expected
	Actual   int64 // what the stream has
}

// Error implements error.
func (e *VersionConflict) Error() string {
	return fmt.Sprintf("stream %s %q is at version %d, not %d: read it again and decide again",
		e.Stream, e.StreamID, e.Actual, e.Expected)
}

// Class is [ClassStale].
func (e *VersionConflict) Class() Class { return ClassStale }

// AppendTooLarge is returned, before anything is sent, by an append that goes
// over the store's limits. An append is never split silently.
type AppendTooLarge struct {
	Stream    string
	StreamID  ID
	Events    int // how many events the append has
	MaxEvents int // how many the store takes in one append; 0 = no limit
	Bytes     int // the append's encoded size in bytes
	MaxBytes  int // what the store takes in one append; 0 = no limit
}

// Error implements error.
func (e *AppendTooLarge) Error() string {
	return fmt.Sprintf("append to stream %s %q has %d events and %d bytes; the store takes %d events and %d bytes in one append: append less at a time",
		e.Stream, e.StreamID, e.Events, e.Bytes, e.MaxEvents, e.MaxBytes)
}

// Class is [ClassPermanent].
func (e *AppendTooLarge) Class() Class { return ClassPermanent }

// DuplicateCommand is returned by an append whose command id was used before.
// The events of that command are already in the store.
type DuplicateCommand struct {
	CommandID string
	Stream    string // where the command was recorded the first time
	StreamID  ID
	First     int64 // the first version that it recorded
	Last      int64 // the last version that it recorded
}

// Error implements error.
func (e *DuplicateCommand) Error() string {
	return fmt.Sprintf("command %q was already recorded as versions %d to %d of stream %s %q",
		e.CommandID, e.First, e.Last, e.Stream, e.StreamID)
}

// Class is [ClassPermanent].
func (e *DuplicateCommand) Class() Class { return ClassPermanent }

// InvalidStreamID is returned for an id that could not be parsed back from a
// checkpoint's name, or that names nothing.
type InvalidStreamID struct {
	Stream string
	Field  string // the id field at fault; empty when the number of values is wrong
	Value  string
	Reason string
}

// Error implements error.
func (e *InvalidStreamID) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("invalid id of stream %s: %s", e.Stream, e.Reason)
	}
	return fmt.Sprintf("invalid id of stream %s: field %q is %q: %s", e.Stream, e.Field, e.Value, e.Reason)
}

// Class is [ClassPermanent].
func (e *InvalidStreamID) Class() Class { return ClassPermanent }

// InvalidAppend is returned for an append that no store can take as it is.
type InvalidAppend struct {
	Stream string
	Field  string
	Reason string
}

// Error implements error.
func (e *InvalidAppend) Error() string {
	return fmt.Sprintf("invalid append to stream %q: %s: %s", e.Stream, e.Field, e.Reason)
}

// Class is [ClassPermanent].
func (e *InvalidAppend) Class() Class { return ClassPermanent }

// UnknownType is returned for a type name, or a Go type, that a stream or an
// outbox does not declare.
type UnknownType struct {
	Owner string // the stream or projection that was asked
	Type  string // the name in the envelope, or the Go type of the value
	Known []string
}

// Error implements error.
func (e *UnknownType) Error() string {
	return fmt.Sprintf("%s does not declare the type %q; it knows %s", e.Owner, e.Type, strings.Join(e.Known, ", "))
}

// Class is [ClassPermanent].
func (e *UnknownType) Class() Class { return ClassPermanent }

// UnknownSchemaVersion is returned for a payload that was written by a newer
// program than this one, or by one whose upcasters are gone.
type UnknownSchemaVersion struct {
	Owner   string
	Type    string
	Version int // the payload's
	Latest  int // the newest that this program knows
}

// Error implements error.
func (e *UnknownSchemaVersion) Error() string {
	return fmt.Sprintf("%s: type %s has schema version %d; this program reads 1 to %d: deploy the newer program or add the upcaster",
		e.Owner, e.Type, e.Version, e.Latest)
}

// Class is [ClassPermanent].
func (e *UnknownSchemaVersion) Class() Class { return ClassPermanent }

// DecodeError is returned for a payload that does not decode to its type.
type DecodeError struct {
	Owner         string
	Type          string
	SchemaVersion int
	Err           error
}

// Error implements error.
func (e *DecodeError) Error() string {
	return fmt.Sprintf("%s: decode %s (schema version %d): %v", e.Owner, e.Type, e.SchemaVersion, e.Err)
}

// Unwrap returns the cause.
func (e *DecodeError) Unwrap() error { return e.Err }

// Class is [ClassPermanent].
func (e *DecodeError) Class() Class { return ClassPermanent }

// EncodeError is returned for a value that does not encode.
type EncodeError struct {
	Owner string
	Type  string
	Err   error
}

// Error implements error.
func (e *EncodeError) Error() string {
	return fmt.Sprintf("%s: encode %s: %v", e.Owner, e.Type, e.Err)
}

// Unwrap returns the cause.
func (e *EncodeError) Unwrap() error { return e.Err }

// Class is [ClassPermanent].
func (e *EncodeError) Class() Class { return ClassPermanent }

// RecordError says which event an error is about.
type RecordError struct {
	Stream   string
	StreamID ID
	Version  int64
	Err      error
}

// Error implements error.
func (e *RecordError) Error() string {
	return fmt.Sprintf("event %s %q version %d: %v", e.Stream, e.StreamID, e.Version, e.Err)
}

// Unwrap returns the cause.
func (e *RecordError) Unwrap() error { return e.Err }

// DefinitionError lists every fault of a declaration at once.
type DefinitionError struct {
	What   string   // what was declared, such as `projection AirportBoard`
	Faults []string // each names the field and the fix
}

// Error implements error.
func (e *DefinitionError) Error() string {
	return fmt.Sprintf("%s: %d faults: %s", e.What, len(e.Faults), strings.Join(e.Faults, "; "))
}

// Class is [ClassPermanent].
func (e *DefinitionError) Class() Class { return ClassPermanent }
