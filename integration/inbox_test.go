package integration

import (
	"context"
	"fmt"
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
	"github.com/postroom/postroom/natsjs"
)

// depotPatience is how long these tests wait for what takes seconds on a quiet machine.
const depotPatience = 90 * time.Second

// depot is a stream, and a database in which handlers note their effects.
type depot struct {
	*testing.T

	url    string
	pool   *pgxpool.Pool // the test's own; handlers have others
	js     jetstream.JetStream
	stream string // and the first token of its subjects
}

func openDepot(t *testing.T) *depot {
	t.Helper()
	d := openDepotOn(t, nats.NewInbox()[len("_INBOX."):])
	err := natsjs.EnsureStream(t.Context(), d.js.Conn(), jetstream.StreamConfig{Name: d.stream, Subjects: []string{d.stream + ".>"}})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// openDepotOn opens another database for an existing stream.
func openDepotOn(t *testing.T, stream string) *depot {
	t.Helper()
	d := &depot{T: t, url: devtest.DatabaseURL(t), stream: stream}
	var err error
	if d.pool, err = pgxpool.New(t.Context(), d.url); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.pool.Close)
	d.js = devtest.JetStream(t, devtest.NATS(t))
	d.exec("CREATE TABLE effect (handler text NOT NULL, event text NOT NULL)") // no primary key, so that a second effect shows
	return d
}

func (d *depot) exec(sql string, args ...any) {
	d.Helper()
	if _, err := d.pool.Exec(d.Context(), sql, args...); err != nil {
		d.Fatal(err)
	}
}

// number returns the result of a query for one number.
func (d *depot) number(sql string, args ...any) (n int) {
	d.Helper()
	if err := d.pool.QueryRow(d.Context(), sql, args...).Scan(&n); err != nil {
		d.Fatal(err)
	}
	return n
}

// typed returns an event type of this depot's stream.
func (d *depot) typed(name string) string { return d.stream + "." + name }

// event is an event of a depot.
func (d *depot) event(kind, id string) postroom.Event {
	return postroom.Event{ID: id, Source: "/depot", Type: d.typed(kind), Key: id, ContentType: "application/json", Data: []byte(`"` + id + `"`)}
}

// events are n events of a kind, numbered.
func (d *depot) events(kind, prefix string, n int) []postroom.Event {
	events := make([]postroom.Event, n)
	for i := range events {
		events[i] = d.event(kind, fmt.Sprintf("%s-%d", prefix, i))
	}
	return events
}

// publish stores events in the stream, each as often as it is given. They have no message id
// by which the stream could drop a repetition.
func (d *depot) publish(events ...postroom.Event) {
	d.Helper()
	for _, ev := range events {
		ev.LoggedAt, ev.Time = time.Now(), time.Now()
		header := nats.Header(wire.Encode(ev))
		header.Del(wire.MsgID)
		m := &nats.Msg{Subject: ev.Type, Header: header, Data: ev.Data}
		if _, err := d.js.PublishMsgAsync(m, jetstream.WithStallWait(depotPatience)); err != nil {
			d.Fatal(err)
		}
	}
	devtest.Receive(d, depotPatience, "the broker to take the events", d.js.PublishAsyncComplete())
}

// stored returns how many messages the stream has.
func (d *depot) stored() int {
	d.Helper()
	s, err := d.js.Stream(d.Context(), d.stream)
	if err != nil {
		d.Fatal(err)
	}
	return int(s.CachedInfo().State.Msgs) //nolint:gosec // few
}

// instance is an inbox with a pool of its own, as if in a process of its own.
type instance struct {
	*inbox.Inbox

	d     *depot
	pool  *pgxpool.Pool
	meter *sdk.ManualReader
}

// instance makes an inbox. It is closed at the test's end.
func (d *depot) instance(cfg inbox.Config, tracer pgx.QueryTracer) *instance {
	d.Helper()
	pc, err := pgxpool.ParseConfig(d.url)
	if err != nil {
		d.Fatal(err)
	}
	pc.MaxConns, pc.ConnConfig.Tracer = 12, tracer
	pool, err := pgxpool.NewWithConfig(d.Context(), pc)
	if err != nil {
		d.Fatal(err)
	}
	d.Cleanup(pool.Close)
	c := &instance{d: d, pool: pool, meter: sdk.NewManualReader()}
	cfg.MeterProvider, cfg.Logger = sdk.NewMeterProvider(sdk.WithReader(c.meter)), quiet
	c.Inbox = inbox.New(pool, devtest.NATS(d.T), cfg)
	return c
}

// start runs the inbox until the returned function is called, once or more often.
func (c *instance) start() (stop func()) {
	c.d.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.d.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := c.Run(ctx); err != nil {
			c.d.Errorf("Run = %v", err)
		}
	})
	stop = func() { cancel(); running.Wait() }
	c.d.Cleanup(stop)
	return stop
}

// counted returns how many deliveries to a handler, and runs from held, had this outcome.
func (c *instance) counted(handler, outcome string) (n int) {
	c.d.Helper()
	var all metricdata.ResourceMetrics
	if err := c.meter.Collect(c.d.Context(), &all); err != nil {
		c.d.Fatal(err)
	}
	want := attribute.NewSet(telemetry.Handler.String(handler), telemetry.Outcome.String(outcome))
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == telemetry.InboxDelivered {
				for _, point := range sum.DataPoints {
					if point.Attributes.Equals(&want) {
						n += int(point.Value)
					}
				}
			}
		}
	}
	return n
}

// noting is a handler that notes each event.
func noting(name string) postroom.Handler {
	return postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		return note(ctx, tx, name, ev)
	})
}

func note(ctx context.Context, tx pgx.Tx, name string, ev postroom.Event) error {
	_, err := tx.Exec(ctx, "INSERT INTO effect VALUES ($1, $2)", name, ev.ID)
	return err
}

// consumers returns the durable consumers of a handler.
func (d *depot) consumers(handler string) (found []*jetstream.ConsumerInfo) {
	d.Helper()
	s, err := d.js.Stream(d.Context(), d.stream)
	if err != nil {
		d.Fatal(err)
	}
	list := s.ListConsumers(d.Context())
	for info := range list.Info() {
		if info.Config.Metadata["postroom-handler"] == handler {
			found = append(found, info)
		}
	}
	if list.Err() != nil {
		d.Fatal(list.Err())
	}
	return found
}

// isDrained reports whether the broker has delivered everything to a handler, and waits for no
// answer. A consumer that was just made may have nothing pending yet.
func (d *depot) isDrained(handler string) bool {
	d.Helper()
	s, err := d.js.Stream(d.Context(), d.stream)
	if err != nil {
		d.Fatal(err)
	}
	all := d.consumers(handler)
	for _, info := range all {
		if info.Delivered.Stream < s.CachedInfo().State.LastSeq || info.NumPending > 0 || info.NumAckPending > 0 {
			return false
		}
	}
	return len(all) > 0
}

// heldCount returns how many events of a handler are held and not dead.
func (d *depot) heldCount(handler string) int {
	d.Helper()
	return d.number("SELECT count(*) FROM postroom.held WHERE handler = $1 AND dead_at IS NULL", handler)
}

// waitUntilIdle waits until every published event is decided, and no event is held that is not dead.
func (d *depot) waitUntilIdle(handlers ...string) {
	d.Helper()
	for _, name := range handlers {
		devtest.Eventually(d.T, depotPatience, "every event to be decided at "+name, func() bool {
			return d.isDrained(name) && d.heldCount(name) == 0
		})
	}
}

// tally returns how often each event took effect at a handler.
func (d *depot) tally(handler string) map[string]int {
	d.Helper()
	rows, _ := d.pool.Query(d.Context(), "SELECT event FROM effect WHERE handler = $1", handler)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		d.Fatal(err)
	}
	n := map[string]int{}
	for _, id := range ids {
		n[id]++
	}
	return n
}
