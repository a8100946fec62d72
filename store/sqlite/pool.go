package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"strconv"
	"sync"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

// pool hands out connections, each to one transaction at a time. database/sql's own pool
// would prepare every statement anew in each transaction.
type pool struct {
	access access
	db     *sql.DB
	free   chan *connection
	closed chan struct{}
	once   sync.Once
	err    error // of close
}

// connection is a connection with the statements that were prepared on it.
type connection struct {
	conn       *sql.Conn // nil = it broke, and the next user connects again
	statements map[string]*sql.Stmt
}

// access says what the connections of a pool may do.
type access struct {
	config      Config
	connections int
	readOnly    bool
}

func openPool(a access) (*pool, error) {
	db, err := sql.Open("sqlite", a.dataSource())
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller names the step
	}
	p := &pool{access: a, db: db, free: make(chan *connection, a.connections), closed: make(chan struct{})}
	for range a.connections {
		p.free <- &connection{}
	}
	return p, nil
}

func (a access) dataSource() string {
	options := url.Values{}
	pragma := func(text string) { options.Add("_pragma", text) }
	pragma("busy_timeout(" + strconv.FormatInt(a.config.BusyTimeout.Milliseconds(), 10) + ")")
	pragma("temp_store(memory)")
	path := ":memory:"
	if a.config.Path != "" {
		path = (&url.URL{Path: a.config.Path}).EscapedPath()
		pragma("journal_mode(wal)")
		pragma("synchronous(" + string(a.config.Synchronous) + ")")
	}
	if a.readOnly {
		pragma("query_only(1)")
	}
	return "file:" + path + "?" + options.Encode()
}

// take waits for a free connection.
func (p *pool) take(ctx context.Context) (*connection, error) {
	select {
	case <-p.closed:
		return nil, errClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case c := <-p.free:
		if c.conn != nil {
			return c, nil
		}
		conn, err := p.db.Conn(ctx)
		if err != nil {
			p.free <- c
			return nil, err //nolint:wrapcheck // the caller names the step
		}
		return &connection{conn: conn, statements: map[string]*sql.Stmt{}}, nil
	}
}

// give returns a connection after its transaction ended.
func (p *pool) give(c *connection) { p.free <- c }

// drop returns a connection whose transaction could not be ended: it is replaced.
func (p *pool) drop(c *connection) error {
	p.free <- &connection{}
	return c.close()
}

// close refuses new transactions and waits for those that are under way.
func (p *pool) close() error {
	p.once.Do(func() {
		close(p.closed)
		faults := make([]error, 0, p.access.connections+1)
		for range p.access.connections {
			faults = append(faults, (<-p.free).close())
		}
		p.err = errors.Join(append(faults, p.db.Close())...)
	})
	return p.err
}

func (c *connection) close() error {
	if c.conn == nil {
		return nil
	}
	faults := make([]error, 0, len(c.statements)+1)
	for _, statement := range c.statements {
		faults = append(faults, statement.Close())
	}
	return errors.Join(append(faults, c.conn.Close())...)
}

// prepare returns the statement of a text. Texts must be few: a list of keys goes in as
// one JSON parameter, read with json_each.
func (c *connection) prepare(ctx context.Context, text string) (*sql.Stmt, error) {
	if known := c.statements[text]; known != nil {
		return known, nil
	}
	statement, err := c.conn.PrepareContext(ctx, text)
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller names the step
	}
	c.statements[text] = statement
	return statement, nil
}
