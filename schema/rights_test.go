package schema_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/devtest"
)

// functions are all functions of the schema. For each of them: whether it runs with the rights of
// its owner or of its caller, whether it has a search path of its own, and the grants that give the
// right to execute it. A new function needs a decision about each of these, and a line here.
//
// A function without a search path runs with the path of its caller. So its body must be as
// TestStatementsUseOnlyTheServersFunctions in package integration demands.
const functions = `
cancel                owner   fixed    producer
check_event           caller  callers  producer
check_unchecked       owner   fixed    -
clamped               caller  bound    operator relay
clipped               caller  bound    operator relay
content_digest        caller  callers  producer
dead_letters          caller  callers  operator
decide_saga           owner   fixed    operator
discarded             caller  callers  operator
enter_key             caller  callers  inbox
event_lock            caller  bound    operator relay
forget                owner   fixed    operator
grant_all             caller  fixed    -
grant_idempotency     caller  fixed    -
grant_inbox           caller  fixed    -
grant_operator        caller  fixed    -
grant_producer        caller  fixed    -
grant_relay           caller  fixed    -
grant_sagas           caller  fixed    -
grant_webhooks        caller  fixed    -
header_bytes          caller  bound    operator relay
key_lock              caller  bound    inbox operator
log_truncated         caller  fixed    -
raise_sequences       caller  fixed    -
refuse_conflict       caller  callers  producer
retry                 caller  fixed    operator
unchecked             owner   fixed    producer
write                 caller  callers  producer
`

// staff creates a role for each grant function of the schema, and a role nobody, which may only use
// the schema. It returns a pool and the name of each role.
func staff(t *testing.T, pool *pgxpool.Pool) (as map[string]*pgxpool.Pool, names map[string]string) {
	t.Helper()
	as, names = map[string]*pgxpool.Pool{}, map[string]string{}
	grants := one[[]string](t, pool, `SELECT array_agg(substr(proname::text, 7)) FROM pg_proc JOIN pg_namespace n ON n.oid = pronamespace
		WHERE nspname = 'postroom' AND proname LIKE 'grant\_%' AND pronargs = 1`)
	if len(grants) < 7 {
		t.Fatalf("there are only the grants %v", grants)
	}
	for _, grant := range append(grants, "nobody") {
		as[grant], names[grant] = devtest.RolePool(t, pool)
		give := fmt.Sprintf("SELECT postroom.grant_%s('%s')", grant, names[grant])
		if grant == "nobody" {
			give = "GRANT USAGE ON SCHEMA postroom TO " + names[grant]
		}
		exec(t, pool, give)
	}
	return as, names
}

// Each function of the schema has exactly the rights that the list says. No role but those of the
// list may execute it.
func TestFunctionsHaveTheirRights(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	_, names := staff(t, pool)
	type function struct {
		Name                string
		Definer, Own, Bound bool
		Path                string
	}
	rows, _ := pool.Query(t.Context(), `SELECT proname::text AS name, prosecdef AS definer, proowner = nspowner AS own, prosqlbody IS NOT NULL AS bound,
			coalesce((SELECT setting FROM unnest(proconfig) AS setting WHERE setting LIKE 'search_path=%'), '') AS path
		FROM pg_proc JOIN pg_namespace n ON n.oid = pronamespace WHERE nspname = 'postroom' ORDER BY proname`) // CollectRows reports the error
	all, err := pgx.CollectRows(rows, pgx.RowToStructByName[function])
	if err != nil {
		t.Fatal(err)
	}
	var listed strings.Builder
	for _, f := range all {
		runs, path, may := "caller", "callers", []string{}
		if f.Definer {
			runs = "owner"
		}
		switch {
		case f.Path == "search_path=pg_catalog, pg_temp":
			path = "fixed"
		case f.Path != "":
			t.Errorf("%s has the unusual %s", f.Name, f.Path)
		case f.Bound:
			path = "bound"
		}
		if !f.Own {
			t.Errorf("%s does not belong to the owner of the schema", f.Name)
		}
		for _, grant := range slices.Sorted(maps.Keys(names)) {
			if one[bool](t, pool, fmt.Sprintf(`SELECT bool_or(has_function_privilege('%s', oid, 'EXECUTE')) FROM pg_proc
				WHERE pronamespace = 'postroom'::regnamespace AND proname = '%s'`, names[grant], f.Name)) {
				may = append(may, grant)
			}
		}
		if len(may) == 0 {
			may = append(may, "-")
		}
		fmt.Fprintf(&listed, "%-21s %-7s %-8s %s\n", f.Name, runs, path, strings.Join(may, " "))
	}
	if want := strings.TrimPrefix(functions, "\n"); listed.String() != want {
		t.Errorf("the functions are\n%s\nwant\n%s", listed.String(), want)
	}
}

// A role may create no function or operator for a type of the schema. A statement of another role
// that compares a value of this type would use this operator, if it is in the search path.
func TestNoRoleMayUseTheTypes(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	_, names := staff(t, pool)
	for grant, role := range names {
		if may := one[[]string](t, pool, fmt.Sprintf(`SELECT coalesce(array_agg(typname::text), '{}') FROM pg_type
			WHERE typnamespace = 'postroom'::regnamespace AND typtype = 'd' AND has_type_privilege('%s', oid, 'USAGE')`, role)); len(may) > 0 {
			t.Errorf("%s may use %v", grant, may)
		}
	}
}

// attack is what a role with a schema of its own does to have its function run by the owner of a
// trigger function: it makes the trigger function convert a value of the role's type.
const attack = `
	CREATE TABLE mine.seen (who text, data bytea);
	CREATE TYPE mine.id AS (v text);
	CREATE FUNCTION mine.stolen(mine.id) RETURNS xid8 LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO mine.seen SELECT current_user, data FROM postroom.outbox;
		UPDATE postroom.outbox SET data = 'forged';
		RETURN '1'::xid8;
	END $$;
	CREATE CAST (mine.id AS xid8) WITH FUNCTION mine.stolen(mine.id) AS IMPLICIT;
	CREATE TEMP TABLE bait (xid mine.id);
	CREATE TRIGGER bait AFTER INSERT ON bait FOR EACH ROW EXECUTE FUNCTION postroom.%[1]s();
	CREATE TRIGGER emptied AFTER TRUNCATE ON bait FOR EACH STATEMENT EXECUTE FUNCTION postroom.%[1]s();
	INSERT INTO bait VALUES (ROW('x'));
	TRUNCATE bait`

// No role can make a trigger function of the schema run on a table of the role, where the function
// would have values of the role's types.
func TestTriggerFunctionsRunOnlyOnTheirTables(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	exec(t, pool, insertEvent("postroom", map[string]string{"data": "'secret'"})) // a row that the check reads
	as, names := staff(t, pool)
	triggers := one[[]string](t, pool, `SELECT array_agg(proname::text) FROM pg_proc
		WHERE pronamespace = 'postroom'::regnamespace AND prorettype = 'trigger'::regtype`)
	for grant, role := range names {
		for _, trigger := range triggers {
			exec(t, pool, "CREATE SCHEMA mine AUTHORIZATION "+role)
			_, err := as[grant].Exec(t.Context(), fmt.Sprintf(attack, trigger))
			var pg *pgconn.PgError
			if !errors.As(err, &pg) || pg.Code != "42501" || !strings.Contains(pg.Message, trigger) {
				t.Errorf("%s, with %s: %v, want insufficient privilege", grant, trigger, err)
			}
			// The function also looks at which table it runs.
			exec(t, pool, fmt.Sprintf("DROP SCHEMA mine CASCADE; CREATE SCHEMA mine AUTHORIZATION %s; GRANT EXECUTE ON FUNCTION postroom.%s() TO %[1]s", role, trigger))
			_, err = as[grant].Exec(t.Context(), fmt.Sprintf(attack, trigger))
			if !errors.As(err, &pg) || pg.Code != "39P01" || !strings.Contains(pg.Message, trigger) {
				t.Errorf("%s, who may execute %s: %v, want that it is not the trigger of another table", grant, trigger, err)
			}
			exec(t, pool, fmt.Sprintf("DROP SCHEMA mine CASCADE; REVOKE EXECUTE ON FUNCTION postroom.%s() FROM %s", trigger, role))
		}
	}
	if data := one[string](t, pool, "SELECT string_agg(convert_from(data, 'UTF8'), ' ') FROM postroom.outbox"); data != "secret" {
		t.Errorf("the log has %q, want the event as it was written", data)
	}
}

// A role that may create in the schema public, as every role may in a database that comes from
// PostgreSQL 14, cannot have its function run by the role that migrates, or by the owner of the
// tables who grants rights.
func TestMigratorsCallNoFunctionOfAnother(t *testing.T) {
	t.Parallel()
	pool := devtest.EmptyPool(t)
	intruder, role := devtest.RolePool(t, pool)
	exec(t, pool, "GRANT CREATE ON SCHEMA public TO "+role)
	for _, sql := range []string{
		"CREATE FUNCTION public.caught() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'hijacked as %', current_user; END $$",
		"CREATE FUNCTION public.hashtextextended(text, int) RETURNS bigint LANGUAGE sql AS 'SELECT public.caught()::int::bigint'",
		"CREATE FUNCTION public.to_regnamespace(varchar) RETURNS regnamespace LANGUAGE sql AS 'SELECT NULL::regnamespace WHERE public.caught()'",
		"CREATE FUNCTION public.jsonb_path_query_array(jsonb, text, text, boolean) RETURNS jsonb LANGUAGE sql AS 'SELECT NULL::jsonb WHERE public.caught()'",
		"CREATE FUNCTION public.same(oid, regnamespace) RETURNS boolean LANGUAGE sql AS 'SELECT public.caught()'",
		"CREATE OPERATOR public.= (LEFTARG = oid, RIGHTARG = regnamespace, FUNCTION = public.same)",
	} {
		exec(t, intruder, sql)
	}
	migrate(t, pool, "")
	staff(t, pool)
	exec(t, pool, `SELECT postroom.write('/shop', 'order.placed', '{}'::jsonb, headers => '{"a": "b"}')`) // what the migration created has none of them either
}

// A producer has the search path of its program. A role that may create in a schema of the path
// cannot have its function run by the producer.
func TestProducersCallNoFunctionOfAnother(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	intruder, role := devtest.RolePool(t, pool)
	producer, name := devtest.RolePool(t, pool)
	exec(t, pool, fmt.Sprintf("GRANT CREATE ON SCHEMA public TO %s; SELECT postroom.grant_producer('%s')", role, name))
	exec(t, intruder, "CREATE FUNCTION public.caught() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'hijacked as %', current_user; END $$")
	for _, function := range []string{
		"same(regtype, regtype) RETURNS boolean", "compared(bigint, int) RETURNS boolean", "joined(text, int) RETURNS text", "times(numeric, int) RETURNS numeric",
		"unnest(text[]) RETURNS SETOF text", "num_nulls(text, text) RETURNS int", "convert_to(text, text) RETURNS bytea", "jsonb_each(jsonb) RETURNS SETOF record",
	} {
		exec(t, intruder, fmt.Sprintf("CREATE FUNCTION public.%s LANGUAGE plpgsql AS 'BEGIN PERFORM public.caught(); END'", function))
	}
	exec(t, intruder, `CREATE OPERATOR public.= (LEFTARG = regtype, RIGHTARG = regtype, FUNCTION = public.same);
		CREATE OPERATOR public.> (LEFTARG = bigint, RIGHTARG = int, FUNCTION = public.compared);
		CREATE OPERATOR public.|| (LEFTARG = text, RIGHTARG = int, FUNCTION = public.joined);
		CREATE OPERATOR public.* (LEFTARG = numeric, RIGHTARG = int, FUNCTION = public.times)`)
	for range 2 { // the second time, the ids are taken
		exec(t, producer, `SELECT postroom.write('/shop', 'a', '{}'::jsonb, key => 'k', id => '1', headers => '{"a": "1"}', not_before => '2100-01-01')`)
		exec(t, producer, `SELECT postroom.write('/shop', 'a', '1'::bytea, id => '2')`)
	}
	exec(t, producer, insertEvent("postroom", map[string]string{"headers": `'{"a": "1"}'`}))
	exec(t, producer, "SELECT postroom.cancel('/shop', '1')")
}

// The search path of a caller's transaction is as it was after a migration in this transaction.
func TestMigrateLeavesTheSearchPath(t *testing.T) {
	t.Parallel()
	pool := devtest.EmptyPool(t)
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		exec(t, tx, "SET LOCAL search_path = information_schema, public")
		migrate(t, tx, "")
		var path string
		if err := tx.QueryRow(t.Context(), "SHOW search_path").Scan(&path); err != nil || path != "information_schema, public" {
			t.Errorf("the search path is %q, %v", path, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// An operator may read each table of Postroom, except the secrets of endpoints, and no other table
// that stands in the same schema.
func TestAnOperatorReadsOurTablesOnly(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	ours := one[[]string](t, pool, "SELECT array_agg(relname::text) FROM pg_class WHERE relnamespace = 'postroom'::regnamespace AND relkind = 'r'")
	exec(t, pool, "CREATE TABLE postroom.salaries (name text)")
	_, names := staff(t, pool)
	for _, table := range append(ours, "salaries") {
		may := one[bool](t, pool, fmt.Sprintf("SELECT has_table_privilege('%s', 'postroom.%s', 'SELECT')", names["operator"], table))
		if want := table != "salaries" && table != "webhook_endpoint"; may != want {
			t.Errorf("an operator may read %s: %t, want %t", table, may, want)
		}
	}
}
