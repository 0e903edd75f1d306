package pglog_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/pglog"
)

const truncateAndRestart = "TRUNCATE postroom.outbox RESTART IDENTITY"

// wantRefused fails the test unless the log's sequence keeps relays from leading it.
func wantRefused(t *testing.T, log *pglog.Log) {
	t.Helper()
	if _, err := log.Lead(t.Context(), "test", time.Minute); !errors.Is(err, pglog.ErrSequenceBehind) {
		t.Errorf("Lead = %v, want %v", err, pglog.ErrSequenceBehind)
	}
	if err := log.Check(t.Context()); !errors.Is(err, pglog.ErrSequenceBehind) {
		t.Errorf("Check = %v, want %v", err, pglog.ErrSequenceBehind)
	}
}

// numbered returns n names.
func numbered(prefix string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint(prefix, i))
	}
	return names
}

// published returns a log with n published events, and the term that published them.
func published(t *testing.T, pool *pgxpool.Pool, n int) (*pglog.Log, *pglog.Term, *journal) {
	t.Helper()
	log, j := pglog.New(pool), newJournal()
	write(t, pool, numbered("old", n)...)
	term := lead(t, log)
	wantIDs(t, j.drain(t, term, 100), numbered("old", n)...)
	return log, term, j
}

func TestTruncatedLog(t *testing.T) {
	t.Parallel()
	t.Run("that goes on with its seqs is read on", func(t *testing.T) {
		t.Parallel()
		pool := devtest.Pool(t)
		log, term, j := published(t, pool, 5)
		mustExec(t, pool, "TRUNCATE postroom.outbox")
		write(t, pool, numbered("new", 3)...)
		wantIDs(t, j.drain(t, term, 2), numbered("new", 3)...)
		wantIDs(t, j.drain(t, lead(t, log), 2))
	})

	t.Run("that begins its seqs again is refused, and read once the sequence was set", func(t *testing.T) {
		t.Parallel()
		pool := devtest.Pool(t)
		log, term, j := published(t, pool, 5)
		if err := term.Abandon(); err != nil {
			t.Fatal(err)
		}
		mustExec(t, pool, truncateAndRestart)
		write(t, pool, "unlucky") // before an operator noticed
		wantRefused(t, log)
		mustExec(t, pool, "SELECT setval('postroom.outbox_seq_seq', (SELECT high FROM postroom.relay))")
		write(t, pool, "new")
		wantIDs(t, j.drain(t, lead(t, log), 10), "unlucky", "new")
	})

	// Whether a row is late depends on its transaction, not on its seq. So a running term
	// reads the rows. The next term is refused until the sequence has passed the recorded
	// high.
	t.Run("under a term loses nothing that is written then", func(t *testing.T) {
		t.Parallel()
		pool := devtest.Pool(t)
		log, term, j := published(t, pool, 20)
		mustExec(t, pool, truncateAndRestart)
		write(t, pool, numbered("under", 8)...)
		wantIDs(t, j.drain(t, term, 3), numbered("under", 8)...)
		wantRefused(t, log)
		write(t, pool, numbered("between", 20)...)
		wantIDs(t, j.drain(t, lead(t, log), 3), numbered("between", 20)...)
		wantIDs(t, j.drain(t, lead(t, log), 3))
		j.doubled(t)
	})

	// The acknowledgements of the old events come after new events took the same seqs.
	t.Run("under a term with events in flight", func(t *testing.T) {
		t.Parallel()
		pool := devtest.Pool(t)
		log, j := pglog.New(pool), newJournal()
		write(t, pool, numbered("old", 5)...)
		term := lead(t, log)
		_, inFlight, page := read(t, term, 10)
		j.add(t, page.Events)
		mustExec(t, pool, truncateAndRestart)
		write(t, pool, numbered("new", 5)...)
		_, again, page := read(t, term, 10)
		j.add(t, page.Events)
		record(t, term, inFlight...)
		write(t, pool, numbered("newer", 5)...) // otherwise no relay could lead
		term = lead(t, log)
		j.drain(t, term, 10)
		j.lost(t, logged(t, pool))
		record(t, term, again...)
	})
}

// The transaction ids of a restored log's rows have no meaning here, so a search ignores rows
// up to the floor. If these rows are truncated, that exception ends, and so does the term.
func TestTruncatedLogThatWasRestored(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	log, _, j := published(t, pool, 20)
	mustExec(t, pool, "UPDATE postroom.relay SET cluster = cluster + 1")
	term := lead(t, log) // adopts it
	wantIDs(t, j.drain(t, term, 3))
	mustExec(t, pool, truncateAndRestart)
	write(t, pool, numbered("under", 8)...)
	if err := tryRecord(t.Context(), term); !errors.Is(err, eventlog.ErrLeaseLost) {
		t.Errorf("Record by a term that began before = %v, want ErrLeaseLost", err)
	}
	wantRefused(t, log)
	write(t, pool, numbered("between", 20)...)
	j.drain(t, lead(t, log), 3)
	j.lost(t, logged(t, pool))
}
