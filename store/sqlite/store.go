package sqlite

import (
	"context"
	"errors"
	"runtime"
	"sync"

	"github.com/rowfold/rowfold/projection"
)

// Store keeps events, rows, outboxes, parks, skips and positions in one SQLite
// database. Use [Open]. It is safe for concurrent use; several processes may open one
// file.
type Store struct {
	config Config
	writer *pool
	reader *pool // the writer itself for a database in memory

	mu     sync.Mutex
	models map[string]*projection.Model // by projection, as far as this process has seen them
	tables map[*projection.Model]*table
}

// Open opens a store and brings its own tables up to date. Errors: joined
// *[InvalidConfig], *[NewerSchema], and those of the file.
func Open(ctx context.Context, config Config) (*Store, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	store := &Store{config: config, models: map[string]*projection.Model{}, tables: map[*projection.Model]*table{}}
	var err error
	// SQLite has one writer at a time. One connection makes this process's writers
	// wait in a queue here, not in the busy handler, which sleeps.
	if store.writer, err = openPool(access{config: config, connections: 1}); err != nil {
		return nil, classify("open", err)
	}
	store.reader = store.writer
	if config.Path != "" {
		readers := access{config: config, connections: max(4, runtime.NumCPU()), readOnly: true}
		if store.reader, err = openPool(readers); err != nil {
			return nil, errors.Join(classify("open", err), store.writer.close())
		}
	}
	if err := store.migrate(ctx); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return store, nil
}

// Close closes the store. It waits for calls that are under way; later ones fail.
func (s *Store) Close() error {
	err := s.writer.close()
	if s.reader != s.writer {
		err = errors.Join(err, s.reader.close())
	}
	return err
}

// Limits implements projection.RowStore.
func (s *Store) Limits() projection.Limits {
	return projection.Limits{
		MaxEffects:  s.config.MaxEffects,
		MaxBytes:    s.config.MaxBytes,
		MaxRowBytes: s.config.MaxRowBytes,
	}
}
