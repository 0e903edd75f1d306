package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"strings"
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
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/telemetry"
	"github.com/postroom/postroom/internal/wire"
	"github.com/postroom/postroom/relay"
)

func TestMain(m *testing.M) { devtest.Main(m) }

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
	pool := devtest.Pool(t)
	return newBenchOn(t, pool, devtest.NATS(t))
}

func newBenchOn(t *testing.T, pool *pgxpool.Pool, nc *nats.Conn) *bench {
	t.Helper()
	b := &bench{T: t, pool: pool, nc: nc, stream: nats.NewInbox()[len("_INBOX."):], meter: sdk.NewManualReader()}
	var err error
	if b.js, err = jetstream.New(b.nc); err != nil {
		t.Fatal(err)
	}
	err = relay.EnsureStream(t.Context(), b.nc, jetstream.StreamConfig{Name: b.stream, Subjects: []string{b.stream + ".>"}})
	if err != nil {
		t.Fatal(err)
	}
	b.exec("CREATE TABLE effect (handler text, event text, n serial)")
	b.in = inbox.New(b.pool, b.nc, b.config())
	return b
}

func (b *bench) config() inbox.Config {
	return inbox.Config{AckWait: time.Second, MeterProvider: sdk.NewMeterProvider(sdk.WithReader(b.meter))}
}

func (b *bench) exec(sql string, args ...any) {
	b.Helper()
	if _, err := b.pool.Exec(b.Context(), sql, args...); err != nil {
		b.Fatal(err)
	}
}

// publish sends events as a relay does; their type is <stream>.placed. Each
// has a message id of its own, so that the stream keeps every copy.
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
		Schedule: postroom.Backoff{10 * time.Millisecond, 50 * time.Millisecond},
	}
}

// run runs the inbox and returns what stops it and waits for it.
func (b *bench) run() (stop func()) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.Context()))
	done := make(chan error, 1)
	go func() { done <- b.in.Run(ctx) }()
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

// counted returns how many deliveries to a handler ended so.
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

// drained waits until the broker has nothing more to deliver to a handler, and
// no answer outstanding.
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

func TestEachHandlerAppliesEachEventOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in.Handle(b.subscription("billing"), effect("billing"))
	b.in.Handle(b.subscription("analytics"), effect("analytics"))
	b.run()
	b.publish("a", "b", "a", "c", "a") // copies, as a relay that crashed sends them
	b.eventually("3 effects each", func() bool { return len(b.effects("billing")) == 3 && len(b.effects("analytics")) == 3 })
	b.drained()
	for _, name := range []string{"billing", "analytics"} {
		b.wantOnce(name, "a", "b", "c")
		if got := b.counted(name, "duplicate"); got != 2 {
			t.Errorf("%s counted %d duplicates, want 2", name, got)
		}
		if got := b.counted(name, "done"); got != 3 {
			t.Errorf("%s counted %d done, want 3", name, got)
		}
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	failing := errors.New("not now")
	tests := []struct {
		name string
		fail func(ctx context.Context, tx pgx.Tx) error
	}{
		{"an error", func(context.Context, pgx.Tx) error { return failing }},
		{"an error that says when", func(context.Context, pgx.Tx) error { return postroom.RetryAfter(20*time.Millisecond, failing) }},
		{"a permanent error", func(context.Context, pgx.Tx) error { return postroom.Permanent(failing) }},
		{"a goroutine that is ended", func(context.Context, pgx.Tx) error { runtime.Goexit(); return nil }},
		{"a panic", func(context.Context, pgx.Tx) error { panic("no") }},
		{"a statement that fails", func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SELECT 1/0")
			return err
		}},
		{"a statement whose failure is overlooked", func(ctx context.Context, tx pgx.Tx) error {
			_, _ = tx.Exec(ctx, "SELECT 1/0")
			return nil
		}},
		{"a constraint that fails at the commit", func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO checked VALUES (1), (1)")
			return err
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.exec("CREATE TABLE checked (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
			var mu sync.Mutex
			runs := map[string]int{}
			b.in.Handle(b.subscription("flaky"), postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
				if err := effect("flaky").Handle(ctx, tx, ev); err != nil {
					return err
				}
				mu.Lock()
				runs[ev.ID]++
				first := runs[ev.ID] == 1
				mu.Unlock()
				if first && ev.ID == "bad" {
					return tt.fail(ctx, tx)
				}
				return nil
			}))
			b.run()
			b.publish("bad", "good")
			b.eventually("both effects", func() bool { return len(b.effects("flaky")) == 2 })
			b.drained()
			b.wantOnce("flaky", "bad", "good")
			if got := b.ledger("flaky"); got != 2 {
				t.Errorf("%d ledger rows, want 2", got)
			}
		})
	}
}

func TestAFailedHandlerLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in.Handle(b.subscription("broken"), postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		return errors.Join(effect("broken").Handle(ctx, tx, ev), errors.New("always"))
	}))
	stop := b.run()
	b.publish("a")
	b.eventually("three failures", func() bool { return b.counted("broken", "failed") >= 3 })
	stop()
	b.wantOnce("broken")
	if got := b.ledger("broken"); got != 0 {
		t.Errorf("%d ledger rows of an event that was never handled", got)
	}
}

func TestOneFailingEventDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sub := b.subscription("mixed")
	sub.Workers = 1
	b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		if ev.ID == "bad" {
			return errors.New("always")
		}
		return effect("mixed").Handle(ctx, tx, ev)
	}))
	b.run()
	b.publishRaw(&nats.Msg{Subject: b.stream + ".placed", Header: nats.Header{"ce-id": {"1", "2"}}}) // undecodable
	b.publish("bad")
	var want []string
	for i := range 50 {
		want = append(want, fmt.Sprint("good", i))
	}
	b.publish(want...)
	b.eventually("the good ones", func() bool { return len(b.effects("mixed")) == len(want) })
	b.wantOnce("mixed", want...)
	if b.counted("mixed", "undecodable") == 0 {
		t.Error("the undecodable message was not counted")
	}
}

func TestAnotherEventUnderTheSameIdentityIsNotApplied(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in.Handle(b.subscription("billing"), effect("billing"))
	b.run()
	b.publish("a")
	b.eventually("the effect", func() bool { return len(b.effects("billing")) == 1 })
	b.publishEvent(postroom.Event{ID: "a", Source: "/shop", Type: b.stream + ".placed", Data: []byte("other")})
	b.eventually("the conflict", func() bool { return b.counted("billing", "conflict") > 0 })
	b.publishEvent(postroom.Event{ID: "a", Source: "/bank", Type: b.stream + ".placed", Data: []byte("other")}) // another identity
	b.eventually("the other source's", func() bool { return b.effects("billing")["a"] == 2 })
}

func TestForeignMessagesHaveAnIdentity(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sub := b.subscription("any")
	sub.Types, sub.Subjects = nil, []string{b.stream + ".>"}
	b.in.Handle(sub, effect("any"))
	b.run()
	b.publishRaw(&nats.Msg{Subject: b.stream + ".x", Data: []byte("plain")})
	b.publishRaw(&nats.Msg{Subject: b.stream + ".x", Data: []byte("plain")})
	b.publishRaw(&nats.Msg{Subject: b.stream + ".x", Header: nats.Header{wire.MsgID: {"msg-1"}}})
	b.eventually("three effects", func() bool { return len(b.effects("any")) == 3 })
	if n := b.effects("any")["msg-1"]; n != 1 {
		t.Errorf("effects %v, want one under the message id", b.effects("any"))
	}
}

func TestTypesThatAreNotTakenAreSkipped(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in.Handle(b.subscription("billing"), effect("billing"))
	b.run()
	header := nats.Header(wire.Encode(postroom.Event{ID: "x", Source: "/shop", Type: "something.else", LoggedAt: time.Now(), Time: time.Now()}))
	b.publishRaw(&nats.Msg{Subject: b.stream + ".placed", Header: header})
	b.publish("a")
	b.eventually("the effect", func() bool { return len(b.effects("billing")) == 1 })
	b.drained()
	b.wantOnce("billing", "a")
	if got := b.counted("billing", "skipped"); got != 1 {
		t.Errorf("counted %d skipped, want 1", got)
	}
}

// A handler that takes longer than AckWait keeps its event, and so do events
// that wait for a worker.
func TestSlowHandlersKeepTheirEvents(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var mu sync.Mutex
	runs := 0
	sub := b.subscription("slow")
	sub.Workers = 1
	b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		mu.Lock()
		runs++
		mu.Unlock()
		_, err := tx.Exec(ctx, "SELECT pg_sleep(1.5)") // AckWait is 1 s
		return errors.Join(err, effect("slow").Handle(ctx, tx, ev))
	}))
	b.run()
	b.publish("a", "b", "c")
	b.eventually("three effects", func() bool { return len(b.effects("slow")) == 3 })
	b.drained()
	b.wantOnce("slow", "a", "b", "c")
	if got := b.counted("slow", "duplicate"); got != 0 || runs != 3 {
		t.Errorf("%d runs and %d duplicates, want 3 and 0: the events were delivered again", runs, got)
	}
}

// By default workers leave connections to handlers that use the pool as well.
func TestHandlersMayUseThePool(t *testing.T) {
	t.Parallel()
	cfg, err := pgxpool.ParseConfig(devtest.DatabaseURL(t))
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 4
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	b := newBenchOn(t, pool, devtest.NATS(t))
	sub := b.subscription("pool")
	sub.Workers = 0
	b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		if _, err := pool.Exec(ctx, "SELECT pg_sleep(0.01)"); err != nil {
			return err
		}
		return effect("pool").Handle(ctx, tx, ev)
	}))
	b.run()
	var want []string
	for i := range 50 {
		want = append(want, fmt.Sprint("e", i))
	}
	b.publish(want...)
	b.eventually("all effects", func() bool { return len(b.effects("pool")) == len(want) })
}

func TestReadOnlyDatabaseCostsNoAttempt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in.Handle(b.subscription("billing"), effect("billing"))
	b.exec("ALTER TABLE postroom.inbox RENAME TO gone") // what the ledger refuses says nothing of the event
	b.run()
	b.publish("a")
	b.eventually("the event to be in hand", func() bool {
		stream, err := b.js.Stream(t.Context(), b.stream)
		if err != nil {
			return false
		}
		for info := range stream.ListConsumers(t.Context()).Info() {
			return info.NumAckPending == 1
		}
		return false
	})
	b.exec("ALTER TABLE postroom.gone RENAME TO inbox")
	b.eventually("the effect", func() bool { return len(b.effects("billing")) == 1 })
	if got := b.counted("billing", "failed"); got != 0 {
		t.Errorf("%d attempts were spent on a ledger that took no row", got)
	}
}

func TestRunDrains(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	began, finish := make(chan string, 10), make(chan struct{})
	release := sync.OnceFunc(func() { close(finish) })
	sub := b.subscription("drained")
	sub.Workers = 1
	b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		began <- ev.ID
		<-finish
		return effect("drained").Handle(ctx, tx, ev)
	}))
	stop := b.run()
	t.Cleanup(release) // before the inbox is waited for, should the test fail
	b.publish("a", "b", "c")
	<-began
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	b.eventually("the others to be handed back", func() bool { return b.counted("drained", "released") == 2 })
	release()
	<-stopped
	b.wantOnce("drained", "a") // the one that had begun

	b.in = inbox.New(b.pool, b.nc, b.config())
	b.in.Handle(sub, effect("drained"))
	b.run()
	b.eventually("the rest", func() bool { return len(b.effects("drained")) == 3 })
	b.drained()
	b.wantOnce("drained", "a", "b", "c")
}

func TestDatabaseOutage(t *testing.T) {
	t.Parallel()
	server := devtest.OwnPostgres(t, durable)
	pool := migrated(t, server.URL())
	b := newBenchOn(t, pool, devtest.NATS(t))
	b.in.Handle(b.subscription("billing"), effect("billing"))
	b.run()
	b.publish("before")
	b.eventually("the first effect", func() bool { return len(b.effects("billing")) == 1 })
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	b.publish("during 1", "during 2", "during 3")
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.eventually("all effects", func() bool {
		var n int
		err := pool.QueryRow(t.Context(), "SELECT count(DISTINCT event) FROM effect").Scan(&n)
		return err == nil && n == 4
	})
	b.drained()
	b.wantOnce("billing", "before", "during 1", "during 2", "during 3")
	if got := b.counted("billing", "failed"); got != 0 {
		t.Errorf("the outage cost %d attempts, want none", got)
	}
}

func TestALostConsumerIsMadeAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in.Handle(b.subscription("billing"), effect("billing"))
	b.run()
	b.publish("a")
	b.eventually("the effect", func() bool { return len(b.effects("billing")) == 1 })
	stream, err := b.js.Stream(t.Context(), b.stream)
	if err != nil {
		t.Fatal(err)
	}
	for name := range stream.ConsumerNames(t.Context()).Name() {
		if err := stream.DeleteConsumer(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	b.publish("b")
	b.eventually("the effect after the loss", func() bool { return len(b.effects("billing")) == 2 })
	b.drained()
	b.wantOnce("billing", "a", "b")
}

// A newer process asks for one type more; the older one, which shares the
// consumer, hands its events back.
func TestARollingDeployLosesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in.Handle(b.subscription("billing"), effect("billing"))
	b.run()
	b.publish("a")
	b.eventually("the older process to run", func() bool { return len(b.effects("billing")) == 1 })
	b.in = inbox.New(b.pool, b.nc, b.config())
	sub := b.subscription("billing")
	sub.Types = append(sub.Types, b.stream+".paid")
	b.in.Handle(sub, effect("billing"))
	b.run()
	want := []string{"a"}
	for i := range 50 {
		id := fmt.Sprint("paid", i)
		want = append(want, id)
		b.publishEvent(postroom.Event{ID: id, Source: "/shop", Type: b.stream + ".paid", Data: []byte("1")})
	}
	b.eventually("all effects", func() bool { return len(b.effects("billing")) == len(want) })
	b.drained()
	b.wantOnce("billing", want...)
}

// More events fail than a consumer has pending by default.
func TestAThousandFailingEventsDoNotStopTheOthers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sub := b.subscription("mixed")
	sub.Schedule, sub.Workers = postroom.Backoff{time.Hour}, 4
	b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		if ev.ID != "good" {
			return errors.New("always")
		}
		return effect("mixed").Handle(ctx, tx, ev)
	}))
	for i := range 1100 {
		b.publish(fmt.Sprint("bad", i))
	}
	b.publish("good")
	b.run()
	b.eventually("the good one", func() bool { return len(b.effects("mixed")) == 1 })
}

func TestOnlyNewSurvivesTheLossOfItsConsumer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.publish("old")
	sub := b.subscription("late")
	sub.From = inbox.OnlyNew
	var gate sync.RWMutex // holds the handler up while the consumer is deleted
	b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		gate.RLock()
		defer gate.RUnlock()
		return effect("late").Handle(ctx, tx, ev)
	}))
	b.run()
	b.eventually("the consumer", func() bool {
		s, err := b.js.Stream(t.Context(), b.stream)
		return err == nil && s.CachedInfo().State.Consumers == 1
	})
	gate.Lock()
	var want []string
	for i := range 40 {
		want = append(want, fmt.Sprint("new", i))
	}
	b.publish(want...)
	stream, err := b.js.Stream(t.Context(), b.stream)
	if err != nil {
		t.Fatal(err)
	}
	for name := range stream.ConsumerNames(t.Context()).Name() {
		if err := stream.DeleteConsumer(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	gate.Unlock()
	b.eventually("the new ones", func() bool { return len(b.effects("late")) >= len(want) })
	b.drained()
	b.wantOnce("late", want...)
}

func TestOnlyNewSkipsWhatIsInTheStream(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.publish("old")
	sub := b.subscription("late")
	sub.From = inbox.OnlyNew
	b.in.Handle(sub, effect("late"))
	b.run()
	b.eventually("the consumer", func() bool {
		info, err := b.js.Stream(t.Context(), b.stream)
		return err == nil && info.CachedInfo().State.Consumers == 1
	})
	b.publish("new")
	b.eventually("the new one", func() bool { return len(b.effects("late")) > 0 })
	b.drained()
	b.wantOnce("late", "new")
}

func TestFilterIsWidenedAndNeverNarrowed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	filters := func() string {
		stream, err := b.js.Stream(t.Context(), b.stream)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for info := range stream.ListConsumers(t.Context()).Info() {
			all = append(all, strings.Join(append(info.Config.FilterSubjects, info.Config.FilterSubject), " "))
		}
		return strings.ReplaceAll(strings.TrimSpace(strings.Join(all, " ")), b.stream+".", "")
	}
	for _, step := range []struct{ types, want string }{
		{"placed", "placed"}, {"placed paid", "placed paid"}, {"paid", "placed paid"},
	} {
		b.in = inbox.New(b.pool, b.nc, b.config())
		sub := b.subscription("billing")
		sub.Types = nil
		for _, name := range strings.Fields(step.types) {
			sub.Types = append(sub.Types, b.stream+"."+name)
		}
		b.in.Handle(sub, effect("billing"))
		stop := b.run()
		b.eventually("filter "+step.want, func() bool { return filters() == step.want })
		stop()
		if got := filters(); got != step.want {
			t.Errorf("after %q the filter is %q, want %q", step.types, got, step.want)
		}
	}
}
