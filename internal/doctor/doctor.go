// Package doctor finds faults of a set-up before events are lost: streams that lose acknowledged
// messages, consumers that drop or delay events, database settings that let a crash lose commits,
// missing or excessive rights, and processes that no longer run.
//
// It changes no data: its transactions are read-only, and at the broker it creates only temporary
// consumers. None of its statements reads a large table completely. It reads a stream for a few
// seconds at most.
package doctor

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom/schema"
)

// DB is a *pgxpool.Pool or a *pgx.Conn. It is an interface to allow both. If a check takes too
// long, pgx closes the connection on which the check runs its statement. A pool opens another
// connection. Without a pool, all later checks of the database are skipped.
type DB interface {
	Begin(ctx context.Context) (pgx.Tx, error)
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// Config tunes a [Doctor]. The zero value is ready to use.
type Config struct {
	// Schema is the database schema that holds Postroom's tables.
	//
	// Defaults to "postroom".
	Schema string

	// Streams are additional streams to examine. The doctor always examines the streams in use: the
	// streams that handlers read, and the streams that store the subjects of the newest events.
	Streams []string

	// ProducerRoles are roles that only write events. The doctor checks that they have the rights
	// that postroom.grant_producer grants, and no other rights on the tables.
	ProducerRoles []string

	// Ignore lists findings that you know and accept, each as the name of a check or as
	// "check:subject". The report has them as [OK], with their text.
	Ignore []string

	// Retention is how long the relays keep published events in the log. Set it to the value of
	// relay.Config.Retention.
	//
	// Defaults to 72 hours.
	Retention time.Duration

	// Lease is the lease of the relays, if you set relay.Config.Lease.
	//
	// Defaults to 0: each relay chooses its own lease, which is longer if the database is slow.
	Lease time.Duration

	// ExecMode is the mode in which producers and consumers execute their statements, if it is not the
	// mode of the doctor's own connections.
	//
	// Defaults to the mode of the doctor's own connections.
	ExecMode pgx.QueryExecMode

	// OldTransaction is the age from which the doctor reports an open or prepared transaction.
	// While such a transaction is open, vacuum cannot remove rows that were deleted after it began.
	//
	// Defaults to an hour.
	OldTransaction time.Duration
}

func (c Config) defaults() Config {
	c.Retention = cmp.Or(c.Retention, 72*time.Hour)
	c.OldTransaction = cmp.Or(c.OldTransaction, time.Hour)
	return c
}

// Doctor examines one Postroom: its tables, and the streams that it uses.
type Doctor struct {
	db   DB
	nc   *nats.Conn
	cfg  Config
	name string // of the schema
	sql  statements
	err  error // the faults of the Config
}

// New returns a doctor. If nc is nil, the doctor skips the checks that need the broker, and the
// report says so ([Skipped]). New does no I/O and cannot fail: [Doctor.Examine] returns the faults
// of the Config.
func New(db DB, nc *nats.Conn, cfg Config) *Doctor {
	d := &Doctor{db: db, nc: nc, cfg: cfg.defaults()}
	if d.name, d.err = schema.Name(cfg.Schema); d.err == nil {
		d.sql = load(d.name)
	}
	return d
}

// Examine makes all checks. If it cannot make a check, because the database role lacks a right or
// there is no connection to the broker, the report has the check as [Skipped], and Examine
// continues with the next check. It returns an error if the Config is wrong, if the database does
// not answer at the beginning, or if ctx ended.
func (d *Doctor) Examine(ctx context.Context) (Report, error) {
	e, err := d.begin(ctx)
	if err != nil {
		return Report{}, err
	}
	for _, c := range checks {
		e.runCheck(ctx, c)
	}
	return Report{Findings: e.findings}, ctx.Err()
}

// begin checks that the database answers, and returns a new examination.
func (d *Doctor) begin(ctx context.Context) (*examination, error) {
	if d.err != nil {
		return nil, fmt.Errorf("doctor: %w", d.err)
	}
	e := &examination{d: d}
	if _, err := e.databaseClock(ctx); err != nil {
		return nil, fmt.Errorf("doctor: %w", err)
	}
	return e, nil
}
