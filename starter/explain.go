package starter

import (
	"fmt"
	"time"

	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/workflows"
)

// Explanation says in words what a row waits for.
type Explanation struct {
	Waits string    `json:"waits"`          // one sentence
	Since time.Time `json:"since,omitzero"` // zero = not known, or it waits for nothing
	// Next are the commands that help, the likeliest first; empty = it goes on by itself.
	Next []string `json:"next,omitempty"`
}

// Explain says what the row waits for, since when, and which command helps.
func (r RowReport) Explain() Explanation {
	switch {
	case r.Run == nil:
		return Explanation{Waits: "no drain has run for this row: nothing was pending, or its wake was dropped", Next: r.commands("drain")}
	case !r.Open:
		return Explanation{
			Waits: fmt.Sprintf("no drain is open, the last one is %s: nothing is pending, or a wake was dropped", r.Run.Status),
			Next:  r.commands("drain"),
		}
	case r.Pollers == 0:
		return Explanation{Waits: "no worker polls the task queue: start one", Since: r.pendingSince(), Next: nil}
	}
	state := r.Run.State
	if r.Drain != nil {
		if blocked := r.Drain.Blocked; blocked != nil {
			return Explanation{Waits: waitsForOwner(*blocked), Since: blocked.Since, Next: r.commands("why")}
		}
		state.State, state.Since = r.Drain.State, r.Drain.Since
		if head := r.Drain.Head; head != nil {
			state.About, state.Attempts, state.Class, state.Error = head.ID, head.Attempts, head.Class, head.Error
		}
	}
	failed := fmt.Sprintf("effect %s failed %d times, at last with %q (%s)", state.About, state.Attempts, state.Error, state.Class)
	switch state.State {
	case workflows.StateParked:
		return Explanation{Waits: "an operator has to decide: " + failed, Since: state.Since, Next: r.commands("retry", "skip", "park")}
	case workflows.StateRetrying:
		return Explanation{Waits: "the next attempt: " + failed, Since: state.Since, Next: r.commands("retry", "skip", "park")}
	}
	for _, pending := range r.Pending {
		switch {
		case pending.Error != "":
			return Explanation{
				Waits: fmt.Sprintf("attempt %d of activity %s, because of %q", pending.Attempt, pending.Activity, pending.Error), Since: pending.Since,
			}
		case pending.Worker != "":
			return Explanation{Waits: fmt.Sprintf("activity %s on worker %s", pending.Activity, pending.Worker), Since: pending.Since}
		default:
			return Explanation{Waits: "a worker that takes activity " + pending.Activity, Since: pending.Since}
		}
	}
	return Explanation{Waits: "its drain is under way", Since: r.Run.Started}
}

func (r RowReport) commands(verbs ...string) []string {
	commands := make([]string, 0, len(verbs))
	for _, verb := range verbs {
		commands = append(commands, workflows.Command(verb, r.Row.Projection, r.Row.Key))
	}
	return commands
}

// pendingSince is since when nobody has taken what is to be done.
func (r RowReport) pendingSince() time.Time {
	for _, pending := range r.Pending {
		return pending.Since
	}
	return r.Run.Started
}

func waitsForOwner(blocked outbox.Blocked) string {
	claim := blocked.Claim
	if claim.Kind != outbox.OwnerTemporal {
		return fmt.Sprintf("a process that has claimed effect %s, until %s", blocked.ID, claim.Until.UTC().Format(time.RFC3339))
	}
	reason := ""
	if blocked.Reason != "" {
		reason = ", and it is not known whether that works: " + blocked.Reason
	}
	return fmt.Sprintf("activity %s of workflow %s, run %s, which has claimed effect %s%s",
		claim.ActivityID, claim.WorkflowID, claim.RunID, blocked.ID, reason)
}
