package schema_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/devtest"
)

// The test checks which role may read or write the failures that a relay keeps.
func TestRolesMayUseTheFailuresThatAreKept(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	database := one[string](t, pool, "SELECT current_database()")
	for name, want := range map[string]string{"relay": "DELETE INSERT SELECT UPDATE", "operator": "SELECT", "inbox": "", "producer": ""} {
		role := pgx.Identifier{database + "_" + name}.Sanitize()
		exec(t, pool, "CREATE ROLE "+role)
		defer exec(t, pool, "DROP OWNED BY "+role+"; DROP ROLE "+role)
		exec(t, pool, "SELECT postroom.grant_"+name+"('"+role+"')")
		got := one[string](t, pool, `SELECT coalesce(string_agg(p, ' ' ORDER BY p), '') FROM unnest('{SELECT,INSERT,UPDATE,DELETE}'::text[]) p
			WHERE has_table_privilege($1, 'postroom.refused', p)`, database+"_"+name)
		if got != want {
			t.Errorf("the %s may %q, want %q", name, got, want)
		}
	}
}
