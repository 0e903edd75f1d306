package schema_test

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/schema"
)

// later has migrations of the kind that later versions may add. They use each way to lock a table
// that other sessions use.
var later = fstest.MapFS{
	"sql/0006_note.sql": file(`ALTER TABLE postroom.outbox ADD COLUMN note text;
		ALTER TABLE postroom.held ADD COLUMN note text;`),
	"sql/0007_index.sql": file(`CREATE INDEX outbox_note ON postroom.outbox (note) WHERE note IS NOT NULL;
		CREATE UNIQUE INDEX held_note ON postroom.held (note);`),
	"sql/0008_reference.sql": file(`CREATE TABLE postroom.noted (
			handler text COLLATE "C", dedupe_key text COLLATE "C", FOREIGN KEY (handler, dedupe_key) REFERENCES postroom.inbox
		);`),
	"sql/0009_trigger.sql": file(`CREATE FUNCTION postroom.note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
		CREATE TRIGGER note AFTER INSERT ON postroom.node FOR EACH ROW EXECUTE FUNCTION postroom.note();
		CREATE CONSTRAINT TRIGGER note AFTER INSERT ON postroom.outbox DEFERRABLE FOR EACH ROW EXECUTE FUNCTION postroom.note();`),
	"sql/0010_less.sql": file(`DROP TRIGGER note ON postroom.node;
		TRUNCATE postroom.relay_checkpoint;
		DROP TABLE postroom.dry_run;`),
}

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }

// laterSteps returns all migrations, with those that later versions may bring.
func laterSteps(t testing.TB) []schema.Migration {
	t.Helper()
	steps, err := schema.MigrationsIn(schema.With(later))
	if err != nil {
		t.Fatal(err)
	}
	if len(steps) != newest(t)+len(later) {
		t.Fatalf("%d migrations, want %d and %d", len(steps), newest(t), len(later))
	}
	return steps
}

// upTo migrates an empty database to an older version, as the code of that version did.
func upTo(t testing.TB, db schema.DB, version int) {
	t.Helper()
	all := schema.With(later)
	paths, err := fs.Glob(all, "sql/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	ofTheTime := fstest.MapFS{}
	for _, p := range paths[:version] {
		text, err := fs.ReadFile(all, p)
		if err != nil {
			t.Fatal(err)
		}
		ofTheTime[p] = &fstest.MapFile{Data: text}
	}
	applied, err := schema.Migrator{}.From(ofTheTime).Migrate(t.Context(), db)
	if err != nil || len(applied) != version {
		t.Fatalf("applied %d migrations, %v; want %d", len(applied), err, version)
	}
}

// An upgrade from the first version keeps the existing rows, even if the database is in use. Code
// of the first version continues to work.
func TestUpgradeFromTheFirstVersion(t *testing.T) {
	t.Parallel()
	pool := devtest.EmptyPool(t)
	migrate(t, pool, "")
	exec(t, pool, insertEvent("postroom", map[string]string{"event_id": "'before'", "occurred_at": "now()", "trace_state": "'a=b'"}))
	exec(t, pool, "INSERT INTO postroom.inbox (handler, dedupe_key) VALUES ('h', 'k')")
	exec(t, pool, insertHeld("handler='h'; dedupe_key='k'; next_at=now()"))
	questions := []string{
		"SELECT pg_relation_filepath('postroom.outbox') || pg_relation_filepath('postroom.inbox') || pg_relation_filepath('postroom.held')",
		"SELECT (to_jsonb(o) - 'note')::text FROM postroom.outbox o WHERE event_id = 'before'",
		"SELECT (to_jsonb(h) - 'note')::text FROM postroom.held h",
	}
	before := make([]string, len(questions))
	for i, sql := range questions {
		before[i] = one[string](t, pool, sql)
	}

	applied, err := schema.Migrator{}.From(schema.With(later)).Migrate(t.Context(), pool)
	if err != nil || len(applied) != len(later) || applied[0].Version != newest(t)+1 {
		t.Fatalf("applied %v, %v; want the %d later migrations", applied, err, len(later))
	}
	for i, sql := range questions {
		if got := one[string](t, pool, sql); got != before[i] {
			t.Errorf("%s = %s, want %s as before", sql, got, before[i])
		}
	}
	if err := schema.Require(t.Context(), pool, ""); err != nil {
		t.Errorf("code of the first version: %v", err)
	}
	exec(t, pool, insertEvent("postroom", nil))
}

// If one of several steps fails, the steps before it stay, and nothing of the failed step does. The
// next run continues with the failed step.
func TestMigrateGoesOnAfterAFailedStep(t *testing.T) {
	t.Parallel()
	pool := devtest.EmptyPool(t)
	migrate(t, pool, "")
	broken := fstest.MapFS{
		"sql/0006_note.sql":  later["sql/0006_note.sql"],
		"sql/0007_index.sql": file("CREATE TABLE postroom.half (n int); ALTER TABLE postroom.outbox ADD COLUMN half int; SELECT 1 / 0;"),
	}
	applied, err := schema.Migrator{}.From(schema.With(broken)).Migrate(t.Context(), pool)
	if err == nil || len(applied) != 1 || !strings.Contains(err.Error(), "apply migration 7 index") {
		t.Fatalf("applied %v, %v; want migration 6, and an error that names migration 7", applied, err)
	}
	if n := one[int](t, pool, "SELECT max(version) FROM postroom.migration"); n != 6 {
		t.Errorf("version %d, want 6", n)
	}
	if one[bool](t, pool, `SELECT to_regclass('postroom.half') IS NOT NULL
		OR EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'postroom.outbox'::regclass AND attname = 'half')`) {
		t.Error("the failed step left changes behind")
	}
	applied, err = schema.Migrator{}.From(schema.With(later)).Migrate(t.Context(), pool)
	if err != nil || len(applied) != len(later)-1 || applied[0].Version != 7 {
		t.Errorf("applied %v, %v; want migration 7 and those after it", applied, err)
	}
}

// The files are plain SQL: in psql, one after the other, they make what Migrate makes.
func TestFilesPasteIntoAnEmptyDatabase(t *testing.T) {
	t.Parallel()
	steps, err := schema.Migrations("")
	if err != nil {
		t.Fatal(err)
	}
	pasted, migrated := devtest.EmptyPool(t), devtest.EmptyPool(t)
	for _, step := range steps {
		exec(t, pasted, step.SQL)
	}
	migrate(t, migrated, "")
	got, want := objects(t, pasted, "postroom"), objects(t, migrated, "postroom")
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the files make\n%s\nMigrate makes\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A migration may drop a table or a function and create it again. Its rights are gone with it, so
// Migrate repeats the grants of each role.
func TestRolesKeepTheirRightsAfterAMigration(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	_, names := staff(t, pool)
	rights := func(role string) string {
		return one[string](t, pool, `SELECT coalesce(string_agg(object || ' ' || privilege_type, E'\n' ORDER BY object, privilege_type), '') FROM (
			SELECT oid::regclass::text AS object, relacl AS acl FROM pg_class WHERE relnamespace = 'postroom'::regnamespace
			UNION ALL SELECT proname, proacl FROM pg_proc WHERE pronamespace = 'postroom'::regnamespace
			UNION ALL SELECT nspname, nspacl FROM pg_namespace
			UNION ALL SELECT attrelid::regclass || '.' || attname, attacl FROM pg_attribute) a CROSS JOIN aclexplode(acl) WHERE grantee = '`+role+"'::regrole")
	}
	before := make(map[string]string)
	for grant, role := range names {
		before[grant] = rights(role)
	}
	again := func(table string) string {
		return "CREATE TABLE postroom.again (LIKE postroom." + table + "); DROP TABLE postroom." + table + "; ALTER TABLE postroom.again RENAME TO " + table + ";\n"
	}
	files := fstest.MapFS{
		"sql/0006_functions.sql": file(`DROP FUNCTION postroom.refuse_conflict; DROP FUNCTION postroom.enter_key; DROP FUNCTION postroom.header_bytes;
			CREATE FUNCTION postroom.refuse_conflict(source text, ids text[], digests bytea[]) RETURNS void LANGUAGE sql AS 'SELECT';
			CREATE FUNCTION postroom.enter_key(handler text, key text, pos bigint, epoch bigint) RETURNS text LANGUAGE sql AS 'SELECT ''free''';
			CREATE FUNCTION postroom.header_bytes(headers jsonb) RETURNS int LANGUAGE sql AS 'SELECT 1';
			REVOKE ALL ON FUNCTION postroom.refuse_conflict, postroom.enter_key, postroom.header_bytes FROM PUBLIC;`),
		"sql/0007_tables.sql": file(again("relay_checkpoint") + again("idempotency") + again("webhook_endpoint") + again("saga_decision") + again("revision") +
			"CREATE SEQUENCE postroom.relay_checkpoint_id_seq;"),
	}
	if applied, err := (schema.Migrator{}).From(schema.With(files)).Migrate(t.Context(), pool); err != nil || len(applied) != 2 {
		t.Fatalf("applied %v, %v", applied, err)
	}
	for grant, role := range names {
		if after := rights(role); after != before[grant] {
			t.Errorf("%s had the rights\n%s\nand has\n%s", grant, before[grant], after)
		}
	}
}
