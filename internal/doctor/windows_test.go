package doctor_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/doctor"
)

// Whether a dead event is old depends on the time of its own handler, and not on the time of
// another handler.
func TestDeadEventsAreOldByTheirHandler(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	exec(t, pool, `INSERT INTO postroom.node (id, name, handlers, dedupe_windows, max_event_ages, longest_window)
		VALUES (gen_random_uuid(), 'p', '{mail,payments}', '{7 d,90 d}', '{6 d,87 d}', '90 d')`)
	exec(t, pool, "INSERT INTO postroom.dedupe_window (handler, kept) VALUES ('mail', '7 d'), ('payments', '90 d')")
	exec(t, pool, "INSERT INTO postroom.inbox (handler, dedupe_key) VALUES ('mail', 'a'), ('payments', 'a')")
	exec(t, pool, `INSERT INTO postroom.held (handler, dedupe_key, dead_at, class, logged_at, source, event_id, type, subject, content_type, data)
		SELECT handler, 'a', now() - age::interval, 'x', now(), '/shop', 'a', 'a.b', 'a.b', 'text/plain', '' FROM (VALUES ('mail', '6 d'), ('payments', '40 d')) h (handler, age)`)
	report := examine(t, pool, nil, doctor.Config{})
	wantOne(t, report, "dedupe-window", doctor.OK, "2 handlers are kept for 7.0 days to 90.0 days and relied on for 6.0 days to 87.0 days")
	wantOne(t, report, "dead-events", doctor.OK, "7.0 days to 90.0 days")
	exec(t, pool, "UPDATE postroom.held SET dead_at = now() - interval '8 d' WHERE handler = 'mail'")
	wantOne(t, examine(t, pool, nil, doctor.Config{}), "dead-events", doctor.Warning, "1 event is dead for longer", "the oldest for 8.0 days")
}

// Times that a wrong clock wrote are named, each with the statement that mends it.
func TestDatesThatLieAhead(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	exec(t, pool, `INSERT INTO postroom.node (id, name, handlers, dedupe_windows, max_event_ages, longest_window)
		VALUES (gen_random_uuid(), 'p', '{mail}', '{30 d}', '{29 d}', '30 d')`)
	exec(t, pool, "INSERT INTO postroom.dedupe_window (handler, kept, expired_before) VALUES ('mail', '30 d', now() - interval '1 d')")
	exec(t, pool, "INSERT INTO postroom.inbox (handler, dedupe_key) SELECT 'mail', n::text FROM generate_series(1, 30) n")
	exec(t, pool, `INSERT INTO postroom.held (handler, dedupe_key, next_at, class, logged_at, source, event_id, type, subject, content_type, data)
		SELECT 'mail', n::text, now() + n * interval '1 d', 'x', now(), '/shop', n::text, 'a.b', 'a.b', 'text/plain', '' FROM generate_series(1, 30) n`)
	exec(t, pool, "INSERT INTO postroom.pause (handler, until, actor, reason) VALUES ('mail', now() + interval '90 d', 'me', 'x')")
	exec(t, pool, "UPDATE postroom.relay SET owner = 'r', lease = '5 s', expires_at = now() + interval '5 s'")
	wantOne(t, examine(t, pool, nil, doctor.Config{}), "dates", doctor.OK)

	for _, sql := range []string{
		"UPDATE postroom.dedupe_window SET expired_before = now() + interval '10 d'",
		"UPDATE postroom.sweep SET due_at = now() + interval '40 d'",
		"UPDATE postroom.relay SET expires_at = now() + interval '1 h'",
		"UPDATE postroom.pause SET paused_at = now() + interval '40 d'",
		"UPDATE postroom.held SET next_at = now() + interval '40 d' WHERE dedupe_key = '7'",
		"INSERT INTO postroom.subscription (handler, stream, stream_created, floor, subjects, ordered, reader, reader_until) VALUES ('keys', 'S', now(), 0, '{a.>}', true, 'p', now() + interval '1 h')",
		"INSERT INTO postroom.webhook_endpoint (id, url, secrets, paused_until) VALUES ('e''s', 'https://example.com', '{x}', now() + interval '40 d')",
	} {
		exec(t, pool, sql)
	}
	found := of(examine(t, pool, nil, doctor.Config{}), "dates")
	if len(found) != 7 {
		t.Errorf("%d findings, want 7: %+v", len(found), found)
	}
	for _, f := range found {
		statement, ok := strings.CutPrefix(f.Remedy, "when the clocks are right: ")
		switch {
		case f.Severity != doctor.Fault || !ok:
			t.Errorf("%+v", f)
		case strings.HasPrefix(statement, "postroom "):
			exec(t, pool, "DELETE FROM postroom.pause") // what the command does
		default:
			exec(t, pool, statement)
		}
	}
	wantOne(t, examine(t, pool, nil, doctor.Config{}), "dates", doctor.OK)
}

// After a move by logical replication all sequences begin again. Each is named, and one statement
// raises them all.
func TestSequencesAfterLogicalReplication(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	write := func() {
		t.Helper()
		for _, sql := range []string{
			"SELECT postroom.write('/shop', 'a.b', '{}') FROM generate_series(1, 3)",
			"INSERT INTO postroom.relay_checkpoint (streams, high, floor, snap, pending) SELECT streams, high, floor, snap, pending FROM postroom.relay",
			"INSERT INTO postroom.republish (actor, reason, kind, lo, hi, events, rate, digest, passed) SELECT 'me', 'x', 'range', 1, 1, 1, 1, gen_random_uuid()::text, 0",
			"INSERT INTO postroom.inbox (handler, dedupe_key) SELECT 'mail', gen_random_uuid()::text FROM generate_series(1, 3)",
			`INSERT INTO postroom.held (handler, dedupe_key, next_at, class, logged_at, source, event_id, type, subject, content_type, data)
				SELECT 'mail', dedupe_key, now(), 'x', now(), '/shop', dedupe_key, 'a.b', 'a.b', 'text/plain', '' FROM postroom.inbox
				WHERE NOT EXISTS (SELECT FROM postroom.held h WHERE h.dedupe_key = inbox.dedupe_key)`,
			"INSERT INTO postroom.audit (actor, action, reason, events) VALUES ('me', 'x', 'x', 1)",
			"INSERT INTO postroom.dry_run (handler, held) SELECT 'mail', max(id) FROM postroom.held",
			"INSERT INTO postroom.saga_step (name, key, revision, step, direction, what) VALUES ('s', 'k', 1, 'a', 'do', 'done')",
		} {
			exec(t, pool, sql)
		}
	}
	write()
	wantOne(t, examine(t, pool, nil, doctor.Config{}), "sequences", doctor.OK)
	exec(t, pool, "SELECT setval(seqrelid::regclass, 1, false) FROM pg_sequence JOIN pg_class ON oid = seqrelid WHERE relnamespace = 'postroom'::regnamespace")
	found := append(of(examine(t, pool, nil, doctor.Config{}), "sequence"), of(examine(t, pool, nil, doctor.Config{}), "sequences")...)
	var named []string
	for _, f := range found {
		if f.Severity == doctor.Fault && strings.Contains(f.Remedy, "postroom.raise_sequences()") {
			named = append(named, f.Subject)
		}
	}
	slices.Sort(named)
	if want := []string{"audit_id_seq", "dry_run_id_seq", "held_id_seq", "relay_checkpoint_id_seq", "republish_id_seq", "saga_step_id_seq"}; !slices.Equal(named, want) {
		t.Errorf("named are %q, want %q", named, want)
	}
	rows, _ := pool.Query(t.Context(), "SELECT name FROM postroom.raise_sequences()") // CollectRows reports the error
	raised, err := pgx.CollectRows(rows, pgx.RowTo[string])
	slices.Sort(raised)
	if want := []string{"audit_id_seq", "dry_run_id_seq", "held_id_seq", "outbox_seq_seq", "relay_checkpoint_id_seq", "republish_id_seq", "saga_step_id_seq"}; err != nil || !slices.Equal(raised, want) {
		t.Errorf("raised were %q, %v; want %q", raised, err, want)
	}
	report := examine(t, pool, nil, doctor.Config{})
	wantOne(t, report, "sequence", doctor.OK)
	wantOne(t, report, "sequences", doctor.OK)
	write()
	if n := one(t, pool, "SELECT count(*) FROM postroom.raise_sequences()"); n != 0 {
		t.Errorf("%d sequences were raised again", n)
	}
}

func one(t *testing.T, pool *pgxpool.Pool, sql string) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), sql).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
