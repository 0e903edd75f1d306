package inbox_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/devtest"
)

// database is a migrated database that one test uses at a time. It is made once and emptied for the
// next test, because most tests need less time than a new database and new connections.
type database struct {
	pool *pgxpool.Pool
	drop func() error
	made string // what catalogSQL returned when the database was new
}

// free are the databases that no test uses.
var free struct {
	mu  sync.Mutex
	all []*database
}

// lentPool is devtest.Pool with a database that other tests may have used before. A test that looks
// at the statistics of the server, or at plans, must have its own.
func lentPool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	return lent(t).pool
}

func lent(t *testing.T) *database {
	t.Helper()
	devtest.Postgres(t) // this ends the test if there is no server
	d, err := borrow(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.giveBack(t) })
	return d
}

func borrow(ctx context.Context) (*database, error) {
	free.mu.Lock()
	if n := len(free.all); n > 0 {
		d := free.all[n-1]
		free.all = free.all[:n-1]
		free.mu.Unlock()
		return d, nil
	}
	free.mu.Unlock()
	url, drop, err := devtest.NewDatabase(ctx)
	if err != nil {
		return nil, err
	}
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, errors.Join(err, drop())
	}
	cfg.MaxConns = 20
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), cfg)
	if err != nil {
		return nil, errors.Join(err, drop())
	}
	d := &database{pool: pool, drop: drop}
	if err := pool.QueryRow(ctx, catalogSQL).Scan(&d.made); err != nil {
		pool.Close()
		return nil, errors.Join(err, drop())
	}
	return d, nil
}

// giveBack empties the database for the next test. It drops the database if the test failed, left a
// session, or changed more than rows.
func (d *database) giveBack(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), devtest.Patience(t, 10*time.Second))
	defer cancel()
	for d.pool.Stat().AcquiredConns() > 0 { // Eventually would end the goroutine, and the database would stay
		if !anotherLook(ctx) {
			break
		}
	}
	if n := d.pool.Stat().AcquiredConns(); n > 0 {
		t.Errorf("%d connections of the pool are still in use after the test", n)
		return // pool.Close would wait for them
	}
	soon, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if !t.Failed() && d.empty(soon) == nil {
		free.mu.Lock()
		defer free.mu.Unlock()
		free.all = append(free.all, d)
		return
	}
	d.pool.Close()
	if err := d.drop(); err != nil {
		t.Error(err)
	}
}

var errChanged = errors.New("the database is not as it was made")

// anotherLook waits a moment until a condition may be looked at again. It returns false if ctx ends.
func anotherLook(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(5 * time.Millisecond):
		return true
	}
}

// empty removes what a test can leave in a database. It returns an error if it cannot.
func (d *database) empty(ctx context.Context) error {
	first, err := d.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer first.Release()
	for others := 1; others > 0; { // a session of another pool ends soon after its pool was closed
		if err := first.QueryRow(ctx, sessionsSQL, d.pool.Stat().TotalConns()).Scan(&others); err != nil {
			return err
		}
		if others > 0 && !anotherLook(ctx) {
			return ctx.Err()
		}
	}
	for i, conn := range append(d.pool.AcquireAllIdle(ctx), first) {
		if conn != first {
			defer conn.Release()
			if i >= keptConns { // the pool forgets it
				_ = conn.Conn().Close(ctx)
				continue
			}
		}
		if _, err := conn.Exec(ctx, sessionResetSQL); err != nil {
			return err
		}
	}
	var is string
	if err := first.QueryRow(ctx, catalogSQL).Scan(&is); err != nil {
		return err
	}
	if is != d.made {
		return errChanged
	}
	_, err = first.Exec(ctx, emptySQL)
	return err
}

// keptConns is how many connections a free database keeps.
const keptConns = 8

const (
	sessionsSQL = `SELECT count(*) - $1 FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'`

	sessionResetSQL = `RESET SESSION AUTHORIZATION; RESET ROLE; RESET ALL; UNLISTEN *; SELECT pg_advisory_unlock_all(); DISCARD TEMP`

	// catalogSQL returns what a test can change in a database besides rows: tables, their statistics,
	// functions, triggers, rights, settings, and the rows that a migration made.
	catalogSQL = `SELECT md5(string_agg(line, chr(10) ORDER BY line)) FROM (
		SELECT concat_ws(' ', oid, relname, relkind, relacl, reloptions, relkind = 'r' AND reltuples > 0, relkind = 'r' AND relpages > 64)
			FROM pg_class WHERE relnamespace = 'postroom'::regnamespace
		UNION ALL SELECT concat_ws(' ', attrelid, attnum, attname, atttypid, attnotnull, attacl)
			FROM pg_attribute WHERE attnum > 0 AND attrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'postroom'::regnamespace)
		UNION ALL SELECT concat_ws(' ', conrelid, conname, convalidated) FROM pg_constraint WHERE connamespace = 'postroom'::regnamespace
		UNION ALL SELECT concat_ws(' ', tgrelid, tgname, tgenabled) FROM pg_trigger
			WHERE tgrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'postroom'::regnamespace)
		UNION ALL SELECT concat_ws(' ', oid, proname, md5(prosrc), proacl, proconfig) FROM pg_proc WHERE pronamespace = 'postroom'::regnamespace
		UNION ALL SELECT concat_ws(' ', nspname, nspacl) FROM pg_namespace WHERE nspname !~ '^pg_'
		UNION ALL SELECT concat_ws(' ', setrole, setconfig) FROM pg_db_role_setting
			WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
		UNION ALL SELECT i::text FROM postroom.instance i
		UNION ALL SELECT r::text FROM postroom.relay r
		UNION ALL SELECT concat_ws(' ', version, name) FROM postroom.migration
		UNION ALL SELECT 'large ' || oid FROM pg_class WHERE relnamespace = 'postroom'::regnamespace AND relkind = 'r' AND pg_relation_size(oid) > 1000000
	) lines (line)`

	emptySQL = `DO $$
	DECLARE one record;
	BEGIN
		SET LOCAL session_replication_role = replica; -- no foreign key is checked
		FOR one IN SELECT oid::regclass AS name FROM pg_class WHERE relnamespace = 'postroom'::regnamespace AND relkind = 'r'
			AND relname NOT IN ('instance', 'relay', 'migration') AND pg_relation_size(oid) > 0 LOOP
			EXECUTE format('DELETE FROM %s', one.name);
		END LOOP;
		INSERT INTO postroom.sweep DEFAULT VALUES;
		PERFORM setval(seqrelid::regclass, seqstart, false) FROM pg_sequence JOIN pg_class ON oid = seqrelid WHERE relnamespace = 'postroom'::regnamespace;
		FOR one IN SELECT oid::regclass AS name, relkind FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'v') LOOP
			EXECUTE format('DROP %s IF EXISTS %s CASCADE', CASE one.relkind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END, one.name);
		END LOOP;
		FOR one IN SELECT oid::regprocedure AS name FROM pg_proc WHERE pronamespace = 'public'::regnamespace LOOP
			EXECUTE format('DROP ROUTINE IF EXISTS %s CASCADE', one.name);
		END LOOP;
	END $$`
)
