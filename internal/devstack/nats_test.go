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

func TestNATSTakesOptionsAndOthersWhileItRuns(t *testing.T) {
	t.Parallel()
	user := func(name string) string { return "authorization { user: " + name + ", password: secret }" }
	n, err := devstack.StartNATS(t.Context(), devstack.NATSConfig{Name: "by-name", Options: user("first")})
	check(t, err)
	t.Cleanup(func() { check(t, n.Close()) })
	conn, err := nats.Connect(n.URL(), nats.UserInfo("first", "secret"))
	check(t, err)
	defer conn.Close()
	if got := conn.ConnectedServerName(); got != "by-name" {
		t.Errorf("the server's name is %s", got)
	}
	check(t, n.Reload(user("second")))
	conn, err = nats.Connect(n.URL(), nats.UserInfo("second", "secret"))
	check(t, err)
	conn.Close()
	if conn, err := nats.Connect(n.URL(), nats.UserInfo("first", "secret")); err == nil {
		conn.Close()
		t.Error("the first user is still let in")
	}
	if err := n.Reload("nonsense {"); err == nil {
		t.Error("nonsense was taken for options")
	}
	n.Stop()
	if err := n.Reload(user("third")); err == nil {
		t.Error("a stopped server took options")
	}
}
