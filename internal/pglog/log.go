// Package pglog reads the log (the table outbox) in PostgreSQL for the relay. Only one process at a
// time leads. The leader reads all committed events in order, and records the results.
package pglog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/remedy"
	"github.com/postroom/postroom/schema"
)

var (
	// ErrSequenceBehind says that the log's sequence is lower than seqs that are recorded as
	// published. So new events would count as published. Causes are TRUNCATE with RESTART IDENTITY,
	// and logical replication, which does not copy sequences. Call setval to set the sequence to
	// the highest seq that is recorded as published.
	ErrSequenceBehind = errors.New("the log's sequence is behind what is recorded as published")

	// ErrSequenceOptions says that the log's sequence has CYCLE, or a CACHE or INCREMENT
	// other than 1. With such a sequence, seqs do not order the events of a key.
	ErrSequenceOptions = errors.New("the log's sequence must have CACHE 1, INCREMENT 1 and NO CYCLE")

	// ErrRowSecurity says that row-level security is active on the log's tables for the relay's role.
	// Events that the relay cannot see would count as published.
	ErrRowSecurity = schema.ErrRowSecurity

	// ErrPooled says that there is a transaction pooler between the relay and PostgreSQL. The
	// pooler sends the statements of one connection to different server processes. But what a relay
	// remembers of the log is valid only while the same server process answers. Also, the settings
	// of the relay would affect other clients of the pooler. Give the relay a direct connection.
	ErrPooled = errors.New("the relay's connection is pooled; connect it to PostgreSQL directly, or through a session pooler")
)

var _ eventlog.Source = (*Log)(nil)

// Log reads committed events for the relay. It is safe for concurrent use. It keeps no connection
// open, but an [eventlog.Term] does.
type Log struct {
	pool     *pgxpool.Pool
	schema   string
	sql      statements
	err      error  // set if the name of the schema is invalid
	grant    string // the rights that errors advise to grant: "relay" or "operator"
	stepSize stepSize
}

// New returns the log in the schema postroom of pool's database. It does no I/O. A relay
// that leads keeps two connections outside the pool. They must go to PostgreSQL directly or
// through a session pooler.
func New(pool *pgxpool.Pool) *Log {
	return &Log{pool: pool, schema: schema.DefaultName, sql: load(schema.DefaultName), grant: "relay"}
}

// ForOperator returns the log for an operator: its errors advise to grant an operator's rights.
func (l *Log) ForOperator() *Log {
	return &Log{pool: l.pool, schema: l.schema, sql: l.sql, err: l.err, grant: "operator"}
}

// advise adds advice to an error of the database. ErrPooled says itself what to do.
func (l *Log) advise(err error) error {
	if errors.Is(err, ErrPooled) {
		return err
	}
	return remedy.Explain(err, remedy.Use{Grant: l.grant, Schema: l.schema, DB: l.pool})
}

// refuse is advise for an error before a term, or at its begin. If the role lacks a right, the result
// matches postroom.ErrUnrecoverable, because only a person can grant it.
func (l *Log) refuse(err error) error {
	err = l.advise(pooled(err))
	//guard:a-relay-without-rights-ends false
	if remedy.IsDenied(err) {
		return postroom.Unrecoverable(err)
	}
	return err
}

// WithSchema returns the log in the schema with the given name. An empty name means
// postroom. If the name is invalid, Check and Lead return an error.
func (l *Log) WithSchema(name string) *Log {
	other := &Log{pool: l.pool, schema: name, grant: l.grant}
	if name, other.err = schema.Name(name); other.err != nil {
		return other
	}
	other.schema, other.sql = name, load(name)
	return other
}

// Check checks whether the log can be read. It reads the schema's version and the log's sequence.
func (l *Log) Check(ctx context.Context) error {
	if l.err != nil {
		return fmt.Errorf("outbox: %w", postroom.Unrecoverable(l.err))
	}
	if err := schema.Require(ctx, l.pool, l.schema); err != nil {
		return fmt.Errorf("outbox: %w", l.refuse(err))
	}
	if _, err := l.checkSequence(ctx, l.pool); err != nil {
		return fmt.Errorf("outbox: %w", l.refuse(err))
	}
	return nil
}

// Lead takes the lease of the log for owner, for the given time, and returns the term in which
// owner leads. If another owner has the lease, Lead returns [eventlog.ErrLeaseHeld]. If an owner
// takes its own lease again, a new term begins and the owner's previous term is over.
//
// Lead first connects to the database and checks the log. It takes the lease last: see
// [eventlog.Term.LeaseStart]. The caller renews the lease with [eventlog.Term.Renew] or
// [eventlog.Term.Record], and ends the term with [eventlog.Term.Release].
func (l *Log) Lead(ctx context.Context, owner string, lease time.Duration) (eventlog.Term, error) {
	if l.err != nil {
		return nil, fmt.Errorf("outbox: %w", postroom.Unrecoverable(l.err))
	}
	term, err := l.lead(ctx, owner, lease)
	if err != nil {
		return nil, fmt.Errorf("outbox: lead: %w", l.refuse(err))
	}
	return term, nil
}

// Paused returns the operator's pause of the relays, if there is one.
func (l *Log) Paused(ctx context.Context) (p eventlog.Pause, paused bool, err error) {
	if l.err != nil {
		return p, false, fmt.Errorf("outbox: %w", postroom.Unrecoverable(l.err))
	}
	var until *time.Time
	err = l.pool.QueryRow(ctx, l.sql.Paused).Scan(&p.Since, &until, &p.Actor, &p.Reason)
	if errors.Is(err, pgx.ErrNoRows) {
		return p, false, nil
	}
	if err != nil {
		return p, false, fmt.Errorf("outbox: look for a pause: %w", l.refuse(err))
	}
	if until != nil {
		p.Until = *until
	}
	return p, true, nil
}

func (l *Log) lead(ctx context.Context, owner string, length time.Duration) (*term, error) {
	var free, shortened bool // this is asked through the pool, so that a standby opens no other connection
	err := within(ctx, func(ctx context.Context) error {
		return l.pool.QueryRow(ctx, l.sql.LeaseFree, owner).Scan(&free, &shortened)
	})
	if err != nil {
		return nil, fmt.Errorf("look at lease: %w", err)
	}
	if !free && shortened {
		return nil, errors.Join(eventlog.ErrLeaseHeld, eventlog.ErrLeaseShortened)
	}
	if !free {
		return nil, eventlog.ErrLeaseHeld
	}
	both, err := dialer{pool: l.pool, sql: &l.sql}.open(ctx)
	if err != nil {
		return nil, err
	}
	ls := &lease{log: l, conn: both.writer, pid: both.writerPID, length: length, roundTrip: both.roundTrip}
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

// leadRow is a row of lead.sql and adopt.sql.
type leadRow struct {
	Epoch, High, Floor int64
	Snap, Pending      string
	Restored           bool
	Instance           string
	Streams            []byte
	To                 string // To, Passed and Open are those of catchUp
	Passed             int64
	Open               string
}

// sequenceRow is a row of sequence.sql.
type sequenceRow struct {
	Last, High, Increment, Cache int64
	Cycle                        bool
	Restored                     bool
	Secured                      string
}

// checkSequence returns an error if the relay cannot rely on the sequence, or cannot see all rows.
// It reports whether the log comes from another server and no relay has adopted it.
func (l *Log) checkSequence(ctx context.Context, db querier) (restored bool, err error) {
	row, err := oneRow[sequenceRow](ctx, db, l.sql.Sequence)
	if err != nil {
		return false, fmt.Errorf("read sequence: %w", err)
	}
	//guard:no-term-under-row-security false
	if row.Secured != "" {
		return false, postroom.Unrecoverable(fmt.Errorf("%w: on %s: %s", ErrRowSecurity, row.Secured, remedy.RowSecurity(l.pool)))
	}
	if row.Increment != 1 || row.Cache != 1 || row.Cycle {
		return false, postroom.Unrecoverable(fmt.Errorf("%w; it has CACHE %d, INCREMENT %d, CYCLE %t: ALTER SEQUENCE %s.outbox_seq_seq",
			ErrSequenceOptions, row.Cache, row.Increment, row.Cycle, l.schema))
	}
	if row.Last < row.High {
		return false, postroom.Unrecoverable(fmt.Errorf("%w: it is at %d and events up to %d are published; logical replication copies no sequences. If no event was written since, raise all sequences, as the owner of the tables: SELECT * FROM %s.raise_sequences()",
			ErrSequenceBehind, row.Last, row.High, l.schema))
	}
	if row.Restored {
		return true, nil
	}
	ahead, err := oneRow[struct{ Ahead bool }](ctx, db, l.sql.Ahead)
	if err != nil {
		return false, fmt.Errorf("look for transaction ids of another server: %w", err)
	}
	return ahead.Ahead, nil
}

// querier is a pool or a connection.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// With noPlan, the driver sends a statement and its arguments together, and keeps no plan. The
// driver's other mode without plans sends the statement first and its arguments later. A pooler can
// then send the arguments to another server process, which uses them for a statement of another
// client.
const noPlan = pgx.QueryExecModeExec

// oneRow runs a statement that returns one row. The columns must be the fields of T, in the same
// order. If there is no row, oneRow returns pgx.ErrNoRows.
func oneRow[T any](ctx context.Context, db querier, sql string, args ...any) (T, error) {
	rows, _ := db.Query(ctx, sql, args...) // CollectOneRow reports the error
	return pgx.CollectOneRow(rows, pgx.RowToStructByPos[T])
}
