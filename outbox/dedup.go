package outbox

import (
	"container/list"
	"context"
	"sync"
)

// Memory is where a consumer keeps the last sequence that it has accepted of each
// row. To accept an effect exactly once, implement it in the transaction in which the
// consumer does its own work.
type Memory interface {
	// Last returns the last accepted sequence of a row; empty = none.
	Last(ctx context.Context, row Row) (Sequence, error)
	// Save remembers a sequence as the row's last one.
	Save(ctx context.Context, row Row, sequence Sequence) error
}

// Accept reports whether a consumer sees an effect for the first time, and remembers
// it. First deliveries are in sequence order per row, so an effect is new exactly
// when its sequence is above the last one. Call it in the transaction in which the
// effect is consumed: a rollback then forgets the effect, too.
//
// Two things go beyond sequences, and need [Item.ID] instead: an effect that an
// operator parked and delivers later by hand, and a row whose tombstone was purged and
// that begins again; so keep the memory of a row no longer than its tombstone.
//
// Errors are those of the memory.
func Accept(ctx context.Context, memory Memory, row Row, sequence Sequence) (bool, error) {
	last, err := memory.Last(ctx, row)
	if err != nil {
		return false, err
	}
	if sequence <= last {
		return false, nil
	}
	if err := memory.Save(ctx, row, sequence); err != nil {
		return false, err
	}
	return true, nil
}

// Dedup makes a deliverer that drops repeats and hands everything else to deliver. It
// remembers an effect after deliver has succeeded: a crash in between still repeats it.
// Where that matters, call [Accept] in the consumer's transaction instead.
func Dedup(memory Memory, deliver Deliverer) Deliverer {
	return func(ctx context.Context, delivery Delivery) error {
		last, err := memory.Last(ctx, delivery.Row)
		if err != nil {
			return err
		}
		if delivery.Sequence <= last {
			return nil
		}
		if err := deliver(ctx, delivery); err != nil {
			return err
		}
		return memory.Save(ctx, delivery.Row, delivery.Sequence)
	}
}

// RecentRows is a [Memory] in the process, bounded by a number of rows: the row that was
// used the longest time ago is forgotten first, and its repeats are accepted again.
// It never goes back: a save below the last sequence is ignored. It is safe for use by
// several goroutines.
type RecentRows struct {
	limit int

	mu    sync.Mutex
	order *list.List // of *recentRow, the most recently used first
	rows  map[Row]*list.Element
}

type recentRow struct {
	row  Row
	last Sequence
}

var _ Memory = (*RecentRows)(nil)

// NewRecentRows returns an empty memory of at most limit rows; below 1 it is 1.
func NewRecentRows(limit int) *RecentRows {
	return &RecentRows{limit: max(1, limit), order: list.New(), rows: map[Row]*list.Element{}}
}

// Last implements [Memory]. It returns no error.
func (m *RecentRows) Last(_ context.Context, row Row) (Sequence, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	element, known := m.rows[row]
	if !known {
		return "", nil
	}
	m.order.MoveToFront(element)
	return recentOf(element).last, nil
}

// Save implements [Memory]. It returns no error.
func (m *RecentRows) Save(_ context.Context, row Row, sequence Sequence) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if element, known := m.rows[row]; known {
		m.order.MoveToFront(element)
		recent := recentOf(element)
		recent.last = max(recent.last, sequence)
		return nil
	}
	m.rows[row] = m.order.PushFront(&recentRow{row: row, last: sequence})
	if m.order.Len() > m.limit {
		oldest := m.order.Back()
		delete(m.rows, recentOf(oldest).row)
		m.order.Remove(oldest)
	}
	return nil
}

// Len returns how many rows are remembered.
func (m *RecentRows) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.order.Len()
}

func recentOf(element *list.Element) *recentRow {
	recent, _ := element.Value.(*recentRow) // nothing else is put into the list
	return recent
}
