package devstack_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/devstack"
)

func TestNATSKeepsStreamsAndURLThroughARestart(t *testing.T) {
	t.Parallel()
	n, err := devstack.StartNATS(t.Context(), devstack.NATSConfig{})
	check(t, err)
	t.Cleanup(func() { check(t, n.Close()) })
	url := n.URL()

	conn, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	check(t, err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	check(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
	check(t, err)
	_, err = js.Publish(t.Context(), "s.1", []byte("kept"))
	check(t, err)

	n.Stop()
	n.Stop()
	eventually(t, "the client notices", func() bool { return !conn.IsConnected() })
	check(t, n.Restart(t.Context()))
	if n.URL() != url {
		t.Errorf("URL is %s after the restart, was %s", n.URL(), url)
	}
	eventually(t, "the client is back", conn.IsConnected)

	stream, err := js.Stream(t.Context(), "S")
	check(t, err)
	msg, err := stream.GetMsg(t.Context(), 1)
	check(t, err)
	if string(msg.Data) != "kept" {
		t.Errorf("message is %q", msg.Data)
	}
}

func TestNATSDoesNotRestartAfterClose(t *testing.T) {
	t.Parallel()
	n, err := devstack.StartNATS(t.Context(), devstack.NATSConfig{})
	check(t, err)
	check(t, n.Close())
	check(t, n.Close())
	if err := n.Restart(t.Context()); err == nil {
		t.Error("a closed server restarted")
	}
}
