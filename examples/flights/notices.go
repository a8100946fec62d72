package flights

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/rowfold/rowfold/outbox"
)

// Notice is a line of the file of notices.
type Notice struct {
	LateArrival

	ID       string          `json:"id"` // of the effect: what a consumer deduplicates by
	Sequence outbox.Sequence `json:"sequence"`
}

// Notices appends notices to a file, one line of JSON for each. It keeps the order that it
// gets, which is each airport's own. A notice that is delivered again is dropped: the file
// tells which was the last one of each airport.
type Notices struct {
	mu   sync.Mutex
	file *os.File
	last map[string]outbox.Sequence // by airport
}

var _ outbox.Memory = (*Notices)(nil)

// OpenNotices opens the file, which is created where it is missing, and reads what is in it.
func OpenNotices(path string) (*Notices, error) {
	written, err := ReadNotices(path)
	if err != nil {
		return nil, err
	}
	last := map[string]outbox.Sequence{}
	for _, notice := range written {
		last[notice.Airport] = notice.Sequence
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) //nolint:gosec // G304: the user's choice
	if err != nil {
		return nil, fmt.Errorf("open the notices: %w", err)
	}
	return &Notices{file: file, last: last}, nil
}

// Last implements outbox.Memory. Only the deliverer calls it, with the lock.
func (n *Notices) Last(_ context.Context, row outbox.Row) (outbox.Sequence, error) {
	return n.last[row.Key], nil
}

// Save implements outbox.Memory, as Last does. The line that was written is what lasts.
func (n *Notices) Save(_ context.Context, row outbox.Row, sequence outbox.Sequence) error {
	n.last[row.Key] = sequence
	return nil
}

// Deliverer returns what writes a notice. It is an outbox.Deliverer for LateArrival.
func (n *Notices) Deliverer() outbox.Deliverer {
	write := outbox.Dedup(n, outbox.Handle(func(_ context.Context, late LateArrival, delivery outbox.Delivery) error {
		line, err := json.Marshal(Notice{LateArrival: late, ID: delivery.ID, Sequence: delivery.Sequence})
		if err != nil {
			return fmt.Errorf("encode a notice: %w", err)
		}
		if _, err := n.file.Write(append(line, '\n')); err != nil {
			return fmt.Errorf("write a notice: %w", err)
		}
		return nil
	}))
	return func(ctx context.Context, delivery outbox.Delivery) error {
		n.mu.Lock() // looked up and written in one piece: two drains may deliver one notice
		defer n.mu.Unlock()
		return write(ctx, delivery)
	}
}

// Close closes the file.
func (n *Notices) Close() error {
	if err := n.file.Close(); err != nil {
		return fmt.Errorf("close the notices: %w", err)
	}
	return nil
}

// ReadNotices returns the lines of the file; none when there is no file.
func ReadNotices(path string) (notices []Notice, err error) {
	file, err := os.Open(path) //nolint:gosec // G304: the user's choice
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the notices: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var notice Notice
		if err := json.Unmarshal(lines.Bytes(), &notice); err != nil {
			return nil, fmt.Errorf("notice %d: %w", len(notices)+1, err)
		}
		notices = append(notices, notice)
	}
	return notices, lines.Err()
}
