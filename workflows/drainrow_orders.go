package workflows

import (
	"encoding/json"
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/rowfold/rowfold/activities"
	"github.com/rowfold/rowfold/outbox"
)

// Retried answers [UpdateRetry].
type Retried struct {
	// Waited says that the head, or the instance, was waiting; if not there was nothing
	// to try again.
	Waited bool `json:"waited"`
}

// Decided answers [UpdateSkip] and [UpdatePark] of a DrainRow.
type Decided struct {
	EffectID string      `json:"effectId"`
	Verb     outbox.Verb `json:"verb"`
}

// handle sets the handlers of queries and updates.
func (d *drain) handle(ctx workflow.Context) error {
	err := workflow.SetQueryHandler(ctx, QueryState, func() (DrainState, error) { return d.state, nil })
	if err != nil {
		return fmt.Errorf("set the query handler: %w", err)
	}
	err = setUpdate(ctx, UpdateRetry, "Try the head again now.", func(ctx workflow.Context, _ Retry) (Retried, error) {
		waited, err := order[bool](ctx, d, activities.RetryHead, "retry, by an operator", activities.HeadInput{Row: d.in.outbox()})
		return Retried{Waited: waited}, err
	})
	if err != nil {
		return err
	}
	err = setUpdate(ctx, UpdateSkip, "Drop the head without delivering it.",
		func(ctx workflow.Context, decision Decision) (Decided, error) {
			return d.decide(ctx, outbox.VerbSkip, decision)
		})
	if err != nil {
		return err
	}
	return setUpdate(ctx, UpdatePark, "Move the head to the parked store; later effects overtake it.",
		func(ctx workflow.Context, decision Decision) (Decided, error) {
			return d.decide(ctx, outbox.VerbPark, decision)
		})
}

func (d *drain) decide(ctx workflow.Context, verb outbox.Verb, decision Decision) (Decided, error) {
	_, err := order[json.RawMessage](ctx, d, activities.DecideHead, string(verb)+", by "+decision.Who, activities.DecideInput{
		Row: d.in.outbox(), Verb: verb, EffectID: decision.EffectID, Who: decision.Who, Why: decision.Why, At: workflow.Now(ctx).UTC(),
	})
	if err != nil {
		return Decided{}, err
	}
	d.state.Decided++
	return Decided{EffectID: decision.EffectID, Verb: verb}, nil
}

// order carries out an operator's order and wakes the run up. While it is carried out,
// no delivery is begun.
func order[R any](ctx workflow.Context, d *drain, activity, summary string, in any) (R, error) {
	d.orders++
	d.counted++
	defer func() { d.orders-- }()
	var result R
	ctx = workflow.WithActivityOptions(ctx, short(d.queue, summary))
	if err := workflow.ExecuteActivity(ctx, activity, in).Get(ctx, &result); err != nil {
		return result, err
	}
	d.nudge.SendAsync(struct{}{})
	return result, nil
}

// setUpdate sets an update handler whose input is decoded strictly and validated before
// the update is accepted.
func setUpdate[In input[In], Out any](ctx workflow.Context, name, text string, handler func(workflow.Context, In) (Out, error)) error {
	run := func(ctx workflow.Context, raw json.RawMessage) (Out, error) {
		in, err := decode[In]("update "+name, raw)
		if err != nil {
			var none Out
			return none, err
		}
		return handler(ctx, in)
	}
	err := workflow.SetUpdateHandlerWithOptions(ctx, name, run, workflow.UpdateHandlerOptions{
		Description: text,
		Validator: func(_ workflow.Context, raw json.RawMessage) error {
			_, err := decode[In]("update "+name, raw)
			return err
		},
	})
	if err != nil {
		return fmt.Errorf("set the handler of the update %s: %w", name, err)
	}
	return nil
}
