package schema_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/devtest"
)

// promise is one part of the table in docs/howto/set-up-roles.md, and SQL that shows it. Each
// statement runs as the role, in a transaction that is rolled back. If the part is what the role
// cannot do, the server must refuse each of the statements because of the rights.
type promise struct {
	grant, part string
	sql         []string
}

// audited is an INSERT into audit that names columns.
func audited(columns, values string) string {
	return "INSERT INTO postroom.audit (actor, action, events" + columns + ") VALUES ('ann', 'pause', 0" + values + ")"
}

const (
	aHeld = `INSERT INTO postroom.held (handler, pos, dead_at, class, logged_at, source, event_id, type, subject, content_type, data)
		VALUES ('outbox', 1, now(), 'error', now(), '/shop', 'e1', 'a', 'a', 'application/json', '')`
	aHandled = "INSERT INTO postroom.inbox (handler, dedupe_key) VALUES ('h', 'k')"
	anEvent  = "INSERT INTO postroom.outbox (digest, source, event_id, type, subject, data, checked) VALUES ('', '/other', 'x', 'a', 'a', '', true)"
	anEnd    = "INSERT INTO postroom.webhook_endpoint (id, url, secrets) VALUES ('w2', 'https://a.example', '{s}')"
	aSaga    = `INSERT INTO postroom.saga (name, key, version, state, step, data, input, correlation_id, owner) VALUES ('s', 'k2', 1, 'running', 'a', '{}', '', 'c', gen_random_uuid())`
	aPause   = "INSERT INTO postroom.pause (handler, actor, reason) VALUES ('h', 'ann', 'x')"
)

var can = []promise{
	{"producer", "write events, of each source and not only its own", []string{anEvent, "SELECT postroom.write('/other', 'a', '{}')"}},
	{"producer", "find out whether an event with a source and id exists", []string{"SELECT digest FROM postroom.outbox WHERE source = '/shop' AND event_id = 'e1'"}},
	{"producer", "cancel a scheduled event", []string{"SELECT postroom.cancel('/shop', 'later')"}},
	{"relay", "read the log (the table `outbox`)", []string{"SELECT * FROM postroom.outbox"}},
	{"relay", "delete events of the log", []string{"DELETE FROM postroom.outbox"}},
	{"relay", "record what is published", []string{"UPDATE postroom.relay SET high = high"}},
	{"relay", "put events into `held`", []string{aHeld}},
	{"relay", "carry out republishes", []string{"UPDATE postroom.republish SET published = 1"}},
	{"relay", "count sagas", []string{"SELECT name, state, count(*) FROM postroom.saga GROUP BY name, state"}},
	{"inbox", "record which events were handled", []string{aHandled}},
	{"inbox", "put events into `held` and take them out, also [outgoing ones](../decisions/0023-held-is-one-table.md), so that it can keep an event from being published, or have the relay publish another", []string{aHeld, "DELETE FROM postroom.held", strings.NewReplacer("dead_at", "next_at", "1, now()", "99, now()").Replace(aHeld)}},
	{"inbox", "read the archive and discard events", []string{"SELECT * FROM postroom.archive", audited("", "")}},
	{"idempotency", "store and read answers", []string{"SELECT * FROM postroom.idempotency", "DELETE FROM postroom.idempotency"}},
	{"webhooks", "add, change and remove endpoints", []string{anEnd, "UPDATE postroom.webhook_endpoint SET url = 'https://b.example'", "DELETE FROM postroom.webhook_endpoint WHERE id = 'w2'"}},
	{"webhooks", "read their secrets", []string{"SELECT secrets FROM postroom.webhook_endpoint"}},
	{"sagas", "begin, change and remove instances", []string{aSaga, "UPDATE postroom.saga SET step = 'b'", "DELETE FROM postroom.saga"}},
	{"sagas", "read the decisions of operators", []string{"SELECT * FROM postroom.saga_decision"}},
	{"operator", "read all tables, except the secrets in them", []string{
		"SELECT * FROM postroom.outbox", "SELECT * FROM postroom.saga", "SELECT * FROM postroom.idempotency", "SELECT id, url FROM postroom.webhook_endpoint",
	}},
	{"operator", "replay, edit and discard dead events", []string{"UPDATE postroom.held SET data = ''", "DELETE FROM postroom.held", "UPDATE postroom.inbox SET at = now(), discarded = true", audited("", "")}},
	{"operator", "retry, reschedule and cancel held events", []string{"UPDATE postroom.held SET dead_at = NULL, next_at = now()"}},
	{"operator", "request republishes", []string{"INSERT INTO postroom.republish (actor, kind, lo, hi, events, rate, digest, passed) VALUES ('ann', 'range', 1, 1, 1, 1, 'y', 0)"}},
	{"operator", "pause handlers and relays", []string{aPause}},
	{"operator", "disable and enable webhook endpoints", []string{"UPDATE postroom.webhook_endpoint SET disabled_at = now(), disabled_reason = 'x'"}},
	{"operator", "decide how a saga goes on", []string{"SELECT postroom.decide_saga('s', 'k', 0, 'skip', '', NULL, 'ann', 'x', NULL)"}},
}

var cannot = []promise{
	{"producer", "read the content of an event", []string{
		"SELECT data FROM postroom.outbox", "SELECT headers FROM postroom.outbox", "SELECT * FROM postroom.outbox", "SELECT data FROM postroom.held", "TABLE postroom.archive",
		"SELECT o FROM postroom.outbox o", "SELECT count(*) FROM postroom.outbox WHERE data = ''", anEvent + " RETURNING data", anEvent + " ON CONFLICT (source, event_id) DO UPDATE SET data = ''", "SELECT * FROM postroom.refused",
	}},
	{"producer", "change or delete an event", []string{"UPDATE postroom.outbox SET data = ''", "DELETE FROM postroom.outbox", "TRUNCATE postroom.outbox", "DELETE FROM postroom.held"}},
	{"producer", "choose the seq, the transaction or the time of an event", []string{
		"INSERT INTO postroom.outbox (seq, digest, source, event_id, type, subject, data, checked) OVERRIDING SYSTEM VALUE VALUES (9, '', '/other', 'x', 'a', 'a', '', true)",
		"INSERT INTO postroom.outbox (xid, digest, source, event_id, type, subject, data, checked) VALUES ('9', '', '/other', 'x', 'a', 'a', '', true)",
		"INSERT INTO postroom.outbox (created_at, digest, source, event_id, type, subject, data, checked) VALUES (now(), '', '/other', 'x', 'a', 'a', '', true)",
		"SELECT setval('postroom.outbox_seq_seq', 1)", "SELECT nextval('postroom.outbox_seq_seq')",
	}},
	{"relay", "write or change an event of the log", []string{anEvent, "UPDATE postroom.outbox SET data = ''", "SELECT postroom.write('/other', 'a', '{}')", "TRUNCATE postroom.outbox"}},
	{"relay", "read the data of a saga", []string{"SELECT data FROM postroom.saga", "TABLE postroom.saga_step"}},
	{"relay", "read or write your own tables", []string{"TABLE orders", "DELETE FROM orders"}},
	{"inbox", "read or write the log", []string{"TABLE postroom.outbox", anEvent, "DELETE FROM postroom.outbox", "UPDATE postroom.relay SET high = 9", "SELECT postroom.cancel('/shop', 'later')"}},
	{"inbox", "read the audit, the replays, or what an event was before an operator edited it", []string{
		"SELECT actor FROM postroom.audit", "SELECT count(*) FROM postroom.audit WHERE reason <> ''", "SELECT a FROM postroom.audit a", "TABLE postroom.replay", "TABLE postroom.replay_event", "TABLE postroom.revision", "TABLE postroom.republish",
	}},
	{"idempotency", "read or write events", []string{"TABLE postroom.outbox", "TABLE postroom.held", anEvent, aHeld, aHandled}},
	{"idempotency", "record anything in the audit", []string{audited("", ""), "SELECT id FROM postroom.audit"}},
	{"webhooks", "read the audit", []string{"SELECT actor FROM postroom.audit", "SELECT a FROM postroom.audit a", "SELECT id FROM postroom.audit ORDER BY at"}},
	{"sagas", "decide about a saga in the place of an operator", []string{
		"SELECT postroom.decide_saga('s', 'k', 0, 'skip', '', NULL, 'ann', 'x', NULL)",
		"INSERT INTO postroom.saga_decision (name, key, revision, event_id, digest, actor, action) VALUES ('s', 'k', 0, 'e', '', 'ann', 'skip')",
		"UPDATE postroom.saga_decision SET event_id = 'e'",
	}},
	{"operator", "write to the log or delete from it", []string{anEvent, "SELECT postroom.write('/other', 'a', '{}')", "UPDATE postroom.outbox SET data = ''", "DELETE FROM postroom.outbox"}},
	{"operator", "change what is published", []string{"UPDATE postroom.relay SET high = 9", "UPDATE postroom.relay SET floor = 9", "DELETE FROM postroom.relay"}},
	{"operator", "change or delete rows of the table `audit`", []string{"UPDATE postroom.audit SET actor = 'bob'", "DELETE FROM postroom.audit", "TRUNCATE postroom.audit"}},
	{"operator", "choose the role, the time or the id of a row of `audit`", []string{audited(", role", ", 'ann'"), audited(", at", ", now()"), "INSERT INTO postroom.audit (id, actor, action, events) OVERRIDING SYSTEM VALUE VALUES (9, 'ann', 'pause', 0)", "SELECT setval('postroom.audit_id_seq', 1)"}},
	{"operator", "remove an endpoint of webhooks", []string{"DELETE FROM postroom.webhook_endpoint", "TRUNCATE postroom.webhook_endpoint"}},
	{"operator", "read secrets of webhooks", []string{"SELECT secrets FROM postroom.webhook_endpoint", "TABLE postroom.webhook_endpoint", "UPDATE postroom.webhook_endpoint SET secrets = '{x}'"}},
	{"operator", "read or write other tables in the schema", []string{"TABLE postroom.salaries", "DELETE FROM postroom.salaries"}},
}

// everyRoleIsRefused are attempts to create something in the schema, and to change an event of the log.
var everyRoleIsRefused = []string{
	"CREATE TABLE postroom.mine (id int)", "CREATE VIEW postroom.mine AS SELECT 1", "CREATE SEQUENCE postroom.mine", "CREATE TYPE postroom.mine AS (id int)", "CREATE DOMAIN postroom.mine AS text",
	"CREATE FUNCTION postroom.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'", "CREATE OPERATOR postroom.=== (LEFTARG = text, RIGHTARG = text, FUNCTION = texteq)",
	"CREATE TRIGGER mine BEFORE INSERT ON postroom.outbox FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()", "CREATE RULE mine AS ON INSERT TO postroom.outbox DO INSTEAD NOTHING",
	"CREATE INDEX mine ON postroom.outbox (data)", "ALTER TABLE postroom.audit ALTER role SET DEFAULT 'ann'", "ALTER SEQUENCE postroom.audit_id_seq RESTART", "COMMENT ON TABLE postroom.outbox IS 'mine'",
	"UPDATE postroom.outbox SET data = ''", "TRUNCATE postroom.outbox",
}

// The page says that DROP OWNED revokes all rights of a role.
func TestDropOwnedRevokesAllRights(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	_, names := staff(t, pool)
	for grant, role := range names {
		exec(t, pool, "DROP OWNED BY "+role)
		left := one[int](t, pool, `SELECT count(*)::int FROM (
			SELECT relacl FROM pg_class WHERE relnamespace = 'postroom'::regnamespace UNION ALL SELECT proacl FROM pg_proc WHERE pronamespace = 'postroom'::regnamespace
			UNION ALL SELECT nspacl FROM pg_namespace UNION ALL SELECT attacl FROM pg_attribute) a (acl) CROSS JOIN aclexplode(acl) WHERE grantee = '`+role+"'::regrole")
		if left > 0 {
			t.Errorf("%s has %d rights left", grant, left)
		}
	}
}

// The table of the page says what each role can do and cannot do. Each part of it is tried.
func TestRolesAreAsThePageSays(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	for _, sql := range []string{
		"CREATE TABLE orders (id int)", "CREATE TABLE postroom.salaries (name text)",
		"SELECT postroom.write('/shop', 'a', '{}', id => 'e1'), postroom.write('/shop', 'a', '{}', id => 'later', not_before => now() + interval '1 h')",
		aSaga, "UPDATE postroom.saga SET key = 'k'", strings.Replace(anEnd, "w2", "w1", 1),
	} {
		exec(t, pool, sql)
	}
	as, _ := staff(t, pool)
	page, err := os.ReadFile("../docs/howto/set-up-roles.md")
	if err != nil {
		t.Fatal(err)
	}
	for column, promises := range map[int][]promise{3: can, 4: cannot} {
		tried := make(map[string]bool) // grant and part
		for _, p := range promises {
			tried[p.grant+": "+p.part] = true
			for _, sql := range p.sql {
				err := attempt(t, as[p.grant], sql)
				if denied := err != nil && strings.Contains(err.Error(), "permission denied"); denied != (column == 4) || err != nil && !denied {
					t.Errorf("%s, %q: %s: %v", p.grant, p.part, sql, err)
				}
			}
		}
		for grant := range as {
			for _, sql := range everyRoleIsRefused {
				if err := attempt(t, as[grant], sql); err == nil || !strings.Contains(err.Error(), "permission denied") && !strings.Contains(err.Error(), "must be owner") {
					t.Errorf("%s: %s: %v", grant, sql, err)
				}
			}
		}
		var said []string
		for line := range strings.Lines(string(page)) {
			cells := strings.Split(line, " | ")
			if len(cells) < 4 || !strings.Contains(cells[1], "`grant_") {
				continue
			}
			_, grant, _ := strings.Cut(cells[1], "`grant_")
			grant, _, _ = strings.Cut(grant, "`")
			for part := range strings.SplitSeq(strings.TrimRight(cells[column-1], " |\n"), "; ") {
				if part != "" {
					said = append(said, grant+": "+part)
				}
			}
		}
		for _, part := range said {
			if !tried[part] {
				t.Errorf("the page says %q, which this test does not try", part)
			}
		}
		for part := range tried {
			if !slices.Contains(said, part) {
				t.Errorf("the page does not say %q", part)
			}
		}
	}
}

// attempt runs a statement in a transaction that it rolls back.
func attempt(t *testing.T, pool *pgxpool.Pool, sql string) error {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = tx.Exec(t.Context(), sql)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	return err
}
