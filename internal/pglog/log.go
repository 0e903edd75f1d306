// Package pglog is the log of a PostgreSQL database, as the relay reads it: it hands out
// every committed event, in order, to the one process that leads, and records what became
// of them.
package pglog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/eventlog"
	"github.com/postroom/postroom/internal/remedy"
	"github.com/postroom/postroom/schema"
)

var (
	// ErrSequenceBehind says that the log's sequence stands below what is
	// recorded as published: the log was truncated with RESTART IDENTITY, or
	// came by logical replication, which does not carry sequences. New events
	// would be taken for published ones. Set the sequence above the recorded
	// high, with setval.
	ErrSequenceBehind = errors.New("the log's sequence is behind what is recorded as published")

	// ErrSequenceOptions says that the log's sequence has a CACHE or INCREMENT
	// other than 1, or CYCLE: seqs would not order the events of a key.
	ErrSequenceOptions = errors.New("the log's sequence must have CACHE 1, INCREMENT 1 and NO CYCLE")

	// ErrPooled says that there is a transaction pooler between the relay and
	// PostgreSQL: the statements of one connection go to different server processes.
	// What the relay remembers is valid for one of them, and what it sets there would
	// be set for whom the pooler gives it to next. Give the relay a direct connection.
	ErrPooled = errors.New("the relay's connection is pooled; connect it to PostgreSQL directly, or through a session pooler")
)

var _ eventlog.Source = (*Log)(nil)

// Log reads committed events for the relay. It is safe for concurrent use and
// holds no connection; a [eventlog.Term] does.
type Log struct {
	pool   *pgxpool.Pool
	schema string
	sql    statements
	err    error  // what is wrong with the schema's name
	grant  string // what whoever uses it needs: "relay" or "operator"
	stride stride
}

// New returns the log in the schema postroom of pool's database. It does no
// I/O. While it leads, a relay keeps two connections made as the pool's are, but
// beside it; they must go straight to PostgreSQL or through a session pooler.
func New(pool *pgxpool.Pool) *Log {
	return &Log{pool: pool, schema: schema.DefaultName, sql: load(schema.DefaultName), grant: "relay"}
}

// ForOperator returns the log for an operator, who is told how to get an operator's rights.
func (l *Log) ForOperator() *Log {
	return &Log{pool: l.pool, schema: l.schema, sql: l.sql, err: l.err, grant: "operator"}
}

// advise returns an error of the database with what to do about it.
func (l *Log) advise(err error) error {
	return remedy.Explain(err, remedy.Use{Grant: l.grant, Schema: l.schema, DB: l.pool})
}

// WithSchema returns the log in the schema of the given name, empty meaning
// postroom. An invalid name is reported by Check and Lead.
func (l *Log) WithSchema(name string) *Log {
	other := &Log{pool: l.pool, schema: name, grant: l.grant}
	if name, other.err = schema.Name(name); other.err != nil {
		return other
	}
	other.schema, other.sql = name, load(name)
	return other
}

// Check reports whether the log can be read: the schema's version and the log's
// sequence.
func (l *Log) Check(ctx context.Context) error {
	if l.err != nil {
		return fmt.Errorf("outbox: %w", postroom.Unrecoverable(l.err))
	}
	if err := schema.Require(ctx, l.pool, l.schema); err != nil {
		return fmt.Errorf("outbox: %w", l.advise(pooled(err)))
	}
	if _, err := l.checkSequence(ctx, l.pool); err != nil {
		return fmt.Errorf("outbox: %w", l.advise(pooled(err)))
	}
	return nil
}

// Lead takes the lease of the log for owner, for the given time, and returns
// the term in which owner leads. It returns [eventlog.ErrLeaseHeld] where
// another owner holds the lease. An owner that takes its own lease again begins
// a new term, and its former one is over.
//
// It connects and makes its checks first, and takes the lease last: see [eventlog.Term.Taken].
// The caller renews it, with [eventlog.Term.Renew] or [eventlog.Term.Record], and ends the term with
// [eventlog.Term.Release].
func (l *Log) Lead(ctx context.Context, owner string, lease time.Duration) (eventlog.Term, error) {
	if l.err != nil {
		return nil, fmt.Errorf("outbox: %w", postroom.Unrecoverable(l.err))
	}
	term, err := l.lead(ctx, owner, lease)
	if err != nil {
		return nil, fmt.Errorf("outbox: lead: %w", l.advise(pooled(err)))
	}
	return term, nil
}

func (l *Log) lead(ctx context.Context, owner string, length time.Duration) (*term, error) {
	var free bool // asked through the pool: a standby need not connect for it
	err := within(ctx, func(ctx context.Context) error { return l.pool.QueryRow(ctx, l.sql.Free, owner).Scan(&free) })
	if err != nil {
		return nil, fmt.Errorf("look at lease: %w", err)
	}
	if !free {
		return nil, eventlog.ErrLeaseHeld
	}
	both, err := dialer{pool: l.pool, sql: &l.sql}.both(ctx)
	if err != nil {
		return nil, err
	}
	ls := &lease{log: l, conn: both.writer, length: length, roundTrip: both.roundTrip}
	row, err := ls.take(ctx, owner)
	if err != nil {
		return nil, errors.Join(err, both.close())
	}
	t, err := newTerm(ls, both.reader, row)
	if err != nil {
		return nil, errors.Join(err, ls.end(ctx), both.close())
	}
	return t, nil
}

// leadRow is what lead.sql and restored.sql return.
type leadRow struct {
	Epoch, High, Floor int64
	Snap, Pending      string
	Restored           bool
	Instance           string
	Streams            []byte
}

// sequenceRow is what sequence.sql returns.
type sequenceRow struct {
	Last, High, Increment, Cache int64
	Cycle                        bool
	Restored                     bool
}

// checkSequence refuses a sequence that the relay cannot rely on, and reports whether the
// log was restored from a dump and no relay has led it since.
func (l *Log) checkSequence(ctx context.Context, db querier) (restored bool, err error) {
	row, err := oneRow[sequenceRow](ctx, db, l.sql.Sequence)
	if err != nil {
		return false, fmt.Errorf("read sequence: %w", err)
	}
	if row.Increment != 1 || row.Cache != 1 || row.Cycle {
		return false, postroom.Unrecoverable(fmt.Errorf("%w; it has CACHE %d, INCREMENT %d, CYCLE %t: ALTER SEQUENCE %s.outbox_seq_seq",
			ErrSequenceOptions, row.Cache, row.Increment, row.Cycle, l.schema))
	}
	if row.Last < row.High {
		return false, postroom.Unrecoverable(fmt.Errorf("%w: it is at %d and events up to %d are published; if no event was written since: SELECT setval('%s.outbox_seq_seq', %d)",
			ErrSequenceBehind, row.Last, row.High, l.schema, row.High))
	}
	return row.Restored, nil
}

// querier is what oneRow needs: a pool or a connection.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// unplanned sends a statement in one piece, and keeps no plan of it. The driver's other
// way to keep none asks what the statement is before it sends the arguments, and behind
// a pooler these can go to another connection: to whatever statement somebody else has
// there.
const unplanned = pgx.QueryExecModeExec

// oneRow runs a statement that returns one row, whose columns are the fields
// of T in order. It returns pgx.ErrNoRows where there is none.
func oneRow[T any](ctx context.Context, db querier, sql string, args ...any) (T, error) {
	rows, _ := db.Query(ctx, sql, args...) // CollectOneRow reports the error
	return pgx.CollectOneRow(rows, pgx.RowToStructByPos[T])
}
