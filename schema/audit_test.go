package schema_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/devtest"
)

// A role that may write the audit cannot choose what says who wrote a row, when, and in which order,
// and cannot change a row. No role can write a decision about a saga but by postroom.decide_saga.
func TestNoRoleForgesTheAudit(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	as, names := staff(t, pool)
	exec(t, pool, "INSERT INTO postroom.audit (actor, action, events) VALUES ('ann', 'pause', 0)")
	for grant, role := range as {
		for _, sql := range []string{
			"INSERT INTO postroom.audit (id, actor, action, events) OVERRIDING SYSTEM VALUE VALUES (2, 'ann', 'pause', 0)",
			"INSERT INTO postroom.audit (at, actor, action, events) VALUES ('2020-01-01', 'ann', 'pause', 0)",
			"INSERT INTO postroom.audit (role, actor, action, events) VALUES ('ann', 'ann', 'pause', 0)",
			"UPDATE postroom.audit SET actor = 'bob'",
			"DELETE FROM postroom.audit",
			"SELECT setval('postroom.audit_id_seq', 1)",
			"SELECT nextval('postroom.audit_id_seq')",
			"INSERT INTO postroom.saga_decision (name, key, revision, event_id, digest, actor, action) VALUES ('s', 'k', 1, 'e', '', 'ann', 'skip')",
			"UPDATE postroom.saga_decision SET revision = 2",
		} {
			if _, err := role.Exec(t.Context(), sql); err == nil || !strings.Contains(err.Error(), "permission denied") {
				t.Errorf("%s: %s: %v", grant, sql, err)
			}
		}
	}
	for _, grant := range []string{"relay", "inbox", "webhooks", "operator"} { // those that have something to tell
		if _, err := as[grant].Exec(t.Context(), "INSERT INTO postroom.audit (actor, action, events) VALUES ('ann', $1, 0)", grant); err != nil {
			t.Errorf("%s: %v", grant, err)
		}
		if got := one[string](t, pool, fmt.Sprintf("SELECT role FROM postroom.audit WHERE action = '%s'", grant)); got != names[grant] {
			t.Errorf("%s: the audit says that %s wrote the row, want %s", grant, got, names[grant])
		}
	}
}

// A role cannot choose the time of a row of the audit by a transaction that it began earlier.
func TestNoRoleDatesTheAuditBack(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	as, _ := staff(t, pool)
	var begun, wrote, at float64
	err := pgx.BeginFunc(t.Context(), as["inbox"], func(tx pgx.Tx) error {
		if err := tx.QueryRow(t.Context(), "SELECT extract(epoch FROM now())::float8").Scan(&begun); err != nil {
			return err
		}
		exec(t, tx, "SELECT pg_sleep(0.1)") // it may as well stay open for days
		if err := tx.QueryRow(t.Context(), "SELECT extract(epoch FROM clock_timestamp())::float8").Scan(&wrote); err != nil {
			return err
		}
		_, err := tx.Exec(t.Context(), "INSERT INTO postroom.audit (actor, action, events) VALUES ('ann', 'pause', 0)")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if at = one[float64](t, pool, "SELECT extract(epoch FROM at)::float8 FROM postroom.audit"); at < wrote {
		t.Errorf("the audit says that the row was written %.1f s before it was written, when the transaction began", wrote-at)
	}
}
