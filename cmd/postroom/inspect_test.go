package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	root "github.com/postroom/postroom"
	"github.com/postroom/postroom/cmd/postroom/internal/eventview"
	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/cmd/postroom/internal/tableview"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/held"
	"github.com/postroom/postroom/internal/identity"
	"github.com/postroom/postroom/internal/inspect"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/relay"
)

// shop is a stream, and a database with a published event, a dead event, a key that waits for the
// dead event, and actions of operators.
type shop struct {
	pool   *pgxpool.Pool
	env    environment // database and broker
	stream string
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{pool: devtest.Pool(t), stream: nats.NewInbox()[len("_INBOX."):]}
	s.env = inDatabase(s.pool)
	s.env["POSTROOM_NATS_URL"] = devtest.NATSURL(t)
	nc := devtest.NATS(t)
	err := natsjs.EnsureStream(t.Context(), nc, jetstream.StreamConfig{Name: s.stream, Subjects: []string{s.stream + ".>"}})
	if err != nil {
		t.Fatal(err)
	}
	err = pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
		ev := root.NewEvent(s.stream+".placed", "c4nary")
		ev.ID, ev.Key = "order-7", "k7"
		return outbox.New(outbox.Config{Source: "/shop"}).Write(t.Context(), tx, ev, ev.Follow(s.stream+".charged", 1))
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- relay.New(s.pool, natsjs.NewPublisher(nc), relay.Config{}).Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	devtest.Eventually(t, 20*time.Second, "the events to be published", func() bool {
		var high int64
		err := s.pool.QueryRow(t.Context(), "SELECT high FROM postroom.relay WHERE pending = '{}'").Scan(&high)
		return err == nil && high == 2
	})
	return s
}

func (s *shop) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := s.pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// fails inserts two events of a key that a handler holds: a dead one, and one that waits behind it.
func (s *shop) fails(t *testing.T) {
	t.Helper()
	s.exec(t, "INSERT INTO postroom.inbox (handler, dedupe_key) VALUES ('ledger.move', '/shop order-7'), ('ledger.move', '/shop order-8')")
	s.exec(t, `INSERT INTO postroom.held (handler, dedupe_key, chain, pos, dead_at, class, attempts, failures, logged_at, source, event_id, type, subject, content_type, data)
		VALUES ('ledger.move', '/shop order-7', 'k7', 1, now(), 'error', 5, '[{"at": "2026-01-01T00:00:00Z", "class": "error", "text": "no \u001b[31mfunds\nat all"}]',
		        now(), '/shop', 'order-7', 'a.b', 'a.b', 'text/plain', 'c4nary'),
		       ('ledger.move', '/shop order-8', 'k7', 2, NULL, NULL, 0, NULL, now(), '/shop', 'order-8', 'a.b', 'a.b', 'text/plain', 'c4nary')`)
	s.exec(t, "INSERT INTO postroom.node (id, name, handlers, dedupe_windows, max_event_ages, longest_window) VALUES (gen_random_uuid(), 'host/1/a', '{ledger.move}', '{30 days}', '{29 days}', '30 days')")
	s.exec(t, "INSERT INTO postroom.audit (actor, action, reason, events, handler, event_id) VALUES ('ann', 'replay', 'fixed it', 3, 'ledger.move', NULL), ('bob', 'edit', 'typo', 1, 'ledger.move', 'order-7')")
	s.exec(t, `INSERT INTO postroom.revision (held, revision, audit, event_id, content_type, data)
		SELECT h.id, 0, a.id, 'order-7', 'text/plain', 'c4nary' FROM postroom.held h, postroom.audit a WHERE h.event_id = 'order-7' AND a.action = 'edit'`)
}

// decode decodes the JSON that a command printed.
func decode[T any](t *testing.T, r result) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.out), &v); err != nil {
		t.Fatalf("%v: %s", err, r.out)
	}
	return v
}

func TestStatus(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	postroom(t, s.env, "status").want(t, exitOK).says(t, "leads, epoch 1", "OUTGOING    everything is published\n", "DISCARDED   0 events\n", "BROKER      answers\n", "all is well\n")

	s.fails(t)
	r := postroom(t, s.env, "status").want(t, exitTodo).says(t,
		"HELD          STATE     EVENTS   OLDEST   DUE FOR   KEYS\n", "ledger.move   dead      1        0s", "ledger.move   waiting   1",
		"host/1/a   alive", "! 1 event is dead at ledger.move\n  'postroom dead groups' shows", "postroom: status: 1 finding\n")
	if strings.Contains(r.out, "all is well") {
		t.Errorf("%s", r.out)
	}
	got := decode[inspect.Status](t, postroom(t, s.env, "status", "--json").want(t, exitTodo))
	if !got.Relay.Leads || len(got.Findings) != 1 || got.Findings[0].Code != inspect.FoundDead || !got.Broker.Asked {
		t.Errorf("status --json = %+v", got)
	}
}

// It is no fault if a handler is rolled out before the service that writes its events.
func TestStatusAcceptsAHandlerWithoutEvents(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	in := inbox.New(s.pool, devtest.NATS(t), inbox.Config{DrainTimeout: time.Second})
	in.Handle(inbox.Subscription{Name: "h", Stream: s.stream, Types: []string{s.stream + ".stock"}},
		root.HandlerFunc(func(context.Context, pgx.Tx, root.Event) error { return nil }))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- in.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	devtest.Eventually(t, 20*time.Second, "the handler's subscription and its note", func() bool { // a process writes its own row before the row of its subscription
		r := postroom(t, s.env, "status")
		return r.code == exitOK && strings.Contains(r.out, "all is well\nnote: h: no event of type "+s.stream+".stock is in stream ")
	})
	if r := postroom(t, s.env, "doctor").says(t, "NOTE    types h: no event of type "+s.stream+".stock is in stream "); strings.Contains(r.out, "WARNING types") {
		t.Error(r.out)
	}
	postroom(t, s.env, "events", "show", "order-7").want(t, exitOK)
}

// If a handler asks for a misspelt type, each command that could show it reports that.
func TestCommandsReportAMisspeltType(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.exec(t, `INSERT INTO postroom.subscription (handler, stream, stream_created, types, subjects) VALUES ('h', $1, now(), ARRAY[$1 || '.plcaed'], ARRAY[$1 || '.plcaed'])`, s.stream)
	s.exec(t, "INSERT INTO postroom.node (id, name, handlers, dedupe_windows, max_event_ages, longest_window) VALUES (gen_random_uuid(), 'host/1/a', '{h}', '{30 days}', '{29 days}', '30 days')")
	postroom(t, s.env, "status").want(t, exitTodo).says(t, "! h: no event of type "+s.stream+".plcaed is in stream "+s.stream,
		"did you mean "+s.stream+".placed?\n  correct the handler's Types", "note: no handler of this database reads "+s.stream+".charged, "+s.stream+".placed of stream "+s.stream)
	postroom(t, s.env, "doctor").want(t, exitTodo).says(t, "WARNING types h: no event of type "+s.stream+".plcaed", "NOTE    types "+s.stream+": no handler of this database reads ")
	postroom(t, s.env, "events", "show", "order-7").want(t, exitOK).says(t, "note: no handler of this database reads "+s.stream+".placed, and h asks for "+s.stream+".plcaed: is that a misspelling?")
	s.exec(t, "UPDATE postroom.subscription SET types = ARRAY[$1 || '.placed'], subjects = ARRAY[$1 || '.>']", s.stream)
	for _, args := range [][]string{{"status"}, {"doctor"}, {"events", "show", "order-7"}} {
		if r := postroom(t, s.env, args...); strings.Contains(r.out, "no handler") || strings.Contains(r.out, "did you mean") {
			t.Errorf("%v of a good set-up: %s", args, r.out)
		}
	}
}

// Without a broker the commands show what the database has, and say what is missing.
func TestCommandsAnswerWithoutABroker(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.exec(t, "INSERT INTO postroom.subscription (handler, stream, stream_created, subjects) VALUES ('h', $1, now(), '{}')", s.stream)
	s.exec(t, "INSERT INTO postroom.node (id, name, handlers, dedupe_windows, max_event_ages, longest_window) VALUES (gen_random_uuid(), 'host/1/a', '{h}', '{30 days}', '{29 days}', '30 days')")
	none := inDatabase(s.pool)
	postroom(t, none, "status").want(t, exitOK).says(t, "BROKER      not asked: give --nats-url or set POSTROOM_NATS_URL\n", "all is well")
	postroom(t, none, "handlers").want(t, exitOK).says(t, "HANDLER", "h         unordered", "broker: not asked")
	postroom(t, none, "events", "show", "order-7").want(t, exitOK).says(t, "BROKER", "not asked", "written by /shop")

	away := inDatabase(s.pool)
	away["NATS_URL"] = "nats://127.0.0.1:1"
	postroom(t, away, "status").want(t, exitTodo).says(t, "BROKER      could not be asked", "! the broker cannot be reached\n", "(NATS_URL): is it running")
	postroom(t, away, "handlers").want(t, exitFailed).says(t, "h         unordered", "broker: could not be asked", "(NATS_URL): is it running")
	postroom(t, away, "events", "show", "order-7").want(t, exitFailed).says(t, "written by /shop", "could not be asked")
	postroom(t, away, "events", "show", "order-8").want(t, exitFailed).says(t, "nothing is known about this event", "the broker was not asked; and no event has it as key", "connect to ", "(NATS_URL): is it running")
	got := decode[inspect.Handlers](t, postroom(t, away, "handlers", "--json").want(t, exitFailed))
	if len(got.Handlers) != 1 || !got.Broker.Asked || got.Broker.Fault == "" {
		t.Errorf("handlers --json = %+v", got)
	}
	away["NATS_URL"] = "nats://"
	postroom(t, away, "status").want(t, exitUsage).says(t, "is not a NATS URL")
}

func TestHandlers(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	postroom(t, s.env, "handlers").want(t, exitOK).says(t, "this database knows no handler")
	s.fails(t)
	s.exec(t, `INSERT INTO postroom.subscription (handler, stream, stream_created, subjects, ordered, epoch, reader, reader_until)
		VALUES ('ledger.move', $1, now(), '{}', true, 3, 'host/1/a', now() + interval '1 hour')`, s.stream)
	postroom(t, s.env, "handlers").want(t, exitOK).says(t, "ledger.move   ordered", "host/1/a\n", "! ledger.move: stream "+s.stream)
	got := decode[inspect.Handlers](t, postroom(t, s.env, "handlers", "--json").want(t, exitOK))
	if len(got.Handlers) != 1 || got.Handlers[0].Held.Events(held.Dead) != 1 || got.Handlers[0].Reader.Epoch != 3 {
		t.Errorf("handlers --json = %+v", got)
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	postroom(t, s.env, "keys").want(t, exitOK).says(t, "no matching key is held up\n")
	s.fails(t)
	r := postroom(t, s.env, "keys", "--handler", "ledger.move", "--state", "dead").want(t, exitOK).says(t,
		"HANDLER       KEY   HEAD      TYPE   IS     FOR   BEHIND IT   LAST FAILURE\n", "ledger.move   k7    order-7   a.b    dead   0s    1           error: no ·[31mfunds…\n")
	if strings.Contains(r.out, "\x1b") {
		t.Error("a terminal would obey it")
	}
	postroom(t, s.env, "keys", "--state", "due").want(t, exitOK).says(t, "no matching key")
	postroom(t, s.env, "keys", "--after", "ledger.move/k7").want(t, exitOK).says(t, "no matching key")
	s.exec(t, "UPDATE postroom.held SET chain = 'k8', dead_at = now(), class = 'x' WHERE event_id = 'order-8'")
	postroom(t, s.env, "keys", "--limit", "1").want(t, exitOK).says(t, "there may be more keys: --after ledger.move/k7\n")
	if got := decode[inspect.Keys](t, postroom(t, s.env, "keys", "--limit", "1", "--json").want(t, exitOK).says(t, `"next": "ledger.move/k7"`)); got.Next == nil || *got.Next != (inspect.KeyPosition{Handler: "ledger.move", Key: "k7"}) {
		t.Errorf("the next page begins after %+v", got.Next)
	}
	got := decode[inspect.Keys](t, postroom(t, s.env, "keys", "--json").want(t, exitOK))
	if len(got.Keys) != 2 || got.Keys[1].Key != "k8" {
		t.Errorf("keys --json = %+v", got)
	}
	postroom(t, s.env, "__complete", "keys", "--state", "").says(t, "dead\n", ":4\n")

	postroom(t, s.env, "held", "list", "--state", "scheduled").want(t, exitOK).says(t, "no held event matches\n")
	postroom(t, s.env, "held", "list", "--state", "dead,waiting").want(t, exitOK).says(t, "ledger.move", "dead")
	postroom(t, s.env, "held", "list", "--limit", "1").want(t, exitOK).says(t, "there may be more events: --after ey")
	if page := decode[inspect.HeldPage](t, postroom(t, s.env, "held", "list", "--json", "--state", "dead").want(t, exitOK)); len(page.Events) != 2 || page.Events[1].Error == "" {
		t.Errorf("held list --json = %+v, want dead events with their failures", page)
	}
	postroom(t, s.env, "held", "list", "--state", "done").want(t, exitUsage).says(t, "want one of abandoned, dead")
	postroom(t, s.env, "held", "list", "--due-until", "soon").want(t, exitUsage).says(t, "--due-until: write a time")
}

func TestTables(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	postroom(t, s.env, "tables").want(t, exitOK).says(t, "TABLE", "outbox", "replay_event", "never", "inbox: swept up to page 0 of 0")
	s.exec(t, "UPDATE postroom.outbox SET created_at = now() - interval '50 hours'")
	postroom(t, s.env, "tables", "--retention", "24h").want(t, exitOK).says(t, "2d2h         1d2h\n")
	if got := decode[inspect.Tables](t, postroom(t, s.env, "tables", "--json").want(t, exitOK)); len(got.Tables) < 14 {
		t.Errorf("tables --json = %+v", got)
	}
}

func TestEventsShow(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.fails(t)
	r := postroom(t, s.env, "events", "show", "order-7").want(t, exitOK).says(t,
		"EVENT    order-7\n", "SOURCE   /shop\n", "seq 1, published\n", "KEY      k7\n", s.stream+", sequence 1\n", "CAUSED   "+s.stream+".charged ",
		"HANDLER       EVENT IS   WHY\n", "ledger.move   dead       5 attempts, error: no ·[31mfunds…\n",
		"TIME", "log", "written by /shop as "+s.stream+".placed, seq 1, key k7\n", "dead after 5 attempts, error\n", "edit by bob: typo (revision 0 was replaced)\n",
		"\ncauses and effects: postroom events tree order-7\n")
	if strings.Contains(r.out, "c4nary") || strings.Contains(r.out, "\x1b") {
		t.Errorf("the output shows data, or characters that control a terminal:\n%s", r.out)
	}
	got := decode[eventview.Report](t, postroom(t, s.env, "events", "show", "order-7", "--source", "/shop", "--json").want(t, exitOK))
	if len(got.LogEntries) != 1 || len(got.Held) != 1 || len(got.Timeline) < 5 || !got.Streams[0].Found {
		t.Errorf("events show --json = %+v", got)
	}
	postroom(t, s.env, "events", "show", "order-8").want(t, exitOK).says(t, "not in this log", "waits behind an earlier event of key k7\n")
	postroom(t, s.env, "events", "show", "nothing").want(t, exitFailed).says(t, "nothing is known about this event: looked in the log", "give the source")
	postroom(t, s.env, "events", "show", "order-7", "--source", "/other").want(t, exitFailed).says(t, "event /other order-7")

	// Events are also found by key, trace id and other properties.
	postroom(t, s.env, "events", "show", "k7").want(t, exitOK).says(t, "WRITTEN", s.stream+".charged", s.stream+".placed    order-7")
	page := decode[inspect.EventPage](t, postroom(t, s.env, "events", "show", "k7", "--json").want(t, exitOK))
	if len(page.Events) != 2 {
		t.Errorf("events show of a key = %+v, want two events", page)
	}
	s.exec(t, "UPDATE postroom.outbox SET key = 'it''s', trace_parent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01' WHERE seq = 2")
	for _, one := range []string{"it's", "4bf92f3577b34da6a3ce929d0e0e4736", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"} {
		postroom(t, s.env, "events", "show", one).want(t, exitOK).says(t, "EVENT     ", "seq 2, published\n", "CAUSED BY")
	}
	postroom(t, s.env, "events", "show", "no such").want(t, exitFailed).says(t, "and no event has it as key, correlation id, trace id or cause")
	s.exec(t, `INSERT INTO postroom.outbox (source, event_id, digest, type, subject, key, data, checked) SELECT '/shop', n, '', 'a.b', 'a.b', 'it''s', '', true FROM generate_series(1, 200001) n`)
	postroom(t, s.env, "events", "show", "it's").want(t, exitOK).says(t, "there may be more: postroom events list --any 'it'\\''s' --after ")
	postroom(t, s.env, "events", "show", "old").want(t, exitOK).says(t, "no event matches so far; the search stopped: 200,000 rows of the log were examined", "continue with postroom events list --any old --after ")
}

func TestEventsTree(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.fails(t)
	other := devtest.Pool(t)
	if _, err := other.Exec(t.Context(), `INSERT INTO postroom.outbox (source, event_id, digest, type, subject, causation_id, correlation_id, data, checked)
		VALUES ('/books', 'b1', '', 'books.entered', 'books.entered', 'order-7', 'order-7', 'c4nary', true)`); err != nil {
		t.Fatal(err)
	}
	r := postroom(t, s.env, "events", "tree", "order-7").want(t, exitOK).says(t, "TYPE", s.stream+".placed *    order-7", "k7    /shop", "published; dead at ledger.move\n",
		"\n  "+s.stream+".charged ", "* marks what you asked for\n")
	if strings.Contains(r.out, "books") || strings.Contains(r.out, "c4nary") {
		t.Errorf("of one database: %s", r.out)
	}
	both := []string{"events", "tree", "b1", "--database-url", s.env["POSTROOM_DATABASE_URL"], "--database-url", databaseURL(other)}
	postroom(t, environment{}, both...).want(t, exitOK).says(t, s.stream+".placed      order-7", "\n  "+s.stream+".charged ", "\n  books.entered *", "/books", "unpublished\n")
	tree := decode[inspect.EventTree](t, postroom(t, environment{}, append(both, "--json")...).want(t, exitOK))
	if tree.Events != 3 || len(tree.Roots) != 1 || len(tree.Roots[0].Effects) != 2 || tree.Notes == nil {
		t.Errorf("events tree --json = %+v", tree)
	}
	// If one database cannot be reached, the command shows what the other databases have.
	postroom(t, environment{}, append(both, "--database-url", "postgres://nobody@127.0.0.1:1/none")...).want(t, exitFailed).says(t, "books.entered *", `connect to database "none"`)
	postroom(t, s.env, "events", "tree", "order-7", "--depth", "1", "--limit", "1").want(t, exitOK).says(t, "note: there are more events: the limit is 1\n")
	postroom(t, inDatabase(other), "events", "tree", "order-7").want(t, exitOK).says(t, "? *", "not found: its service's database was not searched")
	postroom(t, s.env, "events", "tree", "nothing").want(t, exitFailed).says(t, "tree of nothing: nothing is known about this event")
	postroom(t, s.env, "events", "tree").want(t, exitUsage).says(t, "give the id of one event")
	postroom(t, s.env, "events", "tree", "x", "--depth", "0").want(t, exitUsage).says(t, "--depth: want 1 to 100")
}

func TestEventsList(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.fails(t)
	postroom(t, s.env, "events", "list", "--key", "k7").want(t, exitOK).says(t,
		"WRITTEN", s.stream+".charged", s.stream+".placed    order-7", "k7    /shop    published; dead at ledger.move\n")
	first := postroom(t, s.env, "events", "list", "--type", s.stream+".charged", "--limit", "1").want(t, exitOK)
	if strings.Contains(first.out, "order-7") {
		t.Errorf("of another type: %s", first.out)
	}
	first = postroom(t, s.env, "events", "list", "--limit", "1", "--source", "/shop", "--since", "1h").want(t, exitOK).says(t, "there may be more: --after ")
	_, after, _ := strings.Cut(strings.TrimSpace(first.out), "--after ")
	second := decode[inspect.EventPage](t, postroom(t, s.env, "events", "list", "--limit", "1", "--source", "/shop", "--since", "1h", "--after", after, "--json").want(t, exitOK))
	if len(second.Events) != 1 || strings.Contains(first.out, second.Events[0].EventID) {
		t.Errorf("first %s, then %+v", first.out, second)
	}
	postroom(t, s.env, "events", "list", "--cause", "order-7", "--correlation", "order-7").want(t, exitOK).says(t, s.stream+".charged")
	postroom(t, s.env, "events", "list", "--until", "1h").want(t, exitOK).says(t, "no event matches: none in this log, held or discarded")
	postroom(t, s.env, "events", "list", "--trace", "none").want(t, exitUsage).says(t, "trace")
	postroom(t, s.env, "events", "list", "--limit", "0").want(t, exitUsage).says(t, "--limit: want 1 to 1000")
	postroom(t, s.env, "events", "list", "--since", "x").want(t, exitUsage).says(t, "--since: write a time")
}

func TestAudit(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	postroom(t, s.env, "audit").want(t, exitOK).says(t, "no action matches\n")
	s.fails(t)
	postroom(t, s.env, "audit", "--since", "1h").want(t, exitOK).says(t, "ID   AT", " bob ", " ann ", "edit     order-7    ledger.move   typo\n", "replay   3 events   ledger.move   fixed it\n")
	postroom(t, s.env, "audit", "--limit", "1").want(t, exitOK).says(t, "next page: --after 2\n")
	postroom(t, s.env, "audit", "--limit", "1", "--json").want(t, exitOK).says(t, `"next": "2"`)
	postroom(t, s.env, "audit", "--after", "2").want(t, exitOK).says(t, "\n1    ")
	got := decode[inspect.AuditPage](t, postroom(t, s.env, "audit", "--actor", "ann", "--json").want(t, exitOK))
	if len(got.Entries) != 1 || got.Entries[0].Events != 3 || got.Entries[0].Role == "" {
		t.Errorf("audit --json = %+v", got)
	}
	if got := postroom(t, s.env, "audit", "--since", "2030-01-01T00:00:00Z", "--json").want(t, exitOK); !strings.Contains(got.out, `"entries": []`) {
		t.Errorf("audit --json = %s", got.out)
	}
}

func TestCommandsAnswerForAnEmptyDatabase(t *testing.T) {
	t.Parallel()
	pool := devtest.EmptyPool(t)
	env := inDatabase(pool)
	// An operator whose environment names the wrong database must not migrate it.
	where := fmt.Sprintf("database %q at %s", pool.Config().ConnConfig.Database, net.JoinHostPort(pool.Config().ConnConfig.Host, strconv.Itoa(int(pool.Config().ConnConfig.Port))))
	for _, line := range []string{
		"status", "handlers", "keys", "tables", "events show x", "events list", "events tree x", "audit", "held list", "held retry 1 --yes", "dead groups", "dead replay --all --yes",
		"republish --all --yes", "republish list", "saga list", "handlers pause h --reason x", "relay resume", "webhook endpoints",
	} {
		postroom(t, env, strings.Fields(line)...).want(t, exitFailed).says(t, "postroom migrate up", where)
	}
	postroom(t, env, "migrate", "status").want(t, exitTodo).says(t, "postroom migrate up", where)
	postroom(t, env, "doctor").want(t, exitTodo).says(t, "postroom migrate up", where)
}

func TestCommandsRefuseWrongArguments(t *testing.T) {
	for _, tt := range []struct {
		args []string
		says string
	}{
		{[]string{"status", "now"}, "takes flags only"},
		{[]string{"status"}, "POSTROOM_DATABASE_URL"},
		{[]string{"keys", "--limit", "0"}, "want 1 to 1000"},
		{[]string{"keys", "--state", "done"}, "want one of abandoned, dead"},
		{[]string{"keys", "--after", "k7"}, "ledger.move/account-7"},
		{[]string{"events"}, "say what to do: list, show, tree"},
		{[]string{"events", "show"}, "give the id of one event"},
		{[]string{"events", "show", "a", "b"}, "give the id of one event"},
		{[]string{"events", "show", "postgres://me:" + canary + "@host/shop"}, "give the id of one event"},
		{[]string{"audit", "--since", "yesterday"}, "--since: write a time"},
		{[]string{"audit", "--limit", "1001"}, "want 1 to 1000"},
		{[]string{"audit", "--replay", "-1"}, "want at least 1"},
	} {
		r := postroom(t, nil, tt.args...).want(t, exitUsage).says(t, tt.says)
		if strings.Contains(r.errors, canary) {
			t.Errorf("%v shows %q", tt.args[:2], canary)
		}
	}
}

func TestSpan(t *testing.T) {
	for seconds, want := range map[float64]string{0: "0s", 0.4: "0s", 59.9: "59s", 60: "1m0s", 192: "3m12s", 7500: "2h5m", 86400*3 + 4*3600: "3d4h"} {
		if got := output.Seconds(seconds); got != want {
			t.Errorf("spanOf(%v) = %s, want %s", seconds, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 kB", 5 << 30: "5.0 GB"} {
		if got := tableview.Bytes(n); got != want {
			t.Errorf("Bytes(%d) = %s, want %s", n, got, want)
		}
	}
	for text, want := range map[string]string{"a": "a", "a\nb": "a…", "a\tb\x1bc": "a·b·c", "abcdefghijk": "abcdefghi…", "äöüäöüäöüä": "äöüäöüäöüä"} {
		if got := output.Cell(text, 10); got != want {
			t.Errorf("cell(%q) = %q, want %q", text, got, want)
		}
	}
}

// Programs and other systems write the texts of failures, and the properties of events that other
// programs wrote with SQL. Such a text neither commands the terminal nor looks like a line of the
// command.
func TestTextsOfOthersAreNotLinesOfACommand(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	env := inDatabase(pool)
	for _, sql := range []string{
		`INSERT INTO postroom.subscription (handler, stream, stream_created, subjects, floor) VALUES ('h', 'SHOP', now(), '{a.b}', 900)`,
		`INSERT INTO postroom.node (id, name, handlers, dedupe_windows, max_event_ages, longest_window, paused)
		VALUES (gen_random_uuid(), 'p1', '{h}', '{1 day}', '{1 hour}', '1 day',
			'{"h": {"since": "2026-01-31T03:00:00Z", "class": "error", "text": "vendor answered \u001b]0;owned\u0007\u001b[2J\nall is well"}}')`,
		`INSERT INTO postroom.outbox (source, event_id, digest, type, subject, causation_id, data, checked)
		VALUES ('/shop', 'e1', 'x', E'a.b\x1b]0;owned\x07', E'a.b\nall is well', E'c\x1b[31m\nall is well', '1', true)`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	for _, line := range []string{"status", "handlers", "events show e1", "events list", "events tree e1", "doctor"} {
		r := postroom(t, env, strings.Fields(line)...)
		if strings.ContainsAny(r.out+r.errors, "\x1b\x07") {
			t.Errorf("%s: a text commands the terminal: %q", line, r.out+r.errors)
		}
		if strings.Contains("\n"+r.out, "\nall is well") {
			t.Errorf("%s: a text of another system is a line of the command: %q", line, r.out)
		}
	}
	postroom(t, env, "status").want(t, exitTodo).says(t, "vendor answered ·]0;owned··[2J·all is well\n")
	postroom(t, env, "events", "show", "e1").want(t, exitOK).says(t, "a.b·]0;owned·\n", "a.b·all is well\n", "c·[31m·all is well")
}

// The audit of an action on held events says which held events the operator chose.
func TestAuditOfHeldEvents(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	env := inDatabase(pool)
	for _, sql := range []string{
		`INSERT INTO postroom.inbox (handler, dedupe_key) SELECT 'h', '/shop e' || i FROM generate_series(1, 6) i`,
		`INSERT INTO postroom.held (handler, dedupe_key, next_at, class, logged_at, source, event_id, type, subject, content_type, data)
		SELECT 'h', '/shop e' || i, now() + interval '1 hour', 'error', now(), '/shop', 'e' || i, 'a.b', 'a.b', 'application/json', '1' FROM generate_series(1, 6) i`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	for _, line := range []string{
		"held cancel --state retrying,scheduled --due-until 2099-01-01 --limit 2 --reason late --yes",
		"held reschedule --handler h --class error --due-since 2020-01-01 --in 2h --yes",
		"held retry --all --yes",
		"dead groups", // is no action
	} {
		postroom(t, env, strings.Fields(line)...).want(t, exitOK)
	}
	r := postroom(t, env, "audit").want(t, exitOK).
		says(t, "2 events: state retrying or scheduled, due until 2099-01-01T00:00:00Z", "4 events: handler h, class error, due since 2020-01-01T00:00:00Z", "4 events: all held events")
	if strings.Contains(r.out, "dead events") {
		t.Errorf("audit: %s", r.out)
	}
}

// The inbox escapes the spaces of a source, and shortens long keys. The commands find the decision of
// such an event.
func TestDecisionsOfEventsWithUnusualNames(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	env := inDatabase(pool)
	for _, tt := range []struct{ source, id string }{{"my shop", "e1"}, {"/" + strings.Repeat("s", 900), strings.Repeat("i", 200)}} {
		if _, err := pool.Exec(t.Context(), "INSERT INTO postroom.inbox (handler, dedupe_key) VALUES ('billing.charge', $1)", identity.DedupeKey(tt.source, tt.id)); err != nil {
			t.Fatal(err)
		}
		postroom(t, env, "events", "show", tt.id, "--source", tt.source).want(t, exitOK).says(t, "billing.charge   done")
		if _, err := pool.Exec(t.Context(), `INSERT INTO postroom.outbox (source, event_id, digest, type, subject, data, checked)
			VALUES ($1, $2, 'x', 'a.b', 'a.b', '1', true)`, tt.source, tt.id); err != nil {
			t.Fatal(err)
		}
		postroom(t, env, "events", "list", "--source", tt.source).want(t, exitOK).says(t, "done by billing.charge")
		postroom(t, env, "events", "tree", tt.id).want(t, exitOK).says(t, "done by billing.charge")
	}
}
