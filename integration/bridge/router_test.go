package bridge

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/postmill"
	"github.com/postroom/postroom/postroomtest"
	"github.com/postroom/postroom/postroomtest/servers"
	"github.com/postroom/postroom/relay"
)

// runRouter is the process of a service that uses Watermill: a handler that charges orders and
// returns messages, and a handler that receives these messages.
func runRouter(ctx context.Context, pool *pgxpool.Pool) error {
	nc, err := nats.Connect(os.Getenv(natsVar), natsjs.ConnectOptions()...)
	if err != nil {
		return err
	}
	defer nc.Close()
	k, _ := pool.Config().ConnConfig.Tracer.(*killer)
	if k != nil {
		k.nc.Store(nc)
	}
	sub := postmill.NewSubscriber(pool, nc, postmill.SubscriberConfig{
		Group: "billing", Subscription: inbox.Subscription{Workers: 2},
		Inbox: inbox.Config{AckWait: time.Second, IdlePoll: 20 * time.Millisecond, Logger: quiet},
	})
	router, err := newRouter(sub, doomed{pub, k})
	if err != nil {
		return err
	}
	router.AddConsumerHandler("receipt", "charge.made", sub, func(msg *message.Message) error {
		_, err := postmill.Tx(msg.Context()).Exec(msg.Context(), "INSERT INTO receipt VALUES ($1)", string(msg.Payload))
		return err
	})
	return router.Run(ctx)
}

// newRouter returns a Router whose handler commits its effect and its message together.
func newRouter(sub message.Subscriber, pub message.Publisher) (*message.Router, error) {
	router, err := message.NewRouter(message.RouterConfig{}, logger)
	if err != nil {
		return nil, err
	}
	router.AddMiddleware(postmill.Middleware) // before all other middleware
	router.AddHandler("billing", "order.placed", sub, "charge.made", pub, charge)
	return router, nil
}

// charge is a handler of Watermill.
func charge(msg *message.Message) ([]*message.Message, error) {
	tx := postmill.Tx(msg.Context())
	if _, err := tx.Exec(msg.Context(), "INSERT INTO charge VALUES ($1)", string(msg.Payload)); err != nil {
		return nil, err // rolls back, and the message comes again
	}
	return []*message.Message{message.NewMessage("charge of "+msg.UUID, msg.Payload)}, nil
}

// newInbox runs the same handler without a Router.
func newInbox(pool *pgxpool.Pool, nc *nats.Conn) *inbox.Inbox {
	in := inbox.New(pool, nc, inbox.Config{})
	in.Handle(inbox.Subscription{Name: "billing", Stream: "SHOP", Subjects: []string{"wm.order.placed"}}, postmill.Handler(pub, "charge.made", charge))
	return in
}

// doomed is a publisher that may end the process before or after a call.
type doomed struct {
	message.Publisher

	k *killer
}

func (d doomed) Publish(topic string, messages ...*message.Message) error {
	d.k.at("publish", before)
	err := d.Publisher.Publish(topic, messages...)
	d.k.at("publish", after)
	return err
}

// A process ends itself before or after a step.
const (
	before = "before "
	after  = "after "
)

// steps of a delivery to the charging handler. The statements begin with these texts.
var steps = []string{"INSERT INTO postroom.inbox", "INSERT INTO charge", "publish", "INSERT INTO postroom.outbox", "COMMIT"}

// killer kills its process the third time that it reaches a point. It is the tracer of the
// pool.
type killer struct {
	point  string
	passed atomic.Int64
	nc     atomic.Pointer[nats.Conn]

	charging sync.Map // connections that are in the transaction of a charge
}

// at kills the process if this is the point.
func (k *killer) at(step, when string) {
	if k == nil || when+step != k.point || k.passed.Add(1) != 3 {
		return
	}
	if nc := k.nc.Load(); nc != nil {
		_ = nc.FlushTimeout(time.Second) // an ack that was sent too early must show
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// step returns the step of a statement, or an empty text.
func (k *killer) step(conn *pgx.Conn, sql string) string {
	for _, s := range steps {
		if !strings.Contains(sql, s) {
			continue
		}
		switch s {
		case "INSERT INTO charge":
			k.charging.Store(conn, true)
		case "COMMIT":
			if _, ours := k.charging.LoadAndDelete(conn); !ours {
				return ""
			}
		}
		return s
	}
	return ""
}

type stepKey struct{}

// TraceQueryStart is called before a statement is sent.
func (k *killer) TraceQueryStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	step := k.step(conn, data.SQL)
	k.at(step, before)
	return context.WithValue(ctx, stepKey{}, step)
}

// TraceQueryEnd is called when the server has executed it.
func (k *killer) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	step, _ := ctx.Value(stepKey{}).(string)
	k.at(step, after)
}

// TraceBatchStart is called before the statements of a batch are sent.
func (k *killer) TraceBatchStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	found := map[string]string{} // steps by statement
	for _, q := range data.Batch.QueuedQueries {
		if step := k.step(conn, q.SQL); step != "" {
			k.at(step, before)
			found[q.SQL] = step
		}
	}
	return context.WithValue(ctx, stepKey{}, found)
}

// TraceBatchQuery is called when the server has executed one of them.
func (k *killer) TraceBatchQuery(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	found, _ := ctx.Value(stepKey{}).(map[string]string)
	k.at(found[data.SQL], after)
}

// TraceBatchEnd is called at the end of a batch.
func (k *killer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// The process of a Router is killed before or after each step of a handler that returns
// messages. The next process finds each order. In the end each order is charged once and has
// one receipt.
func TestARouterThatIsKilledAtEachStep(t *testing.T) {
	t.Parallel()
	for _, step := range steps {
		for _, when := range []string{before, after} {
			t.Run(when+step, func(t *testing.T) {
				t.Parallel()
				testRouter(t, when+step)
			})
		}
	}
}

const orders = 20

func testRouter(t *testing.T, point string) {
	url, server := devtest.DatabaseURL(t), devtest.OwnNATS(t)
	pool := open(t, url)
	execute(t, pool, "CREATE TABLE charge (id text); CREATE TABLE receipt (id text)")
	nc, err := nats.Connect(server.URL(), natsjs.ConnectOptions()...)
	must(t, err)
	t.Cleanup(nc.Close)
	must(t, natsjs.EnsureStream(t.Context(), nc, jetstream.StreamConfig{Name: "SHOP", Subjects: []string{"wm.>"}}))
	runPart(t, relay.New(pool, natsjs.NewPublisher(nc), relay.Config{Lease: 2 * time.Second, IdlePoll: 20 * time.Millisecond, Logger: quiet}))
	own := postmill.NewPublisher(shop, postmill.PublisherConfig{Pool: pool})
	for i := range orders {
		must(t, own.Publish("order.placed", message.NewMessage(fmt.Sprint("u-", i), fmt.Append(nil, "o-", i))))
	}

	env := []string{dbVar + "=" + url, natsVar + "=" + server.URL()}
	first := start(t, "router", append(env, pointVar+"="+point)...)
	devtest.Receive(t, 20*time.Second, "the end of the first process", first.ended)
	if first.cmd.ProcessState.Success() || first.cmd.ProcessState.Exited() {
		t.Fatalf("the first process was not killed: %v", first.err)
	}
	done := count(t, pool, "SELECT count(*) FROM charge")
	if done >= orders {
		t.Errorf("the kill was too late: %d charges were made before", done)
	}
	start(t, "router", env...)
	devtest.Eventually(t, 30*time.Second, "all to be handled", func() bool {
		return count(t, pool, "SELECT count(*) FROM postroom.inbox") >= 2*orders && count(t, pool, "SELECT count(*) FROM postroom.held") == 0 && isRead(t, nc)
	})
	for _, table := range []string{"charge", "receipt"} {
		if n, different := count(t, pool, "SELECT count(*) FROM "+table), count(t, pool, "SELECT count(DISTINCT id) FROM "+table); n != orders || different != orders {
			t.Errorf("%d rows of %d orders in %s, want one for each of %d", n, different, table, orders)
		}
	}
	if n := count(t, pool, "SELECT count(*) FROM postroom.outbox WHERE type = 'charge.made'"); n != orders {
		t.Errorf("%d messages were produced, want %d", n, orders)
	}
	t.Logf("%d charges were committed at the kill", done)
}

// isRead reports whether the broker has no more messages for a handler.
func isRead(t *testing.T, nc *nats.Conn) bool {
	t.Helper()
	js, err := jetstream.New(nc)
	must(t, err)
	stream, err := js.Stream(t.Context(), "SHOP")
	must(t, err)
	left, found := uint64(0), 0
	consumers := stream.ListConsumers(t.Context())
	for info := range consumers.Info() {
		found++
		left += info.NumPending + uint64(info.NumAckPending) //nolint:gosec // not negative
	}
	must(t, consumers.Err())
	return found == 2 && left == 0
}

// runPart runs a part until the test ends.
func runPart(t testing.TB, part interface {
	Run(ctx context.Context) error
},
) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- part.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("%T: %v", part, err)
		}
	})
}

// The same handler runs in an inbox, without a Router. After it is rewritten for Postroom, it
// goes on where the Router stopped, with messages and with events.
func TestAHandlerWithoutARouter(t *testing.T) {
	t.Parallel()
	devtest.Postgres(t) // skipped if there is none
	pool, nc := servers.Postgres(t), servers.NATS(t)
	servers.Stream(t, nc, "SHOP", "wm.>", "order.>")
	execute(t, pool, "CREATE TABLE shop_order (id text PRIMARY KEY, amount int); CREATE TABLE charge (id text)")
	sell := func(order Order) {
		must(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return placeAfter(t.Context(), tx, order) }))
	}
	drain := func(in *inbox.Inbox) {
		postroomtest.Drain(t, relay.New(pool, natsjs.NewPublisher(nc), relay.Config{Logger: quiet}), in)
	}
	sell(Order{"o-1", 1})
	drain(newInbox(pool, nc))
	postroomtest.RequireWritten(t, pool, postroomtest.Want{Type: "order.placed"}, postroomtest.Want{
		Type: "charge.made", Headers: map[string]string{"watermill-uuid": `"charge of order o-1"`},
	})

	sell(Order{"o-2", 2})
	must(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		return shop.Write(t.Context(), tx, postroom.NewEvent("order.placed", Order{"o-3", 3}))
	}))
	in := inbox.New(pool, nc, inbox.Config{Logger: quiet})
	in.Handle(inbox.Subscription{
		Name:     "billing",
		Stream:   "SHOP",
		Subjects: []string{"wm.order.placed", "order.placed"},
	}, postroom.JSON(func(ctx context.Context, tx pgx.Tx, _ postroom.Event, o Order) error {
		_, err := tx.Exec(ctx, "INSERT INTO charge VALUES ($1)", o.ID)
		return err
	}))
	drain(in)
	if got, want := texts(t, pool, "SELECT id FROM charge ORDER BY id"), []string{"o-2", "o-3", `{"ID":"o-1","Amount":1}`}; !slices.Equal(got, want) {
		t.Errorf("charges %q, want %q", got, want)
	}
}
