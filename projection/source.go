package projection

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/rowfold/rowfold/event"
)

var (
	// SkipEvent is returned by evolve for an event that leaves the row alone. The row is not
	// written for it, it causes no effects, and a skip alone never creates a row.
	// The decision is made again whenever the event is read again, so it has to
	// depend on the row and the event only.
	SkipEvent = errors.New("skip this event") //nolint:revive,gochecknoglobals,staticcheck // a decision and not a fault, as fs.SkipDir
	// RemoveRow is returned by evolve for an event that removes the row. It needs
	// Config.Removal. The row that evolve returns with it is ignored.
	RemoveRow = errors.New("remove this row") //nolint:revive,gochecknoglobals,staticcheck // a decision and not a fault, as fs.SkipDir
)

// Mode says how many of an instance's events are folded.
type Mode string

const (
	// ModeFold applies every event in version order. A version that is missing in a
	// batch is read from the event store. For events that change a few fields.
	ModeFold Mode = "fold"
	// ModeLatest applies the newest event of each instance in a batch, and nothing is
	// read. For events that carry the source's whole part of the row.
	ModeLatest Mode = "latest"
)

// Source connects a stream whose events are of type E with rows of type R, named by
// keys of type K.
//
// Key, Evolve, Terminal, Effects and Closes are deterministic and have no side
// effects: they run again on retries, gap reads and rebuilds. A panic in one of
// them is an error of the instance at hand.
type Source[K, R, E any] struct {
	// Name names the source in checkpoints and effect ids. It is without '#', unique
	// in the projection, and never changes.
	Name string
	// Stream is what the source reads. Two sources may read one stream: they have
	// checkpoints of their own.
	Stream *event.Stream[E]
	// Key names the row that an event contributes to; false = none. One instance may
	// contribute to many rows.
	Key func(e event.Event[E]) (K, bool)
	// Evolve returns the row after the event. It must not change what the given row's
	// maps, slices or pointers refer to, nor the row's key; it may return [SkipEvent] or
	// [RemoveRow], and any other error fails the instance, unless Terminal accepts it.
	Evolve func(ctx context.Context, row R, e event.Event[E], in Instance) (R, error)
	// Mode defaults to [ModeFold].
	Mode Mode
	// Terminal says that an error of Evolve will never go away: the event is rejected,
	// and the checkpoint passes it. nil = no error is.
	Terminal func(err error, e event.Event[E]) bool
	// Effects returns the side effects of an applied event, values of types that
	// Config.Outbox declares. next is the row after the event, nil when it was
	// removed. nil = the source has no effects.
	Effects func(next *R, e event.Event[E], in Instance) ([]any, error)
	// Closes says that an event is the last one of its instance: the instance's entry
	// in the checkpoint map is dropped after Config.ReplayWindow. nil = none is.
	Closes func(e event.Event[E]) bool
	// FromOldest lets an instance begin at the oldest version that the event store
	// still holds. Otherwise a trimmed history fails with *[HistoryTrimmed].
	FromOldest bool
	// Index finds a row's events without reading those of other rows. nil = a gap is
	// read from the event store whole.
	Index EventIndex
}

// EventIndex finds the events of one row in an instance: an optional index that the
// user keeps for instances that feed very many rows.
type EventIndex interface {
	// Versions returns the versions in (after, before) that belong to the row, all of
	// them, consistently: what it leaves out counts as another row's.
	Versions(ctx context.Context, in Instance, rowKey string, after, before int64) ([]int64, error)
}

// AnySource is a [Source] of any event type. No other type implements it.
type AnySource[K, R any] interface {
	info() SourceInfo
	faults() []string
	stream() any // the *event.Stream, to decode each record once
	decode(envelope event.Envelope) (any, error)
	key(decoded any) (K, bool, error)
	evolve(ctx context.Context, row R, decoded any, in Instance) (R, error)
	terminal(err error, decoded any) (bool, error)
	effects(next *R, decoded any, in Instance) ([]any, error)
	closes(decoded any) (bool, error)
	index() EventIndex
}

// SourceInfo describes a source.
type SourceInfo struct {
	Name       string
	Stream     string
	Mode       Mode
	FromOldest bool
	Emits      bool // it may have effects
}

func (s Source[K, R, E]) info() SourceInfo {
	info := SourceInfo{Name: s.Name, Mode: s.Mode, FromOldest: s.FromOldest, Emits: s.Effects != nil}
	if info.Mode == "" {
		info.Mode = ModeFold
	}
	if s.Stream != nil {
		info.Stream = s.Stream.Name()
	}
	return info
}

func (s Source[K, R, E]) faults() []string {
	var faults []string
	add := func(format string, args ...any) {
		faults = append(faults, fmt.Sprintf("source %q: ", s.Name)+fmt.Sprintf(format, args...))
	}
	if s.Stream == nil {
		add("Stream is nil")
	}
	if s.Key == nil {
		add("Key is nil: say which row an event contributes to")
	}
	if s.Evolve == nil {
		add("Evolve is nil: say how an event changes the row")
	}
	if mode := s.info().Mode; mode != ModeFold && mode != ModeLatest {
		add("Mode is %q: use ModeFold or ModeLatest", mode)
	}
	return faults
}

func (s Source[K, R, E]) stream() any { return s.Stream }

func (s Source[K, R, E]) index() EventIndex { return s.Index }

func (s Source[K, R, E]) decode(envelope event.Envelope) (value any, err error) {
	defer recovered("decode", &err)
	decoded, err := s.Stream.Decode(envelope)
	if err != nil {
		return nil, fmt.Errorf("%w", err)
	}
	return &decoded, nil
}

func (s Source[K, R, E]) key(decoded any) (key K, found bool, err error) {
	defer recovered("key", &err)
	key, found = s.Key(*s.own(decoded))
	return key, found, nil
}

func (s Source[K, R, E]) evolve(ctx context.Context, row R, decoded any, in Instance) (next R, err error) {
	defer recovered("evolve", &err)
	return s.Evolve(ctx, row, *s.own(decoded), in)
}

func (s Source[K, R, E]) terminal(cause error, decoded any) (terminal bool, err error) {
	if s.Terminal == nil {
		return false, nil
	}
	defer recovered("terminal", &err)
	return s.Terminal(cause, *s.own(decoded)), nil
}

func (s Source[K, R, E]) effects(next *R, decoded any, in Instance) (effects []any, err error) {
	if s.Effects == nil {
		return nil, nil
	}
	defer recovered("effects", &err)
	return s.Effects(next, *s.own(decoded), in)
}

func (s Source[K, R, E]) closes(decoded any) (closes bool, err error) {
	if s.Closes == nil {
		return false, nil
	}
	defer recovered("closes", &err)
	return s.Closes(*s.own(decoded)), nil
}

// own returns the decoded event as this source's type. Events reach a source only
// by way of its own decode, or of a source with the same stream.
func (Source[K, R, E]) own(decoded any) *event.Event[E] {
	return decoded.(*event.Event[E]) //nolint:forcetypeassert,errcheck // see above
}

func recovered(function string, err *error) { //nolint:gocritic // a deferred call sets the result
	if value := recover(); value != nil {
		*err = &EvolvePanic{Func: function, Value: value, Stack: debug.Stack()}
	}
}
