package schema_test

import (
	"strings"
	"testing"

	"github.com/postroom/postroom/internal/devtest"
)

// The function retry makes due only what waits for another attempt, as many as the caller wants, and
// says so in the audit.
func TestRetryInSQL(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	as, names := staff(t, pool)
	exec(t, pool, "INSERT INTO postroom.inbox (handler, dedupe_key) SELECT h, k FROM unnest('{h,g}'::text[]) h, unnest('{a,b,c,d,e,f}'::text[]) k")
	for _, values := range []string{
		"dedupe_key='a'; next_at=now() + interval '1 h'; class='error'", "dedupe_key='b'; next_at=now() + interval '2 h'; class='error'",
		"dedupe_key='c'; next_at=now() + interval '3 h'; class='error'", "dedupe_key='d'; next_at=now() + interval '1 h'; class='error'; claimed_by='p'",
		"dedupe_key='e'; dead_at=now(); class='error'", "dedupe_key='f'; next_at=now() + interval '1 h'",
	} {
		exec(t, pool, insertHeld("handler='h'; "+values))
	}
	exec(t, pool, insertHeld("handler='g'; dedupe_key='a'; next_at=now() + interval '1 h'; class='error'"))
	const call = "SELECT postroom.retry(handler => 'h', actor => 'ann', reason => 'it is back', most => 2)"
	for _, want := range []int{2, 1, 0} {
		if got := one[int](t, as["operator"], call); got != want {
			t.Errorf("retry = %d, want %d", got, want)
		}
	}
	if got := one[string](t, pool, "SELECT string_agg(handler || dedupe_key, ' ' ORDER BY id) FROM postroom.held WHERE next_at <= now()"); got != "ha hb hc" {
		t.Errorf("due are %s, want the three that waited for another attempt", got)
	}
	if got := one[string](t, pool, "SELECT string_agg(concat_ws(' ', role, actor, action, reason, events, handler), '; ' ORDER BY id) FROM postroom.audit"); got != strings.ReplaceAll("ROLE ann retry it is back 2 h; ROLE ann retry it is back 1 h", "ROLE", names["operator"]) {
		t.Errorf("the audit has %s", got)
	}
}

// The function forget refuses an event that could be lost with its content. Otherwise only the audit
// and the row of inbox remember the event.
func TestForgetInSQL(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	as, names := staff(t, pool)
	const call = "SELECT postroom.forget(source => '/shop', id => 'e1', actor => 'ann', reason => 'asked for')"
	refused := func(want string) {
		t.Helper()
		if _, err := as["operator"].Exec(t.Context(), call); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("forget = %v, want an error: %s", err, want)
		}
	}
	exec(t, pool, "SELECT postroom.write('/shop', 'a', '\"secret\"'::text, id => 'e1'), postroom.write('/shop', 'a', '\"other\"'::text, id => 'e2')")
	refused("the event is not published yet")
	exec(t, pool, "UPDATE postroom.relay SET high = 2, snap = pg_current_snapshot(), pending = '{[1,2)}'")
	refused("the event is not published yet")
	exec(t, pool, "UPDATE postroom.relay SET pending = '{}'")
	exec(t, pool, "INSERT INTO postroom.inbox (handler, dedupe_key, result) VALUES ('h', '/shop e1', 'secret'), ('h', '/shop e2', 'kept'), ('i', '/shop e1', 'secret'), ('j', 'own', 'secret')")
	exec(t, pool, "INSERT INTO postroom.receipt (handler, dedupe_key, step, revision, key, done_at, result) VALUES ('i', '/shop e1', 's', 0, 'k', now(), 'secret')")
	exec(t, pool, "INSERT INTO postroom.held (handler, dedupe_key, dead_at, class, logged_at, source, event_id, type, subject, content_type, data) VALUES ('h', '/shop e1', now(), 'x', now(), '/shop', 'e1', 'a', 'a', 'text/plain', '')")
	refused("the event is held for h")
	exec(t, pool, "DELETE FROM postroom.held")
	if n := one[int](t, pool, "SELECT count(*)::int FROM postroom.audit"); n != 0 {
		t.Errorf("%d rows of the audit about acts that were refused", n)
	}
	if _, err := as["operator"].Exec(t.Context(), strings.Replace(call, "asked for", "", 1)); err == nil || !strings.Contains(err.Error(), "the reason is empty") {
		t.Errorf("forget without a reason = %v", err)
	}

	for _, want := range []int{4, 0} { // the log, the receipt, two results
		if got := one[int](t, as["operator"], call); got != want {
			t.Errorf("forget = %d, want %d", got, want)
		}
	}
	if got := one[int](t, as["operator"], strings.Replace(call, "reason =>", "dedupe_key => 'own', reason =>", 1)); got != 1 {
		t.Errorf("forget by an own key = %d, want 1", got)
	}
	if got := one[string](t, pool, "SELECT concat_ws(' ', (SELECT string_agg(event_id, ' ') FROM postroom.outbox), (SELECT count(*) FROM postroom.inbox), (SELECT string_agg(result, ' ') FROM postroom.inbox), (SELECT count(*) FROM postroom.receipt))"); got != "e2 4 kept 0" {
		t.Errorf("left are %s", got)
	}
	if got := one[string](t, pool, "SELECT string_agg(concat_ws(' ', role, actor, action, reason, events, source, event_id), '; ' ORDER BY id) FROM postroom.audit"); got != strings.ReplaceAll("ROLE ann forget asked for 1 /shop e1; ROLE ann forget asked for 1 /shop e1", "ROLE", names["operator"]) {
		t.Errorf("the audit has %s", got)
	}
}
