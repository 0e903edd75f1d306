// Package doctor finds what is wrong with a set-up before it costs an event:
// streams that lose what they acknowledged, consumers that drop or hold back,
// settings of the database under which a crash takes effects away, rights that
// are missing or too many, processes that are gone.
//
// It only looks. Its transactions are read only, none of its statements reads one of
// the large tables from end to end, and a stream is read for seconds at the most.
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

// DB is what a doctor needs of a database: a *pgxpool.Pool or a *pgx.Conn. It is an
// interface so that both will do; with a pool, a statement that takes too long
// costs a connection and not the rest of the examination.
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

	// Streams are the names of streams to examine beside those that are in use:
	// those that handlers read, and that take the subjects of the newest events.
	Streams []string

	// ProducerRoles are the roles that only write events. They are examined for what
	// postroom.grant_producer grants, and for rights beyond it.
	ProducerRoles []string

	// Ignore are findings that are known and wanted, each the name of a check, or
	// "check:subject". They are reported as [OK], with what they say.
	Ignore []string

	// Retention is for how long the relays keep published events in the log, which
	// is theirs to know (relay.Config.Retention).
	//
	// Defaults to 72 hours.
	Retention time.Duration

	// Lease is that of the relays (relay.Config.Lease), where it was chosen.
	//
	// Defaults to none: a relay lengthens its lease if the database is slow.
	Lease time.Duration

	// OldTransaction is the age from which a transaction that is open, or prepared,
	// is reported, because no vacuum frees what was removed since it began.
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
	err  error // what is wrong with the Config
}

// New returns a doctor. nc may be nil: then what can be told of the broker alone is
// reported as skipped. It does no I/O and cannot fail: faults of the Config are
// returned by Examine.
func New(db DB, nc *nats.Conn, cfg Config) *Doctor {
	d := &Doctor{db: db, nc: nc, cfg: cfg.defaults()}
	if d.name, d.err = schema.Name(cfg.Schema); d.err == nil {
		d.sql = load(d.name)
	}
	return d
}

// Examine makes all checks. One that cannot be made, for lack of a right or of a
// broker, is in the report as [Skipped], and keeps no other from being made. The
// error says that nothing could be looked at: the database is out of reach.
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

// begin makes sure that the database answers.
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
