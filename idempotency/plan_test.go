package idempotency_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postroom/postroom/idempotency"
	"github.com/postroom/postroom/internal/devtest"
)

// Each statement fits the tables, is sent as its file has it, and uses the index that its header
// names.
func TestStatements(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	files := make(map[string]string)
	for _, dir := range []string{"sql", "internal/claim/sql"} {
		found, err := filepath.Glob(dir + "/*.sql")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range found {
			files[strings.TrimSuffix(filepath.Base(file), ".sql")] = file
		}
	}
	statements := idempotency.Statements()
	if len(files) != len(statements) {
		t.Errorf("%d files and %d statements", len(files), len(statements))
	}
	if _, err := conn.Exec(t.Context(), `INSERT INTO postroom.idempotency (scope, principal, key, fingerprint, state, expires_at)
		SELECT 'POST /' || n % 7, 'c' || n, n, decode(repeat('00', 33), 'hex'), 'complete', now() + n * interval '1 s' FROM generate_series(1, 5000) n`); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "ANALYZE postroom.idempotency"); err != nil {
		t.Fatal(err)
	}
	for name, sql := range statements {
		text, err := os.ReadFile(files[name])
		if err != nil || string(text) != sql {
			t.Errorf("%s: %v, or the statement differs from the one that is sent", name, err)
		}
		for _, field := range []string{"-- Locks ", "-- Index ", "-- Called "} {
			if !strings.Contains(sql, field) {
				t.Errorf("%s has no line %q", name, field)
			}
		}
		if _, err := conn.Conn().Prepare(t.Context(), name, sql); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for call, index := range map[string]string{
		"present ('POST /1', 'c1', '1', 'd1')":     "idempotency_pkey",
		"look ('POST /1', 'c1', '1', now(), 'd1')": "idempotency_pkey", "touch ('POST /1', 'c1', '1', '1 s')": "idempotency_pkey",
		"clear ('POST /1', 'c1', '1', now())": "idempotency_pkey", "delete ('POST /1', 'c1', '1', now(), 'd1')": "idempotency_pkey",
		"advance ('POST /1', 'c1', '1', gen_random_uuid(), 1, 'a', '1', true)":                                                                              "idempotency_pkey",
		"begin ('POST /1', 'c1', '1', gen_random_uuid(), 1, 'a', 'k', '1 s', 'c')":                                                                          "idempotency_pkey",
		"undo ('POST /1', 'c1', '1', gen_random_uuid(), 1, 'a', 'c')":                                                                                       "idempotency_pkey",
		"mine ('POST /1', 'c1', '1', gen_random_uuid())":                                                                                                    "idempotency_pkey",
		"renew ('POST /1', 'c1', '1', gen_random_uuid(), 1, '1 s', '1 h')":                                                                                  "idempotency_pkey",
		"fail ('POST /1', 'c1', '1', gen_random_uuid(), 1, '1 s')":                                                                                          "idempotency_pkey",
		"take ('POST /1', 'c1', '1', decode(repeat('00', 33), 'hex'), gen_random_uuid(), '1 s', 1, '1 s', 1, decode(repeat('00', 33), 'hex'), now(), 'd1')": "idempotency_pkey",
		"purge (10, now())": "idempotency_expiry", "purge_kept (10, 10, now())": "idempotency_expiry",
	} {
		rows, err := conn.Query(t.Context(), "EXPLAIN EXECUTE "+call)
		if err != nil {
			t.Fatal(err)
		}
		var plan []string
		for rows.Next() {
			var line string
			if err := rows.Scan(&line); err != nil {
				t.Fatal(err)
			}
			plan = append(plan, line)
		}
		if err := rows.Err(); err != nil {
			t.Errorf("%s: %v", call, err)
		}
		if text := strings.Join(plan, "\n"); !strings.Contains(text, index) || strings.Contains(text, "Seq Scan") {
			t.Errorf("%s:\n%s", call, text)
		}
	}
}

// A role with the rights that it needs can do all that it must, and no more.
func TestGrant(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	role := one[string](r, "SELECT current_database() || '_role'")
	r.exec("CREATE ROLE " + role)
	r.exec("SELECT postroom.grant_idempotency('" + role + "')")
	r.exec("GRANT ALL ON ledger TO " + role)
	cfg := r.pool.Config()
	cfg.ConnConfig.RuntimeParams["role"] = role
	var err error
	owner := r.pool
	if r.pool, err = pgxpoolWith(t, cfg); err != nil {
		t.Fatal(err)
	}
	r.reset(func(c *idempotency.Config) { c.PurgeEvery = time.Millisecond })
	if err := r.guard.Check(t.Context()); err != nil {
		r.Errorf("Check = %v", err)
	}
	path, lease := r.mount(idempotency.Route{}, r.refund), r.mount(leased, (&threeSteps{rig: r}).serve)
	r.wantReplay(r.post(path, "k"), r.post(path, "k"))
	r.wantReplay(r.post(lease, "k"), r.post(lease, "k"))
	if _, err := r.guard.Purge(t.Context(), 10); err != nil {
		r.Errorf("Purge = %v", err)
	}
	if _, err := r.pool.Exec(t.Context(), "SELECT FROM postroom.outbox"); err == nil {
		r.Error("the role may read the log")
	}
	r.pool.Close()
	r.pool = owner
	r.exec("DROP OWNED BY " + role)
	r.exec("DROP ROLE " + role)
}
