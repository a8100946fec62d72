package workflows

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/rowfold/rowfold/activities"
)

// StreamState is what a ConsumeStream knows: the answer to [QueryProgress], its result,
// and what one run hands to the next.
type StreamState struct {
	State string    `json:"state"` // [StateFollowing], [StatePaused] or [StateGap]
	Since time.Time `json:"since"`
	// Running are the followers' workflow ids, by shard.
	Running map[string]string `json:"running,omitempty"`
	// Behind is how many records are left in the shards that are being followed, as far as
	// is known, at the last look at the shards.
	Behind map[string]int64 `json:"behind,omitempty"`
	// Finished are shards that were read up to their head, with StopAtHead.
	Finished []string `json:"finished,omitempty"`
	Waiting  int      `json:"waiting,omitempty"` // shards that wait for their parents, or for their turn
	Done     int      `json:"done,omitempty"`    // shards that are closed and read to their end
	// Vanished are shards that were gone before they were read to their end. They wait
	// for an operator.
	Vanished []string   `json:"vanished,omitempty"`
	Accepted []Accepted `json:"accepted,omitempty"` // gaps, the last 20
	Failed   string     `json:"failed,omitempty"`   // the last follower that failed, and why
	Paused   bool       `json:"paused,omitempty"`
	Stopped  bool       `json:"stopped,omitempty"`
	Rounds   int64      `json:"rounds"`
	Runs     int64      `json:"runs"`

	// Applied counts what the followers have done that have ended in the run that started
	// them. The count of one that outlives it is in its own result.
	Applied activities.Applied `json:"applied"`
}

func (s *StreamState) enter(state string, now time.Time) bool {
	if s.State == state {
		return false
	}
	s.State, s.Since = state, now.UTC()
	return true
}

// finish notes that a shard was read up to its head. Two ways tell it: the follower's
// result and the look at the shards.
func (s *StreamState) finish(shard string) {
	if !slices.Contains(s.Finished, shard) {
		s.Finished = append(s.Finished, shard)
	}
}

func (s *StreamState) memo(in ConsumeStream) StateMemo {
	memo := StateMemo{State: s.State, Since: s.Since, About: in.Feed, Error: s.Failed}
	if len(s.Vanished) > 0 {
		memo.Error = fmt.Sprintf("%d shards vanished before their end, %s the first", len(s.Vanished), s.Vanished[0])
	}
	return memo
}

func (s *StreamState) details(in ConsumeStream) string {
	var text strings.Builder
	text.WriteString("**" + s.State + "**\n\n" + table(
		[2]string{"feed", in.Feed}, [2]string{"consumer", in.Consumer}, [2]string{labelSince, stamp(s.Since)},
		[2]string{"shards followed", strconv.Itoa(len(s.Running))}, [2]string{"shards waiting", strconv.Itoa(s.Waiting)},
		[2]string{"shards done", strconv.Itoa(s.Done)}, [2]string{"shards at their head", strconv.Itoa(len(s.Finished))},
		[2]string{"last failure", s.Failed}))
	for i, shard := range s.Vanished {
		if i == maxShown {
			fmt.Fprintf(&text, "\n%d more shards have vanished.\n", len(s.Vanished)-i)
			break
		}
		fmt.Fprintf(&text, "\n**gap**: shard %s vanished before it was read to its end.\n"+
			"\nNext: send the update `%s` `{\"shard\": %q, \"who\": \"…\", \"why\": \"…\"}`, and reconcile the projections.\n",
			shard, UpdateAcceptGap, shard)
	}
	s.lags(&text)
	return text.String()
}

// maxShown is how many shards the details show: more than that nobody reads.
const maxShown = 50

// lags renders how far each shard is behind, the worst first and the unknown last.
func (s *StreamState) lags(text *strings.Builder) {
	if len(s.Running) == 0 {
		return
	}
	shards := workflow.DeterministicKeys(s.Running)
	behind := func(shard string) int64 {
		if records, told := s.Behind[shard]; told {
			return records
		}
		return -1
	}
	slices.SortStableFunc(shards, func(a, b string) int { return cmp.Compare(behind(b), behind(a)) })
	text.WriteString("\n| shard | behind | workflow |\n|---|---|---|\n")
	for i, shard := range shards {
		if i == maxShown {
			fmt.Fprintf(text, "\n%d more shards are less behind.\n", len(shards)-i)
			return
		}
		fmt.Fprintf(text, "| %s | %s | %s |\n", shard, lag(behind(shard)), s.Running[shard])
	}
}

// lag renders a number of records; -1 = unknown.
func lag(records int64) string {
	if records < 0 {
		return "unknown"
	}
	return strconv.FormatInt(records, 10)
}
