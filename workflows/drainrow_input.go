package workflows

import (
	"strings"
	"time"

	"github.com/rowfold/rowfold/activities"
	"github.com/rowfold/rowfold/outbox"
)

// DrainRow is the input of the workflow of that name, which delivers a row's effects in
// order until none is pending. Projection and Row are required; the table in
// docs/workflows.md lists all fields.
type DrainRow struct {
	Projection string `json:"projection"`
	Row        string `json:"row"` // the row key's text
	// RowName is what people see instead of the row key. Defaults to Row.
	RowName string `json:"rowName,omitempty"`

	// MaxEffects is how many effects one activity delivers. Defaults to 100.
	MaxEffects int `json:"maxEffects,omitempty"`
	// ClaimAhead is how many effects one claim takes. Defaults to 16.
	ClaimAhead int `json:"claimAhead,omitempty"`
	// DeliveryTimeout is one delivery's own deadline. Defaults to 30s.
	DeliveryTimeout activities.Duration `json:"deliveryTimeout,omitempty"`
	// Attempts is how often a head is tried in a row before the drain waits. Defaults
	// to 3.
	Attempts int `json:"attempts,omitempty"`
	// ParkAfter is how many failed tries in all park the queue until an operator answers;
	// -1 = never. A permanent error parks it at once. Defaults to 60.
	ParkAfter int `json:"parkAfter,omitempty"`
	// RetryMin and RetryMax bound the wait before a failed head is due again; it doubles
	// each time. Default to 1s and 5m.
	RetryMin activities.Duration `json:"retryMin,omitempty"`
	RetryMax activities.Duration `json:"retryMax,omitempty"`
	// BlockedMin and BlockedMax bound the wait while somebody else works at the head.
	// Default to 500ms and 10s.
	BlockedMin activities.Duration `json:"blockedMin,omitempty"`
	BlockedMax activities.Duration `json:"blockedMax,omitempty"`
	// ActivityTimeout is the longest that one activity runs. It is above the delivery
	// time-out. Defaults to 1h.
	ActivityTimeout activities.Duration `json:"activityTimeout,omitempty"`
	// HeartbeatTimeout is how long an activity may be silent before another attempt takes
	// over. Defaults to 10s.
	HeartbeatTimeout activities.Duration `json:"heartbeatTimeout,omitempty"`
	// ContinueAfter is after how many rounds, wakes and updates the run continues as
	// new. Defaults to 500.
	ContinueAfter int `json:"continueAfter,omitempty"`

	// Carried is the state of the run before this one. Leave it out.
	Carried *DrainState `json:"carried,omitempty"`
}

// WithDefaults returns the input with every empty field at its default.
func (in DrainRow) WithDefaults() DrainRow {
	in.RowName = orDefault(in.RowName, in.Row)
	in.MaxEffects = orDefault(in.MaxEffects, 100)
	in.ClaimAhead = orDefault(in.ClaimAhead, outbox.DefaultClaimAhead)
	in.DeliveryTimeout = in.DeliveryTimeout.Or(outbox.DefaultDeliveryTimeout)
	in.Attempts = orDefault(in.Attempts, outbox.DefaultAttempts)
	in.ParkAfter = orDefault(in.ParkAfter, 60)
	in.RetryMin = in.RetryMin.Or(time.Second)
	in.RetryMax = in.RetryMax.Or(max(5*time.Minute, in.RetryMin.Std()))
	in.BlockedMin = in.BlockedMin.Or(500 * time.Millisecond)
	in.BlockedMax = in.BlockedMax.Or(max(10*time.Second, in.BlockedMin.Std()))
	in.ActivityTimeout = in.ActivityTimeout.Or(time.Hour)
	in.HeartbeatTimeout = in.HeartbeatTimeout.Or(defaultHeartbeat)
	in.ContinueAfter = orDefault(in.ContinueAfter, defaultContinueAfter)
	return in
}

// Validate names every field that is wrong, in an error of the type
// [ErrorInvalidInput]. It expects the defaults to be filled in.
func (in DrainRow) Validate() error {
	var c checks
	c.required("projection", in.Projection)
	c.required("row", in.Row)
	if strings.ContainsAny(in.Projection, "/#") {
		c.faultf("projection", "%q holds '/' or '#': write the projection's name only, and the row key in row", in.Projection)
	}
	c.positive("maxEffects", in.MaxEffects)
	c.positive("claimAhead", in.ClaimAhead)
	c.positive("attempts", in.Attempts)
	if in.ParkAfter < -1 {
		c.faultf("parkAfter", "%d is too low: write a number of tries, or -1 for never", in.ParkAfter)
	}
	c.duration("deliveryTimeout", in.DeliveryTimeout)
	c.backoff("retry", in.RetryMin, in.RetryMax)
	c.backoff("blocked", in.BlockedMin, in.BlockedMax)
	c.duration("activityTimeout", in.ActivityTimeout)
	c.duration("heartbeatTimeout", in.HeartbeatTimeout)
	if in.DeliveryTimeout >= in.ActivityTimeout {
		c.faultf("deliveryTimeout", "%s is not below activityTimeout, %s: lower it", in.DeliveryTimeout, in.ActivityTimeout)
	}
	c.positive("continueAfter", in.ContinueAfter)
	return invalid(TypeDrainRow, c)
}

func (in DrainRow) outbox() outbox.Row { return outbox.Row{Projection: in.Projection, Key: in.Row} }

func (in DrainRow) activity() activities.DrainInput {
	return activities.DrainInput{
		Row: in.outbox(), MaxEffects: in.MaxEffects, ClaimAhead: in.ClaimAhead, DeliveryTimeout: in.DeliveryTimeout,
		Attempts: in.Attempts, ParkAfter: max(in.ParkAfter, 0), RetryMin: in.RetryMin, RetryMax: in.RetryMax,
	}
}

// Retry is the input of [UpdateRetry].
type Retry struct {
	// Who asks, for the record. Optional.
	Who string `json:"who,omitempty"`
}

// WithDefaults returns the input as it is.
func (in Retry) WithDefaults() Retry { return in }

// Validate accepts everything.
func (in Retry) Validate() error { return nil }

// Decision is the input of [UpdateSkip] and [UpdatePark] of a DrainRow. All fields are
// required.
type Decision struct {
	EffectID string `json:"effectId"` // the head as the operator has seen it
	Who      string `json:"who"`
	Why      string `json:"why"`
}

// WithDefaults returns the input as it is.
func (in Decision) WithDefaults() Decision { return in }

// Validate names every missing field, in an error of the type [ErrorInvalidInput].
func (in Decision) Validate() error {
	var c checks
	c.required("effectId", in.EffectID)
	c.required("who", in.Who)
	c.required("why", in.Why)
	return invalid("the decision", c)
}
