package sqlite_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
	"github.com/rowfold/rowfold/store/sqlite"
)

const (
	benchRows   = 500
	emptyOutbox = `DELETE FROM rowfold_outbox`
)

// BenchmarkCommit writes batches of rows that are there, as a feed does. Its metric
// "ratio" is the time that the same statements take when they are written by hand, over
// the time of Commit: both on a file of their own, batch by batch in turns. It is to stay
// at 0.8 or above. Neither lets the driver watch a context for each statement, which
// alone would cost a quarter more, nor sets savepoints.
func BenchmarkCommit(b *testing.B) {
	for _, effects := range []int{0, 1} {
		b.Run(fmt.Sprintf("rows=%d/effects=%d", benchRows, effects), func(b *testing.B) {
			model := benchModel()
			store := open(b, sqlite.Config{Path: filepath.Join(b.TempDir(), "rows.db"), Synchronous: sqlite.SynchronousNormal})
			require.NoError(b, store.Prepare(b.Context(), model))
			byHand := newHandWritten(b, filepath.Join(b.TempDir(), "hand.db"), model)

			var ours, theirs time.Duration
			revision := int64(0)
			batch := func() []projection.Write {
				revision++
				return benchWrites(revision, effects)
			}
			first := batch()
			requireCommitted(b, store.Commit(b.Context(), model, first))
			byHand.insert(b, first)
			for b.Loop() {
				b.StopTimer()
				writes := batch()
				// Who comes first finds the caches of the machine cold.
				if revision%2 == 0 {
					theirs += byHand.commit(b, writes)
				}
				b.StartTimer()
				began := time.Now()
				results := store.Commit(b.Context(), model, writes)
				ours += time.Since(began)
				b.StopTimer()
				if revision%2 != 0 {
					theirs += byHand.commit(b, writes)
				}
				requireCommitted(b, results)
				// A drain keeps outboxes short. Growing ones would hide what is compared.
				require.NoError(b, store.Exec(b.Context(), emptyOutbox))
				byHand.exec(b, emptyOutbox)
				b.StartTimer()
			}
			b.ReportMetric(float64(theirs)/float64(ours), "ratio")
			b.ReportMetric(float64(b.N)*benchRows/ours.Seconds(), "rows/s")
		})
	}
}

func requireCommitted(tb testing.TB, results []error) {
	tb.Helper()
	for _, err := range results {
		require.NoError(tb, err)
	}
}

func benchModel() *projection.Model {
	return &projection.Model{
		Projection: "Board", Table: "board",
		Columns: []projection.Column{
			{Name: "code", Kind: projection.KindText, Key: true},
			{Name: "name", Kind: projection.KindText},
			{Name: "total", Kind: projection.KindInt},
			{Name: "delay", Kind: projection.KindFloat},
			{Name: "open", Kind: projection.KindBool},
			{Name: "seen", Kind: projection.KindTime},
		},
		Checkpoints: "checkpoints", Revision: "revision", HasOutbox: true,
	}
}

// benchWrites are the writes that follow a revision; revision 1 finds no rows.
func benchWrites(revision int64, effects int) []projection.Write {
	at := time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC).Add(time.Duration(revision) * time.Second)
	writes := make([]projection.Write, benchRows)
	for i := range writes {
		key := fmt.Sprintf("K%06d", (i*7919)%benchRows)
		write := projection.Write{
			Key: key, GuardStatus: projection.RowAbsent, ID: outbox.NewNonce(),
			Values: []any{key, "Zürich Kloten", revision, 0.5, true, at},
			Books: projection.Bookkeeping{
				Revision: new(revision), Definition: 1,
				Checkpoints: map[string]int64{"flight#LX1": revision, "flight#LX2": revision, "survey#" + key: 3},
			},
		}
		if revision > 1 {
			write.GuardStatus, write.Guard = projection.RowLive, projection.Bookkeeping{Revision: new(revision - 1)}
		}
		row := outbox.Row{Projection: "Board", Key: key}
		for index := range effects {
			write.Effects = append(write.Effects, outbox.Item{
				Row: row, Sequence: outbox.SequenceOf(revision, index),
				ID:     outbox.EffectID(row, "flight", "LX1", revision, index),
				Source: "flight", Stream: "Flight", StreamID: "LX1", Version: revision, Index: index,
				Type: "Notice", SchemaVersion: 1, Payload: json.RawMessage(`{"gate":"A12","late":true}`), EnqueuedAt: at,
			})
		}
		writes[i] = write
	}
	return writes
}

// handWritten does what Commit does for benchModel, as somebody would who wrote it for
// this one table: prepared statements, one transaction, the same tables, the same guard.
type handWritten struct {
	db                     *sql.DB
	insertRow, row, effect *sql.Stmt
}

func newHandWritten(tb testing.TB, path string, model *projection.Model) *handWritten {
	tb.Helper()
	store, err := sqlite.Open(tb.Context(), sqlite.Config{Path: path}) // for the tables
	require.NoError(tb, err)
	require.NoError(tb, store.Prepare(tb.Context(), model))
	require.NoError(tb, store.Close())
	db, err := sql.Open("sqlite", "file:"+path+
		"?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=temp_store(memory)&_pragma=journal_mode(wal)&_pragma=synchronous(normal)")
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, db.Close()) })
	db.SetMaxOpenConns(1)
	prepared := func(text string) *sql.Stmt {
		tb.Helper()
		statement, err := db.PrepareContext(tb.Context(), text)
		require.NoError(tb, err)
		tb.Cleanup(func() { require.NoError(tb, statement.Close()) })
		return statement
	}
	return &handWritten{
		db: db,
		insertRow: prepared(`INSERT INTO rowfold_rows_board (rowfold_key, rowfold_tombstone, rowfold_expires_at, rowfold_write_id,
			rowfold_definition, rowfold_emits, rowfold_emit_above, revision, checkpoints, code, name, total, delay, open, seen)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`),
		row: prepared(`UPDATE rowfold_rows_board SET rowfold_tombstone = ?, rowfold_expires_at = ?, rowfold_write_id = ?,
			rowfold_definition = ?, rowfold_emits = ?, rowfold_emit_above = ?, revision = ?, checkpoints = ?,
			code = ?, name = ?, total = ?, delay = ?, open = ?, seen = ? WHERE rowfold_key = ? AND revision = ?`),
		effect: prepared(`INSERT INTO rowfold_outbox
			(projection, row_key, sequence, id, source, stream, stream_id, version, effect_index, type, schema_version,
			 payload, enqueued_at, trace_parent, claim_epoch, claim_nonce, claim_owner)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`),
	}
}

func (h *handWritten) args(write *projection.Write) []any {
	checkpoints, err := json.Marshal(write.Books.Checkpoints)
	if err != nil {
		panic(err) // strings and integers always encode
	}
	seen := write.Values[5].(time.Time).UTC().Format("2006-01-02T15:04:05.000000Z")
	return []any{
		false, nil, write.ID, write.Books.Definition, nil, nil, *write.Books.Revision, string(checkpoints),
		write.Values[0], write.Values[1], write.Values[2], write.Values[3], write.Values[4], seen,
	}
}

func (h *handWritten) insert(tb testing.TB, writes []projection.Write) {
	tb.Helper()
	for i := range writes {
		_, err := h.insertRow.ExecContext(tb.Context(), append([]any{writes[i].Key}, h.args(&writes[i])...)...)
		require.NoError(tb, err)
	}
}

func (h *handWritten) exec(tb testing.TB, text string) {
	tb.Helper()
	_, err := h.db.ExecContext(tb.Context(), text)
	require.NoError(tb, err)
}

func (h *handWritten) commit(tb testing.TB, writes []projection.Write) time.Duration {
	tb.Helper()
	began := time.Now()
	require.NoError(tb, h.try(context.WithoutCancel(tb.Context()), writes))
	return time.Since(began)
}

func (h *handWritten) try(ctx context.Context, writes []projection.Write) error {
	tx, err := h.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	row, effect := tx.StmtContext(ctx, h.row), tx.StmtContext(ctx, h.effect) //nolint:sqlclosecheck // the transaction closes them
	for i := range writes {
		write := &writes[i]
		if err := changedOne(row.ExecContext(ctx, append(h.args(write), write.Key, *write.Guard.Revision)...)); err != nil {
			return err
		}
		for j := range write.Effects {
			item := &write.Effects[j]
			if err := changedOne(effect.ExecContext(ctx, item.Row.Projection, item.Row.Key, string(item.Sequence), item.ID, item.Source,
				item.Stream, string(item.StreamID), item.Version, item.Index, item.Type, item.SchemaVersion, []byte(item.Payload),
				item.EnqueuedAt.UnixMicro(), item.TraceParent, 0, "", nil)); err != nil {
				return err
			}
		}
	}
	return tx.Commit()
}

func changedOne(result sql.Result, err error) error {
	if err != nil {
		return err
	}
	if changed, err := result.RowsAffected(); err != nil || changed != 1 {
		return fmt.Errorf("%d rows changed, 1 was to be: %w", changed, err)
	}
	return nil
}
