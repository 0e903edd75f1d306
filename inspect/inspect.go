// Package inspect answers how far everything is, so that a command line or a
// console can be built on it: what waits and why, who leads, who reads, what an
// event went through, and what operators did.
//
// It changes nothing. Each answer is made in a read-only transaction of its own, of
// which every statement finds what it looks for by an index and stops at a bound: an
// answer takes well under a second however much is logged, decided and held. Where a
// bound was reached the answer says so. No answer has the data of an event in it.
package inspect

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/remedy"
	"github.com/postroom/postroom/schema"
)

// DB is what this package needs of a database: a *pgxpool.Pool or a *pgx.Conn. It is
// an interface so that either will do.
type DB interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// Config says where to look. The zero value is ready to use.
type Config struct {
	// Schema is the database schema that holds Postroom's tables.
	//
	// Defaults to "postroom".
	Schema string

	// Retention is how long the relay keeps published events in the log. It is the
	// relay's to know; here it only says by how much the oldest is overdue.
	//
	// Defaults to 72 hours, as the relay's does.
	Retention time.Duration
}

// Inspector answers questions. It is safe for concurrent use where its DB is.
type Inspector struct {
	db        DB
	nc        *nats.Conn // nil where the broker is not asked
	schema    string
	retention time.Duration
	err       error // what is wrong with the Config
	sql       statements
}

// New returns an inspector of the tables in db, and of the broker behind nc. Where nc
// is nil what only the broker knows is left out, and the answers say so. It does no
// I/O and cannot fail: faults of the Config are returned by the methods.
func New(db DB, nc *nats.Conn, cfg Config) *Inspector {
	i := &Inspector{db: db, nc: nc, retention: cmp.Or(cfg.Retention, 72*time.Hour)}
	if i.schema, i.err = schema.Name(cfg.Schema); i.err == nil {
		i.sql = load(i.schema)
	}
	return i
}

// patience bounds an answer, the broker's part apart. plan.sql has the bound of a
// statement.
const patience = 15 * time.Second

// look has do read, in a transaction that shows one moment and cannot write.
func (i *Inspector) look(ctx context.Context, do func(db *moment) error) error {
	if i.err != nil {
		return postroom.Refuse(i.err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tx, err := i.db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return fmt.Errorf("begin to look: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // there is nothing to commit
	if _, err := tx.Exec(ctx, i.sql.plan); err != nil {
		return fmt.Errorf("begin to look: %w", err)
	}
	if err := schema.Require(ctx, tx, i.schema); err != nil {
		return err
	}
	return do(&moment{ctx: ctx, tx: tx, sql: &i.sql})
}

// advise returns an error of the database with what to do about it, so that it can be
// looked at.
func (i *Inspector) advise(err error) error {
	return remedy.Explain(err, remedy.Use{Grant: "operator", Schema: i.schema, DB: i.db})
}

// moment is what the database shows at one time.
type moment struct {
	ctx context.Context // of the look: it is over when do returns
	tx  pgx.Tx
	sql *statements
}

// rows returns the rows of a statement, each made by scan.
func rows[T any](m *moment, what, sql string, scan func(row pgx.CollectableRow, to *T) error, args ...any) ([]T, error) {
	r, _ := m.tx.Query(m.ctx, sql, args...) // its error is returned by CollectRows
	all, err := pgx.CollectRows(r, func(row pgx.CollectableRow) (T, error) {
		var to T
		err := scan(row, &to)
		return to, err
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	return all, nil
}

// one returns the row of a statement that has one.
func one[T any](m *moment, what, sql string, scan func(row pgx.CollectableRow, to *T) error, args ...any) (T, error) {
	all, err := rows(m, what, sql, scan, args...)
	if err == nil && len(all) != 1 {
		err = fmt.Errorf("read %s: %d rows, want 1", what, len(all))
	}
	if err != nil {
		var none T
		return none, err
	}
	return all[0], nil
}
