package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/devtest"
)

const (
	aDecision  = `INSERT INTO postroom.inbox (handler, dedupe_key, digest) VALUES ('mail', '/shop e1', decode(md5('a'), 'hex'));`
	aDeadEvent = aDecision + `INSERT INTO postroom.held (handler, dedupe_key, dead_at, attempts, class, cause, first_failed_at, logged_at, source, event_id, type, subject, content_type, data, failures)
		VALUES ('mail', '/shop e1', now(), 5, 'error', decode(md5('a'), 'hex'), now(), now(), '/shop', 'e1', 'order.placed', 'order.placed', 'application/json', '{}', '%s')`
	aDiscardedEvent = aDecision + `INSERT INTO postroom.archive (id, audit, handler, dedupe_key, dead_at, held_at, solitary, attempts, class, first_failed_at, revision, replays, logged_at, source, event_id, type, subject, content_type, data, failures)
		VALUES (1, 1, 'mail', '/shop e1', now(), now(), false, 5, 'error', now(), 0, 0, now(), '/shop', 'e1', 'a', 'a', 'text/plain', '', '%s')`
	anInstance = `INSERT INTO postroom.saga_definition (name, version, steps, stuck) VALUES ('s', 1, '[]', '1 hour');
		INSERT INTO postroom.saga (name, key, version, state, step, data, input, correlation_id, owner) VALUES ('s', 'e1', 1, 'running', 'a', '{}', '', 'c', gen_random_uuid());
		INSERT INTO postroom.saga_step (name, key, revision, step, direction, what, command_id) VALUES ('s', 'e1', 1, 'a', 'do', 'begun', 'e1');`
)

// A row that a role may write takes no command about other rows from operators: the database refuses
// the row, or each tool reads it.
func TestCommandsReadOddRows(t *testing.T) {
	t.Parallel()
	type odd struct{ grant, sql string }
	var all []odd
	for _, failures := range []string{`[1]`, `["x"]`, `[[[]]]`, `[{"at": "infinity"}]`, `[{"at": "9999-12-31T23:59:59-23:00", "text": "\u001b[2J"}]`, `[null]`} {
		all = append(all, odd{"inbox", fmt.Sprintf(aDeadEvent, failures)}, odd{"inbox", fmt.Sprintf(aDiscardedEvent, failures)},
			odd{"inbox", aDecision + "UPDATE postroom.inbox SET failures = '" + failures + "'"}, odd{"relay", "INSERT INTO postroom.refused (seq, failures) VALUES (1, '" + failures + "')"})
	}
	all = append(all, odd{"relay", `INSERT INTO postroom.refused (seq, failures) VALUES (1, '"x"')`}, odd{"sagas", anInstance})
	for _, at := range []string{"'infinity'", "'4713-01-01 BC'"} {
		for _, column := range []string{"started_at", "waits_since", "waits_hour", "deadline", "alarm_at", "state = 'done', ended_at"} {
			all = append(all, odd{"sagas", anInstance + "UPDATE postroom.saga SET " + column + " = " + at})
		}
		for _, column := range []string{"dead_at", "held_at", "first_failed_at", "logged_at", "occurred_at", "dead_at = NULL, next_at"} {
			all = append(all, odd{"inbox", fmt.Sprintf(aDeadEvent, "[]") + "; UPDATE postroom.held SET " + column + " = " + at})
		}
		for _, column := range []string{"dead_at", "held_at", "first_failed_at", "logged_at", "discarded_at"} {
			all = append(all, odd{"operator", "INSERT INTO postroom.archive (id, audit, handler, pos, held_at, solitary, attempts, revision, replays, logged_at, source, event_id, type, subject, content_type, data, class) VALUES (1, 1, 'outbox', 7, now(), false, 5, 0, 0, now(), '/shop', 'e1', 'a', 'a', 'text/plain', '', 'error'); UPDATE postroom.archive SET " + column + " = " + at})
		}
		for _, column := range []string{"disabled_reason = 'x', disabled_at", "failing_since", "paused_until", "last_at", "created_at", "rotated_at"} {
			all = append(all, odd{"webhooks", "INSERT INTO postroom.webhook_endpoint (id, url, secrets) VALUES ('w', 'https://a.example', '{s}'); UPDATE postroom.webhook_endpoint SET " + column + " = " + at})
		}
		for table, columns := range map[string][]string{"republish": {"created_at", "since", "until", "state = 'done', ended_at"}, "replay": {"created_at", "stepped_at", "state = 'done', ended_at"}} {
			insert := map[string]string{
				"republish": "INSERT INTO postroom.republish (actor, kind, lo, hi, events, rate, digest, passed) VALUES ('ann', 'range', 1, 1, 1, 1, 'x', 0);",
				"replay":    "INSERT INTO postroom.replay (actor, filter, attempts, canary, stop_at, as_new, phase, items) VALUES ('ann', '{}', 1, 0, 1, false, 'rest', 1);",
			}[table]
			for _, column := range columns {
				all = append(all, odd{"operator", insert + "UPDATE postroom." + table + " SET " + column + " = " + at})
			}
		}
	}
	shared, roles := devtest.Pool(t), make(map[string]*pgxpool.Pool)
	for _, odd := range all {
		if roles[odd.grant] == nil {
			roles[odd.grant] = as(t, shared, odd.grant)
		}
		tx, err := roles[odd.grant].Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = tx.Exec(t.Context(), odd.sql)
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err != nil {
			if !strings.Contains(err.Error(), "violates check constraint") {
				t.Errorf("%s: %v", odd.sql, err)
			}
			continue // refused
		}
		t.Run(odd.grant, func(t *testing.T) {
			t.Parallel()
			pool := devtest.Pool(t)
			if _, err := as(t, pool, odd.grant).Exec(t.Context(), odd.sql); err != nil {
				t.Fatal(err)
			}
			for _, place := range []string{"held SET dead_at", "next_at = '", "discarded_at = '"} {
				if strings.Contains(odd.sql, place) {
					t.Errorf("a page of a list could not begin after this row: %s", odd.sql)
				}
			}
			env := inDatabase(pool)
			for _, line := range append(readersOf(odd.sql), "status") {
				got := postroom(t, env, append(strings.Fields(line), "--json")...)
				for _, fault := range []string{"SQLSTATE", "scan", "unmarshal", "MarshalJSON"} {
					if strings.Contains(got.errors, fault) {
						t.Errorf("%s\n%s: exit status %d: %s", odd.sql, line, got.code, got.errors)
					}
				}
				if got.out != "" && line != "dead export" && !json.Valid([]byte(got.out)) {
					t.Errorf("%s\n%s: no JSON: %s", odd.sql, line, got.out)
				}
			}
		})
	}
}

// readersOf returns the commands that read the table of an odd row.
func readersOf(sql string) []string {
	for table, lines := range map[string][]string{
		"postroom.held":             {"dead list", "dead show 1", "dead export", "held list", "events show e1", "dead discard --all --reason x -y"},
		"postroom.archive":          {"dead list --discarded", "events show e1"},
		"postroom.refused":          {"events show e0"},
		"postroom.saga":             {"saga list", "saga show s e1"},
		"postroom.webhook_endpoint": {"webhook endpoints"},
		"postroom.republish":        {"republish list", "events show e0"},
		"postroom.replay":           {"replay list"},
	} {
		if strings.Contains(sql, table+" ") {
			return lines
		}
	}
	return []string{"events show e1"} // a row of inbox
}

// as returns a pool for a role with a grant, in a database whose log has an event.
func as(t *testing.T, pool *pgxpool.Pool, grant string) *pgxpool.Pool {
	t.Helper()
	role, name := devtest.RolePool(t, pool)
	for _, sql := range []string{"SELECT postroom.grant_" + grant + "('" + name + "')", "SELECT postroom.write('/shop', 'order.placed', '{}', id => 'e0')"} {
		if _, err := pool.Exec(t.Context(), sql); err != nil && !strings.Contains(err.Error(), "outbox_source_id") {
			t.Fatal(err)
		}
	}
	return role
}
