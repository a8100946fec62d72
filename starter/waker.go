package starter

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/rowfold/rowfold/activities"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/workflows"
)

var _ activities.Waker = (*Starter)(nil)

const (
	// tripAfter is how many wakes in a row must fail before none is sent for a while.
	tripAfter = 5
	// openFor is how long none is sent then.
	openFor = 5 * time.Second
)

// wakes sends wakes, one at a time for each row. Coalescing is trailing: a wake that is asked
// for while one of its row is in flight may have come too late for it, so one more is sent
// after the answer; one that still waits to be sent stands for all that are asked for
// meanwhile.
type wakes struct {
	starter *Starter
	breaker *gobreaker.CircuitBreaker[struct{}]

	mu      sync.Mutex
	rows    map[outbox.Row]*wakeState
	waiting []outbox.Row // to be sent, oldest first
	senders int
	group   sync.WaitGroup
	counts  activities.Wakes // since the last flush
}

// wakeState are a row's wakes, each by a channel that is closed when it is answered or given
// up; nil = there is none.
type wakeState struct {
	current chan struct{} // in flight
	next    chan struct{} // to be sent
}

func newWakes(s *Starter) *wakes {
	return &wakes{
		starter: s, rows: map[outbox.Row]*wakeState{},
		breaker: gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
			Name: "wakes", Timeout: openFor, IsSuccessful: reached,
			ReadyToTrip: func(counts gobreaker.Counts) bool { return counts.ConsecutiveFailures >= tripAfter },
		}),
	}
}

// reached reports whether Temporal has answered, whatever it said: one row's bad wake does not
// hold up those of the others.
func reached(err error) bool {
	_, refused := errors.AsType[*serviceerror.InvalidArgument](err)
	return err == nil || refused
}

// Wake asks for the drains of the rows to be woken, and returns at once.
func (s *Starter) Wake(ctx context.Context, rows []outbox.Row) {
	w := s.wakes
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, row := range rows {
		state := w.rows[row]
		switch {
		case state == nil:
			w.rows[row] = &wakeState{next: make(chan struct{})}
			w.enqueue(ctx, row)
		case state.next == nil:
			state.next = make(chan struct{})
		}
	}
}

// enqueue lets a row's next wake be sent. It is called with the lock.
func (w *wakes) enqueue(ctx context.Context, row outbox.Row) {
	w.waiting = append(w.waiting, row)
	if w.senders < w.starter.config.Wakers {
		w.senders++
		// A wake outlives the call that asks for it: the commit has happened.
		w.group.Go(func() { w.send(context.WithoutCancel(ctx)) })
	}
}

// Flush waits until every wake that was asked for before is answered or given up, or until
// ctx ends. It counts the wakes since the Flush before; with several callers their sum is right.
func (s *Starter) Flush(ctx context.Context) activities.Wakes {
	w := s.wakes
	for _, answer := range w.underWay() {
		select {
		case <-answer:
			continue
		case <-ctx.Done():
		}
		break
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	counts := w.counts
	w.counts = activities.Wakes{}
	return counts
}

// underWay returns the last wake of every row. Those that are asked for later do not keep
// a Flush waiting.
func (w *wakes) underWay() []chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	answers := make([]chan struct{}, 0, len(w.rows))
	for _, state := range w.rows {
		if state.next != nil {
			answers = append(answers, state.next)
		} else {
			answers = append(answers, state.current)
		}
	}
	return answers
}

func (w *wakes) close() { w.group.Wait() }

// send sends wakes until none waits.
func (w *wakes) send(ctx context.Context) {
	for {
		w.mu.Lock()
		if len(w.waiting) == 0 {
			w.senders--
			w.mu.Unlock()
			return
		}
		row := w.waiting[0]
		w.waiting = w.waiting[1:]
		state := w.rows[row]
		state.current, state.next = state.next, nil
		w.mu.Unlock()

		_, err := w.breaker.Execute(func() (struct{}, error) { return struct{}{}, w.starter.wakeNow(ctx, row) })
		if err != nil {
			w.starter.config.Log.WarnContext(ctx, "a wake was dropped; the sweep wakes the row later", "row", row.String(), "error", err)
		}

		w.mu.Lock()
		w.answered(ctx, row, state, err)
		w.mu.Unlock()
	}
}

// answered takes in the answer to a wake. It is called with the lock.
func (w *wakes) answered(ctx context.Context, row outbox.Row, state *wakeState, err error) {
	close(state.current)
	state.current = nil
	if err == nil {
		w.counts.Sent++
		if state.next != nil {
			w.enqueue(ctx, row)
			return
		}
	} else {
		w.counts.Dropped++ // with the one that was to follow it: both are the sweep's now
		if state.next != nil {
			close(state.next)
		}
	}
	delete(w.rows, row)
}

// wakeNow sends one wake: a signal, which starts the row's drain where none is open.
func (s *Starter) wakeNow(ctx context.Context, row outbox.Row) error {
	ctx, cancel := context.WithTimeout(ctx, s.config.WakeTimeout)
	defer cancel()
	_, err := s.signalDrain(ctx, row)
	return err
}

func (s *Starter) signalDrain(ctx context.Context, row outbox.Row) (run client.WorkflowRun, err error) {
	what := s.drainOf(row)
	err = s.attempt(ctx, what, func(options client.StartWorkflowOptions) (err error) {
		run, err = s.config.Client.SignalWithStartWorkflow(ctx, what.id, workflows.SignalWake, nil, options, what.workflow, what.input)
		return err //nolint:wrapcheck // the callers wrap it
	})
	return run, err
}
