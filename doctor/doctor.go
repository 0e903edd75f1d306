// Package doctor finds faults of a set-up before they cost an event: streams that lose acknowledged
// messages, consumers that drop or delay events, settings of the database with which a crash loses
// commits, missing or excessive rights, and processes that no longer run.
//
// It changes nothing. Its transactions are read-only. None of its statements reads a large table
// completely, and it reads a stream for a few seconds at most.
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

// DB is a *pgxpool.Pool or a *pgx.Conn. It is an interface to allow both. If a statement takes too
// long, its connection is lost: a pool has others, but without a pool that ends the examination.
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

	// Streams are more streams to examine. The streams in use are always examined: those that
	// handlers read, and those that store the subjects of the newest events.
	Streams []string

	// ProducerRoles are roles that only write events. The doctor checks that they have the rights
	// that postroom.grant_producer grants, and no other rights on the tables.
	ProducerRoles []string

	// Ignore lists findings that you know and accept, each as the name of a check or as
	// "check:subject". They are reported as [OK], with their text.
	Ignore []string

	// Retention is how long the relays keep published events in the log. Set it to the value of
	// relay.Config.Retention.
	//
	// Defaults to 72 hours.
	Retention time.Duration

	// Lease is the lease of the relays (relay.Config.Lease), if you set it.
	//
	// Defaults to none: a relay lengthens its lease if the database is slow.
	Lease time.Duration

	// OldTransaction is the age from which an open or prepared transaction is reported. While it is
	// open, vacuum cannot remove rows that were deleted since it began.
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

// New returns a doctor. nc may be nil: then the checks that need the broker are reported as
// skipped. New does no I/O and cannot fail: [Doctor.Examine] returns the faults of the Config.
func New(db DB, nc *nats.Conn, cfg Config) *Doctor {
	d := &Doctor{db: db, nc: nc, cfg: cfg.defaults()}
	if d.name, d.err = schema.Name(cfg.Schema); d.err == nil {
		d.sql = load(d.name)
	}
	return d
}

// Examine makes all checks. If a check cannot be made, because a right or the broker is missing,
// the report has it as [Skipped], and Examine continues with the next check. It returns an error
// only if the database does not answer, so that nothing could be examined.
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
