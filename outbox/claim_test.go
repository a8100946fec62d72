package outbox_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/outbox"
)

//
func TestTheClockJudgesProcessesOnly(t *testing.T) {
	t.Parallel()
	process := outbox.ProcessOwner(noon, 30*time.Second)
	workflow := outbox.Owner{
		Kind: outbox.OwnerTemporal, Nonce: "n", Namespace: "default", WorkflowID: "w", RunID: "r", ActivityID: "1",
		StartedAt: noon, Until: noon, // an end means nothing for a workflow
	}
	for name, c := range map[string]struct {
		owner outbox.Owner
		after time.Duration
		want  outbox.Verdict
	}{
		"just claimed":            {process, 0, outbox.VerdictWorking},
		"in the last moment":      {process, 30*time.Second - 1, outbox.VerdictWorking},
		"at the end":              {process, 30 * time.Second, outbox.VerdictGone},
		"long after":              {process, 48 * time.Hour, outbox.VerdictGone},
		"a workflow, after years": {workflow, 10_000 * time.Hour, outbox.VerdictWorking},
		"an unknown kind":         {outbox.Owner{Kind: "daemon", Nonce: "n", Until: noon}, time.Hour, outbox.VerdictWorking},
	} {
		judge := outbox.ClockJudge{Now: func() time.Time { return noon.Add(c.after) }}
		verdict, err := judge.Judge(t.Context(), outbox.Claim{Owner: c.owner, Epoch: 1})
		require.NoError(t, err, name)
		require.Equal(t, c.want, verdict, name)
	}
}

func TestTheClockJudgeReadsTheRealClockByDefault(t *testing.T) {
	t.Parallel()
	verdict, err := outbox.ClockJudge{}.Judge(t.Context(), outbox.Claim{Owner: outbox.ProcessOwner(time.Now(), time.Hour)})
	require.NoError(t, err)
	require.Equal(t, outbox.VerdictWorking, verdict)
	verdict, err = outbox.ClockJudge{}.Judge(t.Context(), outbox.Claim{Owner: outbox.ProcessOwner(time.Now().Add(-2*time.Hour), time.Hour)})
	require.NoError(t, err)
	require.Equal(t, outbox.VerdictGone, verdict)
}

func TestAReleasedClaimIsNone(t *testing.T) {
	t.Parallel()
	require.True(t, outbox.Claim{}.IsZero())
	require.True(t, outbox.Claim{Epoch: 3}.IsZero(), "a released claim keeps its epoch")
	require.False(t, outbox.Claim{Owner: outbox.ProcessOwner(noon, time.Second)}.IsZero())
}

func TestNoncesTellOwnersApart(t *testing.T) {
	t.Parallel()
	a, b := outbox.ProcessOwner(noon, time.Second), outbox.ProcessOwner(noon, time.Second)
	require.NotEqual(t, a.Nonce, b.Nonce)
	require.Equal(t, noon.Add(time.Second), a.Until)
	require.Equal(t, outbox.OwnerProcess, a.Kind)
}
