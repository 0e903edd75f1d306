package pglog_test

import (
	"errors"
	"testing"
	"time"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/pglog"
)

// A term counts its lease from a time before it sent the statement that takes the lease, however
// long that statement waits. So the lease lasts at least as long as the term believes.
func TestTheLeaseIsCountedFromBeforeItIsTaken(t *testing.T) {
	pool := devtest.Pool(t)
	log := pglog.New(pool)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM postroom.relay FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	led := make(chan *pglog.Term, 1)
	go func() {
		term, err := pglog.Lead(t.Context(), log, "test", time.Minute)
		if err != nil {
			t.Error(err)
		}
		led <- term
	}()
	devtest.Eventually(t, time.Minute, "the statement that takes the lease to wait", func() bool {
		var waits bool
		err := pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%UPDATE postroom.relay%')`).Scan(&waits)
		return err == nil && waits
	})
	waiting := time.Now()
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	term := <-led
	if term == nil {
		return
	}
	at, roundTrip := term.LeaseStart()
	if !at.Before(waiting) {
		t.Errorf("the lease is counted from %s after its statement was seen waiting", at.Sub(waiting))
	}
	if roundTrip <= 0 || roundTrip > time.Second {
		t.Errorf("a round trip takes %s", roundTrip)
	}
	if err := term.Release(t.Context(), eventlog.Progress{}); err != nil {
		t.Error(err)
	}
}

// Renew changes the length of the lease. Each later recording renews it for the same length.
func TestRenewChangesTheLease(t *testing.T) {
	pool := devtest.Pool(t)
	log := pglog.New(pool)
	term, err := pglog.Lead(t.Context(), log, "test", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	lasts := func(what string) {
		t.Helper()
		var left time.Duration
		if err := pool.QueryRow(t.Context(), "SELECT expires_at - clock_timestamp() FROM postroom.relay").Scan(&left); err != nil {
			t.Fatal(err)
		}
		if left < 59*time.Minute || left > time.Hour {
			t.Errorf("%s: the lease lasts for %s, want an hour", what, left)
		}
	}
	if err := term.Renew(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	lasts("renewed")
	if _, err := pool.Exec(t.Context(), "UPDATE postroom.relay SET expires_at = now() + interval '1 second'"); err != nil {
		t.Fatal(err)
	}
	if err := term.Record(t.Context(), eventlog.Progress{}); err != nil {
		t.Fatal(err)
	}
	lasts("recorded")
	if _, err := pool.Exec(t.Context(), "UPDATE postroom.relay SET epoch = epoch + 1"); err != nil {
		t.Fatal(err)
	}
	if err := term.Renew(t.Context(), time.Hour); !errors.Is(err, eventlog.ErrLeaseLost) {
		t.Errorf("Renew after another term began = %v, want ErrLeaseLost", err)
	}
	if err := term.Release(t.Context(), eventlog.Progress{}); !errors.Is(err, eventlog.ErrLeaseLost) {
		t.Errorf("Release after another term began = %v, want ErrLeaseLost", err)
	}
}

// If Lead finds a fault before it takes the lease, it does not take the lease.
func TestALogThatIsRefusedIsNotLed(t *testing.T) {
	pool := devtest.Pool(t)
	if _, err := pool.Exec(t.Context(), "ALTER SEQUENCE postroom.outbox_seq_seq CACHE 10"); err != nil {
		t.Fatal(err)
	}
	if _, err := pglog.New(pool).Lead(t.Context(), "test", time.Minute); !errors.Is(err, pglog.ErrSequenceOptions) {
		t.Errorf("Lead = %v, want ErrSequenceOptions", err)
	}
	var epoch int64
	if err := pool.QueryRow(t.Context(), "SELECT epoch FROM postroom.relay").Scan(&epoch); err != nil {
		t.Fatal(err)
	}
	if epoch != 0 {
		t.Errorf("the epoch is %d: the lease was taken before the sequence was looked at", epoch)
	}
}

// The clock is set back by an hour after a leader crashed. The lease does not last for that hour.
func TestLeaseEndsAlthoughTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	log := pglog.New(pool)
	lead(t, log)
	standBy := func(want error) {
		t.Helper()
		_, err := log.Lead(t.Context(), "other", time.Minute)
		if !errors.Is(err, eventlog.ErrLeaseHeld) || errors.Is(err, eventlog.ErrLeaseShortened) != (want != nil) {
			t.Errorf("Lead = %v, want ErrLeaseHeld and %v", err, want)
		}
	}
	ends := func() (left time.Duration) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), "SELECT expires_at - clock_timestamp() FROM postroom.relay").Scan(&left); err != nil {
			t.Fatal(err)
		}
		return left
	}
	standBy(nil)
	mustExec(t, pool, "UPDATE postroom.relay SET expires_at = expires_at + interval '1 hour'") // as if the clock had been an hour ahead
	standBy(eventlog.ErrLeaseShortened)
	if left := ends(); left > time.Minute {
		t.Errorf("the lease still lasts for %s, want a minute", left)
	}
	standBy(nil)
	mustExec(t, pool, "UPDATE postroom.relay SET expires_at = clock_timestamp() - interval '1 ms'")
	if _, err := pglog.Lead(t.Context(), log, "other", time.Minute); err != nil {
		t.Errorf("Lead after the end = %v", err)
	}
}
