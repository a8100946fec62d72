package starter_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/rowfold/rowfold/activities"
	"github.com/rowfold/rowfold/internal/temporaltest"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
	"github.com/rowfold/rowfold/starter"
	"github.com/rowfold/rowfold/workflows"
)

// realStarter returns a starter on the real server, where no worker runs.
func realStarter(t *testing.T, temporal client.Client, change ...func(*starter.Config)) *starter.Starter {
	t.Helper()
	prefix := temporaltest.Prefix(t)
	config := starter.Config{Client: temporal, Deployment: prefix, TaskQueue: prefix, WakeTimeout: time.Minute}
	for _, f := range change {
		f(&config)
	}
	s, err := starter.New(config)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// T-2: a second start joins a run with the same input, and names the difference to another one.
func TestStart_joins(t *testing.T) {
	t.Parallel()
	s := realStarter(t, temporaltest.Client(t))
	input := workflows.ConsumeStream{Following: workflows.Following{Consumer: "c", Feed: "days", PageSize: 100}}
	first, err := s.ConsumeStream(t.Context(), input)
	require.NoError(t, err)
	second, err := s.ConsumeStream(t.Context(), input)
	require.NoError(t, err)
	require.Equal(t, first.GetRunID(), second.GetRunID())
	require.Equal(t, first.GetID(), second.GetID())

	input.PageSize, input.Projections = 200, []string{"p"}
	_, err = s.ConsumeStream(t.Context(), input)
	already, is := errors.AsType[*starter.AlreadyRunning](err)
	require.True(t, is, "%v", err)
	require.Equal(t, &starter.AlreadyRunning{WorkflowID: first.GetID(), RunID: first.GetRunID(), Fields: []string{"pageSize", "projections"}}, already)

	// After the end a new run starts.
	require.NoError(t, s.Client().TerminateWorkflow(t.Context(), first.GetID(), "", "test"))
	third, err := s.ConsumeStream(t.Context(), input)
	require.NoError(t, err)
	require.NotEqual(t, first.GetRunID(), third.GetRunID())
}

// T-2: with a run that somebody has started by hand, nothing is known of its input.
func TestStart_byHand(t *testing.T) {
	t.Parallel()
	s := realStarter(t, temporaltest.Client(t))
	id := s.IDs().SweepOutbox("p")
	_, err := s.Client().ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: id, TaskQueue: s.TaskQueue()},
		workflows.TypeSweepOutbox, workflows.SweepOutbox{Projection: "p"})
	require.NoError(t, err)
	_, err = s.Sweep(t.Context(), workflows.SweepOutbox{Projection: "p"})
	require.ErrorContains(t, err, "with an input that it does not tell")
}

// T-1: a wrong input is not even started.
func TestStart_invalidInput(t *testing.T) {
	t.Parallel()
	s := fakeStarter(t, &temporalOf{})
	for field, start := range map[string]func() error{
		"projection": func() error { _, err := s.Sweep(t.Context(), workflows.SweepOutbox{}); return err },
		"consumer":   func() error { _, err := s.ConsumeStream(t.Context(), workflows.ConsumeStream{}); return err },
		"maxWakes": func() error {
			return s.ScheduleSweep(t.Context(), time.Hour, workflows.SweepOutbox{Projection: "p", MaxWakes: -1})
		},
		"maxPages": func() error {
			return s.SchedulePurge(t.Context(), time.Hour, workflows.PurgeTombstones{Projection: "p", MaxPages: -1})
		},
		"streamId": func() error {
			_, err := s.ApplyBatch(t.Context(), workflows.ApplyBatch{Events: []activities.EventRange{{Stream: "Day", From: 1, To: 2}}})
			return err
		},
	} {
		require.ErrorContains(t, start(), field+": ")
	}
}

// T-14: a batch has an id of its own contents: repeating it joins, and a large one becomes several.
func TestApplyBatch(t *testing.T) {
	t.Parallel()
	s := realStarter(t, temporaltest.Client(t))
	batch := workflows.ApplyBatch{}
	for i := range workflows.MaxRanges + 1 {
		batch.Events = append(batch.Events, activities.EventRange{Stream: "Day", StreamID: "d", From: int64(i + 1), To: int64(i + 1)})
	}
	first, err := s.ApplyBatch(t.Context(), batch)
	require.NoError(t, err)
	require.Len(t, first, 2)
	again, err := s.ApplyBatch(t.Context(), batch)
	require.NoError(t, err)
	for i := range first {
		require.Equal(t, first[i].GetRunID(), again[i].GetRunID())
	}
}

// EnsureCatchUp leaves alone what is running.
func TestCatchUp(t *testing.T) {
	t.Parallel()
	s := realStarter(t, temporaltest.Client(t))
	day := projection.Instance{Source: "day", StreamID: "2026-01-01"}
	first, err := s.CatchUp(t.Context(), "p", day)
	require.NoError(t, err)
	require.NoError(t, s.EnsureCatchUp(t.Context(), "p", day))
	second, err := s.CatchUp(t.Context(), "p", day)
	require.NoError(t, err)
	require.Equal(t, first.GetRunID(), second.GetRunID())
	require.Equal(t, s.IDs().CatchUpInstance("p", day), first.GetID())
}

// T-20: what there is can be told without workers, and that none is polling.
func TestStatus_withoutWorkers(t *testing.T) {
	t.Parallel()
	s := realStarter(t, temporaltest.Client(t))
	row := outbox.Row{Projection: "p", Key: "a b"}
	report, err := s.Row(t.Context(), row, time.Second)
	require.NoError(t, err)
	require.Equal(t, starter.RowReport{Row: row}, report)
	require.Equal(t, []string{"rowfold drain p 'a b'"}, report.Explain().Next)

	run, err := s.Drain(t.Context(), row)
	require.NoError(t, err)
	report, err = s.Row(t.Context(), row, time.Second)
	require.NoError(t, err)
	require.True(t, report.Open)
	require.Zero(t, report.Pollers)
	require.Nil(t, report.Drain)
	require.Equal(t, run.GetRunID(), report.Run.RunID)
	require.Equal(t, "no worker polls the task queue: start one", report.Explain().Waits)
	require.WithinDuration(t, time.Now(), report.Explain().Since, time.Minute)

	_, err = s.Sweep(t.Context(), workflows.SweepOutbox{Projection: "q"})
	require.NoError(t, err)
	listed := func(projection string, limit int) []string {
		runs, err := s.Runs(t.Context(), projection, limit)
		require.NoError(t, err)
		types := make([]string, 0, len(runs))
		for _, run := range runs {
			types = append(types, run.Type)
		}
		return types
	}
	require.Eventually(t, func() bool { return len(listed("", 10)) == 2 }, time.Minute, 20*time.Millisecond)
	require.Equal(t, []string{workflows.TypeDrainRow}, listed("p", 10))
	require.Equal(t, []string{workflows.TypeSweepOutbox}, listed("q", 10))
	require.Empty(t, listed("r", 10))
	require.Len(t, listed("", 1), 1)

	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = s.Retry(ctx, row, "ada")
	require.ErrorContains(t, err, "retry row p/a b")
	var refused *starter.OrderRefused
	require.NotErrorAs(t, err, &refused) // nobody has said no
}

// T-3: the memos are read with the client's data converter.
func TestDataConverter(t *testing.T) {
	t.Parallel()
	codec := converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), reversing{})
	temporal := temporaltest.Client(t, func(options *client.Options) { options.DataConverter = codec })
	s := realStarter(t, temporal, func(config *starter.Config) { config.DataConverter = codec })
	input := workflows.SweepOutbox{Projection: "p"}
	first, err := s.Sweep(t.Context(), input)
	require.NoError(t, err)
	second, err := s.Sweep(t.Context(), input)
	require.NoError(t, err)
	require.Equal(t, first.GetRunID(), second.GetRunID())
	input.MaxWakes = 7
	_, err = s.Sweep(t.Context(), input)
	require.ErrorContains(t, err, "with another maxWakes")
}

// reversing is a codec that hides what payloads say.
type reversing struct{}

func (reversing) Encode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	reversed := make([]*commonpb.Payload, 0, len(payloads))
	for _, payload := range payloads {
		data := make([]byte, 0, len(payload.GetData()))
		for i := range payload.GetData() {
			data = append(data, payload.GetData()[len(payload.GetData())-1-i])
		}
		reversed = append(reversed, &commonpb.Payload{Metadata: payload.GetMetadata(), Data: data})
	}
	return reversed, nil
}

func (r reversing) Decode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	return r.Encode(payloads)
}

// Validate names all faults at once.
func TestConfig_Validate(t *testing.T) {
	t.Parallel()
	_, err := starter.New(starter.Config{
		RowNames: workflows.RowNamesHMAC, WakeTimeout: -1, Wakers: -1, Drain: workflows.DrainRow{Attempts: -1}, CatchUp: workflows.CatchUpInstance{PageSize: -1},
	})
	joined, is := err.(interface{ Unwrap() []error })
	require.True(t, is)
	var fields []string
	for _, fault := range joined.Unwrap() {
		invalid, is := errors.AsType[*starter.InvalidConfig](fault)
		require.True(t, is)
		fields = append(fields, invalid.Field)
	}
	require.Equal(t, []string{"Client", "RowNames", "WakeTimeout", "Wakers", "Drain", "CatchUp"}, fields)
}

// T-25: what is not said comes from Temporal's own environment configuration.
func TestDial(t *testing.T) {
	address := temporaltest.Address(t)
	file := filepath.Join(t.TempDir(), "temporal.toml")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, "[profile.here]\naddress = %q\nnamespace = %q\n[profile.bare]\naddress = %q\n", address, "default", address), 0o600))
	t.Setenv("TEMPORAL_CONFIG_FILE", file)
	for name, options := range map[string]starter.DialOptions{
		"by a profile":                  {Profile: "here"},
		"by a profile without a name":   {Profile: "bare"},
		"by what the caller says first": {Profile: "here", Address: address, Namespace: "default"},
	} {
		temporal, namespace, err := starter.Dial(t.Context(), options)
		require.NoError(t, err, name)
		require.Equal(t, "default", namespace)
		_, err = temporal.DescribeTaskQueue(t.Context(), "any", 1)
		require.NoError(t, err)
		temporal.Close()
	}
	_, _, err := starter.Dial(t.Context(), starter.DialOptions{Profile: "elsewhere"})
	require.ErrorContains(t, err, "elsewhere")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, _, err = starter.Dial(ctx, starter.DialOptions{Address: "127.0.0.1:1"})
	require.ErrorContains(t, err, `connect to Temporal at "127.0.0.1:1"`)
}
