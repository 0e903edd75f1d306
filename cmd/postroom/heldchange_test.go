package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/held"
)

// An operator finds held events, and retries, reschedules and cancels them.
func TestHeldChanges(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	for _, sql := range []string{
		`INSERT INTO postroom.inbox (handler, dedupe_key) SELECT 'billing.charge', '/shop e' || i FROM generate_series(1, 4) i`,
		`INSERT INTO postroom.held (id, handler, dedupe_key, next_at, claimed_by, class, logged_at, source, event_id, type, subject, key, content_type, data)
			OVERRIDING SYSTEM VALUE
			SELECT i, 'billing.charge', '/shop e' || i, now() + interval '1 hour', CASE WHEN i = 4 THEN 'w' END, 'timeout', now(), '/shop', 'e' || i,
				'order.placed', 'order.placed', 'k' || i, 'text/plain', '' FROM generate_series(1, 4) i`,
		`INSERT INTO postroom.held (id, handler, pos, next_at, logged_at, source, event_id, type, subject, key, content_type, data)
			OVERRIDING SYSTEM VALUE
			VALUES (5, 'outbox', 1, now() + interval '1 day', now(), '/shop', 'e5', 'order.reminder', 'order.reminder', 'k5', 'text/plain', '')`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	env := inDatabase(pool)
	run := func(args ...string) result { return postroom(t, env, append([]string{"held"}, args...)...) }

	run("retry").want(t, exitUsage).says(t, "which events?")
	run("retry", "--handler", "billing.charge", "--all").want(t, exitUsage).says(t, "--all selects all events")
	run("retry", "--state", "dead").want(t, exitUsage).says(t, "want one of due, retrying")
	run("retry", "--handler", "none", "--yes").want(t, exitFailed).says(t, "no held event matches")
	run("retry", "--handler", "billing.charge").want(t, exitUsage).says(t, "retry 4 events (3 retrying, 1 running)?", "--yes", "--dry-run")
	run("retry", "--handler", "billing.charge", "--dry-run").want(t, exitOK).says(t, "4 events: 3 retrying, 1 running\n")
	run("retry", "1", "4", "--yes", "--reason", "vendor is back").want(t, exitOK).says(t, "retry: 1 event\n", "unchanged: 1 running\n")
	run("retry", "4", "--yes").want(t, exitTodo).says(t, "nothing was changed: 1 running; an event that runs")
	run("retry", "1", "--yes").want(t, exitTodo).says(t, "nothing was changed: 1 due")

	run("reschedule", "2").want(t, exitUsage).says(t, "when?")
	run("reschedule", "2", "--in", "1h", "--at", "2030-01-01").want(t, exitUsage).says(t, "when?")
	run("reschedule", "2", "--in", "0s", "--at", "2030-01-01").want(t, exitUsage).says(t, "want a positive duration")
	run("reschedule", "2", "--in", "0s").want(t, exitUsage).says(t, "want a positive duration")
	run("reschedule", "2", "--in", "-1h", "--at", "2030-01-01").want(t, exitUsage).says(t, "want a positive duration")
	run("reschedule", "2", "--at", "soon", "--yes").want(t, exitUsage).says(t, "--at: write a time")
	run("reschedule", "2", "--in", "3h", "--yes").want(t, exitOK).says(t, "reschedule: 1 event\n")
	run("reschedule", "--handler", "outbox", "--at", "2030-02-01T08:00:00Z", "--yes").want(t, exitOK)
	run("list", "--handler", "outbox").want(t, exitOK).says(t, "scheduled", "2030-02-01T08:00:00Z")

	run("cancel", "3", "--yes").want(t, exitUsage).says(t, "why?")
	got := run("cancel", "--type", "order.reminder", "--key", "k5", "--reason", "order was paid", "--yes", "--json").want(t, exitOK)
	var r held.Result
	if err := json.Unmarshal([]byte(got.out), &r); err != nil || r.Events != 1 || r.Unchanged != nil {
		t.Errorf("%v: %s", err, got.out)
	}
	run("cancel", "3", "5", "--reason", "ordered twice", "--yes").want(t, exitOK).says(t, "cancel: 1 event\n")
	postroom(t, env, "dead", "list", "--discarded").want(t, exitOK).says(t, "DISCARDED", "order.reminder")
	postroom(t, env, "dead", "show", "5").want(t, exitOK).says(t, "state          cancelled", "order was paid")
	audit := postroom(t, env, "audit").want(t, exitOK).out
	for _, action := range []string{"retry", "reschedule", "cancel", "vendor is back", "ordered twice"} {
		if !strings.Contains(audit, action) {
			t.Errorf("the audit has no %q:\n%s", action, audit)
		}
	}
}
