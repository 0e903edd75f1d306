package schema_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/schema"
)

// rightsOf returns the rights of a role in the schema postroom, and on columns.
const rightsOf = `SELECT coalesce(string_agg(object || ' ' || privilege_type, E'\n' ORDER BY object, privilege_type), '') FROM (
	SELECT oid::regclass::text AS object, relacl AS acl FROM pg_class WHERE relnamespace = 'postroom'::regnamespace
	UNION ALL SELECT proname, proacl FROM pg_proc WHERE pronamespace = 'postroom'::regnamespace
	UNION ALL SELECT nspname, nspacl FROM pg_namespace
	UNION ALL SELECT attrelid::regclass || '.' || attname, attacl FROM pg_attribute) a CROSS JOIN aclexplode(acl) WHERE grantee = '%s'::regrole`

// A role that got rights by hand has no grant, so a migration gives it nothing.
func TestAMigrationGivesNoRightsToOthers(t *testing.T) {
	t.Parallel()
	for name, by := range map[string]string{
		"loads a copy":        "GRANT INSERT ON ALL TABLES IN SCHEMA postroom TO %s",
		"all tables":          "GRANT ALL ON ALL TABLES IN SCHEMA postroom TO %s",
		"all functions":       "GRANT ALL ON ALL FUNCTIONS IN SCHEMA postroom TO %s",
		"one table":           "GRANT INSERT ON postroom.revision TO %s WITH GRANT OPTION",
		"may write, not call": "GRANT INSERT (source, event_id, digest, type, subject, data, checked) ON postroom.outbox TO %s",
		"may not forget":      "SELECT postroom.grant_operator('%s'); REVOKE EXECUTE ON FUNCTION postroom.forget FROM %[1]s",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := devtest.Pool(t)
			_, role := devtest.RolePool(t, pool)
			exec(t, pool, fmt.Sprintf(by, role))
			before := one[string](t, pool, fmt.Sprintf(rightsOf, role))
			files := fstest.MapFS{"sql/0006_nothing.sql": file("SELECT;")}
			if applied, err := (schema.Migrator{}).From(schema.With(files)).Migrate(t.Context(), pool); err != nil || len(applied) != 1 {
				t.Fatalf("applied %v, %v", applied, err)
			}
			if after := one[string](t, pool, fmt.Sprintf(rightsOf, role)); after != before {
				t.Errorf("it had the rights\n%s\nand has\n%s", before, after)
			}
		})
	}
}

// The owner of the tables may have default privileges. They give a role the rights on each new table, and
// are no grant of Postroom.
func TestMigrateWithDefaultPrivileges(t *testing.T) {
	t.Parallel()
	pool := devtest.EmptyPool(t)
	_, role := devtest.RolePool(t, pool)
	for _, kind := range []string{"TABLES", "SEQUENCES", "FUNCTIONS"} {
		exec(t, pool, "ALTER DEFAULT PRIVILEGES GRANT ALL ON "+kind+" TO "+role)
	}
	migrate(t, pool, "")
}

// Each grant is repeated in its own schema only, and to each role, whatever its name is.
func TestGrantsAreRepeatedInTheirSchema(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	migrate(t, pool, "second")
	name := func(form string) string { return fmt.Sprintf(form, one[string](t, pool, "SELECT current_database()")) }
	for _, role := range []string{name(`a "%s" b`), name("7%s"), name("Ünder'%s; x"), name("current_user $1 %s")} {
		quoted := pgx.Identifier{role}.Sanitize()
		exec(t, pool, "CREATE ROLE "+quoted)
		defer exec(t, pool, "DROP ROLE "+quoted)
		defer exec(t, pool, "DROP OWNED BY "+quoted)
		literal := strings.ReplaceAll(quoted, "'", "''")
		exec(t, pool, "SELECT postroom.grant_operator('"+literal+"')")
		before := one[string](t, pool, fmt.Sprintf(rightsOf, literal))
		for _, in := range []string{"second", ""} {
			files := fstest.MapFS{"sql/0006_again.sql": file(`DROP FUNCTION postroom.event_lock; CREATE FUNCTION postroom.event_lock(seq bigint) RETURNS bigint LANGUAGE sql RETURN 1;
				REVOKE ALL ON FUNCTION postroom.event_lock FROM PUBLIC`)}
			if _, err := (schema.Migrator{Schema: in}).From(schema.With(files)).Migrate(t.Context(), pool); err != nil {
				t.Fatal(err)
			}
			exec(t, pool, strings.ReplaceAll(`DELETE FROM "X".migration WHERE version = 6`, "X", cmp.Or(in, "postroom"))) // so that the next role has the step, too
		}
		if after := one[string](t, pool, fmt.Sprintf(rightsOf, literal)); after != before {
			t.Errorf("%s had the rights\n%s\nand has\n%s", role, before, after)
		}
		if n := one[int](t, pool, `SELECT count(*)::int FROM pg_class c CROSS JOIN aclexplode(relacl) WHERE relnamespace = '"second"'::regnamespace AND grantee = '`+literal+`'::regrole`); n > 0 {
			t.Errorf("%s has %d rights in the other schema", role, n)
		}
	}
}
