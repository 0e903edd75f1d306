package pglog_test

import (
	"fmt"
	"os/exec"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/pglog"
)

// freeze stops the process that writes out asynchronous commits, so that a crash loses them.
// Call the returned function after the server was killed: that process would survive the
// server.
func freeze(t *testing.T, pool *pgxpool.Pool) (kill func()) {
	t.Helper()
	var pid string
	if err := pool.QueryRow(t.Context(), "SELECT pid::text FROM pg_stat_activity WHERE backend_type = 'walwriter'").Scan(&pid); err != nil {
		t.Fatal(err)
	}
	signal := func(name string) {
		if out, err := exec.Command("kill", name, pid).CombinedOutput(); err != nil {
			t.Fatalf("kill %s: %v: %s", name, err, out)
		}
	}
	signal("-STOP")
	t.Cleanup(func() { _ = exec.Command("kill", "-CONT", pid).Run() }) // it is gone, unless the test failed before
	return func() { signal("-KILL") }
}

func TestTermReadsSeqsThatAreHandedOutAgain(t *testing.T) {
	t.Parallel()
	server := devtest.OwnPostgres(t, devstack.Config{Durable: true})
	pool := ownDatabase(t, server, "&synchronous_commit=off")
	log := pglog.New(pool)
	j := newJournal()
	write(t, pool, "kept0", "kept1")
	term := lead(t, log)
	j.drain(t, term, 100)

	mustExec(t, pool, "CHECKPOINT")
	kill := freeze(t, pool) // later commits are only in the server's memory
	var gone, again []string
	for i := range 100 {
		gone, again = append(gone, fmt.Sprint("gone", i)), append(again, fmt.Sprint("again", i))
	}
	write(t, pool, gone...)
	wantIDs(t, j.drain(t, term, 100), gone...)
	crashWith(t, server, pool, kill)
	if left := logged(t, pool); len(left) != 2 {
		t.Fatalf("inconclusive: the log still has %v", left)
	}
	wantOver(t, term)

	again = again[:60]
	write(t, pool, again...)
	wantIDs(t, j.drain(t, lead(t, log), 7), again...)
	wantIDs(t, j.drain(t, lead(t, log), 7))
	j.lost(t, logged(t, pool))
	if n := j.reused(); n != len(again) {
		t.Errorf("inconclusive: %d seqs were handed out again, want %d", n, len(again))
	}
}

// The crash comes while producers commit and a term records. The surviving commits may end
// anywhere among these. But if the crash loses an event, it also loses the recording that the event
// was published.
func TestRecordingDoesNotSurviveItsEvents(t *testing.T) {
	t.Parallel()
	server := devtest.OwnPostgres(t, devstack.Config{Durable: true})
	pool := ownDatabase(t, server, "&synchronous_commit=off")
	log := pglog.New(pool)
	rounds := 4
	if soak {
		rounds = 60
	}
	j := newJournal()
	for round := range rounds {
		var producers sync.WaitGroup
		for p := range 4 {
			producers.Go(func() {
				for i := 0; ; i++ { // until the server is gone
					ev := named(fmt.Sprintf("round%d-%d-%d", round, p, i))
					if err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return shop.Write(t.Context(), tx, ev) }); err != nil {
						return
					}
				}
			})
		}
		term := lead(t, log)
		publish := func(n int) { // of events that are not written yet
			var last int64
			if err := pool.QueryRow(t.Context(), "SELECT last_value FROM postroom.outbox_seq_seq").Scan(&last); err != nil {
				t.Fatal(err)
			}
			for n > 0 {
				_, seqs, page := read(t, term, 50)
				record(t, term, j.add(t, page.Events)...)
				for _, seq := range seqs {
					if seq > last {
						n--
					}
				}
			}
		}
		publish(100)
		kill := freeze(t, pool)
		publish(200)
		crashWith(t, server, pool, func() { kill(); producers.Wait() })
		wantOver(t, term)
	}
	j.drain(t, lead(t, log), 100)
	ids := logged(t, pool)
	j.lost(t, ids)
	taken := 0
	for id := range j.times {
		if _, ok := slices.BinarySearch(ids, id); !ok {
			taken++
		}
	}
	t.Logf("%d crashes: %d events published, %d of them lost by the database, %d seqs handed out again", rounds, len(j.times), taken, j.reused())
	if taken == 0 || j.reused() == 0 {
		t.Error("inconclusive: the database lost nothing, or handed no seq out again")
	}
}
