package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/internal/devtest"
)

// finding is a finding in the JSON output.
type finding struct{ Check, Severity, Subject, Text, Remedy string }

// examine runs the doctor, and returns its exit status and what it found.
func (p *testSetup) examine(args ...string) (code int, findings []finding) {
	p.Helper()
	r := postroom(p, p.env, append([]string{"doctor", "--json"}, args...)...)
	var report struct{ Findings []finding }
	if err := json.Unmarshal([]byte(r.out), &report); err != nil {
		p.Fatalf("%v\nstdout: %s\nstderr: %s", err, r.out, r.errors)
	}
	return r.code, report.Findings
}

func selected(findings []finding, severities ...string) []finding {
	return slices.DeleteFunc(slices.Clone(findings), func(f finding) bool { return !slices.Contains(severities, f.Severity) })
}

func TestDoctorOfAHealthySetUp(t *testing.T) {
	t.Parallel()
	h := newSetupServer(t)
	p := h.admit(t)
	producer, _ := p.role("producer")
	p.exec("SELECT postroom.grant_producer('" + producer + "')")

	code, findings := p.examine("--producer-role", producer, "--stream", "SHOP")
	if bad := selected(findings, "fault", "warning", "skipped"); code != exitOK || len(bad) > 0 {
		t.Errorf("exit status %d, found %+v", code, bad)
	}
	for _, f := range findings {
		if f.Check == "" || f.Text == "" {
			t.Errorf("a check says nothing: %+v", f)
		}
	}
	text := postroom(t, p.env, "doctor", "--producer-role", producer).want(t, exitOK).out
	if text != output.Plural(len(findings), "check")+" passed\n" {
		t.Errorf("doctor says %q", text)
	}
	postroom(t, p.env, "doctor", "--verbose").want(t, exitOK).
		says(t, "OK      relay: ", "OK      streams SHOP: its settings drop no event", "How often the servers sync to disk (sync_interval) was not checked", "OK      lost-tail SHOP: the stream has the newest published events (3)\n")
	postroom(t, p.env, "stream", "check").want(t, exitOK).
		says(t, "HANDLER   STREAM   ACK FLOOR   FIRST   LAST   VERDICT\n", "billing   SHOP     3           1       3      intact\n", "STREAM   COMPARED   MISSING\nSHOP     3          0\n")
}

// brokenSetups are faults. Each is planted in a set-up that is healthy otherwise.
var brokenSetups = []struct {
	name  string
	plant func(p *testSetup) (args []string) // returns more arguments of the command
	finds []string                           // every fault and warning, in the form of namesOf
	says  []string                           // parts of the text or of the remedy
}{
	{"tables of an older version", sql("DELETE FROM postroom.migration WHERE version > 4"), []string{"schema-version:postroom"}, []string{"of version 4 ", "postroom migrate up"}},
	{"tables of another schema", with("--schema", "elsewhere"), []string{"schema-version:elsewhere"}, []string{"no tables in the schema elsewhere", "postroom migrate up --schema elsewhere"}},
	{"tables of a newer version", sql("INSERT INTO postroom.migration VALUES (1000, 'later', 1000)"), []string{"schema-version:postroom"}, []string{"too new", "use a newer postroom"}},
	{"commits that a crash takes away", sql("ALTER DATABASE %s SET synchronous_commit = off"), []string{"durability:"}, []string{"synchronous_commit is off", "RESET synchronous_commit"}},
	{"the same for a role that writes", func(p *testSetup) []string {
		role, _ := p.role("careless")
		p.exec("SELECT postroom.grant_producer('" + role + "'); ALTER ROLE " + role + " SET synchronous_commit = off")
		return nil
	}, []string{"durability:role careless_N"}, []string{"synchronous_commit is off for role careless", "RESET synchronous_commit"}},
	{"a server without fsync", serverSetting("fsync = off"), []string{"durability:fsync"}, []string{"fsync is off", "ALTER SYSTEM SET fsync = on"}},
	{"a server with torn pages", serverSetting("full_page_writes = off"), []string{"durability:full_page_writes"}, []string{"half-written pages", "ALTER SYSTEM SET full_page_writes = on"}},
	{"a server without autovacuum", serverSetting("autovacuum = off"), []string{"autovacuum:autovacuum"}, []string{"autovacuum is off", "ALTER SYSTEM SET autovacuum = on"}},
	{"a table without autovacuum", sql("ALTER TABLE postroom.outbox SET (autovacuum_enabled = off)"), []string{"autovacuum:outbox"}, []string{"ALTER TABLE postroom.outbox RESET (autovacuum_enabled)"}},
	{"an isolation level that an ordered handler refuses", sql("ALTER DATABASE %s SET default_transaction_isolation = 'repeatable read'"), []string{"isolation:"}, []string{"repeatable read", "SET default_transaction_isolation = 'read committed'"}},
	{"a timeout that breaks handlers", sql("ALTER DATABASE %s SET statement_timeout = '900ms'"), []string{"timeouts: (warning)"}, []string{"statement_timeout of 900ms", "SET statement_timeout = '5s' or more"}},
	{"rights for everybody", sql("GRANT INSERT ON postroom.held TO PUBLIC; GRANT SELECT (data) ON postroom.outbox TO PUBLIC"), []string{"public-rights:held", "public-rights:outbox.data (warning)"}, []string{"REVOKE INSERT ON postroom.held FROM PUBLIC"}},
	{"functions for everybody", sql("GRANT EXECUTE ON FUNCTION postroom.check_unchecked, postroom.clipped TO PUBLIC; GRANT USAGE ON DOMAIN postroom.handler TO PUBLIC"), []string{"public-rights:check_unchecked", "public-rights:clipped (warning)", "public-rights:handler (warning)"}, []string{"REVOKE EXECUTE ON FUNCTION postroom.check_unchecked FROM PUBLIC", "REVOKE USAGE ON TYPE postroom.handler FROM PUBLIC"}},
	{"a producer who may execute a trigger function", func(p *testSetup) []string {
		role, _ := p.role("crafty")
		p.exec("SELECT postroom.grant_producer('" + role + "'); GRANT EXECUTE ON FUNCTION postroom.check_unchecked TO " + role)
		return []string{"--producer-role", role}
	}, []string{"producer-rights:crafty_N"}, []string{"EXECUTE ON FUNCTION check_unchecked", "REVOKE ALL ON ALL FUNCTIONS"}},
	{"an inbox that may not execute a function", func(p *testSetup) []string {
		role, url := p.role("deaf")
		p.exec("SELECT postroom.grant_inbox('" + role + "'); GRANT pg_read_all_stats TO " + role +
			"; GRANT SELECT ON ALL TABLES IN SCHEMA postroom TO " + role + "; GRANT SELECT ON ALL SEQUENCES IN SCHEMA postroom TO " + role +
			"; GRANT EXECUTE ON FUNCTION postroom.clipped, postroom.clamped TO " + role + "; REVOKE EXECUTE ON FUNCTION postroom.enter_key FROM " + role)
		return []string{"--database-url", url}
	}, []string{"rights:inbox"}, []string{"lacks EXECUTE ON postroom.enter_key", "SELECT postroom.grant_inbox("}},
	{"a producer with rights of more", func(p *testSetup) []string {
		role, _ := p.role("mighty")
		p.exec("SELECT postroom.grant_producer('" + role + "'); GRANT INSERT, UPDATE, SELECT ON postroom.outbox TO " + role)
		return []string{"--producer-role", role}
	}, []string{"producer-rights:mighty_N", "producer-rights:mighty_N (warning)"}, []string{"INSERT (seq)", "UPDATE ON outbox", "REVOKE ALL ON ALL TABLES", "can read the events"}},
	{"a producer without rights", func(p *testSetup) []string {
		role, _ := p.role("weak")
		return []string{"--producer-role", role, "--producer-role", "no_such_role"}
	}, []string{"producer-rights:no_such_role", "producer-rights:weak_N"}, []string{"it cannot write events", "SELECT postroom.grant_producer('weak", "there is no role no_such_role"}},
	{"a role that lacks a right", func(p *testSetup) []string {
		role, url := p.role("relay")
		p.exec("GRANT USAGE ON SCHEMA postroom TO " + role + "; GRANT pg_read_all_stats TO " + role +
			"; GRANT SELECT ON ALL TABLES IN SCHEMA postroom TO " + role + "; GRANT SELECT, UPDATE ON postroom.relay TO " + role +
			"; GRANT INSERT, UPDATE, DELETE ON postroom.held TO " + role + "; GRANT INSERT, UPDATE ON postroom.republish TO " + role + "; GRANT INSERT ON postroom.audit TO " + role + "; GRANT INSERT, UPDATE, DELETE ON postroom.relay_checkpoint, postroom.refused TO " + role + "; GRANT SELECT ON ALL SEQUENCES IN SCHEMA postroom TO " + role +
			"; GRANT EXECUTE ON FUNCTION postroom.event_lock, postroom.clipped, postroom.clamped, postroom.header_bytes TO " + role)
		return []string{"--database-url", url}
	}, []string{"rights:relay"}, []string{"lacks DELETE ON postroom.outbox", "SELECT postroom.grant_relay("}},
	{"a role of two parts that lacks a right for one", func(p *testSetup) []string {
		role, url := p.role("service")
		p.exec("SELECT postroom.grant_inbox('" + role + "'); SELECT postroom.grant_idempotency('" + role + "'); GRANT pg_read_all_stats TO " + role +
			"; GRANT SELECT ON ALL TABLES IN SCHEMA postroom TO " + role + "; GRANT SELECT ON ALL SEQUENCES IN SCHEMA postroom TO " + role +
			"; REVOKE DELETE ON postroom.idempotency FROM " + role)
		return []string{"--database-url", url}
	}, []string{"rights:idempotency"}, []string{"some of the rights of a guard of requests, and lacks DELETE ON postroom.idempotency", "SELECT postroom.grant_idempotency("}},
	{"a handler that asks for a misspelt type", sql("UPDATE postroom.subscription SET types = '{order.plcaed}' WHERE handler = 'billing'"), []string{"types:billing (warning)"}, []string{"did you mean order.placed?", "correct the handler's Types"}},
	{"a sequence that keeps numbers", sql("ALTER SEQUENCE postroom.outbox_seq_seq CACHE 20"), []string{"sequence:outbox"}, []string{"CACHE 20", "ALTER SEQUENCE postroom.outbox_seq_seq CACHE 1"}},
	{"a sequence that is behind", sql("SELECT setval('postroom.outbox_seq_seq', 1)"), []string{"sequence:outbox"}, []string{"is at 1, and events up to 3", "postroom.raise_sequences()"}},
	{"no relay", func(p *testSetup) []string { p.stopRelay(); return nil }, []string{"relay: (warning)"}, []string{"no relay leads", "start 'postroom relay'"}},
	{"no relay, and events", func(p *testSetup) []string {
		p.stopRelay()
		p.write(1, "order.placed")
		return nil
	}, []string{"relay:"}, []string{"no relay leads, so nothing is published", "and events wait"}},
	{"no relay, and events that it had read", func(p *testSetup) []string {
		p.stopRelay()
		p.write(1, "order.placed")
		p.exec("UPDATE postroom.relay SET high = 4, pending = '{[4,4]}', snap = pg_current_snapshot()") // the event is not in the stream, and is not lost
		return nil
	}, []string{"relay:"}, []string{"no relay leads, so nothing is published", "and events wait"}},
	{"a restored copy", sql("UPDATE postroom.relay SET cluster = 1"), []string{"relay:restored (warning)"}, []string{"comes from another cluster", "UPDATE postroom.instance SET id"}},
	{"a log of a server that is ahead", func(p *testSetup) []string {
		p.stopRelay()
		p.exec("UPDATE postroom.relay SET timeline = 9, snap = '4000000000:4000000000:'")
		return nil
	}, []string{"relay: (warning)", "relay:moved (warning)"}, []string{"a relay last led on timeline 9, and this server has timeline 1", "start a relay, which then takes the log over", "UPDATE postroom.instance SET id"}},
	{
		"rows of a server that is ahead", sql("ALTER TABLE postroom.outbox DISABLE TRIGGER ALL; UPDATE postroom.outbox SET xid = '4000000000'; ALTER TABLE postroom.outbox ENABLE TRIGGER ALL"),
		[]string{"relay:moved"},
		[]string{"transaction ids that this server has not reached", "restart the relay that leads"},
	},
	{"processes that do not agree", sql("INSERT INTO postroom.node (id, name, handlers, dedupe_windows, max_event_ages, longest_window) VALUES (gen_random_uuid(), 'zz', '{billing,other}', '{31 days,1 day}', '{29 days,20 hours}', '31 days')"), []string{"dedupe-window:billing (warning)"}, []string{"zz keeps its inbox rows for 31.0 days, and ", " for 30.0 days: the longer time counts", "give all processes of this handler the same DedupeWindow"}},
	{"a process that trusts what it removes", sql("UPDATE postroom.node SET max_event_ages = dedupe_windows"), []string{"dedupe-window:"}, []string{"relies on inbox rows of billing for 30.0 days and keeps them for 30.0 days"}},
	{"events of a handler without a process", sql(seenLongAgo + heldRow("gone", "order.placed", "now() - interval '1 h'", "NULL")), []string{"unknown-handler:gone"}, []string{"1 event is held for it", "start a process that runs it"}},
	{"no process", func(p *testSetup) []string { p.stopInbox(); return nil }, []string{"unknown-handler:billing (warning)", "unknown-handler:ledger (warning)"}, []string{"start a process that runs it", "DELETE FROM postroom.subscription WHERE handler = 'billing', and nats consumer rm SHOP billing-"}},
	{"a handler that has decided nothing", sql(seenLongAgo + "INSERT INTO postroom.subscription (handler, stream, stream_created, subjects) SELECT 'fresh', stream, stream_created, subjects FROM postroom.subscription WHERE handler = 'billing'"), []string{"consumers:fresh", "unknown-handler:fresh (warning)"}, []string{"its events wait in the stream SHOP", "DELETE FROM postroom.subscription WHERE handler = 'fresh'"}},
	{"events of a type that no process takes", sql(heldRow("billing", "order.unheard", "now() - interval '10 min'", "NULL")), []string{"overdue-events:billing (warning)"}, []string{"events held for billing have been due for 10m", "the first has the type order.unheard", "start a process that knows the type"}},
	{"dead events that stay for long", sql(heldRow("billing", "order.placed", "NULL", "now() - interval '40 days'")), []string{"dead-events:held (warning)"}, []string{"dead for longer than the inbox keeps its rows (30.0 days), the oldest for 40.0 days", "replay or discard them"}},
	{"a replay that is idle", sql("INSERT INTO postroom.replay (actor, filter, attempts, canary, stop_at, as_new, phase, items, stepped_at) VALUES ('ann', '{}', 1, 0, 1, false, 'rest', 7, now() - interval '3 min')"), []string{"replay: (warning)"}, []string{"replay 1 has been idle for 3m", "postroom replay cancel 1"}},
	{"no stream", func(p *testSetup) []string {
		if err := p.js.DeleteStream(p.Context(), "SHOP"); err != nil {
			p.Fatal(err)
		}
		return []string{"--ignore", "handlers"} // the reader of ledger gives up its lease sooner or later
	}, []string{"streams:SHOP", "subjects:outbox"}, []string{"is read by handler billing, and does not exist", "postroom stream ensure SHOP", "no stream stores events of order.placed"}},
	{"a stream that drops old events", func(p *testSetup) []string {
		p.changeStream(func(cfg *jetstream.StreamConfig) { cfg.Discard, cfg.MaxMsgs = jetstream.DiscardOld, 1000 })
		return nil
	}, []string{"streams:SHOP"}, []string{"drops old events to take new ones, at 1000 messages", "set its discard policy to new", "--accept discard-old"}},
	{"a stream that is nearly full", func(p *testSetup) []string {
		p.changeStream(func(cfg *jetstream.StreamConfig) { cfg.MaxMsgs = 3 })
		return nil
	}, []string{"streams:SHOP (warning)"}, []string{"it has 3 of 3 messages", "raise its limit"}},
	{"a stream that keeps too little", func(p *testSetup) []string {
		p.changeStream(func(cfg *jetstream.StreamConfig) { cfg.MaxAge = time.Hour })
		return nil
	}, []string{"retention:SHOP (warning)"}, []string{"keeps messages for 1h0m0s, and the log keeps events for 3.0 days", "--max-age 72h"}},
	{"a subject without a stream", func(p *testSetup) []string { p.write(1, "payment.made"); return nil }, []string{"subjects:outbox"}, []string{"no stream stores events of payment.made", "postroom stream ensure NAME --subjects payment.made"}},
	{"a handler that no event reaches", sql("UPDATE postroom.subscription SET subjects = '{refund.asked}' WHERE handler = 'ledger'"), []string{"subjects:ledger (warning)"}, []string{"the stream SHOP does not store refund.asked"}},
	{"a consumer that drops events", func(p *testSetup) []string {
		p.changeConsumer(func(cfg *jetstream.ConsumerConfig) { cfg.MaxDeliver = 3 })
		return nil
	}, []string{"consumers:billing"}, []string{"max_deliver is 3, want -1", "nats consumer rm SHOP billing-"}},
	{"a consumer of another database", func(p *testSetup) []string {
		p.changeConsumer(func(cfg *jetstream.ConsumerConfig) { cfg.Metadata["postroom-instance"] = "other" })
		return nil
	}, []string{"consumers:billing"}, []string{`made for instance "other"`, "another identity"}},
	{"no consumer", func(p *testSetup) []string {
		p.stopInbox()
		if err := p.js.DeleteConsumer(p.Context(), "SHOP", p.durable().Name); err != nil {
			p.Fatal(err)
		}
		return nil
	}, []string{"consumers:billing", "unknown-handler:billing (warning)", "unknown-handler:ledger (warning)"}, []string{"is not on the stream SHOP", "start a process of the handler, or restart it"}},
	{"a consumer of no handler", func(p *testSetup) []string {
		cfg := p.durable().Config
		cfg.Name, cfg.Durable, cfg.Metadata["postroom-handler"] = "old-1", "old-1", "old"
		if _, err := p.js.CreateConsumer(p.Context(), "SHOP", cfg); err != nil {
			p.Fatal(err)
		}
		return nil
	}, []string{"stray-consumers:old (warning)"}, []string{"3 messages wait for it", "nats consumer rm SHOP old-1"}},
	{"a stream that was made again", func(p *testSetup) []string {
		p.stopInbox()
		p.blind()
		if err := p.js.DeleteStream(p.Context(), "SHOP"); err != nil {
			p.Fatal(err)
		}
		p.ensureStream()
		return nil
	}, []string{"consumers:billing", "losses:billing", "losses:ledger", "lost-tail:SHOP", "unknown-handler:billing (warning)", "unknown-handler:ledger (warning)"}, []string{"the handler had read an earlier stream", "3 of the 3 newest published events are not in the stream", "postroom reconcile --stream SHOP"}},
	{"messages that were dropped unread", func(p *testSetup) []string {
		p.stopInbox()
		p.write(2, "order.placed")
		devtest.Eventually(p, 30*time.Second, "the events in the stream", func() bool { return p.streamInfo().State.LastSeq == 5 })
		p.changeStream(func(cfg *jetstream.StreamConfig) {
			cfg.MaxAge, cfg.Duplicates = 100*time.Millisecond, 100*time.Millisecond
		})
		devtest.Eventually(p, 30*time.Second, "an empty stream", func() bool { return p.streamInfo().State.Msgs == 0 })
		p.changeStream(func(cfg *jetstream.StreamConfig) { cfg.MaxAge, cfg.Duplicates = 1000*time.Hour, time.Minute })
		return []string{"--ignore", "lost-tail"}
	}, []string{"losses:billing", "losses:ledger", "unknown-handler:billing (warning)", "unknown-handler:ledger (warning)"}, []string{"decided every event up to 3, and the stream begins at 6: it may have dropped up to 2 messages", "a longer max_age"}},
	{"a broker that lost what it acknowledged", func(p *testSetup) []string {
		saved := p.save()
		p.work(2)
		p.stopInbox()
		p.exec(notedBefore)
		p.forget(saved)
		return nil
	}, []string{"losses:ledger", "lost-tail:SHOP", "unknown-handler:billing (warning)", "unknown-handler:ledger (warning)"}, []string{
		"every event up to 5 is decided, and the stream ends at 3", "2 of the 5 newest published events are not in the stream",
		"seq 5: /shop e5, seq 4: /shop e4", "postroom reconcile --stream SHOP",
	}},
	{"a broker that lost messages and took others", func(p *testSetup) []string {
		saved := p.save()
		p.work(2)
		p.stopInbox()
		p.exec(notedBefore)
		p.forget(saved)
		p.write(3, "order.placed")
		devtest.Eventually(p, 30*time.Second, "more in the stream", func() bool { return p.streamInfo().State.LastSeq == 6 })
		devtest.Eventually(p, 30*time.Second, "all to be recorded", func() bool { return p.number("SELECT high FROM postroom.relay") == 8 })
		return nil
	}, []string{"losses:ledger", "lost-tail:SHOP", "unknown-handler:billing (warning)", "unknown-handler:ledger (warning)"}, []string{"the message at 5 is not the one that was decided there", "2 of the 8 newest"}},
	{"a broker that is away", with("--nats-url", "nats://127.0.0.1:1"), []string{"connection:"}, []string{"is it running", "start the broker"}},
}

// sql plants a fault with SQL statements, in which %s is the name of the database.
func sql(statements string) func(p *testSetup) []string {
	return func(p *testSetup) []string {
		p.Helper()
		p.exec(strings.ReplaceAll(statements, "%s", p.pool.Config().ConnConfig.Database))
		return nil
	}
}

func with(args ...string) func(p *testSetup) []string {
	return func(*testSetup) []string { return args }
}

// serverSetting changes the server for one test.
func serverSetting(setting string) func(p *testSetup) []string {
	return func(p *testSetup) []string {
		p.Helper()
		name, _, _ := strings.Cut(setting, " ")
		set := func(statement string, value func(now string) bool) {
			p.exec(statement)
			p.exec("SELECT pg_reload_conf()")
			devtest.Eventually(p, 10*time.Second, "the setting to be read", func() bool {
				var now string
				if err := p.pool.QueryRow(p.Context(), "SELECT reset_val FROM pg_settings WHERE name = $1", name).Scan(&now); err != nil {
					p.Fatal(err)
				}
				return value(now)
			})
		}
		set("ALTER SYSTEM SET "+setting, func(now string) bool { return now == "off" })
		p.Cleanup(func() {
			if _, err := p.setupServer.reset(devtest.Patience(p, 10*time.Second), name); err != nil {
				p.Error(err)
			}
		})
		return nil
	}
}

// notedBefore sets the position that billing recorded to message 3. Billing records its position
// each minute, and when it begins to read again. So without notedBefore, the recorded position
// would depend on timing.
const notedBefore = "UPDATE postroom.subscription SET floor = 3 WHERE handler = 'billing'"

// seenLongAgo inserts the row of a process that ended without removing it.
const seenLongAgo = `INSERT INTO postroom.node (id, name, handlers, dedupe_windows, max_event_ages, longest_window, seen_at)
	VALUES (gen_random_uuid(), 'was', '{gone,fresh}', '{30 days,30 days}', '{29 days,29 days}', '30 days', now() - interval '2 min');`

func heldRow(handler, eventType, nextAt, deadAt string) string {
	return fmt.Sprintf(`INSERT INTO postroom.inbox (handler, dedupe_key) VALUES ('%s', '/shop x');
		INSERT INTO postroom.held (handler, dedupe_key, next_at, dead_at, class, logged_at, source, event_id, type, subject, content_type, data)
		VALUES ('%s', '/shop x', %s, %s, 'error', now(), '/shop', 'x', '%s', '%s', 'text/plain', '')`, handler, handler, nextAt, deadAt, eventType, eventType)
}

func TestDoctorNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	h := newSetupServer(t)
	for _, tt := range brokenSetups {
		t.Run(tt.name, func(t *testing.T) {
			p := h.admit(t)
			args := tt.plant(p)
			code, findings := p.examine(args...)
			bad := selected(findings, "fault", "warning")
			if code != exitTodo {
				t.Errorf("exit status %d, want %d", code, exitTodo)
			}
			var wants []string
			for _, want := range tt.finds {
				wants = append(wants, strings.Replace(want, "_N", fmt.Sprintf("_%d", h.count), 1))
			}
			got := namesOf(bad)
			if len(got) == 1 && len(wants) == 1 && wants[0] == "dedupe-window:" && strings.HasPrefix(got[0], wants[0]) { // the rest is the name of a process
				got = wants
			}
			if !slices.Equal(got, wants) {
				t.Errorf("found %q, want %q", got, wants)
			}
			var text strings.Builder
			for _, f := range bad {
				if f.Remedy == "" {
					t.Errorf("%s does not say what to do", f.Check)
				}
				text.WriteString(f.Text + "\n" + f.Remedy + "\n")
			}
			for _, want := range tt.says {
				if !strings.Contains(text.String(), want) {
					t.Errorf("want %q in\n%s", want, text.String())
				}
			}
		})
	}
}

// A fault that keeps the doctor from many checks is said once.
func TestDoctorSaysAReasonOnce(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	_, role := devtest.RolePool(t, pool)
	if _, err := pool.Exec(t.Context(), "SELECT postroom.grant_relay($1)", role); err != nil {
		t.Fatal(err)
	}
	nc := devtest.NATSURL(t)
	for _, tt := range []struct {
		database string
		once     []string
	}{
		{asRole(pool, role), []string{"may not read all that the check needs", "grant_operator"}},
		{databaseURL(devtest.EmptyPool(t)), []string{"not checked: there are no tables", "postroom migrate up"}},
	} {
		r := postroom(t, environment{"DATABASE_URL": tt.database, "NATS_URL": nc}, "doctor")
		for _, text := range tt.once {
			if n := strings.Count(r.out, text); n != 1 {
				t.Errorf("%d times %q:\n%s", n, text, r.out)
			}
		}
	}
}

// Without a broker, the checks of the broker are skipped and named, and all other checks run.
func TestDoctorWithoutABroker(t *testing.T) {
	t.Parallel()
	p := newSetupServer(t).admit(t)
	delete(p.env, "POSTROOM_NATS_URL")
	code, findings := p.examine()
	if bad := selected(findings, "fault", "warning"); code != exitOK || len(bad) > 0 {
		t.Errorf("exit status %d, found %+v", code, bad)
	}
	got := namesOf(selected(findings, "skipped"))
	want := []string{
		"broker-clock:", "broker:", "consumers:", "losses:", "lost-tail:", "producer-rights:", "retention:", "stray-consumers:", "streams:", "subjects:", "types:",
	}
	if !slices.Equal(got, want) {
		t.Errorf("skipped %q, want %q", got, want)
	}
	postroom(t, p.env, "doctor").want(t, exitOK).
		says(t, "SKIPPED broker, broker-clock, streams, subjects, types, consumers, stray-consumers, losses, lost-tail, retention: not checked: there is no connection to the broker\n        to do: give the address of the broker: --nats-url\n", "passed, 11 skipped\n")
	p.stopRelay()
	postroom(t, p.env, "doctor").want(t, exitTodo).says(t, "WARNING relay: no relay leads", "\n        to do: start 'postroom relay'", "0 faults and 1 warning; see above")
	postroom(t, p.env, "doctor", "--ignore", "relay").want(t, exitOK)
}

func TestDoctorErrors(t *testing.T) {
	t.Parallel()
	env := inDatabase(devtest.Pool(t))
	tests := []struct {
		name string
		env  environment
		args []string
		want int
		says string
	}{
		{"no database", nil, []string{"doctor"}, exitUsage, "POSTROOM_DATABASE_URL"},
		{"no server", nil, []string{"doctor", "--database-url", "postgres://127.0.0.1:1/shop"}, exitFailed, "is the server running"},
		{"no stream's name", env, []string{"doctor", "--stream", "A.B"}, exitUsage, "not the name of a stream"},
		{"no retention", env, []string{"doctor", "--retention", "0s"}, exitUsage, "--retention"},
		{"no NATS URL", env, []string{"doctor", "--nats-url", "nats://"}, exitUsage, "is not a NATS URL"},
		{"stream check without a broker", env, []string{"stream", "check"}, exitUsage, "POSTROOM_NATS_URL"},
		{"stream check of no stream's name", env, []string{"stream", "check", "A.B"}, exitUsage, "not the name of a stream"},
		{"stream check, no server", env, []string{"stream", "check", "--nats-url", "nats://127.0.0.1:1"}, exitFailed, "is it running"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			postroom(t, tt.env, tt.args...).want(t, tt.want).says(t, tt.says)
		})
	}
}

// stream check reports what the broker lost, and the command that it recommends publishes it again.
func TestStreamCheckAfterALoss(t *testing.T) {
	t.Parallel()
	p := newSetupServer(t).admit(t)
	saved := p.save()
	p.work(2)
	p.stopInbox()
	p.forget(saved)
	postroom(t, p.env, "stream", "check").want(t, exitTodo).says(t,
		"ledger    SHOP     5           1       3      lost_tail\n", "SHOP     5          2\n", "SHOP: lacks seq 5 of the log: /shop e5 on order.placed\n", "the broker lost messages")
	var losses struct {
		Streams []struct{ Missing []struct{ Seq int } }
	}
	r := postroom(t, p.env, "stream", "check", "SHOP", "--json").want(t, exitTodo)
	if err := json.Unmarshal([]byte(r.out), &losses); err != nil || len(losses.Streams) != 1 || len(losses.Streams[0].Missing) != 2 {
		t.Fatalf("%v: %s", err, r.out)
	}

	_, findings := p.examine()
	i := slices.IndexFunc(findings, func(f finding) bool { return f.Check == "lost-tail" })
	command, _, ok := strings.Cut(findings[i].Remedy, " looks")
	if !ok || !strings.HasPrefix(command, "postroom ") {
		t.Fatalf("no command in %q", findings[i].Remedy)
	}
	postroom(t, p.env, append(strings.Fields(command)[1:], "--repair", "--yes")...).want(t, exitOK)
	devtest.Eventually(t, 30*time.Second, "the events in the stream again", func() bool { return p.streamInfo().State.LastSeq == 5 })
	p.startInbox()
	devtest.Eventually(t, 30*time.Second, "nothing to be lost", func() bool { return postroom(t, p.env, "stream", "check").code == exitOK })
	if n := p.number("SELECT count(*) FROM effect"); n != 10 {
		t.Errorf("%d effects, want 10: five of each handler", n)
	}
}
