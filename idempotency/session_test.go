package idempotency_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/idempotency"
	"github.com/postroom/postroom/internal/devtest"
)

// leaks are statements that leave something behind in the session, each with a query that
// tells whether it is there.
var leaks = map[string]struct{ sql, there string }{
	"a search_path":              {"SET search_path = nowhere", "SELECT current_setting('search_path') = 'nowhere'"},
	"one set by a function":      {"SELECT set_config('search_path', 'nowhere', false)", "SELECT current_setting('search_path') = 'nowhere'"},
	"one that no statement says": {"SELECT public.quietly()", "SELECT current_setting('search_path') = 'nowhere'"},
	"a tenant":                   {"SET app.tenant = '7'", "SELECT coalesce(current_setting('app.tenant', true), '') = '7'"},
	"a tenant set by a function": {"SELECT set_config('app.tenant', '7', false)", "SELECT coalesce(current_setting('app.tenant', true), '') = '7'"},
	"a timeout":                  {"SET statement_timeout = '1d'", "SELECT current_setting('statement_timeout') = '1d'"},
	"a default of transactions":  {"SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", "SELECT current_setting('default_transaction_read_only')::bool"},
	"a role":                     {"SET ROLE pg_monitor", "SELECT current_user = 'pg_monitor'"},
	"a user":                     {"SET SESSION AUTHORIZATION pg_monitor", "SELECT session_user = 'pg_monitor'"},
	"a temporary table":          {"CREATE TEMPORARY TABLE mine ()", "SELECT to_regclass('pg_temp.mine') IS NOT NULL"},
	"one made of a query":        {"SELECT 1 AS a INTO TEMPORARY mine", "SELECT to_regclass('pg_temp.mine') IS NOT NULL"},
	"an advisory lock":           {"SELECT pg_advisory_lock(99)", "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 99 AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))"},
	"a channel":                  {"LISTEN mine", "SELECT EXISTS (SELECT FROM pg_listening_channels())"},
	"a channel, prepared":        {"LISTEN mine", "SELECT EXISTS (SELECT FROM pg_listening_channels())"},
	"a prepared statement":       {"/* by hand */ PREPARE mine AS SELECT 1", "SELECT EXISTS (SELECT FROM pg_prepared_statements WHERE name = 'mine')"},
	"a name, prepared":           {"SELECT 1", "SELECT EXISTS (SELECT FROM pg_prepared_statements WHERE name = 'by name')"},
	"a cursor":                   {"DECLARE mine CURSOR WITH HOLD FOR SELECT 1", "SELECT EXISTS (SELECT FROM pg_cursors WHERE name = 'mine')"},
	"another time zone":          {"SET TimeZone = 'Asia/Kolkata'", "SELECT current_setting('TimeZone') = 'Asia/Kolkata'"},
}

// onePool returns a pool of one connection, which its hook, if it has one, has given
// settings.
func onePool(t *testing.T, hooked bool) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(devtest.DatabaseURL(t))
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 1
	if hooked {
		cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "SET TimeZone = 'Europe/Lisbon'; SET app.hook = 'mine'")
			return err
		}
	} else {
		cfg.ConnConfig.RuntimeParams["TimeZone"] = "Europe/Lisbon"
		cfg.ConnConfig.RuntimeParams["app.hook"] = "mine"
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// wantClean checks that nothing of a handler is left on the connection, and that the settings of
// the pool's hook are still there.
func (r *rig) wantClean(name, there string) {
	r.Helper()
	if one[bool](r, there) {
		r.Errorf("%s is left behind for the next request", name)
	}
	if got := one[string](r, "SELECT current_setting('TimeZone') || ' ' || current_setting('app.hook')"); got != "Europe/Lisbon mine" {
		r.Errorf("after %s the pool's own settings are %s", name, got)
	}
}

// A handler changes the session of its connection. The next request on the connection does not
// see that, however the handler ended.
func TestSessionIsResetAfterAHandlerChangedIt(t *testing.T) {
	t.Parallel()
	for name, hooked := range map[string]bool{"a plain pool": false, "a pool with a hook": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRigOn(t, onePool(t, hooked))
			r.exec("CREATE FUNCTION quietly() RETURNS void LANGUAGE plpgsql AS 'BEGIN SET search_path = nowhere; END'")
			for name, leak := range leaks {
				r.leak(name, leak.sql, leak.there)
			}
		})
	}
}

// leak runs handlers of all kinds that leave something behind.
func (r *rig) leak(name, sql, there string) {
	leave := func(ctx context.Context, tx pgx.Tx) error {
		is, sql := false, sql
		if strings.HasSuffix(name, ", prepared") {
			if _, err := tx.Prepare(ctx, "by name", sql); err != nil {
				r.Errorf("%s: %v", name, err)
			}
			sql = "by name"
		}
		if _, err := tx.Exec(ctx, sql); err != nil {
			r.Errorf("%s: %v", name, err)
		} else if err := tx.QueryRow(ctx, there).Scan(&is); !is && !strings.HasPrefix(name, "a channel") { // this one is there only after the commit
			r.Errorf("%s is not there in the transaction: %v", name, err)
		}
		return nil
	}
	for how, status := range map[string]int{"success": 201, "an error": 500, "a panic": 0} {
		path := r.mount(idempotency.Route{}, func(w http.ResponseWriter, req *http.Request) {
			_ = leave(req.Context(), idempotency.Tx(req.Context()))
			if status == 0 {
				panic(http.ErrAbortHandler)
			}
			w.WriteHeader(status)
		})
		func() {
			defer func() { _ = recover() }()
			r.want(r.post(path, "k"), status, "")
		}()
		r.wantClean(name+" and "+how, there)
	}
	path := r.mount(idempotency.Route{Mode: idempotency.LeaseMode}, func(_ http.ResponseWriter, req *http.Request) {
		_, err := idempotency.Phase(req.Context(), "leave", func(ctx context.Context, tx pgx.Tx) (int, error) { return 0, leave(ctx, tx) })
		if err != nil {
			r.Errorf("%s: %v", name, err)
		}
		r.wantClean(name+" and a phase", there)
	})
	r.want(r.post(path, "k"), 200, "")
	_, _, err := idempotency.Do(r.Context(), r.guard, idempotency.Operation{Scope: "leave", Key: name}, func(ctx context.Context, tx pgx.Tx) (int, error) {
		return 0, leave(ctx, tx)
	})
	if err != nil {
		r.Errorf("%s: %v", name, err)
	}
	r.wantClean(name+" and Do", there)
}

// asAnother is a rig whose handlers set another role, which has no rights on Postroom's tables.
type asAnother struct {
	*rig
	n int // rows of ledger
}

// insert sets the role with a statement and writes a row with the name of the current user.
func (r *asAnother) insert(ctx context.Context, tx pgx.Tx, sql string) error {
	if prepared, is := strings.CutPrefix(sql, "by name: "); is {
		if sql = "by name"; r.n%2 == 0 {
			sql = prepared // the text itself is the name
		}
		if _, err := tx.Prepare(ctx, sql, prepared); err != nil {
			return err
		}
	}
	if _, err := tx.Exec(ctx, sql); err != nil {
		return err
	}
	r.n++
	_, err := tx.Exec(ctx, "INSERT INTO ledger (note) VALUES (current_user || ' ' || $1::int)", r.n)
	return err
}

// wantWritten checks that the last row, and what a deferred trigger wrote for it, have the handler's
// role.
func (r *asAnother) wantWritten(how, sql string) {
	r.Helper()
	if got := one[string](r.rig, "SELECT coalesce(max(note), '') || ', ' || (SELECT coalesce(string_agg(by, ' '), '') FROM seen) FROM ledger"); !strings.HasPrefix(got, "pg_monitor ") || !strings.HasSuffix(got, ", pg_monitor") {
		r.Errorf("%s, %s: the effects are %q, want one of pg_monitor, and one of its trigger", how, sql, got)
	}
	r.exec("TRUNCATE ledger, seen")
}

// A handler sets a role that has no rights on Postroom's tables. Its effects have the rights of this
// role. The guard writes its own rows as the pool's user.
func TestHandlerMaySetARoleWithoutRightsOnPostroom(t *testing.T) {
	t.Parallel()
	r := &asAnother{rig: newRigOn(t, onePool(t, false))}
	r.exec(`CREATE TABLE seen (by text);
		CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO seen VALUES (current_user); RETURN NULL; END';
		CREATE CONSTRAINT TRIGGER see AFTER INSERT ON ledger DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION see();
		GRANT INSERT ON ledger, seen TO pg_monitor`)
	for _, sql := range []string{
		"SET LOCAL ROLE pg_monitor", "SET ROLE pg_monitor", "SELECT set_config('role', 'pg_monitor', true)", "SET LOCAL SESSION AUTHORIZATION pg_monitor",
		"DO $$ BEGIN SET LOCAL ROLE pg_monitor; END $$", "by name: SET LOCAL ROLE pg_monitor",
	} {
		serve := func(status int) string {
			return r.mount(idempotency.Route{Store: idempotency.StoreAll}, func(w http.ResponseWriter, req *http.Request) {
				tx := idempotency.Tx(req.Context())
				if err := r.insert(req.Context(), tx, sql); err != nil {
					t.Errorf("%s: %v", sql, err)
				}
				if status == 422 {
					_, _ = tx.Exec(req.Context(), "SELECT 1 / 0")
				}
				w.WriteHeader(status)
			})
		}
		for _, status := range []int{201, 400, 422} { // with effects, without, and after a statement that failed
			path := serve(status)
			first := r.post(path, "k")
			r.want(first, status, "")
			r.wantReplay(first, r.post(path, "k"))
			if status == 201 {
				r.wantWritten("a request", sql)
			} else if n := r.effects(); n != 0 {
				t.Errorf("%s, %d: %d effects", sql, status, n)
			}
		}
		op := idempotency.Operation{Scope: "do", Key: sql}
		if _, _, err := idempotency.Do(t.Context(), r.guard, op, func(ctx context.Context, tx pgx.Tx) (int, error) { return 0, r.insert(ctx, tx, sql) }); err != nil {
			t.Errorf("%s, Do: %v", sql, err)
		}
		r.wantWritten("Do", sql)
		op.Scope = "lease"
		_, _, err := idempotency.DoLease(t.Context(), r.guard, op, func(ctx context.Context) (int, error) {
			return idempotency.Phase(ctx, "a", func(ctx context.Context, tx pgx.Tx) (int, error) { return 0, r.insert(ctx, tx, sql) })
		})
		if err != nil {
			t.Errorf("%s, Phase: %v", sql, err)
		}
		r.wantWritten("a phase", sql)
	}
}

// If a request changes nothing in the session, or only what can be set back, its connection is
// kept: a new one for each request would cost much.
func TestConnectionIsKeptAfterAnUsualRequest(t *testing.T) {
	t.Parallel()
	for _, hooked := range []bool{false, true} {
		r := newRigOn(t, onePool(t, hooked))
		statements := []string{
			"SELECT 1", "SELECT pg_advisory_lock(99)", "CREATE TEMPORARY TABLE mine ()", "SELECT 'load '", "SET LOCAL search_path = nowhere",
			"SET CONSTRAINTS ALL IMMEDIATE", "SELECT set_config('app.tenant', '7', true)", "UPDATE ledger SET note = 'a'",
		}
		if !hooked {
			statements = append(statements, "SET search_path = nowhere", "SELECT set_config('app.tenant', '7', false)")
		}
		for _, sql := range statements {
			path := r.mount(idempotency.Route{}, func(_ http.ResponseWriter, req *http.Request) {
				if _, err := idempotency.Tx(req.Context()).Exec(req.Context(), sql); err != nil {
					t.Errorf("%s: %v", sql, err)
				}
			})
			before := one[int](r, "SELECT pg_backend_pid()")
			for _, key := range []string{"a", "b", "c"} {
				r.want(r.post(path, key), 200, "")
			}
			if after := one[int](r, "SELECT pg_backend_pid()"); after != before {
				t.Errorf("after %q there is another connection", sql)
			}
		}
	}
}

// The function that archives expired keys is a user's code as well.
func TestSessionsAreSetBackAfterArchive(t *testing.T) {
	t.Parallel()
	r := newRigOn(t, onePool(t, false), func(c *idempotency.Config) {
		c.Archive = func(ctx context.Context, tx pgx.Tx, _ []idempotency.Record) error {
			_, err := tx.Exec(ctx, "SET search_path = nowhere; PREPARE mine AS SELECT 1")
			return err
		}
	})
	r.post(r.mount(idempotency.Route{}, r.refund), "k")
	r.exec("UPDATE postroom.idempotency SET expires_at = now()")
	if n, err := r.guard.Purge(r.Context(), 10); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	r.wantClean("a search_path and Archive", leaks["a search_path"].there)
	r.wantClean("a prepared statement and Archive", leaks["a prepared statement"].there)
}
