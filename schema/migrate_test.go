package schema_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/schema"
)

// newest is the number of the newest migration.
func newest(t testing.TB) int {
	t.Helper()
	steps, err := schema.Migrations("")
	if err != nil {
		t.Fatal(err)
	}
	return len(steps)
}

func exec(t testing.TB, db interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}, sql string,
) {
	t.Helper()
	if _, err := db.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func migrate(t testing.TB, db schema.DB, name string) {
	t.Helper()
	if _, err := schema.Migrate(t.Context(), db, name); err != nil {
		t.Fatal(err)
	}
}

// one runs a query that returns one value.
func one[T any](t testing.TB, pool *pgxpool.Pool, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := pool.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func TestMigrationFilesAreNumbered(t *testing.T) {
	paths, err := fs.Glob(os.DirFS("sql"), "*")
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) == 0 {
		t.Fatal("no migrations")
	}
	form := regexp.MustCompile(`^([0-9]{4})_([a-z0-9]+(_[a-z0-9]+)*)\.sql$`)
	steps, err := schema.Migrations("")
	if err != nil {
		t.Fatal(err)
	}
	if len(steps) != len(paths) {
		t.Fatalf("%d migrations of %d files", len(steps), len(paths))
	}
	for i, p := range paths {
		m := form.FindStringSubmatch(p)
		if m == nil || m[1] != fmt.Sprintf("%04d", i+1) {
			t.Errorf("%s: want a name like %04d_what_it_adds.sql", p, i+1)
			continue
		}
		if s := steps[i]; s.Version != i+1 || s.Name != m[2] || !s.AppliedAt.IsZero() {
			t.Errorf("step %d = version %d, name %q, applied %s", i+1, s.Version, s.Name, s.AppliedAt)
		}
	}
}

func TestMigrateTwiceAppliesOnce(t *testing.T) {
	t.Parallel()
	pool := devtest.EmptyPool(t)
	first, err := schema.Migrate(t.Context(), pool, "")
	if err != nil {
		t.Fatal(err)
	}
	if len(first) != newest(t) {
		t.Errorf("first run applied %d steps, want %d", len(first), newest(t))
	}
	again, err := schema.Migrate(t.Context(), pool, "")
	if err != nil || len(again) != 0 {
		t.Errorf("second run = %d steps, %v, want none", len(again), err)
	}
	if err := schema.Require(t.Context(), pool, ""); err != nil {
		t.Errorf("Require = %v, want nil", err)
	}
}

func TestMigrateConcurrently(t *testing.T) {
	levels := []string{"read committed", "repeatable read", "serializable"}
	for _, level := range levels {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			pool := withDefault(t, devtest.EmptyPool(t), "default_transaction_isolation", level)

			const runs = 8
			applied := make([][]schema.Migration, runs)
			errs := make([]error, runs)
			start := make(chan struct{})
			var all sync.WaitGroup
			for i := range runs {
				all.Go(func() {
					<-start
					applied[i], errs[i] = schema.Migrate(t.Context(), pool, "")
				})
			}
			close(start)
			all.Wait()

			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			var versions []int
			for _, steps := range applied {
				for _, s := range steps {
					versions = append(versions, s.Version)
				}
			}
			slices.Sort(versions)
			for i, v := range versions {
				if v != i+1 {
					t.Fatalf("applied %v, want each once", versions)
				}
			}
			if len(versions) != newest(t) {
				t.Errorf("applied %v, want %d steps", versions, newest(t))
			}
			if n := one[int](t, pool, "SELECT count(*) FROM postroom.instance"); n != 1 {
				t.Errorf("%d instances, want 1", n)
			}
		})
	}
}

// withDefault returns a pool whose sessions start with the given setting.
func withDefault(t testing.TB, pool *pgxpool.Pool, name, value string) *pgxpool.Pool {
	t.Helper()
	cfg := pool.Config()
	cfg.ConnConfig.RuntimeParams[name] = value
	other, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Close)
	return other
}

// The tables are the same whatever the session's settings.
func TestMigrateUnderOtherSettings(t *testing.T) {
	settings := map[string]string{"datestyle": "German, DMY", "timezone": "Asia/Kolkata", "search_path": "nowhere"}
	for name, value := range settings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			usual, pool := devtest.EmptyPool(t), devtest.EmptyPool(t)
			migrate(t, usual, "")
			migrate(t, withDefault(t, pool, name, value), "")
			if got, want := objects(t, pool, "postroom"), objects(t, usual, "postroom"); !slices.Equal(got, want) {
				t.Errorf("with %s = %s\n%s\nusually\n%s", name, value, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// A failing step leaves nothing behind, and the steps before it stay.
func TestMigrateRollsBackAFailedStep(t *testing.T) {
	t.Parallel()
	pool := devtest.EmptyPool(t)
	exec(t, pool, "CREATE SCHEMA postroom; CREATE TABLE postroom.outbox (in_the_way int)")
	if steps, err := schema.Migrate(t.Context(), pool, ""); err == nil || len(steps) != 0 {
		t.Fatalf("Migrate = %d steps, %v, want an error", len(steps), err)
	} else if !strings.Contains(err.Error(), "apply migration 1 log") {
		t.Errorf("Migrate = %v, want it to name the migration", err)
	}
	if err := schema.Require(t.Context(), pool, ""); !errors.Is(err, schema.ErrOutdated) {
		t.Errorf("Require = %v, want ErrOutdated", err)
	}
	exec(t, pool, "DROP TABLE postroom.outbox")
	migrate(t, pool, "")
}

// In the caller's transaction a migration is a part of it.
func TestMigrateInATransaction(t *testing.T) {
	t.Parallel()
	pool := devtest.EmptyPool(t)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	migrate(t, tx, "")
	if err := schema.Require(t.Context(), tx, ""); err != nil {
		t.Errorf("Require inside = %v, want nil", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := schema.Require(t.Context(), pool, ""); !errors.Is(err, schema.ErrOutdated) {
		t.Errorf("Require after the rollback = %v, want ErrOutdated", err)
	}
}

func TestRequire(t *testing.T) {
	tests := []struct {
		name  string
		setup string // after migrating; "" for an empty database
		want  error
		says  []string
	}{
		{"ErrOutdated/empty database", "", schema.ErrOutdated, []string{"has version 0 (no tables)", "postroom migrate up", "schema.Migrate"}},
		{"ErrOutdated/no step applied", "TRUNCATE postroom.migration", schema.ErrOutdated, []string{"version 0", "postroom migrate up"}},
		{"ErrOutdated/no version table", "DROP TABLE postroom.migration", schema.ErrOutdated, []string{"version 0", "postroom migrate up"}},
		{"migrated", "SELECT", nil, nil},
		{"newer, but still serves this code", addVersion(1), nil, nil},
		{"ErrTooNew", addVersion(1000), schema.ErrTooNew, []string{"version 1000", "deploy a newer Postroom"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := devtest.EmptyPool(t)
			if tt.setup != "" {
				migrate(t, pool, "")
				exec(t, pool, tt.setup)
			}
			err := schema.Require(t.Context(), pool, "")
			if !errors.Is(err, tt.want) {
				t.Fatalf("Require = %v, want %v", err, tt.want)
			}
			if tt.want != nil && !errors.Is(err, postroom.ErrUnrecoverable) {
				t.Errorf("Require = %v, want ErrUnrecoverable as well: waiting does not cure it", err)
			}
			for _, says := range tt.says {
				if !strings.Contains(err.Error(), says) {
					t.Errorf("Require = %v, want it to say %q", err, says)
				}
			}
		})
	}
}

// addVersion records a migration that this code does not know, which needs
// code of the given version.
func addVersion(needs int) string {
	return fmt.Sprintf("INSERT INTO postroom.migration (version, name, serves_from) VALUES (1000, 'later', %d)", needs)
}

// An outage is not an unrecoverable error, because it may end.
func TestRequireOnAClosedPool(t *testing.T) {
	t.Parallel()
	pool := withDefault(t, devtest.EmptyPool(t), "application_name", "closed")
	pool.Close()
	err := schema.Require(t.Context(), pool, "")
	if err == nil || errors.Is(err, postroom.ErrUnrecoverable) {
		t.Errorf("Require = %v, want an error that is no refusal", err)
	}
}

func TestStatus(t *testing.T) {
	tests := []struct {
		name    string
		setup   string // after migrating; "" for an empty database
		applied bool
	}{
		{"empty database", "", false},
		{"empty schema", "DROP TABLE postroom.migration", false},
		{"no step applied", "TRUNCATE postroom.migration", false},
		{"migrated", "SELECT", true},
		{"migrated by newer code", addVersion(1), true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := devtest.EmptyPool(t)
			if tt.setup != "" {
				migrate(t, pool, "")
				exec(t, pool, tt.setup)
			}
			steps, err := schema.Status(t.Context(), pool, "")
			if err != nil {
				t.Fatal(err)
			}
			if len(steps) != newest(t) {
				t.Fatalf("%d steps, want %d", len(steps), newest(t))
			}
			for _, s := range steps {
				if s.AppliedAt.IsZero() == tt.applied {
					t.Errorf("step %d applied at %s, want applied = %t", s.Version, s.AppliedAt, tt.applied)
				}
				if tt.applied && time.Since(s.AppliedAt).Abs() > time.Hour {
					t.Errorf("step %d applied at %s, want about now", s.Version, s.AppliedAt)
				}
			}
		})
	}
}

// After Status the caller's transaction can still be used, even if no migration is applied.
func TestStatusInATransaction(t *testing.T) {
	t.Parallel()
	tx, err := devtest.EmptyPool(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }() // nothing is to be kept
	if _, err := schema.Status(t.Context(), tx, ""); err != nil {
		t.Errorf("Status = %v", err)
	}
	exec(t, tx, "SELECT")
}

func TestPrint(t *testing.T) {
	for _, name := range []string{"", "shop", "select"} {
		t.Run("schema "+name, func(t *testing.T) {
			t.Parallel()
			script, err := schema.Print(name)
			if err != nil {
				t.Fatal(err)
			}
			pool := devtest.EmptyPool(t)
			exec(t, pool, script)
			if err := schema.Require(t.Context(), pool, name); err != nil {
				t.Errorf("Require = %v, want nil", err)
			}
			if steps, err := schema.Migrate(t.Context(), pool, name); err != nil || len(steps) != 0 {
				t.Errorf("Migrate = %d steps, %v, want none", len(steps), err)
			}
		})
	}
}

// Print and Migrate make the same objects.
func TestPrintIsMigrate(t *testing.T) {
	t.Parallel()
	script, err := schema.Print("")
	if err != nil {
		t.Fatal(err)
	}
	printed, migrated := devtest.EmptyPool(t), devtest.EmptyPool(t)
	exec(t, printed, script)
	migrate(t, migrated, "")
	if got, want := objects(t, printed, "postroom"), objects(t, migrated, "postroom"); !slices.Equal(got, want) {
		t.Errorf("Print made\n%s\nMigrate made\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// objects describes the columns, constraints and indexes of a schema, without
// its name.
func objects(t testing.TB, pool *pgxpool.Pool, name string) []string {
	t.Helper()
	rows, _ := pool.Query(t.Context(), `
		SELECT replace(replace(line, quote_ident($1) || '.', ''), quote_literal($1), '') FROM (
		    SELECT concat_ws(' ', 'column', table_name, column_name, data_type, domain_name, is_nullable, column_default) AS line
		    FROM information_schema.columns WHERE table_schema = $1
		    UNION ALL
		    SELECT concat_ws(' ', 'constraint', conname, pg_get_constraintdef(oid))
		    FROM pg_constraint WHERE connamespace = quote_ident($1)::regnamespace
		    UNION ALL
		    SELECT concat_ws(' ', 'index', indexdef) FROM pg_indexes WHERE schemaname = $1
		    UNION ALL
		    SELECT concat_ws(' ', 'options', relname, reloptions::text)
		    FROM pg_class WHERE relnamespace = quote_ident($1)::regnamespace AND relkind = 'r'
		) all_objects ORDER BY 1`, name) // CollectRows reports the error
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if len(lines) < 40 {
		t.Fatalf("only %d objects in schema %s", len(lines), name)
	}
	return lines
}

func TestTwoPostroomsInOneDatabase(t *testing.T) {
	t.Parallel()
	pool := devtest.EmptyPool(t)
	migrate(t, pool, "")
	if err := schema.Require(t.Context(), pool, "shop"); !errors.Is(err, schema.ErrOutdated) {
		t.Errorf("Require(shop) = %v, want ErrOutdated", err)
	} else if !strings.Contains(err.Error(), "shop of database \"") {
		t.Errorf("Require(shop) = %v, want it to name the schema", err)
	}
	migrate(t, pool, "shop")
	for _, name := range []string{"", "shop"} {
		if err := schema.Require(t.Context(), pool, name); err != nil {
			t.Errorf("Require(%q) = %v", name, err)
		}
	}
	if got, want := objects(t, pool, "shop"), objects(t, pool, "postroom"); !slices.Equal(got, want) {
		t.Errorf("schema shop has\n%s\nschema postroom has\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if one[bool](t, pool, "SELECT a.id = b.id FROM postroom.instance a, shop.instance b") {
		t.Error("both have one identity")
	}

	// Each schema works without the other.
	exec(t, pool, "DROP SCHEMA postroom CASCADE")
	if err := schema.Require(t.Context(), pool, "shop"); err != nil {
		t.Errorf("Require(shop) without the other = %v", err)
	}
	exec(t, pool, insertEvent("shop", nil))
}

func TestEveryTableHasAComment(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	rows, _ := pool.Query(t.Context(), `
		SELECT c.relname, coalesce(d.description, '')
		FROM pg_class c
		LEFT JOIN pg_description d ON d.objoid = c.oid AND d.classoid = 'pg_class'::regclass AND d.objsubid = 0
		WHERE c.relnamespace = 'postroom'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm')`) // CollectRows reports the error
	type table struct{ Name, Comment string }
	tables, err := pgx.CollectRows(rows, pgx.RowToStructByPos[table])
	if err != nil {
		t.Fatal(err)
	}
	if len(tables) < 5 {
		t.Errorf("only %d tables found: %v", len(tables), tables)
	}
	for _, tb := range tables {
		if len(tb.Comment) < 20 {
			t.Errorf("table %s has the comment %q, want a sentence", tb.Name, tb.Comment)
		}
	}
}

// A migration needs no superuser. The owner of the database can migrate. If an administrator
// created the schema, the owner of the schema can migrate.
func TestMigrateAsOrdinaryRole(t *testing.T) {
	tests := []struct{ name, grant, schema string }{
		{"owner of the database", "ALTER DATABASE %[1]s OWNER TO %[2]s", ""},
		{"owner of the schema only", "CREATE SCHEMA postroom AUTHORIZATION %[2]s", ""},
		{"owner of another schema only", "CREATE SCHEMA shop AUTHORIZATION %[2]s", "shop"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := devtest.EmptyPool(t)
			database := one[string](t, pool, "SELECT current_database()")
			conn := asOrdinaryRole(t, pool, fmt.Sprintf(tt.grant, pgx.Identifier{database}.Sanitize(), pgx.Identifier{database + "_role"}.Sanitize()))
			migrate(t, conn, tt.schema)
			if err := schema.Require(t.Context(), conn, tt.schema); err != nil {
				t.Errorf("Require = %v", err)
			}
			name, err := schema.Name(tt.schema)
			if err != nil {
				t.Fatal(err)
			}
			var same bool
			err = conn.QueryRow(t.Context(), "SELECT r.cluster = c.system_identifier FROM "+name+".relay r, pg_control_system() c").Scan(&same)
			if err != nil || !same {
				t.Errorf("the relay's cluster is this one = %t, %v", same, err)
			}
			exec(t, conn, insertEvent(name, nil))
		})
	}
}

// asOrdinaryRole returns a connection that works as a role with only the privileges that grant
// gives it. The role has the name of the database, followed by _role.
func asOrdinaryRole(t testing.TB, pool *pgxpool.Pool, grant string) *pgx.Conn {
	t.Helper()
	if !one[bool](t, pool, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user") {
		t.Skip("SKIPPED, NOTHING WAS TESTED: the tests' role may not create roles; every other test runs as an ordinary role then")
	}
	role := pgx.Identifier{one[string](t, pool, "SELECT current_database()") + "_role"}.Sanitize()
	exec(t, pool, "CREATE ROLE "+role+" NOSUPERUSER NOCREATEDB NOCREATEROLE")
	exec(t, pool, grant)
	conn, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	exec(t, conn, "SET ROLE "+role)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), devtest.Patience(t, 10*time.Second))
		defer cancel()
		_, err := conn.Exec(ctx, "RESET ROLE; REASSIGN OWNED BY "+role+" TO CURRENT_USER; DROP OWNED BY "+role+"; DROP ROLE "+role)
		if err := errors.Join(err, conn.Close(ctx)); err != nil {
			t.Error(err)
		}
	})
	return conn
}
