package pglog_test

import (
	"testing"
	"time"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/pglog"
)

// The owner of the tables can write times that no age can be computed of.
func TestLagWithInfiniteTimes(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	log := pglog.New(pool)
	write(t, pool, "a", "b", "c")
	term := lead(t, log)
	_, seqs, _ := read(t, term, 2)
	record(t, term, seqs[1]) // a is pending, and c is above high
	for _, at := range []string{"'infinity'", "'-infinity'", "'290000-01-01'"} {
		mustExec(t, pool, "UPDATE postroom.outbox SET created_at = "+at)
		lag, err := log.Lag(t.Context())
		if err != nil || lag.Age != 0 || lag.OldestEventAge != 0 || lag.Events != 2 {
			t.Errorf("%s: %+v, %v, want two events of no age", at, lag, err)
		}
	}
	mustExec(t, pool, "UPDATE postroom.outbox SET created_at = now() - interval '1 h' WHERE event_id = 'c'")
	if lag, err := log.Lag(t.Context()); err != nil || lag.Age < time.Hour || lag.OldestEventAge < time.Hour {
		t.Errorf("%+v, %v, want the age of the other event", lag, err)
	}
}

func TestBacklog(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	log := pglog.New(pool)
	backlog := func() eventlog.Lag {
		t.Helper()
		b, err := log.Lag(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	if b := backlog(); b.Age != 0 || b.Events != 0 || b.Appended != 0 || b.Overdue != 0 || b.HeldKeys != 0 || b.Bytes["outbox"] == 0 {
		t.Errorf("an empty log has %+v", b)
	}

	write(t, pool, "a", "b", "c")
	mustExec(t, pool, "UPDATE postroom.outbox SET created_at = created_at - interval '1 h' WHERE event_id = 'b'")
	if b := backlog(); b.Age <= 0 || b.Age > time.Minute || b.Events != 3 || b.Appended != 3 {
		t.Errorf("three events, none published: %+v", b)
	}
	term := lead(t, log)
	_, seqs, _ := read(t, term, 10)
	record(t, term, seqs[0], seqs[2]) // b is pending
	if b := backlog(); b.Age < time.Hour || b.Events != 1 {
		t.Errorf("one of three is not published: %+v", b)
	}
	record(t, term, seqs[1])
	if b := backlog(); b.Age != 0 || b.Events != 0 || b.OldestEventAge <= 0 {
		t.Errorf("all are published: %+v", b)
	}

	writeKeyed(t, pool, "k", "first", "second", "third")
	writeKeyed(t, pool, "", "dead")
	schedule(t, pool, "later", time.Hour)
	_, _, page := read(t, term, 10)
	hold(t, term, refusal(1), page.Events[:3]...)
	hold(t, term, dead(), page.Events[3])
	mustExec(t, pool, `UPDATE postroom.held SET held_at = held_at - interval '1 h', first_failed_at = first_failed_at - interval '2 h',
		dead_at = dead_at - interval '3 h', next_at = next_at - interval '2 h'`)
	b := backlog()
	want := map[eventlog.HeldReason]eventlog.HeldCount{
		eventlog.HeldScheduled: {Events: 1},
		eventlog.HeldRetry:     {Events: 1, Age: 2 * time.Hour},
		eventlog.HeldKey:       {Events: 2, Age: time.Hour},
		eventlog.HeldDead:      {Events: 1, Age: 3 * time.Hour},
	}
	for reason, count := range want {
		got := b.Held[reason]
		if got.Events != count.Events || got.Age.Round(time.Minute) != count.Age {
			t.Errorf("%s: %+v, want %+v", reason, got, count)
		}
	}
	if b.HeldKeys != 1 || b.Overdue.Round(time.Minute) != time.Hour {
		t.Errorf("%d keys wait, and the first is overdue for %s; want 1 and an hour", b.HeldKeys, b.Overdue)
	}
}

// However many events are scheduled or wait, the dead ones are counted.
func TestLagCountsTheDeadBesideVeryManyOthers(t *testing.T) {
	t.Parallel()
	for state, columns := range map[string]string{"scheduled": "NULL, now() + interval '1 h'", "waiting": "'k', NULL"} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			pool := devtest.Pool(t)
			mustExec(t, pool, `INSERT INTO postroom.held (handler, pos, chain, next_at, logged_at, source, event_id, type, subject, content_type, data)
				SELECT 'outbox', n, `+columns+`, now(), '/shop', n::text, 'a.b', 'a.b', 'text/plain', '' FROM generate_series(1, 10001) n`)
			mustExec(t, pool, `INSERT INTO postroom.held (handler, pos, dead_at, class, logged_at, source, event_id, type, subject, content_type, data)
				SELECT 'outbox', n, now(), 'x', now(), '/shop', n::text, 'a.b', 'a.b', 'text/plain', '' FROM generate_series(20001, 20005) n`)
			lag, err := pglog.New(pool).Lag(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if lag.Held[eventlog.HeldDead].Events != 5 || lag.Held[eventlog.HeldScheduled].Events+lag.Held[eventlog.HeldKey].Events != 10_000 {
				t.Errorf("held: %+v", lag.Held)
			}
		})
	}
}
