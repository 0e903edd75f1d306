package outbox_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/outbox"
)

// waysToWrite returns the ways in which Go writes events.
func waysToWrite(t *testing.T, pool *pgxpool.Pool) map[string]func(o *outbox.Outbox) error {
	t.Helper()
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { _ = db.Close() }) // the pool stays open, and its owner closes it
	return map[string]func(o *outbox.Outbox) error{
		"Write": func(o *outbox.Outbox) error {
			return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
				return o.Write(t.Context(), tx, postroom.Event{Type: "a", Key: "k"})
			})
		},
		"Write of an event with an id": func(o *outbox.Outbox) error {
			return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
				return o.Write(t.Context(), tx, postroom.Event{ID: "1", Type: "a"})
			})
		},
		"Queue": func(o *outbox.Outbox) error {
			var batch pgx.Batch
			if err := o.Queue(&batch, postroom.Event{Type: "a"}); err != nil {
				return err
			}
			return o.Explain(pool.SendBatch(t.Context(), &batch).Close())
		},
		"WriteSQL": func(o *outbox.Outbox) error {
			tx, err := db.BeginTx(t.Context(), &sql.TxOptions{})
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }() // only the error of the write matters
			return o.WriteSQL(t.Context(), tx, postroom.Event{Type: "a"})
		},
		"Check": func(o *outbox.Outbox) error { return o.Check(t.Context(), pool) },
	}
}

// wantAdvice checks that an error says once what to do, and still contains the error of the
// database.
func wantAdvice(t *testing.T, err error, state, advice string) {
	t.Helper()
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != state || strings.Count(err.Error(), advice) != 1 {
		t.Errorf("%v, want SQLSTATE %s and %q", err, state, advice)
	}
}

func TestProducerNamesTheGrantThatItLacks(t *testing.T) {
	t.Parallel()
	as, role := devtest.RolePool(t, devtest.Pool(t))
	for name, write := range waysToWrite(t, as) {
		t.Run(name, func(t *testing.T) {
			advice := "SELECT postroom.grant_producer('" + role + "')"
			if name == "Queue" || name == "WriteSQL" { // these two have no connection to ask
				advice = "SELECT postroom.grant_producer("
			}
			wantAdvice(t, write(outbox.New(outbox.Config{Source: "/shop"})), "42501", advice)
		})
	}
	log := pglog.New(as)
	advice := "SELECT postroom.grant_relay('" + role + "')"
	wantAdvice(t, log.Check(t.Context()), "42501", advice)
	_, err := log.Lead(t.Context(), "a", time.Minute)
	wantAdvice(t, err, "42501", advice)
	_, err = log.Lag(t.Context())
	wantAdvice(t, err, "42501", advice)
}

// If rights were granted before a migration, and are no longer enough after it, the error names the
// grant.
func TestTermNamesTheGrantThatItLacks(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	as, role := devtest.RolePool(t, pool)
	mustExec(t, pool, "SELECT postroom.grant_relay('"+role+"')")
	term := lead(t, pglog.New(as))
	mustExec(t, pool, "REVOKE SELECT ON postroom.held FROM "+role)
	_, err := term.Read(t.Context(), 10, nil)
	wantAdvice(t, err, "42501", "SELECT postroom.grant_relay('"+role+"')")
	mustExec(t, pool, "REVOKE UPDATE ON postroom.relay FROM "+role)
	wantAdvice(t, term.Record(t.Context(), eventlog.Progress{}), "42501", "SELECT postroom.grant_relay('"+role+"')")
}

func TestADatabaseWithoutTables(t *testing.T) {
	t.Parallel()
	pool := devtest.EmptyPool(t)
	for name, write := range waysToWrite(t, pool) {
		t.Run(name, func(t *testing.T) {
			err := write(outbox.New(outbox.Config{Source: "/shop"}))
			if name == "Check" {
				if err == nil || !strings.Contains(err.Error(), "postroom migrate up") {
					t.Errorf("Check = %v, want it to say 'postroom migrate up'", err)
				}
				return
			}
			wantAdvice(t, err, "42P01", "postroom migrate up")
		})
	}
	// With the name of another schema.
	err := waysToWrite(t, pool)["Write"](outbox.New(outbox.Config{Source: "/shop", Schema: "mail"}))
	wantAdvice(t, err, "42P01", "postroom migrate up --schema mail")
}
