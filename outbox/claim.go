package outbox

import (
	"context"
	"crypto/rand"
	"time"
)

// DefaultClaimFor is how long a process's claim is good for.
const DefaultClaimFor = 30 * time.Second

// OwnerKind says who judges whether an owner is still at work.
type OwnerKind string

const (
	// OwnerProcess is a process that drains by itself: the clock judges it.
	OwnerProcess OwnerKind = "process"
	// OwnerTemporal is an activity of a Temporal execution: Temporal judges it.
	OwnerTemporal OwnerKind = "temporal"
)

// Owner is who claims effects.
type Owner struct {
	Kind OwnerKind `json:"kind,omitempty"`
	// Nonce is random and new for each execution: it tells owners apart.
	Nonce string `json:"nonce,omitempty"`

	// Until is when a process's claim ends.
	Until time.Time `json:"until,omitzero"`

	// The activity of an [OwnerTemporal]. Attempt numbers repeat after a reset, the
	// time at which the attempt started does not.
	Namespace  string    `json:"namespace,omitempty"`
	WorkflowID string    `json:"workflowId,omitempty"`
	RunID      string    `json:"runId,omitempty"`
	ActivityID string    `json:"activityId,omitempty"`
	StartedAt  time.Time `json:"startedAt,omitzero"`
}

// Claim is an owner's mark on an effect. Every claim raises the epoch by one.
type Claim struct {
	Owner

	Epoch int64 `json:"epoch,omitempty"`
}

// IsZero reports whether the effect is unclaimed. A released claim keeps its epoch.
func (c Claim) IsZero() bool { return c.Nonce == "" }

// NewNonce returns a random nonce.
func NewNonce() string { return rand.Text() }

// ProcessOwner returns an owner whose claims are good for claimFor from now.
func ProcessOwner(now time.Time, claimFor time.Duration) Owner {
	return Owner{Kind: OwnerProcess, Nonce: NewNonce(), Until: now.Add(claimFor).UTC()}
}

// Verdict is a judge's answer about the owner of a foreign claim.
type Verdict string

const (
	// VerdictWorking says that the owner may still be at work: wait.
	VerdictWorking Verdict = "working"
	// VerdictGone says that the owner has ended: its claim may be taken over.
	VerdictGone Verdict = "gone"
)

// Judge decides whether the owner of a foreign claim is still at work.
type Judge interface {
	// Judge returns [VerdictWorking] whenever it is not sure; an error means the same.
	Judge(ctx context.Context, claim Claim) (Verdict, error)
}

// ClockJudge judges the claims of processes by their end. It never takes over a
// workflow's claim, which only the orchestrator can judge.
type ClockJudge struct {
	// Now defaults to time.Now.
	Now func() time.Time
}

// Judge implements [Judge].
func (j ClockJudge) Judge(_ context.Context, claim Claim) (Verdict, error) {
	now := time.Now
	if j.Now != nil {
		now = j.Now
	}
	if claim.Kind == OwnerProcess && !now().Before(claim.Until) {
		return VerdictGone, nil
	}
	return VerdictWorking, nil
}
