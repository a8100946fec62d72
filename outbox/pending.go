package outbox

import (
	"context"
	"errors"
	"sync"

	"github.com/rowfold/rowfold/event"
)

// pendingPage is how many rows one read of [DrainPending] lists.
const pendingPage = 100

// MaxUnfinished bounds the list in [Swept].
const MaxUnfinished = 100

// Swept says what [DrainPending] did.
type Swept struct {
	Rows      int `json:"rows"`      // rows with pending effects
	Delivered int `json:"delivered"` // effects
	Emptied   int `json:"emptied"`   // rows without pending effects afterwards
	Waiting   int `json:"waiting"`   // rows whose head is parked or not yet due
	Blocked   int `json:"blocked"`   // rows at which somebody else works
	More      int `json:"more"`      // rows that reached Options.MaxEffects
	Faults    int `json:"faults"`    // rows whose drain returned an error
	// Unfinished are rows whose head could not be delivered, the first
	// [MaxUnfinished] of them, in the order in which their drains ended.
	Unfinished []Unfinished `json:"unfinished,omitempty"`
}

// Unfinished is a row that has effects left.
type Unfinished struct {
	Row     Row      `json:"row"`
	Failed  *Failure `json:"failed,omitempty"`
	Blocked *Blocked `json:"blocked,omitempty"`
}

// DrainPending drains every row of a projection that has pending effects, several
// rows at a time, each by [Drain]. Rows do not wait for one another: what goes wrong
// with one is told in the end. deliver is called from several goroutines.
//
// The error joins the errors of rows, each a *[DrainError] or *[ClaimsLost] with the
// row's name, and the fault that ended the listing, if any. A head that could not be
// delivered is no error, see [Swept].
func DrainPending(ctx context.Context, store Store, projection string, deliver Deliverer, opts Options) (Swept, error) {
	faults := opts.faults()
	if store == nil {
		faults = append(faults, "store is nil")
	}
	if deliver == nil {
		faults = append(faults, "deliver is nil")
	}
	if projection == "" {
		faults = append(faults, "projection is empty")
	}
	if len(faults) > 0 {
		return Swept{}, &event.DefinitionError{What: "outbox.DrainPending", Faults: faults}
	}
	opts = opts.withDefaults()
	s := &sweep{store: store, deliver: deliver, opts: opts}
	rows := make(chan Row)
	var workers sync.WaitGroup
	for range opts.Parallelism {
		workers.Go(func() {
			for row := range rows {
				s.add(row)(Drain(ctx, store, row, deliver, opts))
			}
		})
	}
	err := s.list(ctx, projection, rows)
	close(rows)
	workers.Wait()
	return s.swept, errors.Join(append(s.errs, err)...)
}

// sweep is one run of [DrainPending].
type sweep struct {
	store   Store
	deliver Deliverer
	opts    Options

	mu    sync.Mutex
	swept Swept
	errs  []error // the first MaxUnfinished
}

// list hands out the rows that have a head which is due.
func (s *sweep) list(ctx context.Context, projection string, rows chan<- Row) error {
	after := ""
	for {
		page, err := s.store.Pending(ctx, PendingQuery{Projection: projection, After: after, Limit: pendingPage})
		if err != nil {
			return &DrainError{Row: Row{Projection: projection, Key: "*"}, Step: "list the pending rows", Err: err}
		}
		for _, pending := range page {
			after = pending.Row.Key
			if now := s.opts.Now(); !pending.Head.Deferral.due(now) {
				s.add(pending.Row)(Result{Failed: failureOf(pending.Head, pending.Head.Deferral, now)}, nil)
				continue
			}
			select {
			case rows <- pending.Row:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if len(page) < pendingPage {
			return nil
		}
	}
}

// add returns what counts a row's result.
func (s *sweep) add(row Row) func(Result, error) {
	return func(result Result, err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.swept.Rows++
		s.swept.Delivered += result.Delivered
		switch {
		case err != nil:
			s.swept.Faults++
			if len(s.errs) < MaxUnfinished {
				s.errs = append(s.errs, err)
			}
		case result.Empty:
			s.swept.Emptied++
		case result.More:
			s.swept.More++
		case result.Failed != nil:
			s.swept.Waiting++
		case result.Blocked != nil:
			s.swept.Blocked++
		}
		if (result.Failed != nil || result.Blocked != nil) && len(s.swept.Unfinished) < MaxUnfinished {
			s.swept.Unfinished = append(s.swept.Unfinished, Unfinished{Row: row, Failed: result.Failed, Blocked: result.Blocked})
		}
	}
}
