package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom/internal/devtest"
)

// inOtherUnits matches the name of a field whose unit is not the second.
var inOtherUnits = regexp.MustCompile(`_(ns|us|ms|min|minutes|hours)$`)

// wantAnswer checks the JSON that a command printed: one object, in which more fields have room, and
// whose durations are in seconds.
func wantAnswer(t testing.TB, r result) {
	t.Helper()
	if r.out == "" && r.code != exitOK {
		return
	}
	var answer map[string]any
	if err := json.Unmarshal([]byte(r.out), &answer); err != nil {
		t.Errorf("%v, want one JSON object: %s", err, r.out)
	}
	var walk func(place string, v any)
	walk = func(place string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for name, value := range v {
				if inOtherUnits.MatchString(name) {
					t.Errorf("the JSON has %s.%s, want seconds", place, name)
				}
				walk(place+"."+name, value)
			}
		case []any:
			for _, value := range v {
				walk(place+"[]", value)
			}
		}
	}
	walk("", answer)
}

// Each command that has --json prints an object with it. The harness checks the answer of every run
// with --json; here each command runs once.
func TestEveryJSONAnswer(t *testing.T) {
	t.Parallel()
	c := newCheckout(t)
	c.begin(t, "o1", "o2", "o3", "o4")
	deadEvents(t, c.pool, 4)
	for _, sql := range []string{
		"UPDATE postroom.relay SET high = (SELECT max(seq) FROM postroom.outbox)", // all events are published
		"INSERT INTO postroom.receipt (handler, dedupe_key, step, revision, key) VALUES ('billing.charge', '/shop e1', 'charge', 0, 'k')",
		`INSERT INTO postroom.inbox (handler, dedupe_key) SELECT 'mail', 'm' || i FROM generate_series(1, 3) i`,
		`INSERT INTO postroom.held (id, handler, dedupe_key, next_at, class, logged_at, source, event_id, type, subject, content_type, data)
			OVERRIDING SYSTEM VALUE
			SELECT 100 + i, 'mail', 'm' || i, now() + interval '1 hour', 'timeout', now(), '/shop', 'm' || i, 'a', 'a', 'text/plain', '' FROM generate_series(1, 3) i`,
	} {
		if _, err := c.pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	env := inDatabase(c.pool)
	env["POSTROOM_NATS_URL"] = devtest.NATSURL(t)
	body, archive, stream := filepath.Join(t.TempDir(), "body"), filepath.Join(t.TempDir(), "archive"), nats.NewInbox()[len("_INBOX."):]
	if err := os.WriteFile(body, []byte(`{"amount": 8}`), 0o600); err != nil {
		t.Fatal(err)
	}
	ran := make(map[string]bool)
	for _, line := range []string{
		"version", "migrate up", "migrate status", "status", "doctor", "handlers", "keys", "tables", "audit",
		"handlers pause h --reason x", "handlers resume h", "relay pause --reason x", "relay resume",
		"events list", "events show e1", "events tree e1",
		"stream ensure " + stream + " --subjects " + stream + ".>", "stream check " + stream, "reconcile --stream " + stream,
		"held list", "held retry 101 --yes", "held reschedule 102 --in 2h --yes", "held cancel 103 --reason x --yes",
		"dead groups", "dead list", "dead list --count", "dead show 1", "dead resolve 1 --step charge --happened --result null", "dead edit 1 --data " + body,
		"dead replay 1 --dry-run --wait 10ms", "dead replay 1 --detach --yes", "replay list", "replay cancel 1",
		"dead replay 3 --detach --yes", "DELETE FROM postroom.held WHERE id = 3", "replay resume 2", // it has no event left
		"dead discard 1 2 --reason x --yes", "dead reopen 2 --yes", "dead purge --older-than 1ms --yes --output " + archive,
		"republish --all --dry-run", "republish --all --detach --yes", "republish list", "republish cancel 1",
		"saga list", "saga show checkout o1", "saga retry checkout o1 --revision 1 --reason x", "saga skip checkout o2 --revision 1 --reason x",
		"saga done checkout o3 --revision 1 --data {} --reason x", "saga compensate checkout o4 --revision 1 --reason x",
		"webhook add https://example.com --id b", "webhook endpoints", "webhook rotate b", "webhook disable b --reason x", "webhook enable b", "webhook test b",
		"webhook resend b --since 1h --type a --no-accounts", "webhook remove b --reason x",
	} {
		if strings.HasPrefix(line, "DELETE") {
			if _, err := c.pool.Exec(t.Context(), line); err != nil {
				t.Fatal(err)
			}
			continue
		}
		cmd, _, err := newRoot(func(string) string { return "" }).Find(strings.Fields(line))
		if err != nil {
			t.Fatal(err)
		}
		ran[cmd.CommandPath()] = true
		if r := postroom(t, env, append(strings.Fields(line), "--json")...); r.out == "" {
			t.Errorf("postroom %s --json: exit status %d, and no answer: %s", line, r.code, r.errors)
		}
	}
	for _, cmd := range commands(newRoot(func(string) string { return "" })) {
		if cmd.Flags().Lookup("json") != nil && !ran[cmd.CommandPath()] {
			t.Errorf("the test has no line for %s", cmd.CommandPath())
		}
	}
}
