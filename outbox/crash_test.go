package outbox_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
)

// world is one row, its writer, the drainers of several processes, and what arrived
// outside.
type world struct {
	*rapid.T

	f    *fixture
	row  outbox.Row
	opts outbox.Options

	committed []outbox.Sequence
	removed   bool
	arrived   []outbox.Sequence // every delivery
	running   []*drainer
	excuses   int // how many deliveries were not followed by their own delete
}

// R-38, T-7: several drains of one row, with faults and crashes at any step, claims that are
// taken over at any time, and writes in between. Whatever happens, first deliveries are
// in order, nothing is lost, and every repeat has its own excuse.
func TestDrainersKeepTheirPromisesWhateverHappens(t *testing.T) {
	t.Parallel()
	f, rows := newFixture(t), 0
	rapid.Check(t, func(rt *rapid.T) {
		rows++
		w := &world{T: rt, f: f, committed: []outbox.Sequence{}, row: outbox.Row{Projection: "Board", Key: fmt.Sprintf("R%d", rows)}, opts: f.options()}
		w.opts.ClaimAhead = rapid.IntRange(1, 4).Draw(rt, "claim ahead")
		w.opts.Attempts, w.opts.Rounds, w.opts.ParkAfter = 2, 3, 0
		w.opts.ClaimFor, w.opts.TombstoneTTL = 30*time.Second, time.Hour
		w.opts.Deferral = outbox.Backoff{Min: time.Second}
		defer w.abandon()
		w.write()
		for range rapid.IntRange(5, 60).Draw(rt, "steps") {
			w.step()
		}
		w.settle()
	})
}

// write commits one write, maybe a removal, with some effects.
func (w *world) write() {
	numbers := make([]int, rapid.IntRange(0, 3).Draw(w.T, "effects"))
	w.removed = rapid.Bool().Draw(w.T, "removed")
	items, err := commit(w.f.Context(), w.f.store, w.row.Key, func(write *projection.Write) { write.Tombstone = w.removed }, numbers...)
	require.NoError(w, err)
	for _, item := range items {
		w.committed = append(w.committed, item.Sequence)
	}
}

// start begins a drain in another process.
func (w *world) start() {
	// Who judges by the clock takes over what has ended; the worst of judges takes over anything.
	var judge outbox.Judge = everybodyIsGone
	if rapid.Bool().Draw(w.T, "judge by the clock") {
		judge = outbox.ClockJudge{Now: w.f.clock.Now}
	}
	d := &drainer{
		store: w.f.store, row: w.row, judge: judge,
		received: func(delivery outbox.Delivery) { w.arrived = append(w.arrived, delivery.Sequence) },
	}
	d.start(w.f.Context(), w.opts)
	w.running = append(w.running, d)
}

// step lets one thing happen.
func (w *world) step() {
	switch kind := rapid.IntRange(0, 19).Draw(w.T, "kind"); {
	case kind == 0:
		w.write()
	case kind == 1:
		w.f.clock.pass(time.Duration(rapid.IntRange(1, 40).Draw(w.T, "seconds")) * time.Second)
	case len(w.running) == 0 || kind < 5 && len(w.running) < 4:
		w.start()
	default:
		i := rapid.IntRange(0, len(w.running)-1).Draw(w.T, "drainer")
		fault := proceed
		if rapid.IntRange(0, 5).Draw(w.T, "fault") == 0 {
			fault = rapid.SampledFrom([]act{lostAnswer, refuse, crashBefore, crashAfter}).Draw(w.T, "which")
		}
		w.advance(i, fault)
	}
	w.inOrder()
}

// advance lets one drainer do its next step.
func (w *world) advance(i int, what act) {
	d := w.running[i]
	if d.at == "deliver" && what == lostAnswer {
		w.excuses++ // the deliverer took it and said that it did not
	}
	if d.at != "" {
		d.advance(what)
	}
	if d.at != "" {
		return
	}
	// Each time that it was overtaken it had delivered one effect that somebody else delivers, too;
	// so it had when it ended between a delivery and its delete.
	w.excuses += d.result.Overtaken
	if d.unsettled {
		w.excuses++
	}
	w.running = append(w.running[:i], w.running[i+1:]...)
}

// abandon ends the drainers of a case that failed.
func (w *world) abandon() {
	for _, d := range w.running {
		for d.at != "" {
			d.advance(crashBefore)
		}
	}
}

// inOrder requires that first deliveries are the committed effects, from the first on.
func (w *world) inOrder() {
	first, _ := w.deliveries()
	require.LessOrEqual(w, len(first), len(w.committed))
	require.Equal(w, w.committed[:len(first)], first, "first deliveries are in order")
}

func (w *world) deliveries() (first []outbox.Sequence, repeats int) {
	first, seen := []outbox.Sequence{}, map[outbox.Sequence]bool{}
	for _, sequence := range w.arrived {
		if seen[sequence] {
			repeats++
			continue
		}
		seen[sequence] = true
		first = append(first, sequence)
	}
	return first, repeats
}

// settle lets everybody finish and drains once more, after all claims have ended.
func (w *world) settle() {
	for len(w.running) > 0 {
		w.advance(0, proceed)
		w.inOrder()
	}
	w.f.clock.pass(time.Hour)
	result, err := outbox.Drain(w.f.Context(), w.f.store, w.row, func(_ context.Context, delivery outbox.Delivery) error {
		w.arrived = append(w.arrived, delivery.Sequence)
		return nil
	}, w.opts)
	require.NoError(w, err)
	require.True(w, result.Empty, "%+v", result)
	first, repeats := w.deliveries()
	require.Equal(w, w.committed, first, "nothing is lost")
	require.LessOrEqual(w, repeats, w.excuses, "every repeat has its excuse")
	rows, err := w.f.store.Load(w.f.Context(), board, []string{w.row.Key})
	require.NoError(w, err)
	require.Equal(w, w.removed, rows[0].ExpiresAt != nil, "a tombstone without effects expires")
}
