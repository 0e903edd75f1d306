package pglog_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/relay/broker"
)

// replaced returns a term that does not know that another one has begun.
func replaced(t *testing.T, log *pglog.Log, first func(*pglog.Term)) (former, next *pglog.Term) {
	t.Helper()
	former = lead(t, log)
	first(former)
	return former, lead(t, log)
}

// If a term loses the lease after its last recording, Release does not give back the lease of
// the next term.
func TestReleaseIsFenced(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	former, _ := replaced(t, pglog.New(pool), func(*pglog.Term) {})
	if err := former.GiveBack(t.Context()); err != nil {
		t.Fatal(err)
	}
	var led bool
	if err := pool.QueryRow(t.Context(), "SELECT expires_at > clock_timestamp() AND owner IS NOT NULL FROM postroom.relay").Scan(&led); err != nil || !led {
		t.Errorf("the lease of the next term is given back by the former one (%v)", err)
	}
}

// A term that was replaced makes no event due.
func TestWakingIsFenced(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	writeKeyed(t, pool, "k", "a")
	var ev broker.Event
	former, _ := replaced(t, pglog.New(pool), func(term *pglog.Term) {
		_, _, page := read(t, term, 10)
		ev = page.Events[0]
		hold(t, term, refusal(1), ev)
	})
	mustExec(t, pool, "UPDATE postroom.held SET next_at = NULL")
	err := former.Record(t.Context(), eventlog.Progress{Held: deferrals(refusal(2), ev)})
	if !errors.Is(err, eventlog.ErrLeaseLost) {
		t.Fatalf("Record = %v, want %v", err, eventlog.ErrLeaseLost)
	}
	wantHeld(t, pool, "a waiting 1")
}

// A term that was replaced makes no checkpoint. Such a checkpoint would mix the next term's state
// with the positions of the replaced term.
func TestMarkingIsFenced(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	write(t, pool, "a")
	var seqs []int64
	former, _ := replaced(t, pglog.New(pool), func(term *pglog.Term) { _, seqs, _ = read(t, term, 10) })
	former.CheckpointNow()
	at := broker.StreamPosition{Stream: "SHOP", Created: time.Unix(7, 0), Seq: 1, MessageID: "m"}
	err := former.Record(t.Context(), eventlog.Progress{Published: seqs, Positions: []broker.StreamPosition{at}})
	if !errors.Is(err, eventlog.ErrLeaseLost) {
		t.Fatalf("Record = %v, want %v", err, eventlog.ErrLeaseLost)
	}
	var marks int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM postroom.relay_checkpoint").Scan(&marks); err != nil || marks != 0 {
		t.Errorf("%d marks, %v; want none", marks, err)
	}
}

// A step of pruning ends at the first event that is not published, even if there are as many
// rows around it as a step takes.
func TestPruneStopsWithinAStep(t *testing.T) {
	t.Parallel()
	const n, done = 1500, 400
	pool := devtest.Pool(t)
	mustExec(t, pool, fmt.Sprintf(`INSERT INTO postroom.outbox (digest, source, event_id, type, subject, data, created_at)
		SELECT decode(repeat('00', 16), 'hex'), '/shop', n::text, 'a.b', 'a.b', '', now() - interval '1 day' FROM generate_series(1, %d) n`, n))
	term := lead(t, pglog.New(pool))
	_, seqs, _ := read(t, term, n)
	record(t, term, seqs[:done]...)
	for more := true; more; {
		var err error
		if _, more, err = term.Prune(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	var left int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM postroom.outbox").Scan(&left); err != nil || left != n-done {
		t.Errorf("%d rows are left, %v; want the %d that are not published", left, err, n-done)
	}
}

// Held events that are being published do not take the places of others that are due.
func TestDueEventsAreReadWhileOthersArePublished(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	write(t, pool, "a", "b", "c")
	log := pglog.New(pool)
	term := lead(t, log)
	_, _, page := read(t, term, 10)
	hold(t, term, refusal(1), page.Events...)
	mustExec(t, pool, "UPDATE postroom.held SET next_at = now() - interval '1 s'")
	var all []string
	for range 3 { // without a recording in between
		ids, _, _ := read(t, term, 1)
		all = append(all, ids...)
	}
	slices.Sort(all)
	wantIDs(t, all, "a", "b", "c")
}

// Events behind a dead one of their key wait, even if an event before it is due.
func TestEventsBehindADeadOneWait(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	writeKeyed(t, pool, "k", "a", "b", "c")
	writeKeyed(t, pool, "m", "x")
	term := lead(t, pglog.New(pool))
	_, _, page := read(t, term, 10)
	hold(t, term, refusal(1), page.Events...)
	mustExec(t, pool, `UPDATE postroom.held SET next_at = now() - interval '1 s' WHERE event_id IN ('a', 'x');
		UPDATE postroom.held SET dead_at = now(), class = 'x', first_failed_at = now() WHERE event_id = 'b'`)
	ids, seqs, _ := read(t, term, 3) // the events that wait take no place of others
	wantIDs(t, ids, "a", "x")
	record(t, term, seqs...)
	ids, _, _ = read(t, term, 10)
	wantIDs(t, ids)
}

// The statement that takes the lease waits for the disk; other commits of the connection do
// not.
func TestTakingTheLeaseWaitsForTheDisk(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	mustExec(t, pool, `CREATE TABLE waits (epoch bigint, setting text);
		CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			INSERT INTO public.waits VALUES (NEW.epoch, current_setting('synchronous_commit'));
			RETURN NULL;
		END $$;
		CREATE CONSTRAINT TRIGGER note AFTER UPDATE ON postroom.relay DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION note()`) // runs when the transaction commits
	term := lead(t, pglog.New(pool))
	record(t, term)
	want := []string{"on", "off"}
	if got := column[string](t, pool, "SELECT setting FROM waits ORDER BY ctid"); !slices.Equal(got, want) {
		t.Errorf("synchronous_commit was %v for the lease and for a recording, want %v", got, want)
	}
}

// A recording stores that an event must be published again, even if no event was published since
// the last recording.
func TestReturnedEventsAreRecordedWhileIdle(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	log := pglog.New(pool)
	write(t, pool, "a", "b")
	term := lead(t, log)
	_, seqs, _ := read(t, term, 10)
	record(t, term, seqs...)
	if err := term.Record(t.Context(), eventlog.Progress{Lost: seqs[:1]}); err != nil {
		t.Fatal(err)
	}
	ids, _, _ := read(t, lead(t, log), 10)
	wantIDs(t, ids, "a")
}

// Events that are scheduled for later, and read while a recording is under way, are held
// by the next one.
func TestScheduledEventsThatAreReadBesideARecording(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	schedule := func(id string) {
		t.Helper()
		ev := named(id)
		ev.NotBefore = time.Now().Add(time.Hour)
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return shop.Write(t.Context(), tx, ev) })
		if err != nil {
			t.Fatal(err)
		}
	}
	term := lead(t, pglog.New(pool))
	schedule("a")
	read(t, term, 10)

	blocker, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = blocker.Rollback(t.Context()) }()
	if _, err := blocker.Exec(t.Context(), "SELECT FROM postroom.relay FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- term.Record(t.Context(), eventlog.Progress{}) }()
	waitForLock(t, pool)
	schedule("b")
	read(t, term, 10)
	if err := blocker.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	wantHeld(t, pool, "a retrying 0")
	record(t, term)
	wantHeld(t, pool, "a retrying 0", "b retrying 0")
}

// Settings of a role or a database do not affect the relay's connections.
func TestTheRelaysConnectionsHaveTheirOwnSettings(t *testing.T) {
	t.Parallel()
	url := devtest.DatabaseURL(t)
	first := poolAt(t, url)
	for name, value := range map[string]string{
		"statement_timeout": "71s", "lock_timeout": "72s", "idle_session_timeout": "73s", "idle_in_transaction_session_timeout": "74s",
		"default_transaction_isolation": "serializable", "synchronous_commit": "on",
		"datestyle": "German", "bytea_output": "escape", "enable_seqscan": "on", "jit": "on", "max_parallel_workers_per_gather": "2",
	} {
		mustExec(t, first, fmt.Sprintf("DO $$ BEGIN EXECUTE format('ALTER DATABASE %%I SET %s = %%L', current_database(), '%s'); END $$", name, value))
	}
	term := lead(t, pglog.New(poolAt(t, url)))
	want := map[string]string{
		"statement_timeout": "0", "lock_timeout": "0", "idle_session_timeout": "0", "idle_in_transaction_session_timeout": "0",
		"default_transaction_isolation": "read committed", "synchronous_commit": "off",
		"bytea_output": "hex", "enable_seqscan": "off", "jit": "off", "max_parallel_workers_per_gather": "0",
	}
	for _, reader := range []bool{false, true} {
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if got := term.Setting(t.Context(), reader, name); got != want[name] {
				t.Errorf("reader %t: %s = %s, want %s", reader, name, got, want[name])
			}
		}
		if got := term.Setting(t.Context(), reader, "datestyle"); !strings.HasPrefix(got, "ISO") {
			t.Errorf("reader %t: datestyle = %s, want ISO", reader, got)
		}
		wantPlans := "force_custom_plan"
		if reader {
			wantPlans = "force_generic_plan"
		}
		if got := term.Setting(t.Context(), reader, "plan_cache_mode"); got != wantPlans {
			t.Errorf("reader %t: plan_cache_mode = %s, want %s", reader, got, wantPlans)
		}
	}
}

// If the database allows no writes, the relay does not write: a provider may have set that because the
// disk is nearly full.
func TestNoTermWhileTheDatabaseTakesNoWrites(t *testing.T) {
	t.Parallel()
	url := devtest.DatabaseURL(t)
	first := poolAt(t, url)
	set := func(value string) {
		mustExec(t, first, fmt.Sprintf("DO $$ BEGIN EXECUTE format('ALTER DATABASE %%I SET default_transaction_read_only = %s', current_database()); END $$", value))
	}
	set("on")
	_, err := pglog.New(poolAt(t, url)).Lead(t.Context(), "a", time.Minute)
	if err == nil || errors.Is(err, postroom.ErrUnrecoverable) || !strings.Contains(err.Error(), "(SQLSTATE 25006)") || !strings.Contains(err.Error(), "takes no writes") {
		t.Errorf("Lead = %v, want an outage that names the setting", err)
	}
	set("off")
	lead(t, pglog.New(poolAt(t, url)))
}

// All events that one recording took out of held are added to the last checkpoint.
func TestEventsPublishedFromHeldAreNoted(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	log := pglog.New(pool)
	write(t, pool, "a", "b", "c", "d", "e")
	term := lead(t, log)
	_, seqs, page := read(t, term, 10)
	term.CheckpointNow()
	err := term.Record(t.Context(), eventlog.Progress{
		Published: []int64{seqs[1], seqs[3]},
		Held:      deferrals(refusal(1), page.Events[0], page.Events[2], page.Events[4]),
		Positions: []broker.StreamPosition{{Stream: "SHOP", Created: time.Unix(7, 0), Seq: 2, MessageID: "m"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	mustExec(t, pool, "UPDATE postroom.held SET next_at = now() - interval '1 s'")
	ids, due, _ := read(t, term, 10)
	wantIDs(t, ids, "a", "c", "e")
	record(t, term, due...)
	if got := column[int64](t, pool, "SELECT generate_series(lower(r), upper(r) - 1) FROM postroom.relay_checkpoint, unnest(published_held) r ORDER BY 1"); !slices.Equal(got, due) {
		t.Errorf("noted %v, want %v", got, due)
	}
}

// column returns the values of a query of one column.
func column[T any](t *testing.T, pool *pgxpool.Pool, sql string) []T {
	t.Helper()
	rows, _ := pool.Query(t.Context(), sql) // CollectRows reports the error
	values, err := pgx.CollectRows(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// A term that was replaced adds no note to a checkpoint of the next term.
func TestAReplacedTermNotesNothing(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	write(t, pool, "a", "b")
	at := broker.StreamPosition{Stream: "SHOP", Created: time.Unix(7, 0), Seq: 1, MessageID: "m"}
	var due []int64
	former, _ := replaced(t, pglog.New(pool), func(term *pglog.Term) {
		_, seqs, page := read(t, term, 10)
		term.CheckpointNow()
		err := term.Record(t.Context(), eventlog.Progress{Published: seqs[1:], Held: deferrals(refusal(1), page.Events[0]), Positions: []broker.StreamPosition{at}})
		if err != nil {
			t.Fatal(err)
		}
		mustExec(t, pool, "UPDATE postroom.held SET next_at = now() - interval '1 s'")
		_, due, _ = read(t, term, 10)
	})
	if err := former.Record(t.Context(), eventlog.Progress{Published: due}); !errors.Is(err, eventlog.ErrLeaseLost) {
		t.Fatalf("Record = %v, want %v", err, eventlog.ErrLeaseLost)
	}
	if got := column[string](t, pool, "SELECT published_held::text FROM postroom.relay_checkpoint"); !slices.Equal(got, []string{"{}"}) {
		t.Errorf("noted %v, want nothing", got)
	}
	wantHeld(t, pool, "a due 1")
}

// waitForLock returns when a session of the test's database waits for a lock.
func waitForLock(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	devtest.Eventually(t, time.Minute, "the recording to wait", func() bool {
		var waiting bool
		err := pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waiting)
		return err == nil && waiting
	})
}

// A role that may create in the schema public, as every role may in a database that comes from
// PostgreSQL 14, cannot have its functions run by a relay.
func TestTheRelayCallsNoFunctionOfAnotherRole(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	intruder, role := devtest.RolePool(t, pool)
	mustExec(t, pool, "GRANT CREATE ON SCHEMA public TO "+role)
	mustExec(t, intruder, "CREATE FUNCTION public.caught() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'hijacked as %', current_user; END $$")
	for _, function := range []string{
		"lower(int8multirange) RETURNS bigint", "upper(int8multirange) RETURNS bigint", "lower(int8range) RETURNS bigint",
		"range_agg(int8range) RETURNS int8multirange", "unnest(bigint[]) RETURNS SETOF bigint", "unnest(text[]) RETURNS SETOF text",
		"pg_column_size(jsonb) RETURNS int", "jsonb_object_agg(text, jsonb) RETURNS jsonb", "pg_total_relation_size(text) RETURNS bigint",
		"contains(int8multirange, bigint) RETURNS boolean", "contained(bigint, int8multirange) RETURNS boolean", "same(oid, regclass) RETURNS boolean",
	} {
		returns := function[strings.LastIndex(function, " ")+1:]
		mustExec(t, intruder, fmt.Sprintf("CREATE FUNCTION public.%s LANGUAGE sql AS 'SELECT NULL::%s WHERE public.caught()'", function, returns))
	}
	mustExec(t, intruder, `CREATE OPERATOR public.@> (LEFTARG = int8multirange, RIGHTARG = bigint, FUNCTION = public.contains);
		CREATE OPERATOR public.<@ (LEFTARG = bigint, RIGHTARG = int8multirange, FUNCTION = public.contained);
		CREATE OPERATOR public.= (LEFTARG = oid, RIGHTARG = regclass, FUNCTION = public.same)`)

	log := pglog.New(pool)
	write(t, pool, "a", "b", "c")
	term := lead(t, log)
	_, seqs, page := read(t, term, 10)
	term.CheckpointNow()
	err := term.Record(t.Context(), eventlog.Progress{
		Published: seqs[:2],
		Held:      deferrals(refusal(1), page.Events[2]),
		Positions: []broker.StreamPosition{{Stream: "SHOP", Created: time.Unix(7, 0), Seq: 2, MessageID: "m"}},
	})
	if err != nil {
		t.Errorf("Record: %v", err)
	}
	if _, err := term.Read(t.Context(), 10, nil); err != nil {
		t.Errorf("Read: %v", err)
	}
	if _, _, err := term.Prune(t.Context(), 0); err != nil {
		t.Errorf("Prune: %v", err)
	}
	if _, err := log.Lag(t.Context()); err != nil {
		t.Errorf("Lag: %v", err)
	}
	if _, err := log.Sizes(t.Context()); err != nil {
		t.Errorf("Sizes: %v", err)
	}
	if err := log.Check(t.Context()); err != nil {
		t.Errorf("Check: %v", err)
	}
	if _, err := log.Checkpoints(t.Context(), "SHOP"); err != nil {
		t.Errorf("Checkpoints: %v", err)
	}
}
