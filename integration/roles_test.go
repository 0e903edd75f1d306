package integration

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/relay"
	"github.com/postroom/postroom/saga"
	"github.com/postroom/postroom/webhook"
)

// staff are the roles of a database. Each may do one part.
type staff struct {
	*testing.T

	pool   *pgxpool.Pool // of the owner
	prefix string
}

func hire(t *testing.T) *staff {
	t.Helper()
	s := &staff{T: t, pool: devtest.Pool(t)}
	var super bool
	if err := s.pool.QueryRow(t.Context(), "SELECT rolsuper, current_database() FROM pg_roles WHERE rolname = current_user").Scan(&super, &s.prefix); err != nil {
		t.Fatal(err)
	}
	if !super {
		devtest.Missing(t, errors.New("the tests' role may not create roles"))
	}
	s.own("CREATE TABLE account (id int PRIMARY KEY, n int NOT NULL DEFAULT 0); INSERT INTO account VALUES (1)")
	s.own("CREATE TABLE effect (event text PRIMARY KEY)")
	for role, grant := range map[string]string{
		"producer": "GRANT SELECT, UPDATE ON account TO %[1]s; SELECT postroom.grant_producer('%[1]s')",
		"relay":    "SELECT postroom.grant_relay('%[1]s')",
		"inbox":    "GRANT SELECT, INSERT ON effect TO %[1]s; SELECT postroom.grant_inbox('%[1]s')",
		"operator": "SELECT postroom.grant_operator('%[1]s')",
		"hooks":    "SELECT postroom.grant_webhooks('%[1]s')",
		"sender":   "SELECT postroom.grant_inbox('%[1]s'), postroom.grant_webhooks('%[1]s')",
		"sagas":    "SELECT postroom.grant_producer('%[1]s'), postroom.grant_sagas('%[1]s')",
		"nobody":   "SELECT '%[1]s'",
	} {
		name := s.prefix + "_" + role
		s.own("CREATE ROLE " + name + " LOGIN")
		for range 2 { // the second time, as after a migration
			s.own(fmt.Sprintf(grant, name))
		}
		t.Cleanup(func() {
			ctx := context.WithoutCancel(t.Context())
			if _, err := s.pool.Exec(ctx, "DROP OWNED BY "+name+"; DROP ROLE "+name); err != nil {
				t.Error(err)
			}
		})
	}
	return s
}

// own executes a statement as the owner.
func (s *staff) own(sql string) {
	s.Helper()
	if _, err := s.pool.Exec(s.Context(), sql); err != nil {
		s.Fatalf("%s: %v", sql, err)
	}
}

// as returns a pool with the connections of a role.
func (s *staff) as(role string) *pgxpool.Pool {
	s.Helper()
	cfg := s.pool.Config()
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "SET SESSION AUTHORIZATION "+s.prefix+"_"+role)
		return err
	}
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(s.Context()), cfg)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(pool.Close)
	return pool
}

func (s *staff) number(sql string, args ...any) (n int) {
	s.Helper()
	if err := s.pool.QueryRow(s.Context(), sql, args...).Scan(&n); err != nil {
		s.Fatal(err)
	}
	return n
}

// Each part does all its work under a role that got its rights with one call.
func TestEachPartWorksUnderItsOwnRole(t *testing.T) {
	t.Parallel()
	s := hire(t)
	nc := devtest.NATS(t)
	stream := s.prefix
	subject := stream + ".changed"
	err := natsjs.EnsureStream(t.Context(), nc, jetstream.StreamConfig{Name: stream, Subjects: []string{subject}})
	if err != nil {
		t.Fatal(err)
	}

	out := outbox.New(outbox.Config{Source: "/shop"})
	producer := s.as("producer")
	if err := out.Check(t.Context(), producer); err != nil {
		t.Errorf("the producer's preflight: %v", err)
	}
	for i := range 20 {
		err := pgx.BeginFunc(t.Context(), producer, func(tx pgx.Tx) error {
			ev := postroom.NewEvent(subject, i)
			ev.ID, ev.Key = fmt.Sprintf("e%d", i), "1"
			if _, err := tx.Exec(t.Context(), "UPDATE account SET n = n + 1"); err != nil {
				return err
			}
			return errors.Join(out.Write(t.Context(), tx, ev), out.Write(t.Context(), tx, ev)) // the second write is recognised
		})
		if err != nil {
			t.Fatal(err)
		}
	}

	run := func(what string, run func(ctx context.Context) error) {
		ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
		done := make(chan error, 1)
		go func() { done <- run(ctx) }()
		t.Cleanup(func() {
			stop()
			if err := <-done; err != nil {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
	run("relay", relay.New(s.as("relay"), natsjs.NewPublisher(nc), relay.Config{Logger: quiet}).Run)

	mended := make(chan struct{})
	in := inbox.New(s.as("inbox"), nc, inbox.Config{IdlePoll: 50 * time.Millisecond, Logger: quiet})
	in.Handle(inbox.Subscription{Name: "mail", Stream: stream, Types: []string{subject}, Order: inbox.SkipKey, Attempts: 1, Workers: 2},
		postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
			switch ev.ID {
			case "e3", "e4":
				select {
				case <-mended:
				default:
					return postroom.Permanent(errOnPurpose)
				}
			case "e5":
				return postroom.Discard("on purpose")
			}
			_, err := tx.Exec(ctx, "INSERT INTO effect VALUES ($1)", ev.ID)
			return err
		}))
	run("inbox", in.Run)
	devtest.Eventually(t, time.Minute, "17 effects, two dead events and a discarded one", func() bool {
		return s.number("SELECT count(*) FROM effect") == 17 && s.number("SELECT count(*) FROM postroom.archive WHERE class = 'discarded'") == 1 && s.number("SELECT count(*) FROM postroom.held WHERE dead_at IS NOT NULL") == 2
	})
	close(mended)

	store, by := deadletter.New(s.as("operator"), deadletter.Config{}), postroom.Audit{Actor: "ann", Reason: "mended"}
	if err := store.Check(t.Context()); err != nil {
		t.Errorf("the operator's preflight: %v", err)
	}
	if n, err := store.Discard(t.Context(), deadletter.Filter{EventID: "e4"}, deadletter.ChangeOptions{}, by); err != nil || n != 1 {
		t.Errorf("discarded %d, %v", n, err)
	}
	job, err := store.CreateReplay(t.Context(), deadletter.Filter{Handler: "mail"}, deadletter.ReplayOptions{}, by)
	if err != nil {
		t.Fatal(err)
	}
	if job, err = store.RunReplay(t.Context(), job.ID, deadletter.RunOptions{}); err != nil || job.Succeeded != 1 {
		t.Errorf("replayed: %+v, %v", job, err)
	}
	if n := s.number("SELECT count(*) FROM effect"); n != 18 {
		t.Errorf("%d effects, want 18", n)
	}
}

// No role can do more than it needs.
func TestRolesHaveNoMoreThanTheyNeed(t *testing.T) {
	t.Parallel()
	s := hire(t)
	for role, refused := range map[string][]string{
		"producer": {
			"SELECT data FROM postroom.outbox", "SELECT * FROM postroom.outbox", "UPDATE postroom.outbox SET data = ''", "DELETE FROM postroom.outbox",
			"INSERT INTO postroom.outbox (xid) VALUES ('1')", "SELECT FROM postroom.relay", "UPDATE postroom.relay SET high = 0",
			"SELECT FROM postroom.held", "SELECT FROM postroom.inbox", "SELECT postroom.grant_relay(current_user::regrole)",
		},
		"relay": {
			"SELECT FROM account", "UPDATE account SET n = 0", "INSERT INTO effect VALUES ('x')", "SELECT FROM effect",
			"INSERT INTO postroom.outbox (source, event_id, digest, type, subject, data) VALUES ('/s', 'x', '', 'a', 'a', '')",
			"UPDATE postroom.outbox SET data = ''", "SELECT FROM postroom.inbox", "DELETE FROM postroom.audit", "SELECT FROM postroom.receipt",
		},
		"inbox": {
			"SELECT FROM account", "SELECT FROM postroom.outbox", "DELETE FROM postroom.outbox", "UPDATE postroom.relay SET high = 0",
			"SELECT actor FROM postroom.audit", "DELETE FROM postroom.audit", "DELETE FROM postroom.archive", "UPDATE postroom.replay SET state = 'done'",
		},
		"operator": {
			"UPDATE postroom.audit SET actor = 'bob'", "DELETE FROM postroom.audit", "TRUNCATE postroom.audit", "DELETE FROM postroom.outbox",
			"UPDATE postroom.outbox SET data = ''", "SELECT postroom.write('/s', 'a', '{}')", "SELECT FROM account", "INSERT INTO effect VALUES ('x')",
			"UPDATE postroom.relay SET high = 0", "UPDATE postroom.relay SET epoch = epoch + 1", "UPDATE postroom.inbox SET dedupe_key = 'x'",
			"DELETE FROM postroom.inbox", "DELETE FROM postroom.republish", "SELECT secrets FROM postroom.webhook_endpoint",
			"UPDATE postroom.webhook_endpoint SET secrets = '{x}'", "UPDATE postroom.webhook_endpoint SET url = 'https://evil.example'", "DELETE FROM postroom.webhook_endpoint",
		},
		"hooks":  {"SELECT FROM postroom.held", "DELETE FROM postroom.audit", "SELECT actor FROM postroom.audit"},
		"sagas":  {"SELECT FROM postroom.held", "SELECT actor FROM postroom.audit", "INSERT INTO postroom.audit (actor, action, events) VALUES ('x', 'saga skip', 1)", "SELECT postroom.decide_saga('a', 'b', 1, 'skip', '', NULL, 'x', '', NULL)"},
		"nobody": {"SELECT FROM postroom.outbox", "SELECT FROM postroom.held", "SELECT postroom.write('/s', 'a', '{}')"},
	} {
		t.Run(role, func(t *testing.T) {
			pool := s.as(role)
			for _, sql := range refused {
				_, err := pool.Exec(t.Context(), sql)
				var pg *pgconn.PgError
				if !errors.As(err, &pg) || pg.Code != "42501" {
					t.Errorf("%s may: %s (%v)", role, sql, err)
				}
			}
		})
	}
}

// A service may begin and run sagas. An operator may decide on them, but not write events.
func TestSagasUnderTheirRoles(t *testing.T) {
	s := hire(t)
	pool := s.as("sagas")
	type state struct{ N int }
	two := saga.Definition[state]{Name: "two", Version: 1, Steps: []saga.Step[state]{
		{Name: "one", Do: saga.Send("one.do", func(s *state) int { return s.N }), Done: saga.On("one.done", func(*state, struct{}) {})},
		{Name: "wait", Done: saga.OnAny("two.approved", func(*state, struct{}) {})},
	}}
	process := saga.New(pool, outbox.New(outbox.Config{Source: "/s"}), two)
	if err := process.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return process.Begin(t.Context(), tx, "k", state{1}) }); err != nil {
			t.Fatal(err)
		}
	}
	handle := func(ev postroom.Event) {
		t.Helper()
		if err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return process.Handle(t.Context(), tx, ev) }); err != nil {
			t.Fatal(err)
		}
	}
	var cmd postroom.Event
	var data []byte
	if err := s.pool.QueryRow(t.Context(), "SELECT event_id, key FROM postroom.outbox").Scan(&cmd.ID, &cmd.Key); err != nil {
		t.Fatal(err)
	}
	handle(cmd.Follow("one.done", nil))
	store := saga.NewStore(s.as("operator"), saga.StoreConfig{})
	id, err := store.Decide(t.Context(), saga.Decision{Saga: "two", Key: "k", Revision: 2, Choice: saga.Skip}, postroom.Audit{Actor: "ann", Reason: "why"})
	if err != nil {
		t.Fatal(err)
	}
	decision := postroom.Event{ID: id, Type: "two.decision", Source: "/operator", Key: "k"}
	if err := s.pool.QueryRow(t.Context(), "SELECT data FROM postroom.outbox WHERE event_id = $1", id).Scan(&data); err != nil {
		t.Fatal(err)
	}
	decision.Data = data
	handle(decision)
	story, err := store.Show(t.Context(), "two", "k")
	if err != nil || story.State != saga.Done {
		t.Errorf("it is %s, %v", story.State, err)
	}
	if err := saga.New(s.as("nobody"), outbox.New(outbox.Config{Source: "/s"}), two).Check(t.Context()); err == nil || !strings.Contains(err.Error(), "grant_sagas") {
		t.Errorf("a role without rights: %v", err)
	}
}

// A manager of endpoints may change them. An operator may disable and enable them, but not see
// a secret.
func TestEndpointsOfWebhooksUnderTheirRoles(t *testing.T) {
	t.Parallel()
	s := hire(t)
	store, by := webhook.NewEndpoints(s.as("hooks"), webhook.EndpointsConfig{}), postroom.Audit{Actor: "ann", Reason: "why"}
	id, _, err := store.Add(t.Context(), webhook.EndpointSpec{URL: "https://example.com"}, by)
	if err != nil {
		t.Fatal(err)
	}
	_, err = store.Rotate(t.Context(), id, "", by)
	operator := webhook.NewEndpoints(s.as("operator"), webhook.EndpointsConfig{})
	if err := errors.Join(err, store.Check(t.Context()), operator.Check(t.Context()), operator.Disable(t.Context(), id, by), operator.Enable(t.Context(), id, by)); err != nil {
		t.Error(err)
	}
	if all, err := operator.List(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("%d endpoints, %v", len(all), err)
	}
	if _, err := operator.Rotate(t.Context(), id, "", by); err == nil || !strings.Contains(err.Error(), "grant_webhooks") {
		t.Errorf("an operator rotates a secret: %v", err)
	}
}

// A sender does all its work with the rights of an inbox and of webhooks, also if it disables an
// endpoint.
func TestWebhooksAreSentUnderTheirRole(t *testing.T) {
	t.Parallel()
	s := hire(t)
	pool := s.as("sender")
	var requests atomic.Int64
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if r.URL.Path == "/gone" {
			w.WriteHeader(http.StatusGone)
		}
	}))
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	in := inbox.New(pool, nil, inbox.Config{IdlePoll: 20 * time.Millisecond, Logger: quiet})
	sender := webhook.NewSender(in, webhook.SenderConfig{
		Name: "webhooks", AllowedPrefixes: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, RootCAs: roots, Logger: quiet,
	})
	in.Handle(inbox.Subscription{Name: "fanout", Workers: 1}, sender.FanOut())
	for _, id := range []string{"works", "gone"} {
		e := webhook.EndpointSpec{ID: id, URL: server.URL + "/" + id}
		if _, _, err := webhook.NewEndpoints(pool, webhook.EndpointsConfig{}).Add(t.Context(), e, postroom.Audit{Actor: "ann"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := in.Accept(t.Context(), "fanout", postroom.Event{Source: "/shop", Type: "order.placed", Data: []byte("1")}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- in.Run(ctx) }()
	devtest.Eventually(t, time.Minute, "a delivery, and a dead one to an endpoint that is gone", func() bool {
		return requests.Load() == 2 && s.number("SELECT count(*) FROM postroom.held") == 1 && s.number("SELECT count(*) FROM postroom.held WHERE class = 'endpoint_disabled'") == 1
	})
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := s.number("SELECT count(*) FROM postroom.audit WHERE action = 'webhook disable' AND actor = 'sender'"); n != 1 {
		t.Errorf("%d rows in the audit, want 1", n)
	}
}
