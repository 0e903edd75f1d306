package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/inbox/internal/delivery"
)

// Records stores a handler's position in its stream. It implements stream.Records.
type Records struct {
	Db      *DB
	Process string // the name of this process
	Handler string
	Stream  string
	Types   []string // nil for a handler with Subjects: all types
	Filter  []string
	Ordered bool // whether the handler is ordered
	OwnKeys bool // whether a function of the subscription makes the dedupe keys
}

// Subscribe records what the handler reads.
func (r *Records) Subscribe(ctx context.Context, created time.Time, floor, backfill uint64) (row delivery.Subscription, err error) {
	var types any
	if len(r.Types) > 0 {
		types = r.Types
	}
	err = r.Db.pool.QueryRow(ctx, r.Db.sql.Subscribe, r.Handler, r.Stream, created, types, floor, backfill, r.Filter, r.Ordered, r.OwnKeys).
		Scan(&row.Stream, &row.Created, &row.Types, &row.Floor, &row.Reached, &row.Backfill, &row.IsNew, &row.InOrder, &row.Before)
	if err != nil {
		return row, fmt.Errorf("note subscription: %w", err)
	}
	return row, nil
}

// Recreate records that the stream was created again, and where it begins.
func (r *Records) Recreate(ctx context.Context, created time.Time, floor uint64) error {
	if _, err := r.Db.pool.Exec(ctx, r.Db.sql.Recreated, r.Handler, created, floor); err != nil {
		return fmt.Errorf("note another stream: %w", err)
	}
	return nil
}

// Place returns the recorded floor. Its field Recent says whether it was recorded within the given
// time.
func (r *Records) Place(ctx context.Context, created time.Time, within time.Duration) (at delivery.Recorded, err error) {
	ctx, cancel := context.WithTimeout(ctx, WritePatience)
	defer cancel()
	var recordedBy time.Time
	err = r.Db.pool.QueryRow(ctx, r.Db.sql.Place, r.Handler, created, within).Scan(&at.Floor, &at.Skipped, &recordedBy, &at.Server, &at.Recent)
	if err != nil {
		return at, fmt.Errorf("read floor: %w", err)
	}
	at.Moved = !at.Server.Equal(recordedBy)
	return at, nil
}

// Raise records the sequence up to which every event is decided, if at is what is recorded and the
// database server is still the same.
func (r *Records) Raise(ctx context.Context, created time.Time, at delivery.Recorded, floor uint64) error {
	ctx, cancel := context.WithTimeout(ctx, WritePatience)
	defer cancel()
	if _, err := r.Db.pool.Exec(ctx, r.Db.sql.Floor, r.Handler, created, floor, at.Floor, at.Server); err != nil {
		return fmt.Errorf("note floor: %w", err)
	}
	return nil
}

// Skip records that the handler got another subject when its consumer had delivered the messages up
// to a sequence.
func (r *Records) Skip(ctx context.Context, created time.Time, through uint64) error {
	if _, err := r.Db.pool.Exec(ctx, r.Db.sql.Skipped, r.Handler, created, through); err != nil {
		return fmt.Errorf("note which messages are skipped: %w", err)
	}
	return nil
}

// Lacking returns which of the given dedupe keys have no row of the handler in the table inbox. For
// each key, old says whether a row of it may have expired if rows of the handler were removed.
func (r *Records) Lacking(ctx context.Context, keys []string, old []bool) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, WritePatience)
	defer cancel()
	rows, _ := r.Db.pool.Query(ctx, r.Db.sql.Lacking, r.Handler, keys, old) // CollectRows returns its error
	lacking, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("look for inbox rows: %w", err)
	}
	return lacking, nil
}

// Lower records that reading begins again at a lower sequence. It returns the sequence up to which
// the age of an event does not matter.
func (r *Records) Lower(ctx context.Context, created time.Time, floor uint64) (backfill uint64, err error) {
	err = r.Db.pool.QueryRow(ctx, r.Db.sql.Lower, r.Handler, created, floor).Scan(&backfill)
	if err != nil {
		return 0, fmt.Errorf("note where to begin: %w", err)
	}
	return backfill, nil
}

// Lead takes the lease to read for an ordered handler. It returns nil while another
// process has the lease.
func (r *Records) Lead(ctx context.Context, lease time.Duration) (*delivery.Lead, error) {
	var l delivery.Lead
	var id *string
	var stored *time.Time
	err := r.Db.pool.QueryRow(ctx, r.Db.sql.Lead, r.Handler, r.Process, lease).
		Scan(&l.Epoch, &l.Base, &l.Floor.Seq, &id, &stored, &l.Subjects, &l.Takeovers, &l.High, &l.Backfill)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil //nolint:nilnil // another process has the lease
	}
	if err != nil {
		return nil, fmt.Errorf("take the reader's lease: %w", err)
	}
	l.Floor.ID, l.Floor.Stored = value(id), value(stored)
	return &l, nil
}

// Pardon records that no event can have ended the readers before the reader with this epoch.
func (r *Records) Pardon(ctx context.Context, epoch int64) error {
	if _, err := r.Db.pool.Exec(ctx, r.Db.sql.Pardon, r.Handler, epoch); err != nil {
		return fmt.Errorf("pardon the earlier readers: %w", err)
	}
	return nil
}

// Keep returns two functions. The first one, keep, records the floor and renews the reader's lease.
// If its parameter lease is nil, keep gives up the lease instead. The function keep has its own
// connection until the second function, done, is called. If that connection breaks, the term is over:
// the server may have crashed and lost transactions, so what the reader remembers may be decided no
// longer.
func (r *Records) Keep(epoch int64) (keep func(ctx context.Context, lease *time.Duration, floor delivery.Position) error, done func()) {
	var conn *pgxpool.Conn
	broke := false
	keep = func(ctx context.Context, lease *time.Duration, floor delivery.Position) (err error) {
		ctx, cancel := context.WithTimeout(ctx, WritePatience)
		defer cancel()
		//guard:a-term-ends-with-its-connection false
		if broke {
			return delivery.ErrTermOver
		}
		if conn == nil {
			if conn, err = r.Db.pool.Acquire(ctx); err != nil {
				return fmt.Errorf("note floor: %w", err)
			}
		}
		tag, err := conn.Exec(ctx, r.Db.sql.Keep, r.Handler, epoch, lease, floor.Seq, optional(floor.ID), optional(floor.Stored))
		switch {
		case err != nil:
			broke = conn.Conn().IsClosed()
			conn.Release()
			conn = nil
			return fmt.Errorf("note floor: %w", err)
		case tag.RowsAffected() == 0:
			return delivery.ErrTermOver
		}
		return nil
	}
	return keep, func() {
		if conn != nil {
			conn.Release()
		}
	}
}

// Restart records the position after which the reader begins again. It returns a new base, which is
// added to sequences. So events that are read from now on get higher positions in the order of
// their keys than all earlier events whose sequences are at most the parameter used. Restart also
// returns the sequence up to which the age of an event does not matter.
func (r *Records) Restart(ctx context.Context, epoch int64, at delivery.Position, used uint64) (base int64, backfill uint64, err error) {
	err = r.Db.pool.QueryRow(ctx, r.Db.sql.Restart, r.Handler, epoch, at.Seq, used, optional(at.ID), optional(at.Stored)).Scan(&base, &backfill)
	if err != nil {
		return 0, 0, fmt.Errorf("note where to begin: %w", err)
	}
	return base, backfill, nil
}

// HeldKeys returns the keys that have held events, at most n.
func (r *Records) HeldKeys(ctx context.Context, n int) (keys []string, err error) {
	batch := &pgx.Batch{}
	batch.Queue(r.Db.sql.Plan)
	batch.Queue(r.Db.sql.Keys, r.Handler, n).Query(func(rows pgx.Rows) (err error) {
		keys, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	if err := r.Db.pool.SendBatch(ctx, batch).Close(); err != nil {
		return nil, fmt.Errorf("read which keys are blocked: %w", err)
	}
	return keys, nil
}

// SkipDead lets the events go on that wait for dead events of their keys. They waited because the
// handler held its keys before. It reports whether there were such keys.
func (r *Records) SkipDead(ctx context.Context) (found bool, err error) {
	const portion = 100 // keys, because each occupies a lock of the server until its transaction ends
	for after := ""; ; {
		var keys []string
		batch := &pgx.Batch{}
		batch.Queue(r.Db.sql.Plan)
		batch.Queue(r.Db.sql.DeadKeys, r.Handler, after, portion).Query(func(rows pgx.Rows) (err error) {
			keys, err = pgx.CollectRows(rows, pgx.RowTo[string])
			return err
		})
		err := r.Db.pool.SendBatch(ctx, batch).Close()
		if err == nil && len(keys) > 0 {
			err = r.skipDead(ctx, keys)
		}
		if err != nil {
			return found, fmt.Errorf("skip dead events: %w", err)
		}
		if len(keys) < portion {
			return found || len(keys) > 0, nil
		}
		found, after = true, keys[portion-1]
	}
}

// skipDead is SkipDead for some keys, in one transaction. Other transactions lock keys in the same
// order. The transaction is at READ COMMITTED, so that it sees what others committed before it got
// the locks.
func (r *Records) skipDead(ctx context.Context, keys []string) error {
	batch := &pgx.Batch{}
	batch.Queue(r.Db.sql.Plan)
	for _, key := range keys {
		batch.Queue(r.Db.sql.LockKey, r.Handler, key)
	}
	batch.Queue(r.Db.sql.SkipDead, r.Handler, keys)
	batch.Queue(r.Db.sql.Wake, r.Handler, keys)
	//guard:dead-events-are-skipped-at-read-committed 3 = pgx.TxOptions{}
	return pgx.BeginTxFunc(ctx, r.Db.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		return tx.SendBatch(ctx, batch).Close()
	})
}

// AskedFor returns the recorded types that processes of the handler asked for. nil means all types.
func (r *Records) AskedFor(ctx context.Context) (types []string, err error) {
	err = r.Db.pool.QueryRow(ctx, r.Db.sql.Types, r.Handler).Scan(&types)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil // an operator deleted the row: all types count as asked for, so that no event is skipped
	}
	return types, err
}
