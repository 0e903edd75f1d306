package main

import (
	"strings"
	"testing"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/inspect"
)

// Where a command counts only up to a bound, the number says so, also in JSON.
func TestBoundsSaySo(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	for _, sql := range []string{
		`INSERT INTO postroom.held (handler, pos, chain, dead_at, class, logged_at, source, event_id, type, subject, content_type, data)
			SELECT 'outbox', n, k, CASE WHEN n % 10000 = 1 THEN now() END, CASE WHEN n % 10000 = 1 THEN 'x' END, now(), '/shop', 'e' || n, 'a', 'a', 'text/plain', ''
			FROM (VALUES ('few', 1, 1000), ('many', 10001, 11001)) v (k, first, last), generate_series(first, last) n`,
		`INSERT INTO postroom.archive (id, audit, handler, pos, held_at, solitary, attempts, revision, replays, logged_at, source, event_id, type, subject, content_type, data)
			SELECT n, 1, 'outbox', n, now(), false, 0, 0, 0, now(), '/shop', 'd' || n, 'a', 'a', 'text/plain', '' FROM generate_series(20000, 119998) n`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	env := inDatabase(pool)
	for _, line := range []string{"keys", "keys --key few", "keys --key many"} {
		for _, k := range decode[inspect.Keys](t, postroom(t, env, append(strings.Fields(line), "--json")...).want(t, exitOK)).Keys {
			if want := map[string]int64{"few": 999, "many": 1000}[k.Key]; k.Behind != want || k.More != (k.Key == "many") {
				t.Errorf("%s: behind key %s wait %d (more: %t), want %d", line, k.Key, k.Behind, k.More, want)
			}
		}
	}
	if s := decode[inspect.Status](t, postroom(t, env, "status", "--json")); s.Discarded != 99_999 || s.MoreDiscarded {
		t.Errorf("%d are discarded (more: %t), want 99,999", s.Discarded, s.MoreDiscarded)
	}
	if _, err := pool.Exec(t.Context(), "UPDATE postroom.held SET handler = 'outbox'; INSERT INTO postroom.archive SELECT 120000 + n AS id, discarded_at, audit, handler, dedupe_key, 120000 + n AS pos, dead_at, held_at, solitary, attempts, class, cause, failures, first_failed_at, revision, replays, replay, republish, logged_at, source, event_id, type, subject, key, content_type, correlation_id, causation_id, occurred_at, trace_parent, trace_state, headers, data, raw_headers FROM postroom.archive, generate_series(1, 2) n WHERE archive.id = 20000"); err != nil {
		t.Fatal(err)
	}
	if s := decode[inspect.Status](t, postroom(t, env, "status", "--json")); s.Discarded != 100_000 || !s.MoreDiscarded {
		t.Errorf("%d are discarded (more: %t), want 100,000 and more", s.Discarded, s.MoreDiscarded)
	}
	postroom(t, env, "status").says(t, "DISCARDED   100000 events or more\n")
}

// A command that a tool advises names each thing as a shell reads it, and is not printed if it would
// name another thing. An empty list says what was selected.
func TestAdvisedCommandsNameTheThing(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	if _, err := pool.Exec(t.Context(), `INSERT INTO postroom.held (handler, pos, chain, next_at, class, logged_at, source, event_id, type, subject, content_type, data)
		SELECT 'outbox', n, k, now(), 'x', now(), '/shop', 'e' || n, 'a', 'a', 'text/plain', '' FROM (VALUES ('a'';reboot;''', 1), (E'b\x01c', 2), ('d', 3)) v (k, n)`); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), "INSERT INTO postroom.pause (handler, actor, reason) VALUES ('m; reboot', 'ann', 'x')"); err != nil {
		t.Fatal(err)
	}
	env := inDatabase(pool)
	postroom(t, env, "keys", "--limit", "1").want(t, exitOK).says(t, `--after 'outbox/a'\'';reboot;'\'''`+"\n")
	r := postroom(t, env, "keys", "--limit", "2").want(t, exitOK).says(t, "after a key that cannot be printed")
	if strings.Contains(r.out, "--after") {
		t.Error(r.out)
	}
	postroom(t, env, "status").says(t, "postroom handlers resume 'm; reboot''")
	if _, err := pool.Exec(t.Context(), "INSERT INTO postroom.webhook_endpoint (id, url, secrets) VALUES ('w', 'https://a.example', '{s}')"); err != nil {
		t.Fatal(err)
	}
	postroom(t, env, "webhook", "endpoints", "--account", "acme").want(t, exitOK).says(t, "no endpoint belongs to acme\n")
	postroom(t, env, "saga", "list").want(t, exitOK).says(t, "no instance matches\n")
}
