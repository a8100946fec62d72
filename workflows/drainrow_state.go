package workflows

import (
	"fmt"
	"strconv"
	"time"

	"github.com/rowfold/rowfold/outbox"
)

// DrainState is what a DrainRow knows. It is the answer to [QueryState] and what one run
// hands to the next when it continues as new. Everything that decides about deliveries
// is in the row's outbox; a state that was lost would cost counts and nothing else.
type DrainState struct {
	State string    `json:"state"` // [StateDraining], [StateRetrying] or [StateParked]
	Since time.Time `json:"since"` // when it entered that state

	Delivered int64 `json:"delivered"`           // effects, over all runs
	Decided   int64 `json:"decided,omitempty"`   // effects that an operator has skipped or parked
	Overtaken int64 `json:"overtaken,omitempty"` // the upper bound of repeated deliveries
	Rounds    int64 `json:"rounds"`              // activities
	Wakes     int64 `json:"wakes"`
	Runs      int64 `json:"runs"`     // runs before this one
	Revision  int64 `json:"revision"` // of the row, as last read

	// Head is the effect that is in the way; nil = none is.
	Head *outbox.Failure `json:"head,omitempty"`
	// RetryAt is when the head is due again; zero = not known or never.
	RetryAt time.Time `json:"retryAt,omitzero"`
	// Blocked says who else works at the head; nil = nobody does.
	Blocked *outbox.Blocked `json:"blocked,omitempty"`
	// BlockedRounds is how often in a row that was found.
	BlockedRounds int    `json:"blockedRounds,omitempty"`
	Error         string `json:"error,omitempty"` // why the last activity could not say anything
}

// DrainResult is the result of a DrainRow.
type DrainResult struct {
	Delivered int64 `json:"delivered"`
	Decided   int64 `json:"decided,omitempty"`
	Overtaken int64 `json:"overtaken,omitempty"`
	// Revision is the row's up to which nothing is pending.
	Revision int64 `json:"revision"`
	Rounds   int64 `json:"rounds"`
	Wakes    int64 `json:"wakes"`
}

// take takes in what a drain activity found, at the given time.
func (s *DrainState) take(result outbox.Result, now time.Time) {
	s.Delivered += int64(result.Delivered)
	s.Overtaken += int64(result.Overtaken)
	s.Revision = max(s.Revision, result.Revision)
	s.Head, s.Blocked, s.RetryAt = result.Failed, result.Blocked, time.Time{}
	switch {
	case result.Failed != nil && result.Failed.Parked:
		s.enter(StateParked, now)
	case result.Failed != nil:
		s.RetryAt = now.Add(result.Failed.NextDelay)
		s.enter(StateRetrying, now)
	default:
		s.enter(StateDraining, now)
	}
	if result.Blocked == nil {
		s.BlockedRounds = 0
		return
	}
	s.BlockedRounds++
}

func (s *DrainState) enter(state string, now time.Time) {
	if s.State != state {
		s.State, s.Since = state, now.UTC()
	}
}

// blockedFor returns how long to wait while somebody else works at the head: until a
// process's claim ends, else a doubling time. The bounds are the input's.
func (s *DrainState) blockedFor(low, high time.Duration) time.Duration {
	if s.Blocked != nil && s.Blocked.RetryIn > 0 {
		return min(max(s.Blocked.RetryIn, low), high)
	}
	return outbox.Backoff{Min: low, Max: high}.Bound(s.BlockedRounds)
}

func (s *DrainState) result() DrainResult {
	return DrainResult{
		Delivered: s.Delivered, Decided: s.Decided, Overtaken: s.Overtaken, Revision: s.Revision, Rounds: s.Rounds, Wakes: s.Wakes,
	}
}

func (s *DrainState) memo() StateMemo {
	memo := StateMemo{State: s.State, Since: s.Since}
	if s.Head != nil {
		memo.About, memo.Attempts, memo.Class, memo.Error = s.Head.ID, s.Head.Attempts, s.Head.Class, s.Head.Error
	}
	return memo
}

// details renders the state for people, with the next command to type.
func (s *DrainState) details(projection, row string) string {
	rows := [][2]string{
		{"row", projection + "/" + row},
		{labelSince, stamp(s.Since)},
		{"delivered", strconv.FormatInt(s.Delivered, 10)},
	}
	next := ""
	command := func(verb string) string { return "`" + Command(verb, projection, row) + "`" }
	if head := s.Head; head != nil {
		rows = append(rows,
			[2]string{"head", head.ID}, [2]string{"type", head.Type},
			[2]string{"event", fmt.Sprintf("%s %s version %d", head.Stream, head.StreamID, head.Version)},
			[2]string{"failed tries", strconv.Itoa(head.Attempts)},
			[2]string{"last error", fmt.Sprintf("%s (%s)", head.Error, head.Class)},
			[2]string{"next attempt", stamp(s.RetryAt)})
		next = "\nNext: " + command("retry") + " tries again now; " + command("skip") + " drops the head; " +
			command("park") + " sets it aside.\n"
	}
	if blocked := s.Blocked; blocked != nil {
		rows = append(rows, [2]string{"head", blocked.ID},
			[2]string{"claimed by", owner(blocked.Claim)}, [2]string{"not sure because", blocked.Reason})
		next = "\nNext: " + command("why") + " says more about the owner.\n"
	}
	if s.Error != "" {
		rows = append(rows, [2]string{"error", s.Error})
	}
	return "**" + s.State + "**\n\n" + table(rows...) + next
}

func owner(claim outbox.Claim) string {
	if claim.Kind == outbox.OwnerTemporal {
		return fmt.Sprintf("workflow %s, run %s, activity %s", claim.WorkflowID, claim.RunID, claim.ActivityID)
	}
	return "a process, until " + stamp(claim.Until)
}
