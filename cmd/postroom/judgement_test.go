package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	event "github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/inspect"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/relay"
)

// ofCheck returns the findings of one check.
func ofCheck(findings []finding, check string) []finding {
	return slices.DeleteFunc(slices.Clone(findings), func(f finding) bool { return f.Check != check })
}

// diagnose runs the doctor, and returns what it found.
func diagnose(t *testing.T, env environment) []finding {
	t.Helper()
	return decode[struct{ Findings []finding }](t, postroom(t, env, "doctor", "--json")).Findings
}

// status and doctor say the same of relays and handlers that an operator has paused: it is no fault,
// what waits is named, and no advice starts a relay.
func TestPausesAreJudgedOnce(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	postroom(t, s.env, "relay", "pause", "--reason", "the stream is moved", "--actor", "ann").want(t, exitOK)
	devtest.Eventually(t, 30*time.Second, "the relay to give its lease back", func() (left bool) {
		return s.pool.QueryRow(t.Context(), "SELECT owner IS NULL FROM postroom.relay").Scan(&left) == nil && left
	})
	s.exec(t, "SELECT postroom.write(source => '/shop', type => $1, data => '{}', id => 'late')", s.stream+".placed")
	s.exec(t, "UPDATE postroom.outbox SET created_at = now() - interval '72 seconds' WHERE event_id = 'late'")
	s.exec(t, "INSERT INTO postroom.node (id, name, handlers, dedupe_windows, max_event_ages, longest_window) VALUES (gen_random_uuid(), 'host/1/a', '{h}', '{30 days}', '{29 days}', '30 days')")
	s.exec(t, `INSERT INTO postroom.inbox (handler, dedupe_key) VALUES ('h', '/shop due')`)
	s.exec(t, `INSERT INTO postroom.held (handler, dedupe_key, next_at, logged_at, source, event_id, type, subject, content_type, data)
		VALUES ('h', '/shop due', now() - interval '10 minutes', now(), '/shop', 'due', 'a.b', 'a.b', 'text/plain', '')`)
	postroom(t, s.env, "handlers", "pause", "h", "--reason", "vendor", "--actor", "bob").want(t, exitOK)

	const relayIs, handlerIs = "the relay is paused by ann since ", "handler h is paused by bob since "
	r := postroom(t, s.env, "status").want(t, exitOK).says(t, "nothing is wrong, but an operator has paused", "note: "+relayIs, "the oldest event that waits was written 1m1", "note: "+handlerIs)
	if strings.Contains(r.out, "all is well") {
		t.Error(r.out)
	}
	findings := diagnose(t, s.env)
	for check, text := range map[string]string{"relay": relayIs, "handlers": handlerIs} {
		if got := ofCheck(findings, check); len(got) != 1 || got[0].Severity != "note" || !strings.HasPrefix(got[0].Text, text) {
			t.Errorf("doctor: %s = %+v, want the note %q", check, got, text)
		}
	}
	if got := ofCheck(findings, "overdue-events"); len(got) != 1 || got[0].Severity != "ok" {
		t.Errorf("doctor: events of a paused handler: %+v", got)
	}
}

// status, doctor and the relay say the same of a stream that takes no events.
func TestASealedStreamIsJudgedOnce(t *testing.T) {
	t.Parallel()
	p := newSetupServer(t).admit(t)
	p.changeStream(func(cfg *jetstream.StreamConfig) { cfg.Sealed = true })
	p.stopRelay()
	r := relay.New(p.pool, natsjs.NewPublisher(p.nc), relay.Config{})
	p.stopRelay = p.start(r)
	const says = "it is sealed, and takes no events"
	devtest.Eventually(t, 30*time.Second, "the relay to know it", func() bool {
		err := r.Health().Ready()
		return errors.Is(err, natsjs.Sealed) && strings.Contains(err.Error(), says)
	})
	postroom(t, p.env, "status").want(t, exitTodo).says(t, "! stream SHOP: "+says+"\n  sealing cannot be undone: when the handlers have read the stream")
	if got := decode[inspect.Status](t, postroom(t, p.env, "status", "--json")).Findings; len(got) != 1 || got[0].Code != "stream_refuses" {
		t.Errorf("status --json has the findings %+v", got)
	}
	_, findings := p.examine()
	if got := selected(ofCheck(findings, "streams"), "fault"); len(got) != 1 || !strings.Contains(got[0].Text, says) || strings.Contains(got[0].Remedy, "--accept") {
		t.Errorf("doctor: %+v", got)
	}
	postroom(t, p.env, "stream", "ensure", "SHOP", "--subjects", "order.>").want(t, exitTodo).says(t, "stream SHOP exists and is sealed: it takes no events")

	// What the advice says.
	js := devtest.JetStream(t, p.nc)
	if err := js.DeleteStream(t.Context(), "SHOP"); err != nil {
		t.Fatal(err)
	}
	postroom(t, p.env, "stream", "ensure", "SHOP", "--subjects", "order.>").want(t, exitOK)
	devtest.Eventually(t, 30*time.Second, "the relay to be ready", func() bool { return r.Health().Ready() == nil })
	postroom(t, p.env, "status").want(t, exitOK)
}

// A stream that can lose events is a note of status: status cannot know which risks the relays accept.
func TestStatusNotesARiskOfAStream(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	js := devtest.JetStream(t, devtest.NATS(t))
	stream, err := js.Stream(t.Context(), s.stream)
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.MaxMsgs, cfg.Discard = 1000, jetstream.DiscardOld
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	postroom(t, s.env, "status").want(t, exitOK).says(t, "note: stream "+s.stream+": it drops old events to take new ones, at 1000 messages", "--accept discard-old")
}

// status says that a stream is down, even if the database knows no handler that reads it.
func TestAStreamThatIsDownIsAFinding(t *testing.T) {
	t.Parallel()
	c := devtest.OwnNATSCluster(t, 3)
	nc, err := nats.Connect(c.URL(), append(natsjs.ConnectOptions(), nats.DontRandomize())...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	stream, err := devtest.JetStream(t, nc).CreateStream(t.Context(), jetstream.StreamConfig{Name: "SHOP", Subjects: []string{"order.>"}, Discard: jetstream.DiscardNew, Duplicates: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	pool := devtest.Pool(t)
	if _, err := pool.Exec(t.Context(), "UPDATE postroom.relay SET owner = 'r', epoch = 1, expires_at = now() + interval '1 hour'"); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), "SELECT postroom.write(source => '/shop', type => 'order.placed', data => '{}')"); err != nil {
		t.Fatal(err)
	}
	env := inDatabase(pool)
	var of *devstack.NATS // the server that stores the stream
	var others []string
	for _, node := range c.Nodes() {
		conn, err := nats.Connect(node.URL())
		if err != nil {
			t.Fatal(err)
		}
		if name := conn.ConnectedServerName(); name == stream.CachedInfo().Cluster.Leader {
			of = node
		} else {
			others = append(others, node.URL())
		}
		conn.Close()
	}
	env["POSTROOM_NATS_URL"] = strings.Join(others, ",")
	postroom(t, env, "status").want(t, exitOK).says(t, "all is well\n")
	of.Stop()
	devtest.Eventually(t, 2*time.Minute, "the other servers to know it", func() bool {
		r := postroom(t, env, "status")
		return r.code == exitTodo && strings.Contains(r.out, "SHOP")
	})
}

// Published events whose subject was moved to another stream afterwards are in the old stream. No
// command calls them lost.
func TestAMovedSubjectIsNoLoss(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	js := devtest.JetStream(t, devtest.NATS(t))
	old, err := js.Stream(t.Context(), s.stream)
	if err != nil {
		t.Fatal(err)
	}
	cfg := old.CachedInfo().Config
	cfg.Subjects = []string{s.stream + ".charged"}
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	cfg = jetstream.StreamConfig{Name: s.stream + "-NEW", Subjects: []string{s.stream + ".placed"}, Discard: jetstream.DiscardNew, Duplicates: time.Minute}
	if _, err := js.CreateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	says := "1 of the newest published events is in the stream " + s.stream + ", which stored its subject before"
	postroom(t, s.env, "stream", "check").want(t, exitOK).says(t, s.stream+"-NEW: "+says)
	findings := ofCheck(diagnose(t, s.env), "lost-tail")
	if bad := selected(findings, "fault", "warning"); len(findings) != 2 || len(bad) > 0 || !slices.ContainsFunc(findings, func(f finding) bool { return f.Severity == "note" && strings.Contains(f.Text, says) }) {
		t.Errorf("doctor: %+v", findings)
	}

	// An event that no stream has is lost.
	s.exec(t, "UPDATE postroom.outbox SET event_id = 'other' WHERE event_id = 'order-7'")
	postroom(t, s.env, "stream", "check").want(t, exitTodo).says(t, "/shop other")
}

// handlers and stream check print the same position of a handler.
func TestOnePositionOfAHandler(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	in := inbox.New(s.pool, devtest.NATS(t), inbox.Config{DrainTimeout: time.Second})
	done := make(chan struct{}, 2)
	in.Handle(inbox.Subscription{Name: "h", Stream: s.stream, Types: []string{s.stream + ".placed", s.stream + ".charged"}}, event.HandlerFunc(func(context.Context, pgx.Tx, event.Event) error { done <- struct{}{}; return nil }))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- in.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	for range 2 {
		select {
		case <-done:
		case <-time.After(devtest.Patience(t, 20*time.Second)):
			t.Fatal("the handler got no event")
		}
	}
	var h inspect.Handlers
	devtest.Eventually(t, 30*time.Second, "the handler to have answered", func() bool {
		h = decode[inspect.Handlers](t, postroom(t, s.env, "handlers", "--json").want(t, exitOK))
		return len(h.Handlers) == 1 && h.Handlers[0].Broker != nil && h.Handlers[0].Broker.LastSeq == 2 && h.Handlers[0].Broker.Pending+h.Handlers[0].Broker.AckPending == 0
	})
	s.exec(t, "UPDATE postroom.subscription SET floor = 0") // the inbox records the floor once a minute
	h = decode[inspect.Handlers](t, postroom(t, s.env, "handlers", "--json").want(t, exitOK))
	check := decode[struct {
		Handlers []struct {
			AckFloor int64 `json:"ack_floor"`
		}
	}](t, postroom(t, s.env, "stream", "check", "--json").want(t, exitOK))
	if len(check.Handlers) != 1 || h.Handlers[0].AckFloor != 2 || check.Handlers[0].AckFloor != 2 {
		t.Errorf("handlers says %d, stream check says %+v, want 2", h.Handlers[0].AckFloor, check.Handlers)
	}
}

// audit finds the action on many events by one of its events, and by their handler.
func TestAuditFindsActionsOnManyEvents(t *testing.T) {
	t.Parallel()
	pool, ids := withDead(t, 4)
	if _, err := pool.Exec(t.Context(), "INSERT INTO postroom.node (id, name, handlers, dedupe_windows, max_event_ages, longest_window) VALUES (gen_random_uuid(), 'host/1/a', '{billing.charge}', '{30 days}', '{29 days}', '30 days')"); err != nil {
		t.Fatal(err)
	}
	env := inDatabase(pool)
	env["POSTROOM_ACTOR"] = "ann"
	postroom(t, env, "dead", "replay", "--handler", "billing.charge", "--event", "e1", "--reason", "fixed it", "--yes", "--detach").want(t, exitOK)
	postroom(t, env, "dead", "discard", ids[1], ids[2], "--reason", "not ours", "--yes").want(t, exitOK)
	for line, want := range map[string]string{
		"audit --event e1":                                "fixed it",
		"audit --event e1 --action replay":                "fixed it",
		"audit --event e1 --handler billing.charge":       "fixed it",
		"audit --handler billing.charge --action replay":  "fixed it",
		"audit --event e2":                                "not ours",
		"audit --handler billing.charge --action discard": "not ours",
		"audit --event e2 --handler billing.charge":       "not ours",
		"audit --event e2 --handler other":                "no action matches",
		"audit --event e4":                                "no action matches",
		"audit --handler other --action replay":           "no action matches",
		"audit --event e1 --handler other":                "no action matches",
		"audit --replay 1 --event e2":                     "no action matches",
		"audit --replay 1 --event e1":                     "fixed it",
		"audit --replay 1 --handler billing.charge":       "fixed it",
		"audit --replay 1 --handler other":                "no action matches",
	} {
		if r := postroom(t, env, strings.Fields(line)...).want(t, exitOK); !strings.Contains(r.out, want) {
			t.Errorf("%s: %s", line, r.out)
		}
	}
	postroom(t, env, "events", "show", "e1").want(t, exitOK).says(t, "put into replay 1 by ann: fixed it")
	if r := postroom(t, env, "events", "show", "e2").want(t, exitOK).says(t, "discard by ann: not ours"); strings.Count(r.out, "not ours") > 2 {
		t.Error(r.out)
	}
}
