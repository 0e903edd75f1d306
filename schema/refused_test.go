package schema_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/devtest"
)

// Roles that may do something with what else a relay keeps may do so with the failures
// that it keeps: relays and operators go on after the migration, and nobody else may.
func TestRolesMayUseTheFailuresThatAreKept(t *testing.T) {
	t.Parallel()
	pool := devtest.EmptyPool(t)
	upTo(t, pool, 19)
	privileges := map[string]string{"relay": "DELETE INSERT SELECT UPDATE", "operator": "SELECT", "inbox": "", "producer": ""}
	database := one[string](t, pool, "SELECT current_database()")
	for name := range privileges {
		role := pgx.Identifier{database + "_" + name}.Sanitize()
		exec(t, pool, "CREATE ROLE "+role)
		defer exec(t, pool, "DROP OWNED BY "+role+"; DROP ROLE "+role)
		exec(t, pool, "SELECT postroom.grant_"+name+"('"+role+"')")
	}
	for _, when := range []string{"after the migration", "when granted again"} {
		migrate(t, pool, "")
		for name, want := range privileges {
			got := one[string](t, pool, `SELECT coalesce(string_agg(p, ' ' ORDER BY p), '') FROM unnest('{SELECT,INSERT,UPDATE,DELETE}'::text[]) p
				WHERE has_table_privilege($1, 'postroom.refused', p)`, database+"_"+name)
			if got != want {
				t.Errorf("%s: the %s may %q, want %q", when, name, got, want)
			}
		}
		exec(t, pool, "REVOKE ALL ON postroom.refused FROM "+pgx.Identifier{database + "_relay"}.Sanitize()+"; SELECT postroom.grant_relay('"+database+"_relay')")
	}
}
