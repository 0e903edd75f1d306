package schema_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom/internal/devtest"
)

const forgetE1 = "SELECT postroom.forget(source => '/shop', id => 'e1', actor => 'ann', reason => 'asked for')"

// The relay may move an event to held between two statements of forget. Then forget must see it there:
// otherwise a cancelled event would lose its row of archive, and the relay would publish it.
func TestForgetSeesWhatTheRelayHoldsMeanwhile(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	as, _ := staff(t, pool)
	exec(t, pool, "SELECT postroom.write('/shop', 'a', '{}', id => 'e1', not_before => now() + interval '1 h')")
	exec(t, pool, "SELECT postroom.cancel('/shop', 'e1')")

	relay, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = relay.Rollback(context.WithoutCancel(t.Context())) }()
	for _, sql := range []string{
		"LOCK TABLE postroom.outbox IN ACCESS EXCLUSIVE MODE", // forget waits here, after any statement that did not need the log
		strings.Replace(insertHeld("handler='outbox'; pos=1; next_at=now() + interval '1 h'"), "'e'", "'e1'", 1),
		"UPDATE postroom.relay SET high = 1, snap = pg_current_snapshot()",
	} {
		if _, err := relay.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	forgotten := make(chan error, 1)
	go func() { _, err := as["operator"].Exec(t.Context(), forgetE1); forgotten <- err }()
	devtest.Eventually(t, 10*time.Second, "forget waits for the log", func() bool {
		return one[bool](t, pool, "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'postroom.outbox'::regclass)")
	})
	if err := relay.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-forgotten; err == nil || !strings.Contains(err.Error(), "the event is held for outbox") {
		t.Errorf("forget = %v, want an error, because the relay holds the event", err)
	}
	if n := one[int](t, pool, "SELECT count(*)::int FROM postroom.archive"); n != 1 {
		t.Errorf("archive has %d rows, want the one that keeps the relay from publishing the cancelled event", n)
	}
}

// An operator may reopen a discarded event while forget begins. Its receipts keep a step from being
// called twice.
func TestForgetWaitsForAReopenedEvent(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	as, _ := staff(t, pool)
	exec(t, pool, "INSERT INTO postroom.inbox (handler, dedupe_key, discarded) VALUES ('h', '/shop e1', true)")
	exec(t, pool, "INSERT INTO postroom.receipt (handler, dedupe_key, step, revision, key, done_at, result) VALUES ('h', '/shop e1', 's', 0, 'k', now(), 'paid')")
	exec(t, pool, `INSERT INTO postroom.archive (id, audit, handler, dedupe_key, dead_at, class, held_at, solitary, attempts, revision, replays, logged_at, source, event_id, type, subject, content_type, data)
		VALUES (1, 1, 'h', '/shop e1', now(), 'x', now(), false, 1, 0, 0, now(), '/shop', 'e1', 'a', 'a', 'text/plain', '')`)

	reopen, err := as["operator"].Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reopen.Rollback(context.WithoutCancel(t.Context())) }()
	for _, sql := range []string{
		"DELETE FROM postroom.archive",
		strings.Replace(insertHeld("handler='h'; dedupe_key='/shop e1'; dead_at=now(); class='x'"), "'e'", "'e1'", 1),
	} {
		if _, err := reopen.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	forgotten := make(chan error, 1)
	go func() { _, err := as["operator"].Exec(t.Context(), forgetE1); forgotten <- err }()
	devtest.Eventually(t, 10*time.Second, "forget waits for the archived event", func() bool {
		return one[bool](t, pool, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')")
	})
	if err := reopen.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-forgotten; err == nil || !strings.Contains(err.Error(), "the event is held for h") {
		t.Errorf("forget = %v, want an error, because the event is held again", err)
	}
	if n := one[int](t, pool, "SELECT count(*)::int FROM postroom.receipt"); n != 1 {
		t.Errorf("%d receipts, want the one that keeps the step from being called twice", n)
	}
}

// Another event may be held under the dedupe key that the operator gives.
func TestForgetRemovesNoReceiptOfAnotherHeldEvent(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	as, _ := staff(t, pool)
	exec(t, pool, "INSERT INTO postroom.inbox (handler, dedupe_key) VALUES ('h', 'order 7')")
	exec(t, pool, "INSERT INTO postroom.receipt (handler, dedupe_key, step, revision, key, done_at, result) VALUES ('h', 'order 7', 's', 0, 'k', now(), 'paid')")
	exec(t, pool, strings.Replace(insertHeld("handler='h'; dedupe_key='order 7'; next_at=now(); class='x'"), "'e'", "'e2'", 1))
	for _, id := range []string{"'e1'", "NULL"} {
		sql := strings.Replace(strings.Replace(forgetE1, "'e1'", id, 1), "actor", "dedupe_key => 'order 7', actor", 1)
		var refused *pgconn.PgError
		if _, err := as["operator"].Exec(t.Context(), sql); !errors.As(err, &refused) || refused.Code != "55006" {
			t.Errorf("%s = %v, want SQLSTATE 55006", sql, err)
		}
	}
	if n := one[int](t, pool, "SELECT count(*)::int FROM postroom.receipt"); n != 1 {
		t.Errorf("%d receipts, want the one that keeps the step from being called twice", n)
	}
}

// The relay cuts an id that is too long for held. A writer can give such an id if it says that it has
// checked its row.
func TestForgetFindsWhatIsHeldUnderAShorterID(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	as, _ := staff(t, pool)
	exec(t, pool, strings.Replace(anEvent, "'x'", "repeat('x', 300)", 1))
	exec(t, pool, "UPDATE postroom.relay SET high = 1, snap = pg_current_snapshot()")
	exec(t, pool, strings.Replace(insertHeld("handler='outbox'; pos=1; dead_at=now(); class='x'"), "'e'", "postroom.clipped(repeat('x', 300), 255)", 1))
	_, err := as["operator"].Exec(t.Context(), "SELECT postroom.forget('/other', repeat('x', 300), 'ann', 'asked for')")
	if err == nil || !strings.Contains(err.Error(), "the event is held for outbox") {
		t.Errorf("forget = %v, want an error, because the relay holds the event", err)
	}
}

// Retention and the sweep remove rows that forget removes, too. All three lock them in the same order.
func TestForgetDeadlocksWithNoCleaner(t *testing.T) {
	t.Parallel()
	for name, cleaner := range map[string][2]string{ // the order of prune.sql, and of expire.sql with its cascade
		"retention": {"DELETE FROM postroom.outbox", "DELETE FROM postroom.refused"},
		"sweep":     {"SELECT FROM postroom.inbox FOR UPDATE", "DELETE FROM postroom.inbox"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := devtest.Pool(t)
			as, _ := staff(t, pool)
			exec(t, pool, "SELECT postroom.write('/shop', 'a', '{}', id => 'e1')")
			exec(t, pool, "UPDATE postroom.relay SET high = 1, snap = pg_current_snapshot()")
			exec(t, pool, "INSERT INTO postroom.refused (seq, failures) VALUES (1, '[]')")
			exec(t, pool, "INSERT INTO postroom.inbox (handler, dedupe_key, result) VALUES ('h', '/shop e1', 'paid')")
			exec(t, pool, "INSERT INTO postroom.receipt (handler, dedupe_key, step, revision, key, done_at) VALUES ('h', '/shop e1', 's', 0, 'k', now())")
			forgotten := make(chan error, 1)
			err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
				if _, err := tx.Exec(t.Context(), cleaner[0]); err != nil {
					return err
				}
				go func() { _, err := as["operator"].Exec(t.Context(), forgetE1); forgotten <- err }()
				devtest.Eventually(t, 10*time.Second, "forget waits", func() bool {
					return one[bool](t, pool, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')")
				})
				_, err := tx.Exec(t.Context(), cleaner[1])
				return err
			})
			if err != nil {
				t.Error(err)
			}
			if err := <-forgotten; err != nil {
				t.Error(err)
			}
		})
	}
}

// A replay takes a released event that is neither held nor in archive for one that succeeded.
func TestForgetMakesNoSuccessOfADiscardedEvent(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	as, _ := staff(t, pool)
	exec(t, pool, "INSERT INTO postroom.inbox (handler, dedupe_key, discarded) VALUES ('h', '/shop e1', true)")
	exec(t, pool, `INSERT INTO postroom.archive (id, audit, handler, dedupe_key, dead_at, class, held_at, solitary, attempts, revision, replays, logged_at, source, event_id, type, subject, content_type, data)
		VALUES (7, 1, 'h', '/shop e1', now(), 'x', now(), false, 1, 0, 0, now(), '/shop', 'e1', 'a', 'a', 'text/plain', '')`)
	exec(t, pool, "INSERT INTO postroom.replay (actor, filter, attempts, canary, stop_at, as_new, phase, items) VALUES ('ann', '{}', 1, 1, 0, false, 'canary', 1)")
	exec(t, pool, "INSERT INTO postroom.replay_event (replay, n, through, held, handler, source, event_id, dead_at, released_at) VALUES (1, 1, 1, 7, 'h', '/shop', 'e1', now(), now())")
	if _, err := as["operator"].Exec(t.Context(), forgetE1); err == nil || !strings.Contains(err.Error(), "a replay has not recorded yet that the event was discarded") {
		t.Errorf("forget = %v, want an error", err)
	}
	exec(t, pool, "UPDATE postroom.replay_event SET outcome = 'discarded', ended_at = now()")
	if got := one[int](t, as["operator"], forgetE1); got != 1 {
		t.Errorf("forget = %d, want 1", got)
	}
}

// A running republish still has to publish the event, for instance because the stream lost it.
func TestForgetLeavesARepublishItsEvents(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	as, _ := staff(t, pool)
	exec(t, pool, "SELECT postroom.write('/shop', 'a', '{}', id => 'e1'), postroom.write('/shop', 'a', '{}', id => 'e2'), postroom.write('/shop', 'a', '{}', id => 'e3')")
	exec(t, pool, "UPDATE postroom.relay SET high = 3, snap = pg_current_snapshot()")
	for _, order := range []struct {
		values string
		owed   bool
	}{
		{"'reconcile', 1, 3, '{[1,2)}', 0, '{}'", true},
		{"'range', 1, 3, NULL, 0, '{}'", true},
		{"'range', 1, 3, NULL, 2, '{[1,2)}'", true},
		{"'range', 2, 3, NULL, 1, '{}'", false},
		{"'range', 1, 3, NULL, 1, '{}'", false},
		{"'reconcile', 2, 3, '{[2,4)}', 1, '{}'", false},
	} {
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), "INSERT INTO postroom.republish (actor, events, rate, digest, kind, lo, hi, seqs, passed, pending) VALUES ('ann', 1, 1, 'x', "+order.values+")"); err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(t.Context(), forgetE1); err != nil {
				return err
			}
			return pgx.ErrTxCommitRollback // so that the next one has the event, too
		})
		if refused := err != nil && strings.Contains(err.Error(), "a republish still has to publish the event"); refused != order.owed {
			t.Errorf("%s: forget = %v", order.values, err)
		}
	}
	if _, err := as["operator"].Exec(t.Context(), forgetE1); err != nil {
		t.Error(err)
	}
}

// An old snapshot shows an event as published that the relay has to publish again.
func TestForgetTrustsNoOldSnapshot(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	as, _ := staff(t, pool)
	exec(t, pool, "SELECT postroom.write('/shop', 'a', '{}', id => 'e1')")
	exec(t, pool, "UPDATE postroom.relay SET high = 1, snap = pg_current_snapshot()")
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		exec(t, pool, "UPDATE postroom.relay SET pending = '{}'")
		err := pgx.BeginTxFunc(t.Context(), as["operator"], pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), "SELECT FROM postroom.outbox"); err != nil {
				t.Fatal(err)
			}
			exec(t, pool, "UPDATE postroom.relay SET pending = '{[1,2)}'") // the stream has lost the event
			_, err := tx.Exec(t.Context(), forgetE1)
			return err
		})
		if err == nil {
			t.Errorf("%s: forget removed an event that is not published", level)
		}
	}
	if n := one[int](t, pool, "SELECT count(*)::int FROM postroom.outbox"); n != 1 {
		t.Errorf("the log has %d events, want 1", n)
	}
}
