package schema_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/devtest"
)

// insertHeld returns a statement that holds an event, with some columns set.
func insertHeld(set string) string {
	columns, values := "logged_at, source, event_id, type, subject, content_type, data", "now(), '/shop', 'e', 'a.b', 'a.b', 'text/plain', ''"
	for _, pair := range strings.Split(set, "; ") {
		column, value, _ := strings.Cut(pair, "=")
		columns, values = columns+", "+column, values+", "+value
	}
	return fmt.Sprintf("INSERT INTO postroom.held (%s) VALUES (%s)", columns, values)
}

// Wrong states cannot be written down.
func TestHeldConstraints(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	exec(t, pool, "INSERT INTO postroom.inbox (handler, dedupe_key) SELECT 'h', k FROM unnest('{a,b,c,d}'::text[]) k")
	good := []string{
		"handler='h'; dedupe_key='a'; next_at=now()",
		"handler='h'; dedupe_key='b'; dead_at=now(); class='error'",
		"handler='h'; dedupe_key='c'; chain='k'; pos=1; next_at=now(); claimed_by='p'; attempts=1",
		"handler='h'; dedupe_key='d'; chain='k'; pos=2",
		"handler='outbox'; pos=1; next_at=now()",
	}
	for _, set := range good {
		exec(t, pool, insertHeld(set))
	}
	exec(t, pool, "INSERT INTO postroom.inbox (handler, dedupe_key) SELECT 'h', k FROM unnest('{e,f}'::text[]) k")
	tests := []struct{ name, set, constraint string }{
		{"owed without being decided", "handler='h'; dedupe_key='unheard of'; next_at=now()", "held_decided"},
		{"held twice", "handler='h'; dedupe_key='a'; next_at=now()", "held_owed"},
		{"of a handler, without its key", "handler='h'; next_at=now()", "held_outgoing_or_decided"},
		{"outgoing, with a key of the inbox", "handler='outbox'; pos=2; dedupe_key='e'; next_at=now()", "held_outgoing_or_decided"},
		{"outgoing, without its place", "handler='outbox'; next_at=now()", "held_outgoing_pos"},
		{"outgoing twice", "handler='outbox'; pos=1; next_at=now()", "held_outgoing"},
		{"due and dead", "handler='h'; dedupe_key='e'; next_at=now(); dead_at=now(); class='error'", "held_due_or_dead"},
		{"neither due nor dead nor behind a key", "handler='h'; dedupe_key='e'", "held_reachable"},
		{"dead for no reason", "handler='h'; dedupe_key='e'; dead_at=now()", "held_dead_why"},
		{"claimed for ever", "handler='h'; dedupe_key='e'; dead_at=now(); class='error'; claimed_by='p'", "held_claim_ends"},
		{"a key without a place", "handler='h'; dedupe_key='e'; chain='k'; next_at=now()", "held_chain_has_pos"},
		{"two events in one place of a key", "handler='h'; dedupe_key='e'; chain='k'; pos=2", "held_chain_pos"},
		{"two events of a key that may run", "handler='h'; dedupe_key='e'; chain='k'; pos=3; next_at=now()", "held_chain_due"},
		{"fewer than no attempts", "handler='h'; dedupe_key='e'; next_at=now(); attempts=-1", "held_attempts_check"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { wantRefused(t, pool, insertHeld(tt.set), tt.constraint) })
	}
	for _, tt := range []struct{ name, sql, constraint string }{
		{"a decided row that is owed is removed", "DELETE FROM postroom.inbox WHERE dedupe_key = 'a'", "held_decided"},
		{"a handler with the relay's name", "INSERT INTO postroom.inbox (handler, dedupe_key) VALUES ('outbox', 'a')", "inbox_handler_reserved"},
		{"a subscription with the relay's name", "INSERT INTO postroom.subscription (handler, stream, stream_created) VALUES ('outbox', 'S', now())", "inbox_handler_reserved"},
		{"a floor below the stream", "INSERT INTO postroom.subscription (handler, stream, stream_created, floor) VALUES ('h', 'S', now(), -1)", "subscription_floor_check"},
		{"a reader without an end", "INSERT INTO postroom.subscription (handler, stream, stream_created, reader) VALUES ('h', 'S', now(), 'p')", "subscription_reader"},
		{"an end of a lease without a reader", "INSERT INTO postroom.subscription (handler, stream, stream_created, reader_until) VALUES ('h', 'S', now(), now())", "subscription_reader"},
		{"places below none", "INSERT INTO postroom.subscription (handler, stream, stream_created, base) VALUES ('h', 'S', now(), -1)", "subscription_base_check"},
		{"fewer than no take-overs", "INSERT INTO postroom.subscription (handler, stream, stream_created, takeovers) VALUES ('h', 'S', now(), -1)", "subscription_takeovers_check"},
		{"rows that are kept for no time", "INSERT INTO postroom.dedupe_window (handler, kept) VALUES ('h', '0')", "dedupe_window_kept_check"},
		{"a process with a window too few", "INSERT INTO postroom.node (id, name, handlers, dedupe_windows, max_event_ages, longest_window) VALUES (gen_random_uuid(), 'p', '{a,b}', '{1 d}', '{1 d,1 d}', '1 d')", "node_windows"},
		{"a process with an age too few", "INSERT INTO postroom.node (id, name, handlers, dedupe_windows, max_event_ages, longest_window) VALUES (gen_random_uuid(), 'p', '{a,b}', '{1 d,1 d}', '{1 d}', '1 d')", "node_ages"},
		{"a second sweep", "INSERT INTO postroom.sweep (only_one) VALUES (false)", "sweep_only_one_check"},
	} {
		t.Run(tt.name, func(t *testing.T) { wantRefused(t, pool, tt.sql, tt.constraint) })
	}
}

// enter_key says whether an event may run, must wait behind another event of its key, is late, or
// comes from an old term. A term is old, too, if the database server has started since.
func TestEnterKey(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	exec(t, pool, "INSERT INTO postroom.subscription (handler, stream, stream_created, epoch) VALUES ('h', 'S', now(), 3), ('g', 'S', now(), 3)")
	exec(t, pool, "INSERT INTO postroom.subscription (handler, stream, stream_created, epoch, floor_server) VALUES ('moved', 'S', now(), 3, pg_postmaster_start_time() - interval '1 s')")
	exec(t, pool, "INSERT INTO postroom.inbox (handler, dedupe_key) VALUES ('h', 'a'), ('h', 'b')")
	exec(t, pool, insertHeld("handler='h'; dedupe_key='a'; chain='k'; pos=10; dead_at=now(); class='error'"))
	exec(t, pool, insertHeld("handler='h'; dedupe_key='b'; chain='k'; pos=20"))
	for _, tt := range []struct {
		handler, key string
		pos, epoch   int
		want         string
	}{
		{"h", "k", 5, 3, "late"},
		{"h", "k", 10, 3, "late"},
		{"h", "k", 15, 3, "behind"},
		{"h", "k", 25, 3, "behind"},
		{"h", "other", 15, 3, "free"},
		{"g", "k", 15, 3, "free"},
		{"h", "k", 15, 2, "stale"},
		{"h", "other", 15, 2, "stale"},
		{"nobody", "k", 15, 3, "stale"},
		{"moved", "k", 15, 3, "stale"},
	} {
		got := one[string](t, pool, fmt.Sprintf("SELECT postroom.enter_key('%s', '%s', %d, %d)", tt.handler, tt.key, tt.pos, tt.epoch))
		if got != tt.want {
			t.Errorf("enter_key(%s, %s, %d, %d) = %s, want %s", tt.handler, tt.key, tt.pos, tt.epoch, got, tt.want)
		}
	}
	if n := one[int](t, pool, "SELECT count(DISTINCT postroom.key_lock(h, k))::int FROM (VALUES ('a', 'b c'), ('a b', 'c'), ('a', 'b'), ('b', 'a')) v (h, k)"); n != 4 {
		t.Errorf("%d locks for four keys", n)
	}
}

func wantRefused(t *testing.T, pool *pgxpool.Pool, sql, constraint string) {
	t.Helper()
	_, err := pool.Exec(t.Context(), sql)
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || !strings.HasPrefix(pg.Code, "23") || pg.ConstraintName != constraint {
		t.Errorf("%s = %v, want a violation of %s", sql, err, constraint)
	}
}

// A receipt must belong to a decided event, and must not contradict itself.
func TestReceiptConstraints(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	exec(t, pool, "INSERT INTO postroom.inbox (handler, dedupe_key) SELECT 'h', k FROM unnest('{a,b}'::text[]) k")
	insert := func(set string) string {
		row := map[string]string{"handler": "'h'", "dedupe_key": "'a'", "step": "'charge'", "revision": "0", "key": "'k'"}
		for _, pair := range strings.Split(set, "; ") {
			if column, value, ok := strings.Cut(pair, "="); ok {
				row[column] = value
			}
		}
		columns := slices.Sorted(maps.Keys(row))
		values := make([]string, len(columns))
		for i, column := range columns {
			values[i] = row[column]
		}
		return fmt.Sprintf("INSERT INTO postroom.receipt (%s) VALUES (%s)", strings.Join(columns, ", "), strings.Join(values, ", "))
	}
	for _, set := range []string{
		"", "revision=1", "step='mail'", "dedupe_key='b'; done_at=now()", "dedupe_key='b'; step='mail'; done_at=now(); result='ch'; unanswered=0",
	} {
		exec(t, pool, insert(set))
	}
	for _, tt := range []struct{ name, set, constraint string }{
		{"of an event that is not decided", "dedupe_key='unheard of'", "receipt_decided"},
		{"of a handler that has not decided it", "handler='other'", "receipt_decided"},
		{"twice", "", "receipt_pkey"},
		{"of the relay", "handler='outbox'", "inbox_handler_reserved"},
		{"without a step's name", "step=''", "receipt_step_check"},
		{"with a name that is too long", "step=repeat('x', 129)", "receipt_step_check"},
		{"before the first revision", "revision=-1", "receipt_revision_check"},
		{"without a key", "key=''", "receipt_key_check"},
		{"with a key that is too long", "key=repeat('x', 129)", "receipt_key_check"},
		{"of fewer calls than none", "revision=2; unanswered=-1; done_at=now()", "receipt_unanswered_check"},
		{"of a call that is neither begun nor done", "revision=2; unanswered=0", "receipt_started"},
		{"with a result of what is not done", "revision=2; result='ch'", "receipt_result"},
	} {
		t.Run(tt.name, func(t *testing.T) { wantRefused(t, pool, insert(tt.set), tt.constraint) })
	}
	exec(t, pool, insertHeld("handler='h'; dedupe_key='a'; next_at=now()"))
	if n := one[int](t, pool, "SELECT revision FROM postroom.held"); n != 0 {
		t.Errorf("the new row has revision %d, want 0", n)
	}
}

// Receipts are removed with their own inbox row, and with no other row.
func TestReceiptsExpireWithTheirEvent(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	exec(t, pool, "INSERT INTO postroom.inbox (handler, dedupe_key) SELECT h, k FROM unnest('{h,other}'::text[]) h, unnest('{a,b}'::text[]) k")
	exec(t, pool, "INSERT INTO postroom.receipt (handler, dedupe_key, step, revision, key) SELECT handler, dedupe_key, s, 0, 'k' FROM postroom.inbox, unnest('{charge,mail}'::text[]) s")
	exec(t, pool, "DELETE FROM postroom.inbox WHERE handler = 'h' AND dedupe_key = 'a'")
	if n := one[int](t, pool, "SELECT count(*)::int FROM postroom.receipt WHERE handler = 'h' AND dedupe_key = 'a'"); n != 0 {
		t.Errorf("%d receipts of an event that is forgotten", n)
	}
	if n := one[int](t, pool, "SELECT count(*)::int FROM postroom.receipt"); n != 6 {
		t.Errorf("%d receipts of the others, want 6", n)
	}
}

// Transactions that enter the same key take turns. Transactions of other keys and other handlers do
// not wait.
func TestKeyIsEnteredByOne(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	first, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Rollback(t.Context()) }()
	exec(t, first, "SELECT postroom.enter_key('h', 'k', 1, 1)")
	for _, tt := range []struct {
		handler, key string
		waits        bool
	}{{"h", "k", true}, {"h", "other", false}, {"other", "k", false}} {
		_, err := pool.Exec(t.Context(), fmt.Sprintf("SET LOCAL lock_timeout = '100ms'; SELECT postroom.enter_key('%s', '%s', 2, 1)", tt.handler, tt.key))
		var pg *pgconn.PgError
		if waits := errors.As(err, &pg) && pg.Code == "55P03"; waits != tt.waits || err != nil && !waits {
			t.Errorf("enter_key(%s, %s) = %v, waits: %t, want %t", tt.handler, tt.key, err, waits, tt.waits)
		}
	}
}
