package outbox

import (
	"time"

	"github.com/rowfold/rowfold/event"
)

// MaxErrorBytes bounds the text of an error in a [Failure], a [Blocked] and a [Deferral].
const MaxErrorBytes = 1024

// Result says what a drain did and why it returned. It is small and holds no
// payload, so that it may go into a workflow's history. Without an error exactly one
// of Empty, More, Failed and Blocked is set.
type Result struct {
	// Delivered is how many effects this drain handed over.
	Delivered int `json:"delivered"`
	// Revision is the row's, as read before the last look at the outbox.
	Revision int64 `json:"revision"`
	// Empty says that no effect of a write up to Revision is pending.
	Empty bool `json:"empty,omitempty"`
	// More says that Options.MaxEffects were delivered and others are pending.
	More bool `json:"more,omitempty"`
	// Failed says that the head cannot be delivered now.
	Failed *Failure `json:"failed,omitempty"`
	// Blocked says that somebody else works at the head.
	Blocked *Blocked `json:"blocked,omitempty"`
	// Overtaken is how often another drain took over in the middle of a delivery: the
	// upper bound of the effects that this drain has repeated.
	Overtaken int `json:"overtaken,omitempty"`
}

// Failure is a head that waits, either for its time or for an operator.
type Failure struct {
	Sequence Sequence    `json:"sequence"`
	ID       string      `json:"id"`
	Type     string      `json:"type"`
	Stream   string      `json:"stream"` // of the event that caused the effect
	StreamID event.ID    `json:"streamId"`
	Version  int64       `json:"version"`
	Class    event.Class `json:"class"`    // of the last error
	Error    string      `json:"error"`    // the last error, see [MaxErrorBytes]
	Attempts int         `json:"attempts"` // failed tries so far, over all drains
	// NextDelay is how long it takes until the head is due again; 0 with Parked.
	NextDelay time.Duration `json:"nextDelay,omitempty"`
	// Parked says that the queue waits for an operator: [Retry], [SkipHead], [ParkHead].
	Parked bool `json:"parked,omitempty"`
}

// Blocked is a head that somebody else has claimed who may still be at work.
type Blocked struct {
	Sequence Sequence `json:"sequence"`
	ID       string   `json:"id"`
	Claim    Claim    `json:"claim"`
	// Since is when the effect was committed.
	Since time.Time `json:"since"`
	// RetryIn is when a process's claim ends; 0 = not known, ask again with backoff.
	RetryIn time.Duration `json:"retryIn,omitempty"`
	// Reason is the judge's error, when it could not tell.
	Reason string `json:"reason,omitempty"`
}

// failureOf reports an item by the deferral that it has, or is given now.
func failureOf(item Item, deferral Deferral, now time.Time) *Failure {
	failure := &Failure{
		Sequence: item.Sequence, ID: item.ID, Type: item.Type,
		Stream: item.Stream, StreamID: item.StreamID, Version: item.Version,
		Class: deferral.Class, Error: deferral.Error, Attempts: deferral.Attempts, Parked: deferral.Parked,
	}
	if !deferral.Parked {
		failure.NextDelay = max(0, deferral.Until.Sub(now))
	}
	return failure
}

// due reports whether the item may be delivered now.
func (d Deferral) due(now time.Time) bool { return !d.Parked && !now.Before(d.Until) }
