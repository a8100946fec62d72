package workflows_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdkpb "go.temporal.io/api/sdk/v1"
	"pgregory.net/rapid"

	"github.com/rowfold/rowfold/activities"
	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/workflows"
)

func drainStates() *rapid.Generator[workflows.DrainState] {
	count := rapid.Int64Range(0, 1<<50)
	text := rapid.String()
	at := rapid.Custom(func(t *rapid.T) time.Time {
		return time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "second"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanosecond")).UTC()
	})
	return rapid.Custom(func(t *rapid.T) workflows.DrainState {
		state := workflows.DrainState{
			State: rapid.SampledFrom([]string{workflows.StateDraining, workflows.StateRetrying, workflows.StateParked}).Draw(t, "state"),
			Since: at.Draw(t, "since"), Delivered: count.Draw(t, "delivered"), Decided: count.Draw(t, "decided"),
			Overtaken: count.Draw(t, "overtaken"), Rounds: count.Draw(t, "rounds"), Wakes: count.Draw(t, "wakes"),
			Runs: count.Draw(t, "runs"), Revision: count.Draw(t, "revision"), Error: text.Draw(t, "error"),
		}
		if rapid.Bool().Draw(t, "has a head") {
			state.RetryAt = at.Draw(t, "retry at")
			state.Head = &outbox.Failure{
				Sequence: outbox.SequenceOf(state.Revision, 3), ID: text.Draw(t, "id"), Type: "Late", Stream: "Day", StreamID: "d", Version: count.Draw(t, "version"),
				Class: event.ClassThrottled, Error: text.Draw(t, "failure"), Attempts: rapid.IntRange(0, 1<<30).Draw(t, "attempts"),
				NextDelay: time.Duration(count.Draw(t, "delay")), Parked: rapid.Bool().Draw(t, "parked"),
			}
		}
		if rapid.Bool().Draw(t, "is blocked") {
			state.BlockedRounds = rapid.IntRange(0, 1000).Draw(t, "blocked rounds")
			state.Blocked = &outbox.Blocked{
				ID: text.Draw(t, "blocked id"), Since: at.Draw(t, "blocked since"), RetryIn: time.Duration(count.Draw(t, "retry in")),
				Reason: text.Draw(t, "reason"), Claim: outbox.Claim{Epoch: count.Draw(t, "epoch"), Owner: outbox.Owner{
					Kind: outbox.OwnerTemporal, Nonce: text.Draw(t, "nonce"), WorkflowID: text.Draw(t, "workflow"), StartedAt: at.Draw(t, "started"),
				}},
			}
		}
		return state
	})
}

// T-4: what one run hands to the next arrives as it was.
func TestDrainState_isCarried(t *testing.T) {
	t.Parallel()
	states := drainStates()
	rapid.Check(t, func(t *rapid.T) {
		state := states.Draw(t, "state")
		in := workflows.DrainRow{Projection: "p", Row: "r", Carried: &state}.WithDefaults()
		text, err := json.Marshal(in)
		require.NoError(t, err)
		var next workflows.DrainRow
		require.NoError(t, json.Unmarshal(text, &next))
		require.Equal(t, in, next)
		require.Equal(t, next, next.WithDefaults())
		require.NoError(t, next.Validate())
	})
}

// T-3: what is carried stays small, whatever errors say.
func TestDrainState_isSmall(t *testing.T) {
	t.Parallel()
	long := make([]byte, outbox.MaxErrorBytes)
	for i := range long {
		long[i] = '<' // escaped to six bytes
	}
	state := workflows.DrainState{
		Head: &outbox.Failure{Error: string(long)}, Blocked: &outbox.Blocked{Reason: string(long)}, Error: string(long),
	}
	require.Less(t, len(encode(t, workflows.DrainRow{Projection: "p", Row: "r", Carried: &state})), 64<<10)
}

// T-19: the details say since when, what is in the way and what to type next, safe for a shell.
func TestDrainRow_details(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		found outbox.Result
		want  []string
	}{
		"parked":   {failing(60, 0), []string{"**parked**", "JFK\\|late\\|1", "mailbox full (retry)", "| failed tries | 60 |", "`rowfold skip board 'JFK 1'`", "`rowfold park", "`rowfold retry"}},
		"retrying": {failing(3, time.Minute), []string{"**retrying**", "| next attempt | 2", "Day 2026-01-01 version 3"}},
		"blocked": {
			outbox.Result{Blocked: &outbox.Blocked{ID: "e", Reason: "unavailable", Claim: outbox.Claim{Owner: outbox.Owner{Kind: outbox.OwnerTemporal, WorkflowID: "w", RunID: "r", ActivityID: "5"}}}},
			[]string{"workflow w, run r, activity 5", "unavailable", "`rowfold why board 'JFK 1'`"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newDrainBench(t, func(int, activities.DrainInput) (outbox.Result, error) { return test.found, nil })
			b.at(1200*time.Millisecond, func() {
				value, err := b.QueryWorkflow("__temporal_workflow_metadata")
				require.NoError(t, err)
				var metadata sdkpb.WorkflowMetadata
				require.NoError(t, value.Get(&metadata))
				for _, part := range test.want {
					require.Contains(t, metadata.GetCurrentDetails(), part)
				}
			})
			in := drainInput()
			in.Row = "JFK 1"
			b.at(1300*time.Millisecond, b.CancelWorkflow)
			b.drain(in)
		})
	}
}
