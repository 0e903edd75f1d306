package postmill_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/postroomtest"
	"github.com/postroom/postroom/relay"
)

var shop = outbox.New(outbox.Config{Source: "/shop"})

// inTx runs f in a transaction, and commits it if f returns nil.
func inTx(t testing.TB, pool *pgxpool.Pool, f func(tx pgx.Tx) error) error {
	t.Helper()
	return pgx.BeginFunc(t.Context(), pool, f)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func exec(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	_, err := pool.Exec(t.Context(), sql, args...)
	must(t, err)
}

// count returns the number that a query returns.
func count(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) (n int) {
	t.Helper()
	must(t, pool.QueryRow(t.Context(), sql, args...).Scan(&n))
	return n
}

// written returns the events of the log. It fails the test unless there are n.
func written(t testing.TB, pool *pgxpool.Pool, n int) []postroom.Event {
	t.Helper()
	return postroomtest.RequireWritten(t, pool, make([]postroomtest.Want, n)...)
}

// newMessage returns a message with metadata.
func newMessage(uuid, payload string, metadata ...string) *message.Message {
	msg := message.NewMessage(uuid, []byte(payload))
	for i := 0; i < len(metadata); i += 2 {
		msg.Metadata.Set(metadata[i], metadata[i+1])
	}
	return msg
}

// wantMessage compares UUID, metadata and payload.
func wantMessage(t testing.TB, got, want *message.Message) {
	t.Helper()
	if got.UUID != want.UUID || !bytes.Equal(got.Payload, want.Payload) || !maps.Equal(got.Metadata, want.Metadata) {
		t.Errorf("message %q %q %q, want %q %q %q", got.UUID, got.Metadata, got.Payload, want.UUID, want.Metadata, want.Payload)
	}
}

// rig is the database and the broker of a test that publishes and subscribes.
type rig struct {
	pool *pgxpool.Pool
	nc   *nats.Conn
}

// newRig returns a database, a broker with a stream for wm.>, and a relay that runs until
// the test ends.
func newRig(t testing.TB) rig {
	t.Helper()
	return newRigOf(t, devtest.Pool(t), devtest.OwnNATS(t).URL())
}

func newRigOf(t testing.TB, pool *pgxpool.Pool, natsURL string) rig {
	t.Helper()
	nc := connect(t, natsURL)
	must(t, natsjs.EnsureStream(t.Context(), nc, jetstream.StreamConfig{Name: "WM", Subjects: []string{"wm.>"}}))
	run(t, relay.New(pool, natsjs.NewPublisher(nc), relay.Config{Lease: 2 * time.Second, IdlePoll: 20 * time.Millisecond}))
	return rig{pool, nc}
}

func connect(t testing.TB, url string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, natsjs.ConnectOptions()...)
	must(t, err)
	t.Cleanup(nc.Close)
	return nc
}

// run runs a part until the test ends, or stop is called.
func run(t testing.TB, part postroom.Runner) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- part.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Error(fmt.Errorf("%T: %w", part, err))
		}
	}
	t.Cleanup(stop)
	return stop
}
