package workflows

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/internal/clip"
)

// StateMemo is what a run's memo says about its state, for those who list runs while
// no worker is there.
type StateMemo struct {
	State    string      `json:"state"`
	Since    time.Time   `json:"since"`
	About    string      `json:"about,omitempty"` // the effect or event at fault
	Attempts int         `json:"attempts,omitempty"`
	Class    event.Class `json:"class,omitempty"`
	Error    string      `json:"error,omitempty"`
}

// maxMemoError bounds the error in a memo, in bytes: lists show its beginning only.
const maxMemoError = 300

// publish writes a state into the search attributes and the memo. It is called when a
// run enters or leaves a state, and never besides.
//
// A run that was started without the attributes goes on without them: where they are
// not registered, setting them would stop the run for good.
func publish(ctx workflow.Context, memo StateMemo) error {
	memo.Error = clip.Text(memo.Error, maxMemoError)
	key := temporal.NewSearchAttributeKeyKeyword(AttributeState)
	if _, known := workflow.GetTypedSearchAttributes(ctx).GetKeyword(key); known {
		if err := workflow.UpsertTypedSearchAttributes(ctx, key.ValueSet(memo.State)); err != nil {
			return fmt.Errorf("set the search attribute %s: %w", AttributeState, err)
		}
	}
	if err := workflow.UpsertMemo(ctx, map[string]any{MemoState: memo}); err != nil {
		return fmt.Errorf("set the memo: %w", err)
	}
	return nil
}

// full reports whether a run has to continue as new: because the server suggests it or
// because of its own count.
func full(ctx workflow.Context, count, limit int) bool {
	return count >= limit || workflow.GetInfo(ctx).GetContinueAsNewSuggested()
}

// answerUpdates waits until every update is answered, as it has to be before a run ends or
// continues as new.
func answerUpdates(ctx workflow.Context) error {
	return workflow.Await(ctx, func() bool { return workflow.AllHandlersFinished(ctx) })
}

// finish answers every update, also of a run that was cancelled, and returns why the run
// ends; nil = its work is done.
func finish(ctx workflow.Context, cause error) error {
	if temporal.IsCanceledError(cause) {
		ctx, _ = workflow.NewDisconnectedContext(ctx)
	}
	if err := answerUpdates(ctx); err != nil {
		return errors.Join(cause, err)
	}
	return cause
}

// labelSince is what every table of details begins with.
const labelSince = "since"

// table renders rows of two columns as Markdown; rows with an empty value are left out.
func table(rows ...[2]string) string {
	var b strings.Builder
	b.WriteString("| | |\n|---|---|\n")
	for _, row := range rows {
		if row[1] != "" {
			value := strings.NewReplacer("|", "\\|", "\n", " ").Replace(row[1])
			b.WriteString("| " + row[0] + " | " + value + " |\n")
		}
	}
	return b.String()
}

// Command returns what an operator types to give an order on a row.
func Command(verb, projection, row string) string {
	return "rowfold " + verb + " " + quote(projection) + " " + quote(row)
}

// quote makes a word safe to be typed in a shell.
func quote(word string) string {
	safe := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.:/@%+,", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !safe(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

func stamp(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(time.RFC3339)
}
