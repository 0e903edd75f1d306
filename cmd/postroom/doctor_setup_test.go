package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	event "github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/relay"
	port "github.com/postroom/postroom/relay/broker"
	"github.com/postroom/postroom/schema"
)

// setupServer is a PostgreSQL server as in production, with a database for each set-up.
type setupServer struct {
	server *devstack.Postgres
	count  int
}

func newSetupServer(t *testing.T) *setupServer {
	t.Helper()
	h := &setupServer{server: devtest.OwnPostgres(t, devstack.Config{Durable: true})}
	pool := h.connect(t, h.database(t, "migrated", ""))
	if _, err := schema.Migrate(t.Context(), pool, ""); err != nil {
		t.Fatal(err)
	}
	pool.Close()
	return h
}

func (h *setupServer) database(t *testing.T, name, from string) string {
	t.Helper()
	url, err := h.server.CreateDatabase(t.Context(), name, from)
	if err != nil {
		t.Fatal(err)
	}
	return url
}

func (h *setupServer) connect(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 16
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// testSetup is a whole set-up: a database, a broker with the stream SHOP, a relay, and an
// inbox with the handler billing and the ordered handler ledger.
type testSetup struct {
	*testing.T

	setupServer *setupServer
	pool        *pgxpool.Pool
	broker      *devstack.NATS
	nc          *nats.Conn
	js          jetstream.JetStream
	env         environment

	stopRelay, stopInbox func()
	written              int
}

// admit makes a healthy set-up that has already handled events.
func (h *setupServer) admit(t *testing.T) *testSetup {
	t.Helper()
	h.count++
	name := fmt.Sprintf("bed%d", h.count)
	url := h.database(t, name, "migrated")
	p := &testSetup{T: t, setupServer: h, broker: devtest.OwnNATS(t), pool: h.connect(t, url)}
	var err error
	p.nc, err = nats.Connect(p.broker.URL(), append(natsjs.ConnectOptions(), nats.ReconnectWait(20*time.Millisecond))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.nc.Close)
	p.js = devtest.JetStream(t, p.nc)
	p.env = environment{"POSTROOM_DATABASE_URL": url, "POSTROOM_NATS_URL": p.broker.URL()}
	p.exec("UPDATE postroom.instance SET id = gen_random_uuid(); CREATE TABLE effect (handler text, event text)")
	p.ensureStream()
	p.startRelay()
	p.startInbox()
	p.work(3)
	return p
}

func (p *testSetup) ensureStream() {
	p.Helper()
	if err := natsjs.EnsureStream(p.Context(), p.nc, jetstream.StreamConfig{Name: "SHOP", Subjects: []string{"order.>"}}); err != nil {
		p.Fatal(err)
	}
}

func (p *testSetup) exec(sql string, args ...any) {
	p.Helper()
	if _, err := p.pool.Exec(p.Context(), sql, args...); err != nil {
		p.Fatalf("%s: %v", sql, err)
	}
}

func (p *testSetup) number(sql string) (n int) {
	p.Helper()
	if err := p.pool.QueryRow(p.Context(), sql).Scan(&n); err != nil {
		p.Fatalf("%s: %v", sql, err)
	}
	return n
}

func (p *testSetup) startRelay() {
	p.Helper()
	p.stopRelay = p.start(relay.New(p.pool, natsjs.NewPublisher(p.nc), relay.Config{}))
}

func (p *testSetup) startInbox() {
	p.Helper()
	in := inbox.New(p.pool, p.nc, inbox.Config{AckWait: time.Second})
	for _, sub := range []inbox.Subscription{{Name: "billing"}, {Name: "ledger", Order: inbox.HoldKey}} {
		sub.Stream, sub.Types, sub.Workers = "SHOP", []string{"order.placed"}, 2
		in.Handle(sub, event.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev event.Event) error {
			_, err := tx.Exec(ctx, "INSERT INTO effect VALUES ($1, $2)", sub.Name, ev.ID)
			return err
		}))
	}
	p.stopInbox = p.start(in)
}

// start runs a part, and returns a function that stops it.
func (p *testSetup) start(r event.Runner) (stop func()) {
	p.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(p.Context()))
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil { // the part refuses some planted faults
			p.Logf("it ended with: %v", err)
		}
	})
	p.Cleanup(stop)
	return stop
}

// write writes events of a type.
func (p *testSetup) write(n int, eventType string) {
	p.Helper()
	shop := outbox.New(outbox.Config{Source: "/shop"})
	for range n {
		p.written++
		ev := event.Event{ID: fmt.Sprintf("e%d", p.written), Type: eventType, Key: "k", ContentType: "text/plain", Data: []byte("x")}
		if err := pgx.BeginFunc(p.Context(), p.pool, func(tx pgx.Tx) error { return shop.Write(p.Context(), tx, ev) }); err != nil {
			p.Fatal(err)
		}
	}
}

// work writes events, and waits until they are handled and that is recorded.
func (p *testSetup) work(n int) {
	p.Helper()
	before := p.number("SELECT count(*) FROM effect")
	p.write(n, "order.placed")
	devtest.Eventually(p, 30*time.Second, "the effects of both handlers", func() bool {
		return p.number("SELECT count(*) FROM effect") == before+2*n
	})
	p.waitUntilRecorded()
}

// waitUntilRecorded waits until the database has recorded which events are published and decided.
func (p *testSetup) waitUntilRecorded() {
	p.Helper()
	last := p.streamInfo().State.LastSeq
	devtest.Eventually(p, 30*time.Second, "all to be recorded", func() bool {
		return p.number("SELECT high FROM postroom.relay") >= p.written &&
			p.number("SELECT (pending <> '{}')::int FROM postroom.relay") == 0 &&
			p.number("SELECT coalesce(max(floor), 0) FROM postroom.subscription WHERE handler = 'ledger' AND floor_id IS NOT NULL") >= int(last) && //nolint:gosec // a few
			p.number("SELECT count(*) FROM postroom.node") == 1
	})
}

func (p *testSetup) streamInfo() *jetstream.StreamInfo {
	p.Helper()
	s, err := p.js.Stream(p.Context(), "SHOP")
	if err != nil {
		p.Fatal(err)
	}
	return s.CachedInfo()
}

// changeStream updates the stream.
func (p *testSetup) changeStream(change func(cfg *jetstream.StreamConfig)) {
	p.Helper()
	cfg := p.streamInfo().Config
	change(&cfg)
	if _, err := p.js.UpdateStream(p.Context(), cfg); err != nil {
		p.Fatal(err)
	}
}

// changeConsumer updates the durable consumer of billing.
func (p *testSetup) changeConsumer(change func(cfg *jetstream.ConsumerConfig)) {
	p.Helper()
	s, err := p.js.Stream(p.Context(), "SHOP")
	if err != nil {
		p.Fatal(err)
	}
	cfg := p.durable().Config
	change(&cfg)
	if _, err := s.UpdateConsumer(p.Context(), cfg); err != nil {
		p.Fatal(err)
	}
}

func (p *testSetup) durable() *jetstream.ConsumerInfo {
	p.Helper()
	s, err := p.js.Stream(p.Context(), "SHOP")
	if err != nil {
		p.Fatal(err)
	}
	for info := range s.ListConsumers(p.Context()).Info() {
		if strings.HasPrefix(info.Name, "billing-") {
			return info
		}
	}
	p.Fatal("billing has no consumer")
	return nil
}

// save copies the storage of the broker. forget restores that copy.
func (p *testSetup) save() (saved string) {
	p.Helper()
	saved = filepath.Join(p.TempDir(), "saved")
	p.whileDown(func() error { return os.CopyFS(saved, os.DirFS(p.broker.Dir())) })
	return saved
}

func (p *testSetup) forget(saved string) {
	p.Helper()
	p.blind()
	p.whileDown(func() error {
		return errors.Join(os.RemoveAll(p.broker.Dir()), os.CopyFS(p.broker.Dir(), os.DirFS(saved)))
	})
}

// noCompare is a publisher that does not compare the streams, like the publishers of older relays.
// With a current publisher, the relay repairs a loss before a test can look for it.
type noCompare struct{ port.Publisher }

func (u noCompare) Abilities() port.Abilities {
	able := u.Publisher.Abilities()
	able.Verifies = false
	return able
}

// blind replaces the relay with one that does not compare the streams, and waits until it leads.
func (p *testSetup) blind() {
	p.Helper()
	r := relay.New(p.pool, noCompare{natsjs.NewPublisher(p.nc)}, relay.Config{AcceptRisks: []port.Risk{port.NotVerified}})
	p.ledAnew(func() {
		p.stopRelay()
		p.stopRelay = p.start(r)
	})
	// A relay takes the lease before it begins to work. If it began to work only after a restart of
	// the broker, the restart would not make it take the lease again.
	devtest.Eventually(p, 30*time.Second, "the relay to work", func() bool {
		h := r.Health()
		return h.State == relay.Leading && h.RecordedAt.After(h.Since)
	})
}

func (p *testSetup) whileDown(do func() error) {
	p.Helper()
	p.ledAnew(func() {
		p.broker.Stop()
		if err := errors.Join(do(), p.broker.Restart(p.Context())); err != nil {
			p.Fatal(err)
		}
		devtest.Answers(p, p.nc)
	})
}

// ledAnew does something that ends the relay's term, and waits until the relay's next term has
// begun.
func (p *testSetup) ledAnew(do func()) {
	p.Helper()
	epoch := p.number("SELECT epoch FROM postroom.relay")
	do()
	devtest.Eventually(p, 30*time.Second, "a relay to lead anew", func() bool {
		return p.number("SELECT coalesce(max(epoch), 0) FROM postroom.relay WHERE expires_at > clock_timestamp()") > epoch
	})
}

// role creates a role, and returns its name and a URL to connect as that role. The role is dropped
// when the test ends.
func (p *testSetup) role(name string) (role, url string) {
	p.Helper()
	role = fmt.Sprintf("%s_%d", name, p.setupServer.count)
	p.exec("CREATE ROLE " + role + " LOGIN")
	p.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), devtest.Patience(p, 10*time.Second))
		defer cancel()
		if _, err := p.pool.Exec(ctx, "DROP OWNED BY "+role+"; DROP ROLE "+role); err != nil {
			p.Error(err)
		}
	})
	return role, strings.Replace(databaseURL(p.pool), "postgres@", role+"@", 1)
}

// namesOf returns the check and subject of each finding, and "(warning)" if it is a warning.
func namesOf(findings []finding) []string {
	var names []string
	for _, f := range findings {
		name := f.Check + ":" + f.Subject
		if f.Severity == "warning" {
			name += " (warning)"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// reset resets a setting of the server to its default.
func (h *setupServer) reset(within time.Duration, name string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	conn, err := pgx.Connect(ctx, h.server.URL())
	if err != nil {
		return "", err
	}
	_, err = conn.Exec(ctx, "ALTER SYSTEM RESET "+name)
	if err == nil {
		_, err = conn.Exec(ctx, "SELECT pg_reload_conf()")
	}
	return name, errors.Join(err, conn.Close(ctx))
}
