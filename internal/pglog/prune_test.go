package pglog_test

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/clock"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/pglog"
)

// overrideCreatedAt moves events into the past.
func overrideCreatedAt(t *testing.T, pool *pgxpool.Pool, by time.Duration, ids ...string) {
	t.Helper()
	mustExec(t, pool, "UPDATE postroom.outbox SET created_at = created_at - $1::interval WHERE event_id = ANY ($2)", by, ids)
}

// fill writes n events of size bytes in one transaction.
func fill(t *testing.T, pool *pgxpool.Pool, n, size int) {
	t.Helper()
	mustExec(t, pool, `INSERT INTO postroom.outbox (digest, source, event_id, type, subject, data)
		SELECT decode(repeat('00', 16), 'hex'), '/shop', gen_random_uuid()::text, 'a.b', 'a.b', convert_to(repeat('x', $2), 'UTF8')
		FROM generate_series(1, $1) n`, n, size)
}

// publishAll records that all of the log is published.
func publishAll(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	mustExec(t, pool, `UPDATE postroom.relay SET snap = pg_current_snapshot(), pending = '{}',
		high = (SELECT last_value FROM postroom.outbox_seq_seq)`)
}

func TestPruneRemovesWhatIsPublishedAndOld(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	write(t, pool, "a", "b", "c", "d", "e")
	term := lead(t, pglog.New(pool))
	_, seqs, _ := read(t, term, 10)
	record(t, term, seqs...)
	overrideCreatedAt(t, pool, 73*time.Hour, "a", "b", "c")
	overrideCreatedAt(t, pool, 71*time.Hour, "d")
	if steps := prune(t, term, 72*time.Hour); !slices.Equal(steps, []int64{3}) {
		t.Errorf("removed %v, want [3]", steps)
	}
	wantLog(t, pool, "d", "e")
	overrideCreatedAt(t, pool, 2*time.Hour, "d")
	prune(t, term, 72*time.Hour)
	wantLog(t, pool, "e")
	overrideCreatedAt(t, pool, 73*time.Hour, "e")
	prune(t, term, 72*time.Hour)
	wantLog(t, pool)
}

// An event leaves the log by the database's clock, and no earlier than the time that it is kept.
func TestRetentionComesByTheClock(t *testing.T) {
	t.Parallel()
	const keep = time.Second
	pool := devtest.Pool(t)
	write(t, pool, "a")
	var logged time.Time
	if err := pool.QueryRow(t.Context(), "SELECT created_at FROM postroom.outbox").Scan(&logged); err != nil {
		t.Fatal(err)
	}
	term := lead(t, pglog.New(pool))
	_, seqs, _ := read(t, term, 10)
	record(t, term, seqs...)
	devtest.Eventually(t, 5*time.Second, "the event to leave", func() bool { return slices.Equal(prune(t, term, keep), []int64{1}) })
	var age time.Duration
	if err := pool.QueryRow(t.Context(), "SELECT clock_timestamp() - $1", logged).Scan(&age); err != nil || age < keep {
		t.Errorf("the event left after %s, %v; want %s", age, err, keep)
	}
	wantLog(t, pool)
}

func TestPruneLeavesWhatIsNotPublished(t *testing.T) {
	t.Parallel()
	t.Run("above high", func(t *testing.T) {
		t.Parallel()
		pool := devtest.Pool(t)
		write(t, pool, "a", "b", "c")
		term := lead(t, pglog.New(pool))
		_, seqs, _ := read(t, term, 2)
		record(t, term, seqs...)
		prune(t, term, 0)
		wantLog(t, pool, "c")
	})

	t.Run("pending, and what comes after it", func(t *testing.T) {
		t.Parallel()
		pool := devtest.Pool(t)
		write(t, pool, "a", "b", "c", "d")
		term := lead(t, pglog.New(pool))
		_, seqs, _ := read(t, term, 10)
		record(t, term, seqs[0], seqs[2], seqs[3])
		prune(t, term, 0)
		wantLog(t, pool, "b", "c", "d")
		record(t, term, seqs[1])
		prune(t, term, 0)
		wantLog(t, pool)
	})

	t.Run("late and not yet read", func(t *testing.T) {
		t.Parallel()
		pool := devtest.Pool(t)
		write(t, pool, "a")
		early := openWith(t, pool, "early")
		write(t, pool, "b", "c")
		term := lead(t, pglog.New(pool))
		_, seqs, _ := read(t, term, 10)
		record(t, term, seqs...)
		commit(t, early) // visible now, but not in the recorded snapshot
		prune(t, term, 0)
		wantLog(t, pool, "early", "b", "c")

		_, seqs, _ = read(t, term, 10)
		prune(t, term, 0) // read, but not recorded
		wantLog(t, pool, "early", "b", "c")
		write(t, pool, "d")
		_, more, _ := read(t, term, 10)
		record(t, term, append(seqs, more...)...)
		prune(t, term, 0)
		wantLog(t, pool)
	})

	t.Run("young, and what comes after it", func(t *testing.T) {
		t.Parallel()
		pool := devtest.Pool(t)
		write(t, pool, "a", "b", "c")
		term := lead(t, pglog.New(pool))
		_, seqs, _ := read(t, term, 10)
		record(t, term, seqs...)
		overrideCreatedAt(t, pool, 61*time.Minute, "a", "c")
		overrideCreatedAt(t, pool, 59*time.Minute, "b")
		prune(t, term, time.Hour)
		wantLog(t, pool, "b", "c")
	})
}

// A row with a time in the future was written while the clock was wrong. It leaves the log with the
// rows after it, so it does not keep them there until that time.
func TestPruneOfRowsFromTheFuture(t *testing.T) {
	t.Parallel()
	const old, young, future = "now() - interval '10 days'", "now()", "now() + interval '10 years'"
	tests := []struct {
		name  string
		times []string // by event
		left  []string
	}{
		{"the first", []string{future, old, old, old, old}, nil},
		{"infinite", []string{"'infinity'", old, "'-infinity'", old}, nil},
		{"the last", []string{old, old, future, future}, []string{"e002", "e003"}},
		{"before young ones", []string{old, future, young, future, young}, []string{"e001", "e002", "e003", "e004"}},
		{"before young and old ones", []string{future, young, old, old}, []string{"e001", "e002", "e003"}},
		{"by less than a minute", []string{"now() + interval '50 s'", old}, []string{"e000", "e001"}},
		{"alone", []string{future, "'infinity'"}, []string{"e000", "e001"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool, _, term := publishedLog(t, letters(len(tt.times))...)
			for i, at := range tt.times {
				mustExec(t, pool, "UPDATE postroom.outbox SET created_at = "+at+" WHERE event_id = $1", letters(len(tt.times))[i])
			}
			prune(t, term, 72*time.Hour)
			wantLog(t, pool, tt.left...)
			mustExec(t, pool, "UPDATE postroom.outbox SET created_at = created_at - interval '10 days' WHERE created_at < now() + interval '1 h'")
			if last := tt.times[len(tt.times)-1]; last == young || last == old {
				prune(t, term, 72*time.Hour)
				wantLog(t, pool)
			}
		})
	}

	t.Run("more than a step takes", func(t *testing.T) {
		t.Parallel()
		pool := devtest.Pool(t)
		fill(t, pool, 3600, 1)
		publishAll(t, pool)
		mustExec(t, pool, "UPDATE postroom.outbox SET created_at = CASE WHEN seq <= 100 THEN "+old+" WHEN seq <= 2600 THEN "+future+" ELSE "+young+" END")
		term := lead(t, pglog.New(pool))
		if steps := prune(t, term, 72*time.Hour); !slices.Equal(steps, []int64{100, 0}) {
			t.Errorf("removed %v, want only the rows before the rows from the future", steps)
		}
		mustExec(t, pool, "UPDATE postroom.outbox SET created_at = "+old+" WHERE seq > 2600 AND seq <= 3500")
		if steps := prune(t, term, 72*time.Hour); !slices.Equal(steps, []int64{1000, 1000, 1000, 400}) {
			t.Errorf("removed %v, want all but the 100 young rows", steps)
		}
	})
}

// A step begins where the last one ended. So it does not read the index entries of deleted
// rows again, and it misses rows that became visible among them until pruning starts over.
func TestPruneStartsOverForLateRows(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	early := openWith(t, pool, "early")
	write(t, pool, "b", "c")
	term := lead(t, pglog.New(pool))
	_, seqs, _ := read(t, term, 10)
	record(t, term, seqs...)
	prune(t, term, 0) // an open transaction may still commit
	commit(t, early)
	wantLog(t, pool, "early")
	term.PruneFromStart()
	prune(t, term, 0) // it is not published
	wantLog(t, pool, "early")

	write(t, pool, "d")
	term.PruneFromStart()
	early = openWith(t, pool, "early-too")
	write(t, pool, "e")
	ids, seqs, _ := read(t, term, 10)
	wantIDs(t, ids, "early", "d", "e")
	record(t, term, seqs...)
	prune(t, term, 0)
	wantLog(t, pool)

	commit(t, early)
	write(t, pool, "f")
	ids, seqs, _ = read(t, term, 10)
	wantIDs(t, ids, "early-too", "f")
	record(t, term, seqs...)
	prune(t, term, 0)
	wantLog(t, pool, "early-too")
	term.PruneFromStart()
	prune(t, term, 0)
	wantLog(t, pool)
}

func TestPruneOfARestoredLog(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	log := pglog.New(pool)
	write(t, pool, "a")
	open := openWith(t, pool, "owed")
	write(t, pool, "b")
	term := lead(t, log)
	_, seqs, _ := read(t, term, 10)
	record(t, term, seqs...)
	commit(t, open)
	// The log has transaction ids of another cluster, far ahead of the ids of this cluster.
	mustExec(t, pool, `UPDATE postroom.outbox SET xid = (xid::text::bigint + 1000000)::text::xid8;
		UPDATE postroom.relay SET cluster = cluster + 1,
			snap = (SELECT format('%s:%s:%s', pg_snapshot_xmin(snap)::text::bigint + 1000000, pg_snapshot_xmax(snap)::text::bigint + 1000000,
				(SELECT string_agg((x::text::bigint + 1000000)::text, ',') FROM pg_snapshot_xip(snap) x)))::pg_snapshot`)

	term = lead(t, log)
	prune(t, term, 0)
	wantLog(t, pool, "owed", "b")
	late := openWith(t, pool, "late") // its transaction id is of this cluster
	write(t, pool, "c")
	_, seqs, _ = read(t, term, 10)
	_, newer, _ := read(t, term, 10)
	record(t, term, append(seqs, newer...)...)
	commit(t, late)
	prune(t, term, 0)
	wantLog(t, pool, "late", "c")
}

func TestPruneInAFormerTerm(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	log := pglog.New(pool)
	write(t, pool, "a", "b")
	former := lead(t, log)
	_, seqs, _ := read(t, former, 10)
	record(t, former, seqs...)
	mustExec(t, pool, `INSERT INTO postroom.refused SELECT seq, '[{"class": "x", "text": "y"}]' FROM postroom.outbox`)
	term := lead(t, log)
	if removed, more, err := former.Prune(t.Context(), 0); removed != 0 || more || !errors.Is(err, eventlog.ErrLeaseLost) {
		t.Errorf("Prune in a former term = %d, %t, %v, want ErrLeaseLost", removed, more, err)
	}
	wantLog(t, pool, "a", "b")
	if got := column[int64](t, pool, "SELECT seq FROM postroom.refused ORDER BY seq"); !slices.Equal(got, seqs) {
		t.Errorf("after Prune in a former term, failures are stored of %v, want of %v", got, seqs)
	}
	prune(t, term, 0)
	wantLog(t, pool)
}

// While a step waits for the row of the state, the state can change: events must be published
// again, or another relay begins to lead.
func TestPruneHeedsAStateThatIsBeingWritten(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, change string
		want         error
		left         []string
	}{
		{"what is owed again stays", "UPDATE postroom.relay SET pending = '{[2,2]}'", nil, []string{"b", "c"}},
		{"another term begins", "UPDATE postroom.relay SET epoch = epoch + 1", eventlog.ErrLeaseLost, []string{"a", "b", "c"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := devtest.Pool(t)
			write(t, pool, "a", "b", "c")
			term := lead(t, pglog.New(pool))
			_, seqs, _ := read(t, term, 10)
			record(t, term, seqs...)

			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.Background()) }() // no effect after the commit
			if _, err := tx.Exec(t.Context(), tt.change); err != nil {
				t.Fatal(err)
			}
			result := make(chan error, 1)
			go func() {
				_, _, err := term.Prune(t.Context(), 0)
				result <- err
			}()
			devtest.Eventually(t, 10*time.Second, "the step to wait", func() bool {
				var waiting bool
				err := pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks JOIN pg_stat_activity USING (pid)
					WHERE NOT granted AND datname = current_database())`).Scan(&waiting)
				return err == nil && waiting
			})
			commit(t, tx)
			if err := <-result; !errors.Is(err, tt.want) {
				t.Errorf("Prune = %v, want %v", err, tt.want)
			}
			wantLog(t, pool, tt.left...)
		})
	}
}

func TestPruneStepsAreBounded(t *testing.T) {
	t.Parallel()
	t.Run("by rows", func(t *testing.T) {
		t.Parallel()
		pool := devtest.Pool(t)
		fill(t, pool, 2500, 600)
		publishAll(t, pool)
		if steps := prune(t, lead(t, pglog.New(pool)), 0); !slices.Equal(steps, []int64{1000, 1000, 500}) {
			t.Errorf("removed %v, want [1000 1000 500]", steps)
		}
	})

	t.Run("by bytes", func(t *testing.T) {
		t.Parallel()
		pool := devtest.Pool(t)
		for i := range 6 {
			ev := named(fmt.Sprint(i))
			ev.ContentType, ev.Data = "application/octet-stream", make([]byte, 900_000)
			_, _ = crand.Read(ev.Data) // never fails; random data cannot be compressed
			err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return shop.Write(t.Context(), tx, ev) })
			if err != nil {
				t.Fatal(err)
			}
		}
		publishAll(t, pool)
		if steps := prune(t, lead(t, pglog.New(pool)), 0); !slices.Equal(steps, []int64{4, 2}) {
			t.Errorf("removed %v, want [4 2]", steps)
		}
	})

	for _, column := range []string{"type", "subject", "key", "content_type", "correlation_id", "trace_parent", "trace_state", "digest"} {
		t.Run("by bytes of the column "+column, func(t *testing.T) {
			t.Parallel()
			pool := devtest.Pool(t)
			large := "(SELECT string_agg(md5(n::text || i::text), '') FROM generate_series(1, 28000) i)" // 896,000 bytes that cannot be compressed
			if column == "digest" {
				large = "convert_to(" + large + ", 'UTF8')"
			}
			columns := map[string]string{"digest": "''", "type": "'a'", "subject": "'a'"}
			columns[column] = large
			var names, values []string
			for name, value := range columns {
				names, values = append(names, name), append(values, value)
			}
			mustExec(t, pool, "INSERT INTO postroom.outbox (source, event_id, data, checked, "+strings.Join(names, ", ")+") SELECT '/s', n::text, '', true, "+
				strings.Join(values, ", ")+" FROM generate_series(1, 6) n")
			publishAll(t, pool)
			if steps := prune(t, lead(t, pglog.New(pool)), 0); !slices.Equal(steps, []int64{4, 2}) && !slices.Equal(steps, []int64{5, 1}) {
				t.Errorf("removed %v, want 4 MiB at a time", steps)
			}
		})
	}

	t.Run("by seqs, as index entries of deleted rows may lie between", func(t *testing.T) {
		t.Parallel()
		pool := devtest.Pool(t)
		fill(t, pool, 30_000, 1)
		mustExec(t, pool, "DELETE FROM postroom.outbox WHERE seq % 100 > 0")
		publishAll(t, pool)
		if pages := pagesOfAStep(t, pool); pages > 350 {
			t.Errorf("a step over a third of the log touches %d pages", pages)
		}
		steps := prune(t, lead(t, pglog.New(pool)), 0)
		if !slices.Equal(steps, []int64{100, 100, 100}) && !slices.Equal(steps, []int64{100, 100, 100, 0}) {
			t.Errorf("removed %v, want 100 at a time", steps)
		}
		mustExec(t, pool, "VACUUM postroom.outbox")
		if pages := pagesOfAStep(t, pool); pages > 50 {
			t.Errorf("a step over an empty log touches %d pages", pages)
		}
	})

	t.Run("and pass over seqs that were never used", func(t *testing.T) {
		t.Parallel()
		pool := devtest.Pool(t)
		write(t, pool, "a")
		mustExec(t, pool, "SELECT setval('postroom.outbox_seq_seq', 50000000)")
		write(t, pool, "b")
		mustExec(t, pool, "SELECT setval('postroom.outbox_seq_seq', 70000000)")
		write(t, pool, "c")
		publishAll(t, pool)
		prune(t, lead(t, pglog.New(pool)), 0)
		wantLog(t, pool)
	})
}

// pagesOfAStep returns how many pages of tables and indexes the first step of pruning reads.
// It changes nothing.
func pagesOfAStep(t *testing.T, pool *pgxpool.Pool) int {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }() // this undoes the settings too
	if _, err := tx.Exec(t.Context(), pglog.SQL("connect")+"UPDATE postroom.relay SET epoch = 1"); err != nil {
		t.Fatal(err)
	}
	var plans []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	err = tx.QueryRow(t.Context(), "EXPLAIN (ANALYZE, BUFFERS, FORMAT json) "+pglog.SQL("prune"), 1, 0, "1 h", time.Now()).Scan(&plans)
	if err != nil {
		t.Fatal(err)
	}
	return plans[0].Plan.Hit + plans[0].Plan.Read
}

// Producers write, hold transactions open and roll back, while a relay without retention
// publishes. Pruning removes only events that were read, and in the end all of them.
func TestPruneBesideProducers(t *testing.T) {
	t.Parallel()
	const producers = 6
	pool := poolOf(t, producers+4)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var (
		wg        sync.WaitGroup
		mu        sync.Mutex
		committed []string
	)
	for p := range producers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(p)))
			for i := 0; ctx.Err() == nil; i++ {
				id := fmt.Sprint(p, "-", i)
				err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
					if err := shop.Write(t.Context(), tx, named(id)); err != nil {
						return err
					}
					switch n := rng.IntN(20); {
					case n == 0:
						return errOnPurpose
					case n < 4:
						pause(ctx, time.Duration(rng.IntN(150))*time.Millisecond)
					}
					return nil
				})
				switch {
				case err == nil:
					mu.Lock()
					committed = append(committed, id)
					mu.Unlock()
				case !errors.Is(err, errOnPurpose):
					t.Error(err)
					return
				}
			}
		})
	}

	term := lead(t, pglog.New(pool))
	var published []string
	var removed int64
	late := 0
	pass := func() int {
		ids, seqs, page := read(t, term, 100)
		published, late = append(published, ids...), late+page.Late
		record(t, term, seqs...)
		n, _, err := term.Prune(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		removed += n
		return len(ids)
	}
	began := time.Now()
	working := func() bool { // longer on a machine on which too little has happened
		took := time.Since(began)
		return took < 2*time.Second || took < time.Minute && (late == 0 || removed == 0)
	}
	for i := 0; working() && !t.Failed(); i++ {
		if i%50 == 49 {
			term.PruneFromStart()
		}
		pass()
	}
	stop()
	wg.Wait()
	before := removed
	for idle := 0; idle < 20; idle++ {
		if pass() > 0 {
			idle = 0
		}
	}
	write(t, pool, "last") // a recording without news keeps the older snapshot
	pass()
	term.PruneFromStart()
	pass()
	wantLog(t, pool)

	t.Logf("%d committed, %d late rows, %d pruned meanwhile and %d afterwards", len(committed), late, before, removed-before)
	committed = append(committed, "last")
	slices.Sort(committed)
	slices.Sort(published)
	if !slices.Equal(published, committed) {
		t.Errorf("published %d of %d events", len(published), len(committed))
	}
	if late == 0 || before == 0 {
		t.Error("inconclusive: nothing was late, or pruned while producers wrote")
	}
}

// If a log is pruned as it grows, it takes no more space over time. Not parallel: PostgreSQL
// 15 gives pages of an index back only if no transaction in any database is older, and other
// tests hold some open.
func TestPruneKeepsTheLogSmall(t *testing.T) {
	pool := devtest.Pool(t)
	log := pglog.New(pool)
	term := lead(t, log)
	var table, indexes, rows int64
	var after []int64 // pages, by round
	for round := range 20 {
		fill(t, pool, 2000, 600)
		_, seqs, _ := read(t, term, 2000)
		record(t, term, seqs...)
		prune(t, term, 0)
		mustExec(t, pool, "VACUUM postroom.outbox")
		err := pool.QueryRow(t.Context(), `SELECT pg_table_size('postroom.outbox') / 8192, pg_indexes_size('postroom.outbox') / 8192,
			(SELECT count(*) FROM postroom.outbox)`).Scan(&table, &indexes, &rows)
		if err != nil {
			t.Fatal(err)
		}
		if rows != 0 {
			t.Fatalf("round %d: %d rows are left", round+1, rows)
		}
		if round%5 == 4 {
			t.Logf("round %d: table %d pages, indexes %d pages", round+1, table, indexes)
		}
		after = append(after, table+indexes)
	}
	if after[19] > 2*after[4] {
		t.Errorf("%d pages after 20 rounds, %d after 5: want no more than twice as many", after[19], after[4])
	}
}

// A clock that is ahead for a moment removes no event. The test is not parallel, because it changes
// the clock of the process.
func TestDatabaseClockThatIsAheadRemovesNoEvents(t *testing.T) {
	defer clock.OverrideLatest(40 * 24 * time.Hour)()
	pool := devtest.Pool(t)
	write(t, pool, "a", "b")
	term := lead(t, pglog.New(pool))
	_, seqs, _ := read(t, term, 10)
	record(t, term, seqs...)
	overrideCreatedAt(t, pool, 39*24*time.Hour, "a", "b")
	prune(t, term, 72*time.Hour)
	wantLog(t, pool, "a", "b")
	// Nor does it if the events at the beginning of the log are from the future.
	overrideCreatedAt(t, pool, -100*24*time.Hour, "a")
	prune(t, term, 72*time.Hour)
	wantLog(t, pool, "a", "b")
	clock.OverrideLatest(0)
	prune(t, term, 72*time.Hour)
	wantLog(t, pool)
}

// An operator may forget an event of the log in a transaction that stays open. Retention does not wait
// for it: it has locked the row of relay, without which no relay publishes.
func TestPruneWaitsForNoForgetting(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	write(t, pool, "a", "b", "c")
	mustExec(t, pool, "INSERT INTO postroom.refused (seq, failures) SELECT seq, '[]' FROM postroom.outbox")
	term := lead(t, pglog.New(pool))
	_, seqs, _ := read(t, term, 10)
	record(t, term, seqs...)

	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }() // no effect after the commit
	if _, err := tx.Exec(t.Context(), "SELECT postroom.forget(source, event_id, 'ann', 'asked for') FROM postroom.outbox WHERE event_id = 'b'"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if removed, more, err := term.Prune(ctx, 0); removed != 0 || more || err != nil {
		t.Errorf("Prune = %d, %v, %v, want no event", removed, more, err)
	}
	commit(t, tx)
	prune(t, term, 0)
	wantLog(t, pool)
}
