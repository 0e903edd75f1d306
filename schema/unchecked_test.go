package schema_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom/internal/devtest"
)

// A transaction cannot commit with an event that breaks a rule, whatever it does between the INSERT
// and its end. The check leaves no rows behind.
func TestUncheckedRowsAreCheckedWhenTheyCommit(t *testing.T) {
	t.Parallel()
	good := insertEvent("postroom", nil)
	bad := insertEvent("postroom", map[string]string{"type": "'a..b'"})
	const (
		refused   = "55000" // the INSERT itself
		violation = "23514"
	)
	tests := []struct {
		name       string
		statements []string
		fails      int // the number of the statement that fails; -1: none, len(statements): the commit
		code       string
	}{
		{"good", []string{good, good}, -1, ""},
		{"bad", []string{bad}, 1, violation},
		{"good and bad", []string{good, bad}, 2, violation},
		{"bad and good", []string{bad, good}, 2, violation},
		{"bad in a savepoint", []string{"SAVEPOINT s", bad, "RELEASE s"}, 3, violation},
		{"bad and taken back", []string{good, "SAVEPOINT s", bad, "ROLLBACK TO s", good}, -1, ""},
		{"bad after what was taken back", []string{"SAVEPOINT s", good, "ROLLBACK TO s", bad}, 4, violation},
		{"bad beside what was taken back", []string{bad, "SAVEPOINT s", good, "ROLLBACK TO s"}, 4, violation},
		{"bad and deleted", []string{bad, "DELETE FROM postroom.outbox"}, -1, ""},
		{"many", []string{"INSERT INTO postroom.outbox (source, event_id, digest, type, subject, data) " +
			"SELECT '/shop', n::text, decode(repeat('00', 16), 'hex'), CASE n WHEN 777 THEN 'a..b' ELSE 'a' END, 'a', '' FROM generate_series(1, 1000) n"}, 1, violation},
		{"of another that was written with its rules", []string{"SELECT postroom.write('/shop', 'a', '')", bad}, 2, violation},
		{"constraints are immediate", []string{"SET CONSTRAINTS ALL IMMEDIATE", good}, 1, refused},
		{"immediate, after a good one", []string{good, "SET CONSTRAINTS ALL IMMEDIATE", bad}, 2, refused},
		{"immediate, after a bad one", []string{bad, "SET CONSTRAINTS ALL IMMEDIATE"}, 1, violation},
		{"immediate for a while", []string{good, "SET CONSTRAINTS ALL IMMEDIATE", "SET CONSTRAINTS ALL DEFERRED", bad}, 4, violation},
		{"immediate and by the function", []string{"SET CONSTRAINTS ALL IMMEDIATE", "SELECT postroom.write('/shop', 'a', '')"}, -1, ""},
		{"the function, bad", []string{"SELECT postroom.write('/shop', 'a..b', '')"}, 0, violation},
		{"by a trigger at the end", []string{
			"CREATE TABLE late (n int)",
			"CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN " + bad + "; RETURN NULL; END $f$",
			"CREATE CONSTRAINT TRIGGER late AFTER INSERT ON late DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION late()",
			"INSERT INTO late VALUES (1)", good,
		}, 5, violation},
		{"prepared", []string{bad, "PREPARE TRANSACTION 'unchecked'"}, 1, violation},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pool := devtest.Pool(t)
			done := 0
			err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
				for _, sql := range tt.statements {
					if _, err := tx.Exec(t.Context(), sql); err != nil {
						return err
					}
					done++
				}
				return nil
			})
			var pg *pgconn.PgError
			switch {
			case tt.fails < 0 && err != nil:
				t.Errorf("statement %d failed: %v", done, err)
			case tt.fails >= 0 && (!errors.As(err, &pg) || pg.Code != tt.code || done != tt.fails):
				t.Errorf("statement %d failed with %v, want %s of statement %d", done, err, tt.code, tt.fails)
			}
			if n := one[int](t, pool, "SELECT count(*) FROM postroom.unchecked"); n != 0 {
				t.Errorf("%d transactions are remembered as unchecked", n)
			}
			if n := one[int](t, pool, "SELECT count(*) FROM postroom.outbox WHERE type = 'a..b'"); n != 0 {
				t.Errorf("%d bad events are in the log", n)
			}
		})
	}
}

// A producer that may call only the functions of its grant can write in each way, and must keep the
// rules.
func TestProducerWithoutRightsOfPublic(t *testing.T) {
	t.Parallel()
	pool := devtest.EmptyPool(t)
	exec(t, pool, "ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC; ALTER DEFAULT PRIVILEGES REVOKE USAGE ON TYPES FROM PUBLIC")
	migrate(t, pool, "")
	role := pgx.Identifier{one[string](t, pool, "SELECT current_database() || '_producer'")}.Sanitize()
	exec(t, pool, "CREATE ROLE "+role)
	defer exec(t, pool, "DROP OWNED BY "+role+"; DROP ROLE "+role)
	exec(t, pool, "SELECT postroom.grant_producer('"+role+"')")
	as := func(sql string) error {
		return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), "SET LOCAL ROLE "+role); err != nil {
				return err
			}
			_, err := tx.Exec(t.Context(), sql)
			return err
		})
	}
	for name, sql := range map[string]string{
		"an INSERT that says nothing":           insertEvent("postroom", map[string]string{"headers": `'{"a": "1"}'`}),
		"an INSERT that says that it checked":   insertEvent("postroom", map[string]string{"checked": "true"}),
		"the function":                          `SELECT postroom.write('/shop', 'a', '', headers => '{"a": "1"}')`,
		"the function, with a time and a state": `SELECT postroom.write('/shop', 'a', '', not_before => now(), trace_state => 'a=b', key => 'k')`,
	} {
		if err := as(sql); err != nil {
			t.Errorf("a producer, %s: %v", name, err)
		}
	}
	err := as(insertEvent("postroom", map[string]string{"headers": `'{"Nats-Rollup": "secret"}'`, "data": "'secret'"}))
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "23514" || pg.ConstraintName != "headers_names" {
		t.Fatalf("a bad header by a producer: %v, want 23514 of headers_names", err)
	}
	if text := fmt.Sprintf("%+v", *pg); strings.Contains(text, "secret") {
		t.Errorf("the error quotes the event: %s", text)
	}
	for _, sql := range []string{
		"SELECT FROM postroom.unchecked", "INSERT INTO postroom.unchecked VALUES ('1')", "DELETE FROM postroom.unchecked",
	} {
		if err := as(sql); !errors.As(err, &pg) || pg.Code != "42501" {
			t.Errorf("%s by a producer: %v, want insufficient privilege", sql, err)
		}
	}
}

// If a row says that it is checked, the database does not check it again, because the Go package
// has checked it.
func TestCheckedRowsAreNotCheckedAgain(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	exec(t, pool, insertEvent("postroom", map[string]string{"type": "'a..b'", "checked": "true"}))
	wantViolation(t, pool, insertEvent("postroom", map[string]string{"type": "'a..b'"}), "subject_syntax")
}

// The functions that have the rights of the tables' owner use no operators of the writer:
// these would run with those rights, and could let a bad event pass.
func TestUncheckedRowsAreCheckedWithTheServersOperators(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	exec(t, pool, `CREATE SCHEMA evil;
		CREATE FUNCTION evil.equal(xid8, xid8) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'hijacked as %', current_user; END $$;
		CREATE OPERATOR evil.= (LEFTARG = xid8, RIGHTARG = xid8, FUNCTION = evil.equal)`)
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "SET LOCAL search_path = evil, pg_catalog; "+insertEvent("postroom", nil)+"; "+insertEvent("postroom", nil))
		return err
	})
	if err != nil {
		t.Errorf("a good event is refused: %v", err)
	}
	if n := one[int](t, pool, "SELECT count(*) FROM postroom.outbox"); n != 2 {
		t.Errorf("%d events, want 2", n)
	}
}
