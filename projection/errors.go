package projection

import (
	"fmt"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
)

// IncompleteKey is returned for a row key that lacks a value or has one too many.
type IncompleteKey struct {
	Projection string
	Field      string // the key column at fault
	Reason     string
}

// Error implements error.
func (e *IncompleteKey) Error() string {
	return fmt.Sprintf("incomplete row key of projection %s: field %q: %s", e.Projection, e.Field, e.Reason)
}

// Class is event.ClassPermanent.
func (e *IncompleteKey) Class() event.Class { return event.ClassPermanent }

// LostRace is the result of a write whose guard no longer holds: somebody else wrote
// the row.
type LostRace struct {
	Projection string
	Key        string
}

// Error implements error.
func (e *LostRace) Error() string {
	return fmt.Sprintf("row %s of projection %s was written meanwhile", e.Key, e.Projection)
}

// Class is event.ClassStale.
func (e *LostRace) Class() event.Class { return event.ClassStale }

// ProjectionConflict is returned when a row lost every race that it was given.
type ProjectionConflict struct {
	Projection string
	Key        string
	Attempts   int
	Err        error // the last one
}

// Error implements error.
func (e *ProjectionConflict) Error() string {
	return fmt.Sprintf("row %s of projection %s lost %d races in a row: %v", e.Key, e.Projection, e.Attempts, e.Err)
}

// Unwrap returns the cause.
func (e *ProjectionConflict) Unwrap() error { return e.Err }

// Class is event.ClassRetry: the row is contended now and may not be later.
func (e *ProjectionConflict) Class() event.Class { return event.ClassRetry }

// SequenceReused is the result of a write whose effects meet a sequence that is taken
// already: the row's revision has gone back, such as by a hand-made change.
type SequenceReused struct {
	Row      outbox.Row
	Sequence outbox.Sequence
}

// Error implements error.
func (e *SequenceReused) Error() string {
	return fmt.Sprintf("outbox of row %s already holds sequence %s: the row's revision has gone back; set it above every pending sequence", e.Row, e.Sequence)
}

// Class is event.ClassPermanent.
func (e *SequenceReused) Class() event.Class { return event.ClassPermanent }

// RowTooLarge is returned before a write that the store would refuse.
type RowTooLarge struct {
	Projection string
	Key        string
	Size       int // bytes
	Limit      int // bytes
}

// Error implements error.
func (e *RowTooLarge) Error() string {
	return fmt.Sprintf("row %s of projection %s has %d bytes, the store takes %d: declare `Closes` on sources whose instances end, or keep less in a row", e.Key, e.Projection, e.Size, e.Limit)
}

// Class is event.ClassPermanent.
func (e *RowTooLarge) Class() event.Class { return event.ClassPermanent }

// TooManyEffects is returned for an event with more effects than one write takes.
type TooManyEffects struct {
	Instance Instance
	Version  int64
	Effects  int
	Bytes    int
	Limits   Limits
}

// Error implements error.
func (e *TooManyEffects) Error() string {
	return fmt.Sprintf("event %s version %d has %d effects of %d bytes; one write takes %d of %d bytes: emit fewer, larger or smaller ones",
		e.Instance, e.Version, e.Effects, e.Bytes, e.Limits.MaxEffects, e.Limits.MaxBytes)
}

// Class is event.ClassPermanent.
func (e *TooManyEffects) Class() event.Class { return event.ClassPermanent }

// ProjectionSourceConflict is returned for an instance that has no place for its
// checkpoint: its source's scalar belongs to another one and no map is declared.
type ProjectionSourceConflict struct {
	Projection string
	Key        string
	Instance   Instance
	Owner      event.ID
}

// Error implements error.
func (e *ProjectionSourceConflict) Error() string {
	return fmt.Sprintf("row %s of projection %s: the checkpoint of source %s belongs to %q, so %q has no place: declare a checkpoint map, or rebuild the row",
		e.Key, e.Projection, e.Instance.Source, e.Owner, e.Instance.StreamID)
}

// Class is event.ClassPermanent.
func (e *ProjectionSourceConflict) Class() event.Class { return event.ClassPermanent }

// RowKeyChanged is returned for an evolve that changed the key of its row.
type RowKeyChanged struct {
	Projection string
	From, To   string
}

// Error implements error.
func (e *RowKeyChanged) Error() string {
	return fmt.Sprintf("projection %s: evolve changed the row key from %q to %q: return the key as it was given", e.Projection, e.From, e.To)
}

// Class is event.ClassPermanent.
func (e *RowKeyChanged) Class() event.Class { return event.ClassPermanent }

// RemovalNotDeclared is returned when evolve removes a row of a projection that has no
// removal.
type RemovalNotDeclared struct{ Projection string }

// Error implements error.
func (e *RemovalNotDeclared) Error() string {
	return fmt.Sprintf("projection %s: evolve returned RemoveRow: declare Config.Removal", e.Projection)
}

// Class is event.ClassPermanent.
func (e *RemovalNotDeclared) Class() event.Class { return event.ClassPermanent }

// Gap is returned for an instance whose next version could not be read: a
// checkpoint never passes a hole.
type Gap struct {
	Instance Instance
	Missing  int64 // the lowest version that is missing
	Before   int64 // the version at hand, which waits for it
}

// Error implements error.
func (e *Gap) Error() string {
	return fmt.Sprintf("instance %s: version %d is not readable yet, version %d waits for it", e.Instance, e.Missing, e.Before)
}

// Class is event.ClassRetry.
func (e *Gap) Class() event.Class { return event.ClassRetry }

// HistoryTrimmed is returned for an instance whose first events the event store no
// longer holds.
type HistoryTrimmed struct {
	Instance Instance
	Missing  int64 // the lowest version that is needed
	Oldest   int64 // the lowest version that the store holds
}

// Error implements error.
func (e *HistoryTrimmed) Error() string {
	return fmt.Sprintf("instance %s: version %d is needed and the event store begins at %d: set FromOldest on the source to begin there",
		e.Instance, e.Missing, e.Oldest)
}

// Class is event.ClassPermanent.
func (e *HistoryTrimmed) Class() event.Class { return event.ClassPermanent }

// EvolvePanic is a panic in user code, as an error of the instance at hand.
type EvolvePanic struct {
	// Func is which function: key, evolve, terminal, effects, closes or initial; decode,
	// encode or columns for code that the types of events, effects or columns have for
	// their encoding, upcasters among it.
	Func  string
	Value any
	Stack []byte
}

// Error implements error.
func (e *EvolvePanic) Error() string { return fmt.Sprintf("%s panicked: %v", e.Func, e.Value) }

// Class is event.ClassPermanent.
func (e *EvolvePanic) Class() event.Class { return event.ClassPermanent }

// SkippedByOperator is the error of an event that an operator decided to pass over.
type SkippedByOperator struct{ Skip Skip }

// Error implements error.
func (e *SkippedByOperator) Error() string {
	return fmt.Sprintf("skipped by %s: %s", e.Skip.Who, e.Skip.Why)
}

// Class is event.ClassPermanent.
func (e *SkippedByOperator) Class() event.Class { return event.ClassPermanent }

// ValueError is returned for a value of a row that no column can hold.
type ValueError struct {
	Projection string
	Column     string
	Err        error
}

// Error implements error.
func (e *ValueError) Error() string {
	return fmt.Sprintf("projection %s: column %q: %v", e.Projection, e.Column, e.Err)
}

// Unwrap returns the cause.
func (e *ValueError) Unwrap() error { return e.Err }

// Class is event.ClassPermanent.
func (e *ValueError) Class() event.Class { return event.ClassPermanent }

// WriteError says which row's write an error is about.
type WriteError struct {
	Projection string
	Key        string
	Err        error
}

// Error implements error.
func (e *WriteError) Error() string {
	return fmt.Sprintf("write row %s of projection %s: %v", e.Key, e.Projection, e.Err)
}

// Unwrap returns the cause.
func (e *WriteError) Unwrap() error { return e.Err }

// InstanceError says which instance of which projection an error is about.
type InstanceError struct {
	Projection string
	Instance   Instance
	Version    int64 // the event at which it failed; 0 = none in particular
	Err        error
}

// Error implements error.
func (e *InstanceError) Error() string {
	return fmt.Sprintf("projection %s, instance %s, version %d: %v", e.Projection, e.Instance, e.Version, e.Err)
}

// Unwrap returns the cause.
func (e *InstanceError) Unwrap() error { return e.Err }

// Undelivered says why effects were left in a row's outbox. They are committed, and
// the next drain goes on with them.
type Undelivered struct {
	Row     outbox.Row
	Failed  *outbox.Failure // the head failed, or waits for its time or an operator
	Blocked *outbox.Blocked // somebody else works at it
}

// Error implements error.
func (e *Undelivered) Error() string {
	if e.Failed != nil {
		return fmt.Sprintf("row %s: effect %s is not delivered after %d attempts: %s", e.Row, e.Failed.ID, e.Failed.Attempts, e.Failed.Error)
	}
	return fmt.Sprintf("row %s: effect %s is claimed by %s %s", e.Row, e.Blocked.ID, e.Blocked.Claim.Kind, e.Blocked.Claim.Nonce)
}

// Class is the failure's, or event.ClassRetry while somebody else works.
func (e *Undelivered) Class() event.Class {
	if e.Failed != nil {
		return e.Failed.Class
	}
	return event.ClassRetry
}
