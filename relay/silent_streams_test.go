package relay_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/relay"
)

// The user of a relay may no longer look at some streams that the relay has published to. Events of the
// other stream do not wait for the answers that never come.
func TestStreamsThatDoNotAnswerDelayNoOther(t *testing.T) {
	t.Parallel()
	const silent = 6
	nc := devtest.PlainNATS(t, `jetstream: enabled
		accounts { shop { jetstream: enabled, users: [
			{user: admin, password: x},
			{user: relay, password: x, permissions: {publish: ["a.>", "$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.INFO.A",
				"$JS.API.STREAM.MSG.GET.*", "$JS.API.CONSUMER.>"], subscribe: "_INBOX.>"}}] } }`,
		nats.UserInfo("admin", "x"))
	pool := devtest.Pool(t)
	js := devtest.JetStream(t, nc)
	create := func(name, subjects string) jetstream.Stream {
		t.Helper()
		s, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{subjects}, Discard: jetstream.DiscardNew})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	a := create("A", "a.>")
	for n := range silent {
		create(fmt.Sprint("S", n), fmt.Sprintf("s%d.>", n))
	}
	write := func(subject string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), "SELECT postroom.write('/shop', $1, '{}')", subject); err != nil {
			t.Fatal(err)
		}
	}
	run := func(user string) (stop func()) {
		conn, err := nats.Connect(nc.ConnectedUrl(), append(natsjs.ConnectOptions(), nats.UserInfo(user, "x"))...)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = relay.New(pool, natsjs.NewPublisher(conn), relay.Config{Streams: []string{"A"}}).Run(ctx) // the end of the test stops it
		}()
		return func() { cancel(); <-done; conn.Close() }
	}
	stop := run("admin")
	write("a.b")
	for n := range silent {
		write(fmt.Sprintf("s%d.b", n))
	}
	devtest.Eventually(t, time.Minute, "all positions", func() bool {
		var positions int
		err := pool.QueryRow(t.Context(), "SELECT count(*) FROM postroom.relay, jsonb_object_keys(streams)").Scan(&positions)
		return err == nil && positions == silent+1
	})
	stop()
	t.Cleanup(run("relay"))
	began := time.Now()
	write("a.b")
	devtest.Eventually(t, 3*time.Minute, "the event of the stream that answers", func() bool {
		info, err := a.Info(t.Context())
		return err == nil && info.State.Msgs == 2
	})
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the event waited %s for %d other streams", took, silent)
	}
}
