package schema_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/schema"
)

// dump locks all tables of the schema, as pg_dump does for as long as it runs, and
// returns the function that ends it.
func dump(t *testing.T, pool *pgxpool.Pool) (end func()) {
	t.Helper()
	conn := session(t, pool, "pg_dump")
	exec(t, conn, `BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
		DO $$ DECLARE name text; BEGIN
			FOR name IN SELECT oid::regclass FROM pg_class WHERE relnamespace = 'postroom'::regnamespace AND relkind = 'r' LOOP
				EXECUTE 'LOCK TABLE ' || name || ' IN ACCESS SHARE MODE';
			END LOOP;
		END $$`)
	var once sync.Once
	end = func() { once.Do(func() { _ = conn.Close(context.Background()) }) }
	t.Cleanup(end)
	return end
}

// longestWait samples for how long a session of the given name waits for a lock of a
// table, until the test ends its context. It leaves out the time since the previous sample: on a
// stalled machine that can be long, and then the session could not end its wait in time either.
type longestWait struct {
	atomic.Int64
	done chan struct{}
}

func watchWaits(ctx context.Context, t *testing.T, pool *pgxpool.Pool, name string) *longestWait {
	t.Helper()
	w := &longestWait{done: make(chan struct{})}
	go func() {
		defer close(w.done)
		var before time.Time
		for ctx.Err() == nil {
			var waited time.Duration
			var now time.Time
			err := pool.QueryRow(context.WithoutCancel(ctx), `SELECT clock_timestamp(), coalesce(max(clock_timestamp() - l.waitstart), '0')
				FROM pg_locks l JOIN pg_stat_activity a USING (pid)
				WHERE NOT l.granted AND l.locktype = 'relation' AND a.application_name = $1 AND a.datname = current_database()`, name).Scan(&now, &waited)
			if err != nil {
				t.Errorf("look for waits: %v", err)
				return
			}
			w.Store(max(w.Load(), int64(waited-now.Sub(before))))
			before = now
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	return w
}

// While a dump holds its locks, producers go on to commit: no migration keeps them
// waiting for longer than two seconds. When the dump is over, the migration goes through.
func TestProducersGoOnWhileAMigrationWaits(t *testing.T) {
	t.Parallel()
	pool := devtest.EmptyPool(t)
	upTo(t, pool, newest(t))
	endDump := dump(t, pool)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	waits := watchWaits(ctx, t, pool, "migrator")
	var written atomic.Int64
	var producers sync.WaitGroup
	for range 2 {
		producers.Go(func() {
			for ctx.Err() == nil {
				if _, err := pool.Exec(context.WithoutCancel(ctx), insertEvent("postroom", nil)); err != nil {
					t.Errorf("produce: %v", err)
					return
				}
				written.Add(1)
			}
		})
	}
	var told []schema.Wait
	var before int64
	conn := session(t, pool, "migrator")
	applied, err := schema.Migrator{Waiting: func(w schema.Wait) {
		told = append(told, w)
		devtest.Eventually(t, time.Minute, "the producers to go on", func() bool { return written.Load() > before+20 })
		if before = written.Load(); len(told) == 3 {
			endDump()
		}
	}}.From(schema.With(later)).Migrate(t.Context(), conn)
	if err != nil || len(applied) != len(later) {
		t.Errorf("applied %d migrations, %v; want %d", len(applied), err, len(later))
	}
	stop()
	producers.Wait()
	<-waits.done
	if d := time.Duration(waits.Load()); d > 2*time.Second || d == 0 {
		t.Errorf("a migration waited for %s in front of the producers, want 2s at most, and more than none", d)
	}
	if len(told) < 3 {
		t.Fatalf("the wait was reported %d times, want 3 or more", len(told))
	}
	w := told[0]
	if w.Migration.Version != newest(t)+1 || w.Attempt != 1 || w.Pause <= 0 {
		t.Errorf("the report is %+v, want the first attempt of migration %d", w, newest(t)+1)
	}
	if len(w.Blockers) != 1 || w.Blockers[0].Application != "pg_dump" || w.Blockers[0].State != "idle in transaction" || w.Blockers[0].Age <= 0 {
		t.Errorf("the report names the blockers %+v, want pg_dump", w.Blockers)
	}
}

// That holds for each migration, whatever it locks. The dump begins before the migration, and ends
// when the migration has waited.
func TestNoMigrationWaitsLong(t *testing.T) {
	t.Parallel()
	for version := 2; version <= len(laterSteps(t)); version++ {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			t.Parallel()
			pool := devtest.EmptyPool(t)
			upTo(t, pool, version-1)
			endDump := dump(t, pool)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			waits := watchWaits(ctx, t, pool, "migrator")
			_, err := schema.Migrator{Waiting: func(schema.Wait) { endDump() }}.From(schema.With(later)).Migrate(t.Context(), session(t, pool, "migrator"))
			if err != nil {
				t.Error(err)
			}
			if err := schema.Require(t.Context(), pool, ""); err != nil {
				t.Error(err)
			}
			stop()
			<-waits.done
			if d := time.Duration(waits.Load()); d > 2*time.Second {
				t.Errorf("waited for %s, want 2s at most", d)
			}
		})
	}
}

// A migration asks for the locks of tables before it does anything: otherwise it would hold some
// locks while it waits for others.
func TestMigrationsLockFirst(t *testing.T) {
	t.Parallel()
	weaker := map[string]string{ // for each mode, the modes that are at least as strong
		"ShareLock": "SHARE, SHARE ROW EXCLUSIVE, ACCESS EXCLUSIVE", "ShareRowExclusiveLock": "SHARE ROW EXCLUSIVE, ACCESS EXCLUSIVE",
		"ExclusiveLock": "ACCESS EXCLUSIVE", "AccessExclusiveLock": "ACCESS EXCLUSIVE",
	}
	pool := devtest.EmptyPool(t)
	taken := 0
	for _, step := range laterSteps(t) {
		if step.Version == 1 {
			upTo(t, pool, 1)
			continue
		}
		asked := schema.LocksOf(step)
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), "CREATE TEMP TABLE before ON COMMIT DROP AS SELECT oid, relname::text FROM pg_class WHERE relnamespace = 'postroom'::regnamespace AND relkind = 'r'"); err != nil {
				return err
			}
			if _, err := tx.Exec(t.Context(), step.SQL); err != nil {
				return err
			}
			rows, _ := tx.Query(t.Context(), "SELECT relname, mode FROM pg_locks JOIN before ON oid = relation WHERE pid = pg_backend_pid() AND granted") // ForEachRow reports the error
			var table, mode string
			_, err := pgx.ForEachRow(rows, []any{&table, &mode}, func() error {
				want, strong := weaker[mode]
				if !strong {
					return nil
				}
				taken++
				if got := asked[table]; got == "" || !strings.Contains(want, got) {
					t.Errorf("migration %d takes %s of %s, and asks first for %q", step.Version, mode, table, got)
				}
				return nil
			})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if taken < 10 {
		t.Errorf("inconclusive: %d locks", taken)
	}
}

// When the context ends, the error says which migration waits, for whom, and what to do.
func TestMigrateSaysWhoIsInTheWay(t *testing.T) {
	t.Parallel()
	pool := devtest.EmptyPool(t)
	upTo(t, pool, newest(t))
	dump(t, pool)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := schema.Migrator{Waiting: func(schema.Wait) { cancel() }}.From(schema.With(later)).Migrate(ctx, session(t, pool, "migrator"))
	var blocked *schema.BlockedError
	if !errors.As(err, &blocked) || !errors.Is(err, context.Canceled) {
		t.Fatalf("Migrate = %v, want a BlockedError for the end of the context", err)
	}
	for _, part := range []string{"migration 6 note", "(pg_dump)", "idle in transaction", "outbox", "pg_terminate_backend", "migrate again"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not say %q: %v", part, err)
		}
	}
	if n := one[int](t, pool, "SELECT max(version) FROM postroom.migration"); n != newest(t) {
		t.Errorf("version %d, want %d: the waiting migration is not applied", n, newest(t))
	}
}

// A prepared transaction is named too: no session shows it.
func TestMigrateNamesAPreparedTransaction(t *testing.T) {
	t.Parallel()
	pool := devtest.EmptyPool(t)
	if one[string](t, pool, "SHOW max_prepared_transactions") == "0" {
		t.Skip("SKIPPED, NOTHING WAS TESTED: the server prepares no transactions")
	}
	upTo(t, pool, newest(t))
	exec(t, pool, "BEGIN; "+insertEvent("postroom", nil)+"; PREPARE TRANSACTION 'forgotten'")
	var told schema.Wait
	_, err := schema.Migrator{Waiting: func(w schema.Wait) {
		told = w
		exec(t, pool, "ROLLBACK PREPARED 'forgotten'")
	}}.From(schema.With(later)).Migrate(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	if len(told.Blockers) != 1 || told.Blockers[0].PID != 0 || !strings.Contains(told.String(), "prepared transaction forgotten") {
		t.Errorf("the report names %q, want the prepared transaction", told)
	}
}

// In a caller's transaction the wait is as short, and the caller's lock_timeout stays.
func TestMigrateLeavesTheCallersLockTimeout(t *testing.T) {
	t.Parallel()
	pool := devtest.EmptyPool(t)
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), "SET LOCAL lock_timeout = '77s'"); err != nil {
			return err
		}
		if _, err := schema.Migrate(t.Context(), tx, ""); err != nil {
			return err
		}
		var after string
		err := tx.QueryRow(t.Context(), "SHOW lock_timeout").Scan(&after)
		if after != "77s" {
			t.Errorf("lock_timeout = %s after the migrations, want 77s", after)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
