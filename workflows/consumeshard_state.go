package workflows

import (
	"fmt"
	"time"

	"github.com/rowfold/rowfold/activities"
	"github.com/rowfold/rowfold/event"
)

// ShardState is what a ConsumeShard knows: the answer to [QueryProgress], its result, and
// what one run hands to the next. The truth about the position is its record in the store.
type ShardState struct {
	activities.Applied

	State    string         `json:"state"` // [StateFollowing], [StatePaused] or [StateGap]
	Since    time.Time      `json:"since"`
	Position event.Position `json:"position"`
	Behind   int64          `json:"behind"` // records that are known to be left; -1 = unknown
	Pages    int64          `json:"pages"`
	At       time.Time      `json:"at,omitzero"` // of the last read
	Rounds   int64          `json:"rounds"`
	Runs     int64          `json:"runs"`
	// UnknownStart says that there was no position record when it began: what had been
	// trimmed by then was never read. A reconcile tells whether that matters.
	UnknownStart bool `json:"unknownStart,omitempty"`
	// Gap waits for an operator; nil = there is none.
	Gap      *activities.Gap `json:"gap,omitempty"`
	Accepted []Accepted      `json:"accepted,omitempty"` // gaps, the last 20
	Stopped  bool            `json:"stopped,omitempty"`  // by an operator
	CaughtUp bool            `json:"caughtUp,omitempty"` // with StopAtHead
	End      bool            `json:"end,omitempty"`      // the shard is closed and read to its end

	// AcceptUpTo is the position behind an accepted gap.
	AcceptUpTo *event.Position `json:"acceptUpTo,omitempty"`
}

func (s *ShardState) enter(state string, now time.Time) bool {
	if s.State == state {
		return false
	}
	s.State, s.Since = state, now.UTC()
	return true
}

// take takes in what an activity reports.
func (s *ShardState) take(found activities.Followed) {
	s.Add(found.Applied)
	s.Pages += found.Pages
	s.Position, s.Behind, s.At = found.Position, found.Behind, found.At
	s.UnknownStart = s.UnknownStart || found.UnknownStart
	s.Gap, s.End, s.CaughtUp = found.Gap, found.End, found.CaughtUp
	if found.Gap == nil {
		s.AcceptUpTo = nil
	}
}

func (s *ShardState) memo(shard string) StateMemo {
	memo := StateMemo{State: s.State, Since: s.Since, About: shard}
	switch {
	case s.Gap != nil:
		memo.Error = fmt.Sprintf("records after %q up to %q are gone", s.Gap.After, s.Gap.Oldest)
	case s.UnknownStart:
		memo.Error = "unknown start: what was trimmed before is missing"
	}
	return memo
}

func (s *ShardState) details(in ConsumeShard) string {
	text := "**" + s.State + "**\n\n" + table(
		[2]string{"shard", in.Feed + " " + in.Shard}, [2]string{labelSince, stamp(s.Since)},
		[2]string{"position", string(s.Position)}, [2]string{"behind", lag(s.Behind)}, [2]string{"last read", stamp(s.At)},
	) + "\n" + appliedTable(s.Applied)
	if s.UnknownStart {
		text += "\n**unknown start**: there was no position record, so it began at the oldest record. " +
			"A reconcile tells whether rows lack anything.\n"
	}
	if s.Gap != nil {
		text += fmt.Sprintf("\n**gap**: records after %q up to %q were trimmed before they were read.\n"+
			"\nNext: send the update `%s` `{\"shard\": %q, \"who\": \"…\", \"why\": \"…\"}` to go on behind it, "+
			"and reconcile the projections.\n",
			s.Gap.After, s.Gap.Oldest, UpdateAcceptGap, in.Shard)
	}
	return text
}
