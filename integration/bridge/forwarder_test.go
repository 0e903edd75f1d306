package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	watersql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/postmill"
	"github.com/postroom/postroom/postroomtest"
	"github.com/postroom/postroom/postroomtest/servers"
	"github.com/postroom/postroom/relay"
	"github.com/postroom/postroom/relay/broker"
)

// The program of the guide "Migrate from Watermill": a shop that uses Watermill's forwarder,
// and the same shop afterwards. The guide shows these lines.

var logger watermill.LoggerAdapter = watermill.NopLogger{}

// Order is what the shop sells.
type Order struct {
	ID     string
	Amount int
}

func newMessage(order Order) *message.Message {
	payload, _ := json.Marshal(order) // a string and a number
	msg := message.NewMessage("order "+order.ID, payload)
	msg.Metadata.Set("tenant", "a")
	return msg
}

// placeBefore writes an order, and its message to the forwarder's table.
func placeBefore(ctx context.Context, tx pgx.Tx, order Order) error {
	if _, err := tx.Exec(ctx, "INSERT INTO shop_order VALUES ($1, $2)", order.ID, order.Amount); err != nil {
		return err
	}
	table, err := watersql.NewPublisher(watersql.TxFromPgx(tx), watersql.PublisherConfig{SchemaAdapter: watersql.DefaultPostgreSQLSchema{}}, logger)
	if err != nil {
		return err
	}
	pub := forwarder.NewPublisher(table, forwarder.PublisherConfig{ForwarderTopic: "outbox"})
	return pub.Publish("order.placed", newMessage(order))
}

// runForwarder publishes what is in the table.
func runForwarder(ctx context.Context, pool *pgxpool.Pool, kafka message.Publisher) error {
	table, err := watersql.NewSubscriber(watersql.BeginnerFromPgx(pool), watersql.SubscriberConfig{
		SchemaAdapter:    watersql.DefaultPostgreSQLSchema{},
		OffsetsAdapter:   watersql.DefaultPostgreSQLOffsetsAdapter{},
		InitializeSchema: true,
		PollInterval:     50 * time.Millisecond,
	}, logger)
	if err != nil {
		return err
	}
	f, err := forwarder.NewForwarder(table, kafka, logger, forwarder.Config{ForwarderTopic: "outbox"})
	if err != nil {
		return err
	}
	return f.Run(ctx)
}

var pub = postmill.NewPublisher(outbox.New(outbox.Config{Source: "/shop"}), postmill.PublisherConfig{})

// placeAfter writes an order and its event.
func placeAfter(ctx context.Context, tx pgx.Tx, order Order) error {
	if _, err := tx.Exec(ctx, "INSERT INTO shop_order VALUES ($1, $2)", order.ID, order.Amount); err != nil {
		return err
	}
	return pub.In(tx).Publish("order.placed", newMessage(order))
}

// runRelayAfter publishes what is in the outbox.
func runRelayAfter(ctx context.Context, pool *pgxpool.Pool, kafka message.Publisher) error {
	r := relay.New(pool, postmill.NewBroker(kafka, postmill.BrokerConfig{}), relay.Config{
		AcceptRisks: []broker.Risk{broker.NotInspected, broker.NotVerified},
	})
	return r.Run(ctx)
}

// forwarded counts what the forwarder has still to publish.
const forwarded = `
SELECT count(*) FROM watermill_outbox m, watermill_offsets_outbox o
WHERE (m.transaction_id, m."offset") > (o.last_processed_transaction_id, o.offset_acked)`

// place is placeBefore or placeAfter.
type place func(ctx context.Context, tx pgx.Tx, order Order) error

// market is the receiving side of the shop's messages: a broker, and a consumer that does not
// change.
type market struct {
	pool     *pgxpool.Pool
	channel  *gochannel.GoChannel
	messages <-chan *message.Message
}

func newMarket(t *testing.T) *market {
	t.Helper()
	pool := devtest.Pool(t)
	execute(t, pool, "CREATE TABLE shop_order (id text PRIMARY KEY, amount int)")
	channel := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, logger)
	messages, err := channel.Subscribe(context.Background(), "order.placed")
	must(t, err)
	t.Cleanup(func() { must(t, channel.Close()) })
	return &market{pool, channel, messages}
}

// run runs a program until the test ends or stop is called.
func (m *market) run(t *testing.T, program func(context.Context, *pgxpool.Pool, message.Publisher) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- program(ctx, m.pool, m.channel) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// forward runs the forwarder as soon as its tables exist.
func (m *market) forward(t *testing.T) (stop func()) {
	t.Helper()
	stop = m.run(t, runForwarder)
	devtest.Eventually(t, 10*time.Second, "the forwarder's tables", func() bool {
		return count(t, m.pool, "SELECT count(*) FROM pg_class WHERE relname IN ('watermill_outbox', 'watermill_offsets_outbox')") == 2 &&
			count(t, m.pool, "SELECT count(*) FROM watermill_offsets_outbox") == 1
	})
	return stop
}

// sell places orders and does not commit each third. It returns the committed ones.
func (m *market) sell(t *testing.T, place place, from, to int) (sold map[string]Order) {
	t.Helper()
	sold = map[string]Order{}
	cancelled := errors.New("the customer went away")
	for i := from; i < to; i++ {
		order := Order{ID: fmt.Sprint("o-", i), Amount: i}
		err := pgx.BeginFunc(t.Context(), m.pool, func(tx pgx.Tx) error {
			if err := place(t.Context(), tx, order); err != nil || i%3 != 0 {
				return err
			}
			return cancelled
		})
		if i%3 != 0 {
			must(t, err)
			sold["order "+order.ID] = order
		} else if !errors.Is(err, cancelled) {
			t.Fatal(err)
		}
	}
	return sold
}

// wants fails the test unless exactly one message comes for each order, and no other message.
func (m *market) wants(t *testing.T, sold map[string]Order) {
	t.Helper()
	left := maps.Clone(sold)
	for len(left) > 0 {
		msg := devtest.Receive(t, 20*time.Second, fmt.Sprintf("the messages of %d orders", len(left)), m.messages)
		var order Order
		must(t, json.Unmarshal(msg.Payload, &order))
		if order != left[msg.UUID] || msg.Metadata.Get("tenant") != "a" {
			t.Errorf("message %q %s %v is not of a sale, or arrived twice", msg.UUID, msg.Payload, msg.Metadata)
		}
		delete(left, msg.UUID)
		msg.Ack()
	}
	select {
	case msg := <-m.messages:
		t.Errorf("unexpected message %q %s", msg.UUID, msg.Payload)
		msg.Ack()
	default:
	}
}

// Consumers get the same messages from the forwarder and from the relay.
func TestTheForwarderAndTheRelay(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		place place
		run   func(m *market, t *testing.T) (stop func())
	}{
		{"before", placeBefore, (*market).forward},
		{"after", placeAfter, func(m *market, t *testing.T) func() { return m.run(t, runRelayAfter) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := newMarket(t)
			tt.run(m, t)
			m.wants(t, m.sell(t, tt.place, 0, 60))
		})
	}
}

// The move: the relay starts beside the forwarder. The shop changes over while messages wait
// for the forwarder. The forwarder stops when it has published the last of them.
func TestMoveFromTheForwarderToTheRelay(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	stop := m.forward(t)
	m.wants(t, m.sell(t, placeBefore, 0, 30))
	m.run(t, runRelayAfter)
	sold := m.sell(t, placeBefore, 30, 60)
	maps.Copy(sold, m.sell(t, placeAfter, 60, 90))
	if left := count(t, m.pool, forwarded); left == 0 {
		t.Errorf("the forwarder has no message left, but no consumer received one")
	}
	m.wants(t, sold)
	devtest.Eventually(t, 10*time.Second, "the forwarder to have published all", func() bool { return count(t, m.pool, forwarded) == 0 })
	stop()
	execute(t, m.pool, "DROP TABLE watermill_outbox, watermill_offsets_outbox")
	m.wants(t, m.sell(t, placeAfter, 90, 120))
}

// The next move: the same outbox is published to JetStream. The new relay does not publish what the
// old relay has published, and an inbox handles the rest once.
func TestMoveFromTheBrokerToJetStream(t *testing.T) {
	t.Parallel()
	devtest.Postgres(t) // skipped if there is none
	m, nc := newMarket(t), servers.NATS(t)
	servers.Stream(t, nc, "SHOP", "wm.>")
	execute(t, m.pool, "CREATE TABLE charge (id text)")
	stop := m.run(t, runRelayAfter)
	m.wants(t, m.sell(t, placeAfter, 0, 30))
	stop()
	want := map[string]bool{}
	for _, order := range m.sell(t, placeAfter, 30, 60) {
		want[string(newMessage(order).Payload)] = true
	}
	r := relay.New(m.pool, natsjs.NewPublisher(nc), relay.Config{Logger: quiet})
	postroomtest.Drain(t, r, newInbox(m.pool, nc))
	charges := texts(t, m.pool, "SELECT id FROM charge")
	for _, id := range charges {
		if !want[id] {
			t.Errorf("charge %s is of the other broker, or was made twice", id)
		}
		delete(want, id)
	}
	if len(want) > 0 {
		t.Errorf("%d orders are not charged", len(want))
	}
	m.wants(t, nil)
}

var block = regexp.MustCompile("(?s)```(?:go|sql)\n(.*?)```")

// The guide shows this program under "before" and "after".
func TestTheGuideShowsThisProgram(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/howto/migrate-from-watermill.md")
	must(t, err)
	var source string
	for _, file := range []string{"forwarder_test.go", "router_test.go"} {
		text, err := os.ReadFile(file)
		must(t, err)
		source += words(string(text))
	}
	_, text, found := strings.Cut(string(page), "## 1. ")
	text, _, more := strings.Cut(text, "## 4. ")
	blocks := block.FindAllStringSubmatch(text, -1)
	if !found || !more || len(blocks) < 5 {
		t.Fatalf("the guide has changed: %d blocks", len(blocks))
	}
	for _, b := range blocks {
		for part := range strings.SplitSeq(b[1], "\n\n") {
			if !strings.Contains(source, words(part)) {
				t.Errorf("the guide shows code that is in no test:\n%s", part)
			}
		}
	}
}

// words is a text without its layout.
func words(text string) string { return strings.Join(strings.Fields(text), " ") }
