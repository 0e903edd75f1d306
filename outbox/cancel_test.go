package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/pglog"
)

// scheduled is an event that is due in a while.
func scheduled(id string, in time.Duration) postroom.Event {
	ev := named(id)
	ev.NotBefore = time.Now().Add(in)
	return ev
}

// inTx runs do in a transaction.
func inTx(t *testing.T, pool *pgxpool.Pool, do func(tx pgx.Tx) error) {
	t.Helper()
	if err := pgx.BeginFunc(t.Context(), pool, do); err != nil {
		t.Fatal(err)
	}
}

// cancel cancels an event in its own transaction.
func cancel(t *testing.T, pool *pgxpool.Pool, id string) (cancelled bool) {
	t.Helper()
	inTx(t, pool, func(tx pgx.Tx) (err error) {
		cancelled, err = shop.Cancel(t.Context(), tx, id)
		return err
	})
	return cancelled
}

// everything returns the ids of all events that a term reads, and records them as published.
func everything(t *testing.T, term eventlog.Term) []string {
	t.Helper()
	var all []string
	for range 3 {
		ids, seqs, _ := read(t, term, 100)
		all = append(all, ids...)
		record(t, term, seqs...)
	}
	return all
}

// record records that a term has published events.
func record(t *testing.T, term eventlog.Term, seqs ...int64) {
	t.Helper()
	if err := term.Record(t.Context(), eventlog.Progress{Published: seqs}); err != nil {
		t.Fatal(err)
	}
}

func overrideNextAtNotBeforeAndCreatedAt(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	mustExec(t, pool, "UPDATE postroom.held SET next_at = clock_timestamp() - interval '1 s' WHERE dead_at IS NULL")
	mustExec(t, pool, "UPDATE postroom.outbox SET not_before = clock_timestamp() - interval '1 s', created_at = clock_timestamp() - interval '1 h' WHERE not_before IS NOT NULL")
}

// A transaction with one snapshot may not see that an operator published the event early, after the
// snapshot. If so, Cancel fails. If nothing happened meanwhile, it succeeds.
func TestCancelWithOneSnapshot(t *testing.T) {
	t.Parallel()
	const serialization = "40001"
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		for name, tt := range map[string]struct {
			meanwhile func(t *testing.T, pool *pgxpool.Pool, term eventlog.Term)
			fails     bool
		}{
			"nothing happens": {func(*testing.T, *pgxpool.Pool, eventlog.Term) {}, false},
			"it is published early": {func(t *testing.T, pool *pgxpool.Pool, term eventlog.Term) {
				everything(t, term)
				mustExec(t, pool, "UPDATE postroom.held SET next_at = clock_timestamp() - interval '1 s'")
				if ids := everything(t, term); len(ids) != 1 {
					t.Errorf("published %v, want one event", ids)
				}
			}, true},
		} {
			t.Run(string(level)+", "+name, func(t *testing.T) {
				t.Parallel()
				pool := devtest.Pool(t)
				inTx(t, pool, func(tx pgx.Tx) error { return shop.Write(t.Context(), tx, scheduled("later", time.Hour)) })
				term := lead(t, pglog.New(pool))
				tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
				if _, err := tx.Exec(t.Context(), "SELECT count(*) FROM postroom.outbox"); err != nil {
					t.Fatal(err)
				}
				tt.meanwhile(t, pool, term)
				if err := shop.Write(t.Context(), tx, scheduled("own", time.Hour)); err != nil {
					t.Fatal(err)
				}
				if cancelled, err := shop.Cancel(t.Context(), tx, "own"); err != nil || !cancelled {
					t.Errorf("its own event: %v, %v, want that it is cancelled", cancelled, err)
				}
				cancelled, err := shop.Cancel(t.Context(), tx, "later")
				var pg *pgconn.PgError
				if tt.fails && (!errors.As(err, &pg) || pg.Code != serialization) || !tt.fails && (err != nil || !cancelled) {
					t.Errorf("cancelled: %v, %v, want SQLSTATE %s: %t", cancelled, err, serialization, tt.fails)
				}
				everything(t, term) // while the transaction is open: the relay needs its row
			})
		}
	}
}

// A producer can cancel its scheduled event wherever the event is, until its time has come.
func TestCancel(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		before func(t *testing.T, pool *pgxpool.Pool, term eventlog.Term) // after it was written
		want   bool
		then   []string // the events that are published
	}{
		"before the relay has read it": {func(*testing.T, *pgxpool.Pool, eventlog.Term) {}, true, []string{"other"}},
		"when the relay has read it": {func(t *testing.T, _ *pgxpool.Pool, term eventlog.Term) {
			read(t, term, 10)
		}, true, []string{"other"}}, // by the next leader
		"in held": {func(t *testing.T, _ *pgxpool.Pool, term eventlog.Term) { everything(t, term) }, true, []string{}},
		"in held, and removed from the log": {func(t *testing.T, pool *pgxpool.Pool, term eventlog.Term) {
			everything(t, term)
			mustExec(t, pool, "DELETE FROM postroom.outbox")
		}, true, []string{}},
		"refused by the broker": {func(t *testing.T, pool *pgxpool.Pool, term eventlog.Term) {
			everything(t, term)
			mustExec(t, pool, "UPDATE postroom.held SET class = 'js_1', attempts = 1")
		}, true, []string{}},
		"dead": {func(t *testing.T, pool *pgxpool.Pool, term eventlog.Term) {
			everything(t, term)
			mustExec(t, pool, "UPDATE postroom.held SET class = 'js_1', next_at = NULL, dead_at = now()")
		}, true, []string{}},
		"due, in the log": {func(t *testing.T, pool *pgxpool.Pool, _ eventlog.Term) { overrideNextAtNotBeforeAndCreatedAt(t, pool) }, false, []string{"other", "later"}},
		"due, in held": {func(t *testing.T, pool *pgxpool.Pool, term eventlog.Term) {
			everything(t, term)
			overrideNextAtNotBeforeAndCreatedAt(t, pool)
		}, false, []string{"later"}},
		"on its way": {func(t *testing.T, pool *pgxpool.Pool, term eventlog.Term) {
			everything(t, term)
			overrideNextAtNotBeforeAndCreatedAt(t, pool)
			read(t, term, 10)
		}, false, []string{"later"}}, // by the next leader
		"published": {func(t *testing.T, pool *pgxpool.Pool, term eventlog.Term) {
			everything(t, term)
			overrideNextAtNotBeforeAndCreatedAt(t, pool)
			everything(t, term)
		}, false, []string{}},
		"published early": {func(t *testing.T, pool *pgxpool.Pool, term eventlog.Term) {
			everything(t, term)
			mustExec(t, pool, "UPDATE postroom.held SET next_at = clock_timestamp() - interval '1 s'")
			everything(t, term)
		}, false, []string{}},
		"published and removed": {func(t *testing.T, pool *pgxpool.Pool, term eventlog.Term) {
			overrideNextAtNotBeforeAndCreatedAt(t, pool)
			everything(t, term)
			mustExec(t, pool, "DELETE FROM postroom.outbox")
		}, false, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := devtest.Pool(t)
			inTx(t, pool, func(tx pgx.Tx) error {
				return shop.Write(t.Context(), tx, scheduled("later", time.Hour), named("other"))
			})
			log := pglog.New(pool)
			term := lead(t, log)
			tt.before(t, pool, term)
			if got := cancel(t, pool, "later"); got != tt.want {
				t.Errorf("cancelled: %v, want %v", got, tt.want)
			}
			if tt.want {
				if !cancel(t, pool, "later") {
					t.Error("cancelled again: false, want true")
				}
				var n int
				err := pool.QueryRow(t.Context(), `SELECT count(*) FROM postroom.archive x JOIN postroom.audit a ON a.id = x.audit
					WHERE x.event_id = 'later' AND a.action = 'cancel' AND a.event_id = 'later' AND a.actor = session_user`).Scan(&n)
				if err != nil || n != 1 {
					t.Errorf("%d rows in archive and audit, %v; want 1", n, err)
				}
			}
			got := everything(t, term)
			var held int
			if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM postroom.held WHERE event_id = 'later'").Scan(&held); err != nil || held != 0 && tt.want {
				t.Errorf("a cancelled event is held, %v", err)
			}
			overrideNextAtNotBeforeAndCreatedAt(t, pool)
			got = append(got, everything(t, term)...)
			got = append(got, everything(t, lead(t, log))...) // and the next leader
			wantIDs(t, got, tt.then...)
			if cancel(t, pool, "none") {
				t.Error("an event that was never written is cancelled")
			}
		})
	}
}

// A transaction that Cancel told false goes on with other work. Meanwhile the relay records all
// events, and publishes the event if it is due: it waits for no lock of that transaction.
func TestCancelThatSaysNoKeepsNoLock(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(t *testing.T, pool *pgxpool.Pool, term eventlog.Term){
		"due, in the log": func(t *testing.T, pool *pgxpool.Pool, _ eventlog.Term) { overrideNextAtNotBeforeAndCreatedAt(t, pool) },
		"due, in held": func(t *testing.T, pool *pgxpool.Pool, term eventlog.Term) {
			everything(t, term)
			overrideNextAtNotBeforeAndCreatedAt(t, pool)
		},
		"it blocks a key": func(t *testing.T, pool *pgxpool.Pool, term eventlog.Term) {
			everything(t, term)
			mustExec(t, pool, "UPDATE postroom.held SET chain = 'k', class = 'js_1', next_at = NULL, dead_at = now()")
		},
		"published": func(t *testing.T, pool *pgxpool.Pool, term eventlog.Term) {
			overrideNextAtNotBeforeAndCreatedAt(t, pool)
			everything(t, term)
		},
	} {
		for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead} {
			t.Run(name+", "+string(level), func(t *testing.T) {
				t.Parallel()
				pool := devtest.Pool(t)
				inTx(t, pool, func(tx pgx.Tx) error { return shop.Write(t.Context(), tx, scheduled("later", time.Hour)) })
				term := lead(t, pglog.New(pool))
				before(t, pool, term)
				tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
				if cancelled, err := shop.Cancel(t.Context(), tx, "later"); err != nil || cancelled {
					t.Fatalf("cancelled: %v, %v, want false", cancelled, err)
				}
				var locks int
				err = pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE pid = $1 AND locktype = 'advisory'", tx.Conn().PgConn().PID()).Scan(&locks)
				if err != nil || locks > 0 {
					t.Errorf("the transaction keeps %d locks of events, %v; want none", locks, err)
				}
				if _, err := pool.Exec(t.Context(), "SELECT FROM postroom.held FOR UPDATE NOWAIT"); err != nil {
					t.Errorf("the transaction keeps the held row: %v", err)
				}
			})
		}
	}
}

// A cancellation and the other writes of its transaction commit together, or neither does.
func TestCancelIsOfTheTransaction(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	term := lead(t, pglog.New(pool))
	inTx(t, pool, func(tx pgx.Tx) error {
		if err := shop.Write(t.Context(), tx, scheduled("at-once", time.Hour), scheduled("kept", time.Hour)); err != nil {
			return err
		}
		cancelled, err := shop.Cancel(t.Context(), tx, "at-once")
		if err == nil && !cancelled {
			t.Error("an event of the same transaction is not cancelled")
		}
		return err
	})
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if cancelled, err := shop.Cancel(t.Context(), tx, "kept"); err != nil || !cancelled {
			t.Errorf("cancel: %v, %v", cancelled, err)
		}
		return context.Canceled
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	everything(t, term)
	overrideNextAtNotBeforeAndCreatedAt(t, pool)
	wantIDs(t, everything(t, term), "kept")
}

// The relay moves an event to held while a transaction cancels the event. The transaction cannot
// see that. The event is not published, and it is removed from held when it is due.
func TestCancelWhileTheRelayHoldsTheEvent(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	inTx(t, pool, func(tx pgx.Tx) error {
		return shop.Write(t.Context(), tx, scheduled("later", time.Hour), scheduled("kept", time.Hour))
	})
	term := lead(t, pglog.New(pool))
	read(t, term, 10)
	inTx(t, pool, func(tx pgx.Tx) error {
		if cancelled, err := shop.Cancel(t.Context(), tx, "later"); err != nil || !cancelled {
			t.Errorf("cancel: %v, %v", cancelled, err)
		}
		record(t, term) // the recording does not wait for the open transaction
		return nil
	})
	var held string
	if err := pool.QueryRow(t.Context(), "SELECT string_agg(event_id, ', ' ORDER BY event_id) FROM postroom.held").Scan(&held); err != nil || held != "kept, later" {
		t.Fatalf("held: %s, %v", held, err)
	}
	if !cancel(t, pool, "later") {
		t.Error("cancelled again: false, want true")
	}
	overrideNextAtNotBeforeAndCreatedAt(t, pool)
	wantIDs(t, everything(t, term), "kept")
	var n int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM postroom.held").Scan(&n); err != nil || n != 0 {
		t.Errorf("%d events held, %v; want none", n, err)
	}
}

// Events that become due while their producer cancels them are either published or cancelled: never
// both, and never neither. That holds for events in the log and in held.
func TestCancelAgainstTheRelay(t *testing.T) {
	t.Parallel()
	for name, recorded := range map[string]bool{"in held": true, "in the log": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := devtest.Pool(t)
			const events = 100
			var ids []string
			inTx(t, pool, func(tx pgx.Tx) error {
				for n := range events {
					// They become due one after the other, in another order than they are cancelled.
					in := 100*time.Millisecond + time.Duration(n*37%events)*5*time.Millisecond
					if recorded {
						in = time.Hour
					}
					ev := scheduled(fmt.Sprint("e", n), in)
					ids = append(ids, ev.ID)
					if err := shop.Write(t.Context(), tx, ev); err != nil {
						return err
					}
				}
				return nil
			})
			term := lead(t, pglog.New(pool))
			if recorded {
				wantIDs(t, everything(t, term))
				mustExec(t, pool, "UPDATE postroom.held SET next_at = clock_timestamp() + (id * 37 % 100) * interval '5 ms'")
			}
			var mu sync.Mutex
			var wg sync.WaitGroup
			cancelled := make(map[string]bool)
			for _, id := range ids {
				wg.Go(func() {
					var ok bool
					err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) (err error) {
						if ok, err = shop.Cancel(t.Context(), tx, id); err == nil {
							_, err = tx.Exec(t.Context(), "SELECT pg_sleep(0.02)") // the transaction does more
						}
						return err
					})
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					cancelled[id] = ok
					mu.Unlock()
				})
			}
			done := make(chan struct{})
			go func() { wg.Wait(); close(done) }()
			sent := make(map[string]bool)
			for last := false; ; {
				select {
				case <-done:
					last = true
				default:
				}
				got, seqs, _ := read(t, term, events)
				record(t, term, seqs...)
				for _, id := range got {
					if sent[id] {
						t.Errorf("event %s is read twice", id)
					}
					sent[id] = true
				}
				if last && len(got) == 0 {
					var left int
					if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM postroom.held").Scan(&left); err != nil {
						t.Fatal(err)
					}
					if left == 0 {
						break
					}
				}
			}
			both, neither, off := 0, 0, 0
			for _, id := range ids {
				switch {
				case sent[id] && cancelled[id]:
					both++
				case !sent[id] && !cancelled[id]:
					neither++
				case cancelled[id]:
					off++
				}
			}
			if both+neither > 0 {
				t.Errorf("%d events were published and cancelled, %d neither", both, neither)
			}
			t.Logf("%d published, %d cancelled", len(sent), off)
		})
	}
}

// A producer needs the grant: without it, it can cancel nothing.
func TestCancelNeedsTheGrant(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	inTx(t, pool, func(tx pgx.Tx) error { return shop.Write(t.Context(), tx, scheduled("later", time.Hour)) })
	role := producerRole(t, pool, "postroom")
	as := func(role string) (cancelled bool, err error) {
		err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), "SET LOCAL ROLE "+role); err != nil {
				return err
			}
			cancelled, err = shop.Cancel(t.Context(), tx, "later")
			return err
		})
		return cancelled, err
	}
	mustExec(t, pool, "REVOKE EXECUTE ON FUNCTION postroom.cancel FROM "+role)
	var pg *pgconn.PgError
	if _, err := as(role); !errors.As(err, &pg) || pg.Code != "42501" {
		t.Errorf("without the grant: %v, want SQLSTATE 42501", err)
	}
	mustExec(t, pool, "SELECT postroom.grant_producer('"+role+"')")
	if cancelled, err := as(role); err != nil || !cancelled {
		t.Errorf("with the grant: %v, %v", cancelled, err)
	}
}
