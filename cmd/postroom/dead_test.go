package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/cmd/postroom/internal/deadcmd"
	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/internal/devtest"
)

// withDead returns a database with dead events e1 to en of the handler billing.charge,
// and their ids.
func withDead(t *testing.T, n int) (*pgxpool.Pool, []string) {
	t.Helper()
	pool := devtest.Pool(t)
	deadEvents(t, pool, n)
	var ids []string
	if err := pool.QueryRow(t.Context(), "SELECT array_agg(id::text ORDER BY id) FROM postroom.held").Scan(&ids); err != nil {
		t.Fatal(err)
	}
	return pool, ids
}

// deadEvents inserts dead events e1 to en of the handler billing.charge.
func deadEvents(t *testing.T, pool *pgxpool.Pool, n int) {
	t.Helper()
	for _, sql := range []string{
		`INSERT INTO postroom.inbox (handler, dedupe_key) SELECT 'billing.charge', '/shop e' || i FROM generate_series(1, $1::int) i`,
		`INSERT INTO postroom.held (handler, dedupe_key, dead_at, attempts, class, cause, failures, first_failed_at, logged_at,
			source, event_id, type, subject, key, content_type, data)
		SELECT 'billing.charge', '/shop e' || i, now() - i * interval '1 minute', 5, 'error', decode(md5('a'), 'hex'),
			'[{"at": "2026-01-31T03:00:00Z", "class": "error", "text": "card declined\u001b[31m"}]', now(), now(),
			'/shop', 'e' || i, 'order.placed', 'order.placed', 'k' || i, 'application/json', '{"amount": 7}'
		FROM generate_series(1, $1::int) i ORDER BY i`,
	} {
		if _, err := pool.Exec(t.Context(), sql, n); err != nil {
			t.Fatal(err)
		}
	}
}

func rowCount(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

func TestDeadLooks(t *testing.T) {
	t.Parallel()
	pool, ids := withDead(t, 5)
	env := inDatabase(pool)

	r := postroom(t, env, "dead", "groups").want(t, exitOK).says(t, "EVENTS   HANDLER", "5        billing.charge   error", "card declined")
	if strings.Contains(r.out, "\x1b") {
		t.Error("a failure's text commands the terminal")
	}
	postroom(t, env, "dead", "groups", "--handler", "none").want(t, exitOK).says(t, "no dead events\n")
	var page struct {
		Events []deadletter.Letter
		Next   string
	}
	got := postroom(t, env, "dead", "list", "--limit", "3", "--json").want(t, exitOK)
	if err := json.Unmarshal([]byte(got.out), &page); err != nil || len(page.Events) != 3 || page.Events[0].EventID != "e1" || page.Next == "" {
		t.Fatalf("%v: %s", err, got.out)
	}
	got = postroom(t, env, "dead", "list", "--limit", "3", "--after", page.Next).want(t, exitOK).says(t, "ID   DIED", "5m")
	if strings.Count(got.out, "billing.charge") != 2 || strings.Contains(got.out, "more:") {
		t.Errorf("the second page: %s", got.out)
	}
	postroom(t, env, "dead", "list", "--limit", "3").want(t, exitOK).says(t, "next page: --after "+page.Next)
	postroom(t, env, "dead", "list", "--since", "150s", "--count").want(t, exitOK).says(t, "2\n")
	postroom(t, env, "dead", "list", "--discarded").want(t, exitOK).says(t, "no event matches")
	postroom(t, env, "dead", "show", ids[0]).want(t, exitOK).
		says(t, "e1 of /shop", "dead since", "failure 1 of 1", "card declined", "body, 13 bytes", `"amount": 7`)
	if _, err := pool.Exec(t.Context(), "UPDATE postroom.held SET failures = '[{\"text\": \"card expired\"}]' || failures WHERE id::text = $1", ids[0]); err != nil {
		t.Fatal(err)
	}
	postroom(t, env, "dead", "show", ids[0]).want(t, exitOK).says(t, "failure 1 of 2", "card expired", "failure 2 of 2", "card declined")
	postroom(t, env, "dead", "show", "99999").want(t, exitFailed).says(t, "not found")
}

func TestDeadUsage(t *testing.T) {
	t.Parallel()
	env := environment{"DATABASE_URL": "postgres://127.0.0.1:1/none"} // no command connects to it
	tests := []struct{ line, want string }{
		{"dead", "say what to do"},
		{"dead show", "give one id"},
		{"dead show e1", "an id is a number"},
		{"dead replay", "which events?"},
		{"dead replay --all --handler x", "--all selects all events"},
		{"dead replay x1", "an id is a number"},
		{"dead replay --handler x --cause=", "it is empty; give a value"},
		{"dead discard --handler x --cause= --reason x --yes", "it is empty; give a value"},
		{"dead reopen --since= --handler x", "it is empty; give a value"},
		{"dead list --key=", "it is empty; give a value"},
		{"held cancel --handler x --key= --reason x --yes", "it is empty; give a value"},
		{"held retry --handler x --state= --yes", "it is empty; give a value"},
		{"held list --due-until=", "it is empty; give a value"},
		{"republish --type x --since= --yes", "it is empty; give a value"},
		{"republish --type= --yes", "it is empty; give a value"},
		{"reconcile --since=", "it is empty; give a value"},
		{"events list --key=", "it is empty; give a value"},
		{"audit --actor=", "it is empty; give a value"},
		{"keys --handler=", "it is empty; give a value"},
		{"saga list --state=", "it is empty; give a value"},
		{"dead discard 1", "why? Give --reason"},
		{"dead discard --reason x", "which events?"},
		{"dead list --since yesterday", "write a time"},
		{"dead list --after x", "want the value that the last page printed"},
		{"dead edit 1", "what should change?"},
		{"dead edit 1 --header x", "write name=value"},
		{"dead resolve 1 --happened", "which call?"},
		{"dead resolve 1 --step s", "give either"},
		{"dead resolve 1 --step s --happened --not-happened", "give either"},
		{"dead resolve 1 --step s --not-happened --result x", "--result is what the call returned"},
		{"dead resolve 1 --step s --happened", "--happened needs --result"},
		{"dead resolve 1 --step s --happened --result ch_123", "as JSON"},
		{"dead purge", "how old?"},
		{"dead purge --older-than 1h", "where to keep the events?"},
		{"replay resume", "give one id of a replay"},
		{"replay cancel a", "want that of a replay, as 'postroom replay list' shows it"},
	}
	for _, tt := range tests {
		postroom(t, env, strings.Fields(tt.line)...).want(t, exitUsage).says(t, tt.want)
	}
}

// A command that changes something asks first. Without a terminal it cannot ask, so it needs --yes.
func TestDeadAsks(t *testing.T) {
	t.Parallel()
	pool, ids := withDead(t, 3)
	env := inDatabase(pool)
	postroom(t, env, "dead", "replay", "--all").want(t, exitUsage).says(t, "replay 3 events?", "give --yes", "NOWHERE")
	postroom(t, env, "dead", "discard", ids[0], "--reason", "x").want(t, exitUsage).says(t, "discard 1 event", "give --yes, or look first with 'postroom dead list'\n")
	postroom(t, env, "dead", "replay", "--all").says(t, "look first with --dry-run or 'postroom dead list'\n")
	if n := rowCount(t, pool, "SELECT count(*) FROM postroom.audit") + rowCount(t, pool, "SELECT count(*) FROM postroom.replay"); n != 0 {
		t.Errorf("a refused command wrote %d rows", n)
	}
}

func TestDeadDiscardAndReopen(t *testing.T) {
	t.Parallel()
	pool, ids := withDead(t, 5)
	env := inDatabase(pool)
	env["POSTROOM_ACTOR"] = "ann"
	postroom(t, env, "dead", "reopen", "--all", "-y").want(t, exitFailed).says(t, "all discarded events: there is no such event to reopen")
	postroom(t, env, "dead", "discard", ids[0], ids[1], "--reason", "test orders", "-y").want(t, exitOK).says(t, "discard: 2 events\n")
	postroom(t, env, "dead", "list", "--discarded").want(t, exitOK).says(t, "DISCARDED")
	postroom(t, env, "dead", "show", ids[0]).want(t, exitOK).says(t, "discarded ")
	postroom(t, env, "dead", "discard", ids[0], "--reason", "again", "-y").want(t, exitFailed).says(t, "no such event to discard")
	postroom(t, env, "dead", "reopen", ids[0]).want(t, exitUsage).says(t, "reopen 1 event", "look first with 'postroom dead list --discarded'\n")
	postroom(t, env, "dead", "reopen", ids[0], "--actor", "bob", "-y").want(t, exitOK).says(t, "reopen: 1 event\n")
	if n := rowCount(t, pool, "SELECT count(*) FROM postroom.held WHERE dead_at IS NOT NULL"); n != 4 {
		t.Errorf("%d dead events, want 4", n)
	}
	if n := rowCount(t, pool, "SELECT count(*) FROM postroom.audit WHERE (actor, action, reason, events) IN (('ann', 'discard', 'test orders', 2), ('bob', 'reopen', '', 1))"); n != 2 {
		t.Errorf("%d rows in the audit, want 2", n)
	}

	// A purge writes the events of the archive to a file before it removes them.
	file := filepath.Join(t.TempDir(), "archive.jsonl")
	postroom(t, env, "dead", "purge", "--older-than", "1h", "--output", file).want(t, exitUsage).says(t, "look first with 'postroom dead list --discarded --until 2")
	postroom(t, env, "dead", "purge", "--older-than", "1h", "--output", file, "-y").want(t, exitFailed).says(t, "nothing was discarded")
	if _, err := pool.Exec(t.Context(), "UPDATE postroom.archive SET discarded_at = now() - interval '2 hours'"); err != nil {
		t.Fatal(err)
	}
	postroom(t, env, "dead", "purge", "--older-than", "1h", "--output", file, "-y").want(t, exitOK).says(t, "purged: 1 event; the file")
	text, err := os.ReadFile(file)
	if err != nil || strings.Count(string(text), "\n") != 1 || !strings.Contains(string(text), `"reason":"test orders"`) {
		t.Errorf("the file: %s, %v", text, err)
	}
	postroom(t, env, "dead", "export", "--output", file).want(t, exitFailed).says(t, "create the file")
	if r := postroom(t, env, "dead", "export").want(t, exitOK); strings.Count(r.out, "\n") != 4 || !strings.Contains(r.out, `"data":{"amount":7}`) {
		t.Errorf("export: %s", r.out)
	}
}

// A discarded event had no effect. The commands say so even after a purge, and no longer after the
// event was reopened.
func TestDiscardedEventsStayDiscarded(t *testing.T) {
	t.Parallel()
	pool, ids := withDead(t, 2)
	env := inDatabase(pool)
	if _, err := pool.Exec(t.Context(), "SELECT postroom.write('/shop', 'order.placed', '{}', id => 'e' || i, key => 'k' || i) FROM generate_series(1, 2) i"); err != nil {
		t.Fatal(err)
	}
	is := func(id, want, not string) {
		t.Helper()
		for _, line := range []string{"events show " + id, "events tree " + id, "events list --key k" + id[1:]} {
			r := postroom(t, env, strings.Fields(line)...)
			if !strings.Contains(r.out, want) || strings.Contains(r.out, not) {
				t.Errorf("%s: want %q and not %q in\n%s%s", line, want, not, r.out, r.errors)
			}
		}
	}
	postroom(t, env, "dead", "discard", "--all", "--reason", "test orders", "-y").want(t, exitOK)
	is("e1", "discarded", "done")
	postroom(t, env, "dead", "reopen", ids[1], "--actor", "bob", "-y").want(t, exitOK)
	postroom(t, env, "dead", "purge", "--older-than", "1ms", "--output", filepath.Join(t.TempDir(), "archive.jsonl"), "-y").want(t, exitOK).says(t, "purged: 1 event")
	is("e1", "discarded", "done")
	is("e2", "dead", "discarded")
	if _, err := pool.Exec(t.Context(), "DELETE FROM postroom.held"); err != nil { // it took effect
		t.Fatal(err)
	}
	is("e2", "done", "discarded")
}

// Who answers yes agrees to discard the events that were counted. Events that die later are not
// discarded.
func TestDeadDiscardsWhatItCounted(t *testing.T) {
	t.Parallel()
	pool, _ := withDead(t, 1000) // as many as a transaction discards
	for _, sql := range []string{
		`CREATE FUNCTION another() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			INSERT INTO postroom.inbox (handler, dedupe_key) VALUES ('billing.charge', 'another');
			INSERT INTO postroom.held (handler, dedupe_key, dead_at, class, logged_at, source, event_id, type, subject, content_type, data)
			VALUES ('billing.charge', 'another', now(), 'error', now(), '/shop', 'another', 'order.placed', 'order.placed', 'text/plain', '');
			RETURN NULL;
		END $$`,
		"CREATE TRIGGER another AFTER INSERT ON postroom.archive FOR EACH STATEMENT EXECUTE FUNCTION another()",
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	postroom(t, inDatabase(pool), "dead", "discard", "--all", "--reason", "test orders", "-y").want(t, exitOK).says(t, "discard: 1000 events\n")
	if n := rowCount(t, pool, "SELECT count(*) FROM postroom.held WHERE event_id = 'another' AND dead_at IS NOT NULL"); n != 1 {
		t.Errorf("%d of the events that died since are dead, want 1", n)
	}
}

// A replay, too, has only the events that were counted. If one of these is no longer dead, no other
// event takes its place.
func TestDeadReplaysWhatItCounted(t *testing.T) {
	t.Parallel()
	pool, _ := withDead(t, 3)
	for _, sql := range []string{
		`CREATE FUNCTION another() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			INSERT INTO postroom.inbox (handler, dedupe_key) VALUES ('billing.charge', 'another');
			INSERT INTO postroom.held (handler, dedupe_key, dead_at, class, logged_at, source, event_id, type, subject, content_type, data)
			VALUES ('billing.charge', 'another', now(), 'error', now(), '/shop', 'another', 'order.placed', 'order.placed', 'text/plain', '');
			DELETE FROM postroom.held WHERE event_id = 'e3';
			RETURN NULL;
		END $$`,
		"CREATE TRIGGER another AFTER INSERT ON postroom.replay FOR EACH STATEMENT EXECUTE FUNCTION another()",
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	if r := postroom(t, inDatabase(pool), "dead", "replay", "--all", "--detach", "-y"); r.code != exitOK {
		t.Errorf("exit status %d: %s", r.code, r.errors)
	}
	if n := rowCount(t, pool, "SELECT count(*) FROM postroom.replay_event WHERE event_id IN ('e1', 'e2')"); n != 2 {
		t.Errorf("%d of the events that were counted are in the replay, want the 2 that are still dead", n)
	}
	if n := rowCount(t, pool, "SELECT count(*) FROM postroom.replay_event"); n != 2 {
		t.Errorf("%d events in the replay, want 2", n)
	}
}

// If a command is interrupted, or fails in the middle, it says what it has done.
func TestChangesSayWhatTheyDid(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		line, before, done string
		interrupted        bool
	}{
		{"dead discard --all --yes --reason x", "", "discard: 2000 events", true},
		{"dead discard --all --yes --reason x --json", "", `{ "events": 2000 }`, false},
		{"dead reopen --all --yes", "", "reopen: 2000 events", false},
		{"held retry --all --yes", "dead_at = NULL, next_at = now() + id * interval '1 hour'", "retry: 2000 events", false},
		{"held cancel --all --yes --reason x --json", "dead_at = NULL, next_at = now() + id * interval '1 hour'", `"events": 2000`, false},
	} {
		pool, _ := withDead(t, 2500)
		env := inDatabase(pool)
		if tt.before != "" {
			if _, err := pool.Exec(t.Context(), "UPDATE postroom.held SET "+tt.before); err != nil {
				t.Fatal(err)
			}
		}
		if strings.Contains(tt.line, "reopen") {
			postroom(t, env, "dead", "discard", "--all", "--yes", "--reason", "x").want(t, exitOK)
		}
		if _, err := pool.Exec(t.Context(), `CREATE FUNCTION third() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				IF (SELECT count(*) FROM postroom.audit WHERE action = '`+strings.Fields(tt.line)[1]+`') >= 2 THEN
					PERFORM pg_advisory_xact_lock_shared(4711);
					RAISE 'no space left';
				END IF;
				RETURN NULL;
			END $$;
			CREATE TRIGGER third BEFORE INSERT ON postroom.audit FOR EACH STATEMENT EXECUTE FUNCTION third()`); err != nil {
			t.Fatal(err)
		}
		ctx, interrupt := context.WithCancel(t.Context())
		ended := make(chan result, 1)
		want := "no space left"
		if !tt.interrupted {
			ended <- postroom(t, env, strings.Fields(tt.line)...)
		} else {
			want = "interrupted: up to 1,000 events more than counted above may have changed"
			tx, err := pool.Begin(t.Context())
			if err == nil {
				_, err = tx.Exec(t.Context(), "SELECT pg_advisory_xact_lock(4711)")
			}
			if err != nil {
				t.Fatal(err)
			}
			go func() { ended <- postroomUntil(ctx, env, strings.Fields(tt.line)...) }()
			devtest.Eventually(t, 30*time.Second, "the third transaction to wait", func() bool {
				return rowCount(t, pool, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'") == 1
			})
			interrupt()
			defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
		}
		r := <-ended
		interrupt()
		if r.want(t, exitFailed).says(t, want); !strings.Contains(strings.Join(strings.Fields(r.out), " "), tt.done) {
			t.Errorf("%s prints %q, want %q", tt.line, r.out, tt.done)
		}
	}
}

// If another operator cancels the replay that a command runs, the replay's events that have not
// begun do not run.
func TestDeadReplayEndsIfAnotherOperatorCancelsIt(t *testing.T) {
	t.Parallel()
	pool, _ := withDead(t, 20)
	env := inDatabase(pool)
	for _, line := range []string{"dead replay --all --yes", "replay resume 1"} {
		ended := make(chan result, 1)
		go func() { ended <- postroom(t, env, strings.Fields(line)...) }()
		devtest.Eventually(t, 30*time.Second, "the replay to run", func() bool {
			return rowCount(t, pool, "SELECT count(*) FROM postroom.replay WHERE state = 'running' AND released = 20") == 1
		})
		postroom(t, env, "replay", "cancel", "1").want(t, exitOK)
		(<-ended).want(t, exitTodo).says(t, "replay 1 was cancelled: 20 events did not run")
	}
}

// While another replay chooses its events, the command says why it has not begun.
func TestDeadReplayWaitsForAnotherThatChooses(t *testing.T) {
	t.Parallel()
	pool, ids := withDead(t, 1)
	other, err := pool.Begin(t.Context())
	if err == nil {
		_, err = other.Exec(t.Context(), devtest.SQL(t, "../../deadletter/sql/replay_serialize.sql"))
	}
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan result, 1)
	go func() { ended <- postroom(t, inDatabase(pool), "dead", "replay", ids[0], "--detach") }()
	devtest.Eventually(t, 30*time.Second, "the command to wait", func() bool {
		return rowCount(t, pool, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query_start < now() - interval '3 s'") == 1
	})
	if err := other.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := (<-ended).says(t, "choosing the events.", "only one replay chooses its events at a time", "running, rest"); r.code != exitOK {
		t.Errorf("exit status %d", r.code)
	}
}

func TestDeadEdit(t *testing.T) {
	t.Parallel()
	pool, ids := withDead(t, 1)
	env := inDatabase(pool)
	file := filepath.Join(t.TempDir(), "body.json")
	if err := os.WriteFile(file, []byte(`{"amount": 8`), 0o600); err != nil {
		t.Fatal(err)
	}
	postroom(t, env, "dead", "edit", ids[0], "--data", file).want(t, exitFailed).says(t, "is not valid JSON")
	if err := os.WriteFile(file, []byte(`{"amount": 8}`), 0o600); err != nil {
		t.Fatal(err)
	}
	postroom(t, env, "dead", "edit", ids[0], "--data", file, "--header", "tenant=a", "--reason", "comma", "--revision", "0").want(t, exitOK).says(t, "at revision 1")
	postroom(t, env, "dead", "edit", ids[0], "--data", file, "--reason", "comma", "--revision", "0").want(t, exitFailed).says(t, "it is at revision 1, and this edit was made from revision 0")
	postroom(t, env, "dead", "show", ids[0]).want(t, exitOK).says(t, `"amount": 8`, "header tenant", "revision 0", `"amount": 7`, "edit by", "comma")
	postroom(t, env, "dead", "resolve", ids[0], "--step", "charge", "--happened", "--result", "null").want(t, exitFailed).says(t, "this step has no open call; steps with an open call: none")
	if _, err := pool.Exec(t.Context(), "INSERT INTO postroom.receipt (handler, dedupe_key, step, revision, key) VALUES ('billing.charge', '/shop e1', 'charge', 0, 'k')"); err != nil {
		t.Fatal(err)
	}
	postroom(t, env, "dead", "resolve", ids[0], "--step", "charge", "--happened", "--result", `"ch_1"`, "--reason", "the vendor has it").want(t, exitOK)
	if n := rowCount(t, pool, "SELECT count(*) FROM postroom.receipt WHERE done_at IS NOT NULL AND result = '\"ch_1\"'"); n != 1 {
		t.Errorf("%d steps are done with this result, want 1", n)
	}
}

func TestDeadReplay(t *testing.T) {
	t.Parallel()
	pool, ids := withDead(t, 4)
	env := inDatabase(pool)
	var dry struct {
		Events  int64
		DryRuns []deadletter.DryRun `json:"dry_runs"`
	}
	r := postroom(t, env, "dead", "replay", "--all", "--dry-run", "--wait", "10ms", "--json").want(t, exitTodo).says(t, "no process runs handler billing.charge", "1 of 1 dry runs gave no result")
	if err := json.Unmarshal([]byte(r.out), &dry); err != nil || dry.Events != 4 || len(dry.DryRuns) != 1 || dry.DryRuns[0].Verdict != deadletter.DryRunUnanswered {
		t.Errorf("%v: %s", err, r.out)
	}
	postroom(t, env, "dead", "replay", "--all", "--dry-run", "--try", "0").want(t, exitTodo).says(t, "KEYS WAIT", "NOWHERE")

	r = postroom(t, env, "dead", "replay", ids[0], ids[1], "--detach", "-y").says(t, "running, rest", "2 ids", "no process runs handler billing.charge")
	if r.code != exitOK {
		t.Errorf("exit status %d", r.code)
	}
	postroom(t, env, "dead", "replay", ids[0]).want(t, exitFailed).says(t, "all 1 events are already in replays")
	postroom(t, env, "replay", "list", "--running").want(t, exitOK).says(t, "REPLAY   STATE")
	postroom(t, env, "replay", "cancel", "1", "--reason", "wrong").want(t, exitOK).says(t, "cancelled")
	postroom(t, env, "replay", "cancel", "1").want(t, exitFailed).says(t, "the replay has ended")
	postroom(t, env, "replay", "list", "--running", "--json").want(t, exitOK).says(t, "[]\n")
	postroom(t, env, "replay", "resume", "99").want(t, exitFailed).says(t, "not found")

	// The command waits until every released event has a result.
	done := make(chan result)
	go func() { done <- postroom(t, env, "dead", "replay", "--all", "--yes") }()
	devtest.Eventually(t, 10*time.Second, "the events to be released", func() bool {
		return rowCount(t, pool, "SELECT count(*) FROM postroom.held WHERE next_at IS NOT NULL AND last_attempt = 6") == 4
	})
	for _, sql := range []string{
		"DELETE FROM postroom.held WHERE event_id <> 'e1'",
		"UPDATE postroom.held SET next_at = NULL, dead_at = now()",
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	(<-done).want(t, exitTodo).says(t, "done", "1 event failed again")
}

func TestReplayHelpNamesWhatItTakes(t *testing.T) {
	t.Parallel()
	none := func(string) string { return "" }
	for _, cmd := range slices.Concat(deadcmd.New(none).Commands(), deadcmd.NewReplays(none).Commands()) {
		if cmd.Example == "" || cmd.Short == "" {
			t.Errorf("%s has no example", cmd.Name())
		}
		if !strings.Contains(cmd.Use, " ") && cmd.Args == nil {
			t.Errorf("%s takes any argument", cmd.Name())
		}
		for _, name := range []string{"database-url"} {
			if cmd.Flags().Lookup(name) == nil {
				t.Errorf("%s has no --%s", cmd.Name(), name)
			}
		}
	}
}
