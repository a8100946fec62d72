package starter

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/workflows"
)

// Starter starts, wakes and asks workflows. Use [New]. It is safe for concurrent use.
type Starter struct {
	config Config
	ids    workflows.IDs
	wakes  *wakes
	// plain says that the namespace does not know rowfold's search attributes.
	plain atomic.Bool
}

// New returns a starter. The error is that of [Config.Validate].
func New(config Config) (*Starter, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	s := &Starter{config: config, ids: config.ids()}
	s.wakes = newWakes(s)
	return s, nil
}

// Close waits for the wakes that are under way. It does not close the client.
func (s *Starter) Close() { s.wakes.close() }

// Client returns the client that the starter was given.
func (s *Starter) Client() client.Client { return s.config.Client }

// TaskQueue returns the queue of the workers.
func (s *Starter) TaskQueue() string { return s.config.TaskQueue }

// IDs returns what makes the workflow ids.
func (s *Starter) IDs() workflows.IDs { return s.ids }

// AlreadyRunning is returned by a start that meets an open run with another input.
type AlreadyRunning struct {
	WorkflowID string
	RunID      string
	// Fields are those in which the inputs differ; empty = the run does not tell its input.
	Fields []string
}

// Error implements error.
func (e *AlreadyRunning) Error() string {
	difference := "with an input that it does not tell"
	if len(e.Fields) > 0 {
		difference = "with another " + strings.Join(e.Fields, ", ")
	}
	return fmt.Sprintf("workflow %s is already running (run %s) %s: wait for its end, or terminate it", e.WorkflowID, e.RunID, difference)
}

// start describes a workflow that is to be started.
type start struct {
	id, workflow string
	about        string // the row or instance, for errors
	input        any    // with its defaults
	summary      string
	state        string // of workflows.AttributeState; empty = the workflow has none
	projection   string // of workflows.AttributeProjection
	row          string // of workflows.AttributeRow
	priority     int    // 1 is the most urgent, see temporal.Priority
}

// Priorities of what is started: a row that waits goes before a batch, a batch before what
// runs in the background.
const (
	priorityWake = iota + 2
	priorityApply
	priorityBackground
)

// options returns the SDK's options of a start.
func (s *Starter) options(what start) (client.StartWorkflowOptions, error) {
	digest, err := digestOf(what.input)
	if err != nil {
		return client.StartWorkflowOptions{}, err
	}
	options := client.StartWorkflowOptions{
		ID: what.id, TaskQueue: s.config.TaskQueue, StaticSummary: what.summary,
		WorkflowIDReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		Memo:                  map[string]any{workflows.MemoDigest: digest, workflows.MemoInput: what.input},
		Priority:              temporal.Priority{PriorityKey: what.priority, FairnessKey: what.projection},
	}
	if what.state != "" && !s.plain.Load() {
		var attributes []temporal.SearchAttributeUpdate
		for _, attribute := range [][2]string{
			{workflows.AttributeProjection, what.projection}, {workflows.AttributeRow, what.row}, {workflows.AttributeState, what.state},
		} {
			if attribute[1] != "" {
				attributes = append(attributes, temporal.NewSearchAttributeKeyKeyword(attribute[0]).ValueSet(attribute[1]))
			}
		}
		options.TypedSearchAttributes = temporal.NewSearchAttributes(attributes...)
	}
	return options, nil
}

// attempt runs a start with its options, and again without search attributes where the
// namespace does not know them: what runs is worth more than what can be listed.
func (s *Starter) attempt(ctx context.Context, what start, run func(options client.StartWorkflowOptions) error) error {
	try := func() error {
		options, err := s.options(what)
		if err != nil {
			return err
		}
		return run(options)
	}
	plain := s.plain.Load()
	err := try()
	invalid, ok := errors.AsType[*serviceerror.InvalidArgument](err)
	if plain || !ok || !strings.Contains(invalid.Message, "earch attribute") {
		return err
	}
	if s.plain.CompareAndSwap(false, true) { // of several starts that find out, one tells
		s.config.Log.WarnContext(ctx, "the namespace does not know rowfold's search attributes: workflows start without them",
			"namespace", s.config.Namespace, "error", err)
	}
	return try()
}

// start starts a workflow, or joins the open run of its id if that has the same input.
func (s *Starter) start(ctx context.Context, what start) (run client.WorkflowRun, err error) {
	err = s.attempt(ctx, what, func(options client.StartWorkflowOptions) (err error) {
		options.WorkflowIDConflictPolicy = enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL
		options.WorkflowExecutionErrorWhenAlreadyStarted = true
		run, err = s.config.Client.ExecuteWorkflow(ctx, options, what.workflow, what.input)
		return err //nolint:wrapcheck // the caller wraps it
	})
	var started *serviceerror.WorkflowExecutionAlreadyStarted
	switch {
	case errors.As(err, &started):
		return s.join(ctx, what, started.RunId)
	case err != nil:
		return nil, fmt.Errorf("start %s: %w", what.id, err)
	default:
		return run, nil
	}
}

// join returns the open run, or *AlreadyRunning when it was started with another input.
func (s *Starter) join(ctx context.Context, what start, runID string) (client.WorkflowRun, error) {
	described, err := s.config.Client.DescribeWorkflowExecution(ctx, what.id, runID)
	if err != nil {
		return nil, fmt.Errorf("describe %s, which is running: %w", what.id, err)
	}
	memo := described.GetWorkflowExecutionInfo().GetMemo().GetFields()
	decode := s.config.DataConverter
	var digest string
	if payload, found := memo[workflows.MemoDigest]; found {
		_ = decode.FromPayload(payload, &digest) // of another client: it differs then
	}
	mine, err := digestOf(what.input)
	if err != nil {
		return nil, err
	}
	if digest == mine {
		return s.config.Client.GetWorkflow(ctx, what.id, runID), nil
	}
	already := &AlreadyRunning{WorkflowID: what.id, RunID: runID}
	var theirs map[string]any
	if payload, found := memo[workflows.MemoInput]; found && decode.FromPayload(payload, &theirs) == nil {
		already.Fields = differing(theirs, fieldsOf(what.input))
	}
	return nil, already
}

// digestOf names an input: equal inputs have equal digests.
func digestOf(input any) (string, error) {
	text, err := json.Marshal(input)
	if err != nil {
		return "", fmt.Errorf("encode the input: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16]), nil
}

func fieldsOf(input any) map[string]any {
	var fields map[string]any
	if text, err := json.Marshal(input); err == nil {
		_ = json.Unmarshal(text, &fields) // an object that was encoded just now
	}
	return fields
}

func differing(a, b map[string]any) []string {
	names := map[string]any{}
	maps.Copy(names, a)
	maps.Copy(names, b)
	var fields []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if fmt.Sprint(a[name]) != fmt.Sprint(b[name]) {
			fields = append(fields, name)
		}
	}
	return fields
}

// drainOf describes the drain of a row.
func (s *Starter) drainOf(row outbox.Row) start {
	input := s.config.Drain
	input.Projection, input.Row, input.RowName = row.Projection, row.Key, s.ids.RowName(row)
	return start{
		id: s.ids.DrainRow(row), workflow: workflows.TypeDrainRow, input: input.WithDefaults(),
		about:   "row " + row.String(),
		summary: fmt.Sprintf("deliver the effects of %s %s", row.Projection, input.RowName),
		state:   workflows.StateDraining, projection: row.Projection, row: input.RowName, priority: priorityWake,
	}
}
