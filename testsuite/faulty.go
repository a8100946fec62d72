package testsuite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
)

// Fault is what happens to one call.
type Fault string

const (
	// FaultLostAnswer lets the call do its work and loses the answer: the caller meets an
	// error of class event.ClassUnknownOutcome.
	FaultLostAnswer Fault = "lost answer"
	// FaultLostRequest loses the request: nothing is done, and the caller meets the same
	// error as of FaultLostAnswer.
	FaultLostRequest Fault = "lost request"
	// FaultConflict refuses the call as a lost race. Commits of rows meet
	// *projection.LostRace, other calls an error of class event.ClassStale.
	FaultConflict Fault = "conflict"
	// FaultThrottle refuses the call with an error of class event.ClassThrottled.
	FaultThrottle Fault = "throttle"
	// FaultCrashBefore ends the process before the call: it and all later ones fail with
	// *[Crashed].
	FaultCrashBefore Fault = "crash before"
	// FaultCrashAfter ends the process after the call did its work.
	FaultCrashAfter Fault = "crash after"
)

// Faults returns all faults.
func Faults() []Fault {
	return []Fault{FaultLostAnswer, FaultLostRequest, FaultConflict, FaultThrottle, FaultCrashBefore, FaultCrashAfter}
}

// Plan says which calls fail. Its zero value lets none fail.
type Plan struct {
	// At gives the fault of a call by its number. Calls are counted from 1, whatever
	// they are; [Faulty.Limits] is none.
	At map[int]Fault
	// OneByOne lets writes happen in the middle of each look at an outbox, as on a store
	// whose reads are no snapshot: after the row's revision was read, OneByOne is called,
	// and of each write that it commits only the last effect is visible yet. Each Head
	// then is one call of the plan. nil = a look is what the store makes of it.
	OneByOne func(ctx context.Context, row outbox.Row)
}

// Validate reports all faults of the plan at once, as an *event.DefinitionError.
func (p Plan) Validate() error {
	var faults []string
	for _, call := range slices.Sorted(maps.Keys(p.At)) {
		if call < 1 {
			faults = append(faults, fmt.Sprintf("At[%d]: calls are counted from 1", call))
		}
		if !slices.Contains(Faults(), p.At[call]) {
			faults = append(faults, fmt.Sprintf("At[%d] is %q: use one of %q", call, p.At[call], Faults()))
		}
	}
	if len(faults) > 0 {
		return &event.DefinitionError{What: "plan of faults", Faults: faults}
	}
	return nil
}

// Crashed is returned by every call after the planned crash: the process is gone.
type Crashed struct {
	Call int    // the call at which it ended
	Name string // the method
}

// Error implements error.
func (e *Crashed) Error() string {
	return fmt.Sprintf("the process has crashed at call %d, %s", e.Call, e.Name)
}

// Class is [event.ClassFenced]: nobody is there to try again.
func (e *Crashed) Class() event.Class { return event.ClassFenced }

// Faulty is a store that fails by a plan. It is safe for concurrent use; with several
// goroutines it depends on them which call a number falls on.
type Faulty struct {
	store projection.Store
	plan  Plan

	mu      sync.Mutex
	calls   []string // the methods that were called
	crashed *Crashed
}

var _ projection.Store = (*Faulty)(nil)

// NewFaulty returns store with the faults of a plan. Each process that is to crash by
// itself gets a Faulty of its own. It panics on a plan that [Plan.Validate] refuses:
// a test would go on without its faults.
func NewFaulty(store projection.Store, plan Plan) *Faulty {
	if err := plan.Validate(); err != nil {
		panic(err)
	}
	return &Faulty{store: store, plan: plan}
}

// Calls returns the methods that were called so far, in order.
func (f *Faulty) Calls() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

// begin counts a call and returns its fault.
func (f *Faulty) begin(name string) (Fault, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.crashed != nil {
		return "", f.crashed
	}
	f.calls = append(f.calls, name)
	call := len(f.calls)
	fault := f.plan.At[call]
	if fault == FaultCrashBefore || fault == FaultCrashAfter {
		f.crashed = &Crashed{Call: call, Name: name}
	}
	if fault == FaultCrashBefore {
		return fault, f.crashed
	}
	return fault, nil
}

var (
	errNoAnswer  = event.WithClass(errors.New("injected: no answer came"), event.ClassUnknownOutcome)
	errConflict  = event.WithClass(errors.New("injected: a conflict"), event.ClassStale)
	errThrottled = event.WithClass(errors.New("injected: throttled"), event.ClassThrottled)
)

// faulted runs one call under its fault.
func faulted[R any](f *Faulty, name string, run func() (R, error)) (R, error) {
	var none R
	fault, err := f.begin(name)
	if err != nil {
		return none, err
	}
	switch fault {
	case FaultLostRequest:
		return none, errNoAnswer
	case FaultConflict:
		return none, errConflict
	case FaultThrottle:
		return none, errThrottled
	case FaultLostAnswer, FaultCrashAfter:
		_, _ = run()
		if fault == FaultLostAnswer {
			return none, errNoAnswer
		}
		return none, f.crashed
	case FaultCrashBefore: // begin has returned it
	}
	return run()
}

func faultedErr(f *Faulty, name string, run func() error) error {
	_, err := faulted(f, name, func() (struct{}, error) { return struct{}{}, run() })
	return err
}

// Load implements projection.RowStore.
func (f *Faulty) Load(ctx context.Context, model *projection.Model, keys []string) ([]projection.Stored, error) {
	return faulted(f, "Load", func() ([]projection.Stored, error) { return f.store.Load(ctx, model, keys) })
}

// Commit implements projection.RowStore.
func (f *Faulty) Commit(ctx context.Context, model *projection.Model, writes []projection.Write) []error {
	results, err := faulted(f, "Commit", func() ([]error, error) { return f.store.Commit(ctx, model, writes), nil })
	if err == nil {
		return results
	}
	results = make([]error, len(writes))
	for i := range results {
		results[i] = err
		if errors.Is(err, errConflict) {
			results[i] = &projection.LostRace{Projection: model.Projection, Key: writes[i].Key}
		}
	}
	return results
}

// CommitAll implements projection.RowStore.
func (f *Faulty) CommitAll(ctx context.Context, writes []projection.ModelWrite) error {
	err := faultedErr(f, "CommitAll", func() error { return f.store.CommitAll(ctx, writes) })
	if errors.Is(err, errConflict) && len(writes) > 0 {
		name, key := writes[0].Model.Projection, writes[0].Write.Key
		return &projection.WriteError{Projection: name, Key: key, Err: &projection.LostRace{Projection: name, Key: key}}
	}
	return err
}

// Rows implements projection.RowStore.
func (f *Faulty) Rows(ctx context.Context, model *projection.Model, page projection.RowPage) ([]projection.Stored, error) {
	return faulted(f, "Rows", func() ([]projection.Stored, error) { return f.store.Rows(ctx, model, page) })
}

// Limits implements projection.RowStore. It is no call to the store.
func (f *Faulty) Limits() projection.Limits { return f.store.Limits() }

// PurgeTombstones implements projection.RowStore.
func (f *Faulty) PurgeTombstones(ctx context.Context, model *projection.Model, now time.Time, limit int) (projection.Purged, error) {
	return faulted(f, "PurgeTombstones", func() (projection.Purged, error) { return f.store.PurgeTombstones(ctx, model, now, limit) })
}

// Prepare implements projection.Store.
func (f *Faulty) Prepare(ctx context.Context, models ...*projection.Model) error {
	return faultedErr(f, "Prepare", func() error { return f.store.Prepare(ctx, models...) })
}
