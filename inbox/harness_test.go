package inbox_test

import (
	"context"
	"flag"
	"maps"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/telemetry"
	"github.com/postroom/postroom/internal/wire"
	"github.com/postroom/postroom/natsjs"
)

// atOnce is how many tests of this package run at the same time on a machine with fewer processors,
// because most of them wait. The server has connections for as many.
const atOnce = 4

func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue && runtime.GOMAXPROCS(0) < atOnce {
		if err := f.Value.Set(strconv.Itoa(atOnce)); err != nil {
			panic(err)
		}
	}
	devtest.Main(m)
}

// bench is one test's database, stream and inbox.
type bench struct {
	*testing.T

	pool   *pgxpool.Pool
	nc     *nats.Conn
	js     jetstream.JetStream
	stream string // and the first token of its subjects
	in     *inbox.Inbox
	meter  *sdk.ManualReader
}

func newBench(t *testing.T) *bench {
	t.Helper()
	return newBenchOn(t, lentPool(t), devtest.NATS(t))
}

func newBenchOn(t *testing.T, pool *pgxpool.Pool, nc *nats.Conn) *bench {
	t.Helper()
	b := &bench{T: t, pool: pool, nc: nc, stream: nats.NewInbox()[len("_INBOX."):]}
	var err error
	b.js = devtest.JetStream(t, b.nc)
	err = natsjs.EnsureStream(t.Context(), b.nc, jetstream.StreamConfig{Name: b.stream, Subjects: []string{b.stream + ".>"}})
	if err != nil {
		t.Fatal(err)
	}
	b.exec("CREATE TABLE effect (handler text, event text, n serial)")
	b.in = inbox.New(b.pool, b.nc, b.config())
	return b
}

// config returns the configuration of another inbox, with its own counters.
func (b *bench) config() inbox.Config {
	b.meter = sdk.NewManualReader()
	return inbox.Config{AckWait: time.Second, MeterProvider: sdk.NewMeterProvider(sdk.WithReader(b.meter))}
}

func (b *bench) exec(sql string, args ...any) {
	b.Helper()
	if _, err := b.pool.Exec(b.Context(), sql, args...); err != nil {
		b.Fatal(err)
	}
}

// publish sends events as a relay does; their type is <stream>.placed. Each has its own message id,
// so that the stream keeps every copy.
func (b *bench) publish(ids ...string) {
	b.Helper()
	for _, id := range ids {
		b.publishEvent(postroom.Event{ID: id, Source: "/shop", Type: b.stream + ".placed", ContentType: "application/json", Data: []byte(`"` + id + `"`)})
	}
}

func (b *bench) publishEvent(ev postroom.Event) {
	b.Helper()
	ev.LoggedAt, ev.Time = time.Now(), time.Now()
	header := nats.Header(wire.Encode(ev))
	header.Del(wire.MsgID)
	b.publishRaw(&nats.Msg{Subject: ev.Type, Header: header, Data: ev.Data})
}

func (b *bench) publishRaw(m *nats.Msg) {
	b.Helper()
	if _, err := b.js.PublishMsg(b.Context(), m); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) subscription(name string) inbox.Subscription {
	return inbox.Subscription{
		Name: name, Stream: b.stream, Types: []string{b.stream + ".placed"}, Workers: 2,
		Attempts: 5, Schedule: postroom.Backoff{10 * time.Millisecond, 50 * time.Millisecond},
	}
}

// run runs the inbox and returns a function that stops it and waits for it.
func (b *bench) run() (stop func()) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.Context()))
	done := make(chan error, 1)
	in := b.in
	go func() { done <- in.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				b.Errorf("Run = %v, want nil after its context ended", err)
			}
		})
	}
	b.Cleanup(stop)
	return stop
}

// effect is a handler that inserts a row for each event.
func effect(name string) postroom.Handler {
	return postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		_, err := tx.Exec(ctx, "INSERT INTO effect (handler, event) VALUES ($1, $2)", name, ev.ID)
		return err
	})
}

// effects returns how often each event took effect at a handler.
func (b *bench) effects(name string) map[string]int {
	b.Helper()
	rows, _ := b.pool.Query(b.Context(), "SELECT event FROM effect WHERE handler = $1", name)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		b.Fatal(err)
	}
	n := map[string]int{}
	for _, id := range ids {
		n[id]++
	}
	return n
}

func (b *bench) ledger(name string) (n int) {
	b.Helper()
	if err := b.pool.QueryRow(b.Context(), "SELECT count(*) FROM postroom.inbox WHERE handler = $1", name).Scan(&n); err != nil {
		b.Fatal(err)
	}
	return n
}

// heldEntry has the columns of a row of held that tests look at.
type heldEntry struct {
	Key      string
	State    string // due, claimed, waiting or dead
	Attempts int
	Solitary bool
	Class    string
	Failures int
	Raw      bool
}

// held returns the held events of a handler, by dedupe key.
func (b *bench) held(name string) map[string]heldEntry {
	b.Helper()
	rows, _ := b.pool.Query(b.Context(), `
		SELECT dedupe_key, CASE WHEN claimed_by IS NOT NULL THEN 'claimed' WHEN dead_at IS NOT NULL THEN 'dead'
		                        WHEN next_at IS NOT NULL THEN 'due' ELSE 'waiting' END,
		       attempts, solitary, coalesce(class, ''), coalesce(jsonb_array_length(failures), 0), raw_headers IS NOT NULL
		FROM postroom.held WHERE handler = $1`, name)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[heldEntry])
	if err != nil {
		b.Fatal(err)
	}
	byKey := make(map[string]heldEntry, len(all))
	for _, o := range all {
		byKey[o.Key] = o
	}
	return byKey
}

// dead returns how many events of a handler are dead.
func (b *bench) dead(name string) (n int) {
	b.Helper()
	for _, o := range b.held(name) {
		if o.State == "dead" {
			n++
		}
	}
	return n
}

// overrideDeadNextAtAndAttempts makes a dead event due, as an operator would.
func (b *bench) overrideDeadNextAtAndAttempts(name, key string) {
	b.Helper()
	b.exec("UPDATE postroom.held SET dead_at = NULL, next_at = now(), attempts = 0 WHERE handler = $1 AND dedupe_key = $2", name, key)
}

// counted returns how many deliveries to a handler had the given outcome.
func (b *bench) counted(name, outcome string) (n int64) {
	b.Helper()
	var all metricdata.ResourceMetrics
	if err := b.meter.Collect(b.Context(), &all); err != nil {
		b.Fatal(err)
	}
	want := attribute.NewSet(telemetry.Handler.String(name), telemetry.Outcome.String(outcome))
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == telemetry.InboxDelivered {
				for _, point := range sum.DataPoints {
					if point.Attributes.Equals(&want) {
						n += point.Value
					}
				}
			}
		}
	}
	return n
}

func (b *bench) eventually(what string, cond func() bool) {
	b.Helper()
	devtest.Eventually(b.T, 20*time.Second, what, cond)
}

// drained waits until the broker has no more to deliver to a handler, and no delivery is
// unanswered.
func (b *bench) drained() {
	b.Helper()
	b.eventually("the consumers to be drained", func() bool {
		stream, err := b.js.Stream(b.Context(), b.stream)
		if err != nil {
			return false
		}
		for info := range stream.ListConsumers(b.Context()).Info() {
			if info.NumPending > 0 || info.NumAckPending > 0 {
				return false
			}
		}
		return true
	})
}

func (b *bench) wantOnce(name string, ids ...string) {
	b.Helper()
	want := map[string]int{}
	for _, id := range ids {
		want[id] = 1
	}
	if got := b.effects(name); !maps.Equal(got, want) {
		b.Errorf("effects at %s: %v, want %v", name, got, want)
	}
}

// loseConsumers deletes every consumer of the stream.
func (b *bench) loseConsumers() {
	b.Helper()
	stream, err := b.js.Stream(b.Context(), b.stream)
	if err != nil {
		b.Fatal(err)
	}
	for name := range stream.ConsumerNames(b.Context()).Name() {
		if err := stream.DeleteConsumer(b.Context(), name); err != nil {
			b.Fatal(err)
		}
	}
}

// count returns the sum of a counter over all its attributes.
func (b *bench) count(counter string) (n int64) {
	b.Helper()
	var all metricdata.ResourceMetrics
	if err := b.meter.Collect(b.Context(), &all); err != nil {
		b.Fatal(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == counter {
				for _, point := range sum.DataPoints {
					n += point.Value
				}
			}
		}
	}
	return n
}

// twoUsers starts a broker with the users all and some. The user some may not publish to the subjects
// of the parameter denied, which is a list in the form of the server's configuration.
func twoUsers(t *testing.T, denied string) (server *devstack.NATS, connect func(user string) *nats.Conn) {
	t.Helper()
	server, err := devstack.StartNATS(t.Context(), devstack.NATSConfig{Options: `accounts { shop { jetstream: enabled, users: [
		{user: all, password: x}
		{user: some, password: x, permissions: {publish: {deny: ` + denied + `}}} ] } }`})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return server, func(user string) *nats.Conn {
		t.Helper()
		nc, err := nats.Connect(server.URL(), append(natsjs.ConnectOptions(), nats.UserInfo(user, "x"))...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
}
