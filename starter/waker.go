package starter

import (
	"context"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"
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
	idle    chan struct{}    // closed when nothing is under way; nil = nobody waits
}

type wakeState struct {
	sending bool // in flight
	again   bool // asked for while in flight
}

func newWakes(s *Starter) *wakes {
	return &wakes{
		starter: s, rows: map[outbox.Row]*wakeState{},
		breaker: gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
			Name: "wakes", Timeout: openFor,
			ReadyToTrip: func(counts gobreaker.Counts) bool { return counts.ConsecutiveFailures >= tripAfter },
		}),
	}
}

// Wake asks for the drains of the rows to be woken, and returns at once.
func (s *Starter) Wake(ctx context.Context, rows []outbox.Row) {
	w := s.wakes
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, row := range rows {
		switch state := w.rows[row]; {
		case state == nil:
			w.rows[row] = &wakeState{}
			w.waiting = append(w.waiting, row)
		case state.sending:
			state.again = true
		}
	}
	for w.senders < min(s.config.Wakers, len(w.waiting)) {
		w.senders++
		// A wake outlives the call that asks for it: the commit has happened.
		w.group.Go(func() { w.send(context.WithoutCancel(ctx)) })
	}
}

// Flush waits until every wake is answered or given up, or until ctx ends. It counts the
// wakes since the Flush before; with several callers their sum is right.
func (s *Starter) Flush(ctx context.Context) activities.Wakes {
	w := s.wakes
	w.mu.Lock()
	if len(w.rows) > 0 {
		if w.idle == nil {
			w.idle = make(chan struct{})
		}
		idle := w.idle
		w.mu.Unlock()
		select {
		case <-idle:
		case <-ctx.Done():
		}
		w.mu.Lock()
	}
	defer w.mu.Unlock()
	counts := w.counts
	w.counts = activities.Wakes{}
	return counts
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
		state.sending, state.again = true, false
		w.mu.Unlock()

		_, err := w.breaker.Execute(func() (struct{}, error) { return struct{}{}, w.starter.wakeNow(ctx, row) })
		if err != nil {
			w.starter.config.Log.WarnContext(ctx, "a wake was dropped; the sweep wakes the row later", "row", row.String(), "error", err)
		}

		w.mu.Lock()
		w.answered(row, state, err)
		w.mu.Unlock()
	}
}

// answered takes in the answer to a wake. It is called with the lock.
func (w *wakes) answered(row outbox.Row, state *wakeState, err error) {
	state.sending = false
	switch {
	case err != nil:
		w.counts.Dropped++
	default:
		w.counts.Sent++
		if state.again {
			w.waiting = append(w.waiting, row)
			return
		}
	}
	delete(w.rows, row)
	if len(w.rows) == 0 && w.idle != nil {
		close(w.idle)
		w.idle = nil
	}
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
	err = s.withoutAttributes(ctx, func() error {
		options, err := s.options(what)
		if err != nil {
			return err
		}
		run, err = s.config.Client.SignalWithStartWorkflow(ctx, what.id, workflows.SignalWake, nil, options, what.workflow, what.input)
		return err //nolint:wrapcheck // the callers wrap it
	})
	return run, err
}
