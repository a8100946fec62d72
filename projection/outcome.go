package projection

import (
	"time"

	"github.com/rowfold/rowfold/event"
)

// RowBatch is a row as read, with the events of a batch for it. Together with
// [FoldOptions] it is everything that the fold knows.
type RowBatch struct {
	Row Stored
	// Events are in any order; a version may occur more than once.
	Events []RowEvent
	// Known holds, per instance, versions that need not be read for this row: those of
	// the batch and of gap reads, whichever row they belong to.
	Known map[Instance]Versions
	// Skips are the operators' decisions about the instances at hand.
	Skips []Skip
	// Failed are instances that cannot be applied for a reason found before the fold.
	Failed map[Instance]error
}

// RowEvent is an event that contributes to the row at hand by way of a source.
type RowEvent struct {
	Instance Instance
	Envelope event.Envelope
	decoded  any
}

// FoldOptions are what the fold would otherwise ask the world for.
type FoldOptions struct {
	Now    time.Time
	Limits Limits
	// WriteID returns a new random id for each write. Defaults to outbox.NewNonce.
	WriteID func() string
}

// RowFold is what the fold makes of a row: usually one write, none when there is
// nothing to write, several when one write could not take all effects.
type RowFold struct {
	Outcome Outcome
	Writes  []Write
}

// Outcome reports what became of a row in a batch.
type Outcome struct {
	Projection string            `json:"projection"`
	Key        string            `json:"row"`
	Instances  []InstanceOutcome `json:"instances"` // in fold order
	// State is the row after the batch, of the projection's row type; nil when it is
	// absent or removed, or when the row failed.
	State    any   `json:"-"`
	Removed  bool  `json:"removed,omitempty"`
	Revision int64 `json:"revision,omitempty"` // after the batch; 0 where there is none
	Written  bool  `json:"written"`
	Enqueued int   `json:"enqueued,omitempty"` // effects committed by this batch
	// Delivered and Undelivered are set when the batch call also delivers.
	Delivered   int   `json:"delivered,omitempty"`
	Undelivered error `json:"-"` // why effects were left in the outbox; nil = none
	// Err is set when the row failed as a whole: every instance did, or its write.
	Err error `json:"-"`
}

// Failed returns the instances that failed, each with its error.
func (o *Outcome) Failed() map[Instance]error {
	failed := map[Instance]error{}
	for _, instance := range o.Instances {
		if instance.Err != nil {
			failed[instance.Instance] = instance.Err
		}
	}
	return failed
}

// InstanceOutcome reports what became of an instance's events.
type InstanceOutcome struct {
	Instance

	Stream         string      `json:"stream"`
	Applied        []int64     `json:"applied,omitempty"`
	AlreadyApplied []int64     `json:"alreadyApplied,omitempty"`
	Rejected       []Rejection `json:"rejected,omitempty"`
	Superseded     []int64     `json:"superseded,omitempty"`
	Skipped        []int64     `json:"skipped,omitempty"`
	// Version is the instance's checkpoint after the batch; 0 = none.
	Version int64 `json:"version"`
	// Err is why the instance left the write, nil when it did not. Its checkpoint is
	// where it was, and none of its events is in the other lists but AlreadyApplied. Of
	// a row that took several writes, Applied holds what those before the failure have
	// committed, and Version is where they have left the checkpoint.
	Err error `json:"-"`
}

// changes reports whether the instance's events are a reason to write the row.
func (o *InstanceOutcome) changes() bool { return len(o.Applied) > 0 || len(o.Rejected) > 0 }

// Rejection is an event that terminal, or an operator, gave up on.
type Rejection struct {
	Version int64 `json:"version"`
	Err     error `json:"-"`
}
