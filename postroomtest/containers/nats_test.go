package containers_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
)

// everyWay runs a test once for each way to run a server: as a process and in a container.
func everyWay(t *testing.T, test func(t *testing.T, cfg devstack.NATSConfig)) {
	ways := map[string]devstack.NATSConfig{"process": {}, "container": {Container: true}}
	for _, name := range slices.Sorted(maps.Keys(ways)) {
		t.Run(name, func(t *testing.T) {
			if ways[name].Container {
				boxes(t)
			}
			t.Parallel()
			test(t, ways[name])
		})
	}
}

func startNATS(t *testing.T, cfg devstack.NATSConfig) *devstack.NATS {
	t.Helper()
	n, err := devstack.StartNATS(t.Context(), cfg)
	check(t, err)
	t.Cleanup(func() { check(t, n.Close()) })
	return n
}

// connect returns a connection that always reconnects.
func connect(t *testing.T, url string) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	conn, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	check(t, err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	check(t, err)
	return conn, js
}

func TestNATSKeepsStreamsAndURLThroughARestart(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, cfg devstack.NATSConfig) {
		cfg.Durable = true
		n := startNATS(t, cfg)
		url := n.URL()
		conn, js := connect(t, url)
		if n.Hostname() != "" && conn.ConnectedServerName() != n.Hostname() {
			t.Errorf("the server's name is %s, want the container's, %s", conn.ConnectedServerName(), n.Hostname())
		}
		_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
		check(t, err)
		_, err = js.Publish(t.Context(), "s.1", []byte("kept"))
		check(t, err)

		for _, end := range []func() error{
			func() error { n.Stop(); n.Stop(); return nil },
			n.Kill,
		} {
			check(t, end())
			devtest.Eventually(t, 20*time.Second, "the client notices", func() bool { return !conn.IsConnected() })
			check(t, n.Restart(t.Context()))
			if n.URL() != url {
				t.Errorf("URL is %s after the restart, was %s", n.URL(), url)
			}
			devtest.Eventually(t, 20*time.Second, "the client is back", conn.IsConnected)
			stream, err := js.Stream(t.Context(), "S")
			check(t, err)
			msg, err := stream.GetMsg(t.Context(), 1)
			check(t, err)
			if string(msg.Data) != "kept" {
				t.Errorf("message is %q", msg.Data)
			}
		}

		dir := filepath.Dir(n.Dir())
		if _, err := os.Stat(n.Dir()); err != nil {
			t.Errorf("the storage cannot be seen: %v", err)
		}
		check(t, n.Close())
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s is left", dir)
		}
		if n.Hostname() != "" && known("container", n.Hostname()) {
			t.Errorf("container %s is left", n.Hostname())
		}
	})
}

func TestAPausedNATSAnswersNobodyUntilItIsResumed(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, cfg devstack.NATSConfig) {
		n := startNATS(t, cfg)
		conn, _ := connect(t, n.URL())
		check(t, n.Pause())
		if err := conn.FlushTimeout(200 * time.Millisecond); err == nil {
			t.Error("a paused server answered")
		}
		check(t, n.Resume())
		check(t, n.Resume())
		check(t, conn.FlushTimeout(20*time.Second))

		check(t, n.Pause()) // a paused server can be killed, stopped and closed
		check(t, n.Kill())
		if err := n.Pause(); err == nil {
			t.Error("a killed server was paused")
		}
		check(t, n.Restart(t.Context()))
		devtest.Eventually(t, 20*time.Second, "the client is back", conn.IsConnected)
		check(t, n.Pause())
		n.Stop()
		check(t, n.Restart(t.Context()))
		devtest.Eventually(t, 20*time.Second, "the client is back", conn.IsConnected)
		check(t, n.Pause())
	})
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
	everyWay(t, func(t *testing.T, cfg devstack.NATSConfig) {
		cfg.Name, cfg.Options = "by-name", user("first")
		n := startNATS(t, cfg)
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
			t.Error("a stopped server accepted options")
		}
	})
}

// Three servers elect a leader, and another one after a server is killed.
func TestNATSClusterStoresTogether(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, cfg devstack.NATSConfig) {
		c, err := devstack.StartNATSCluster(t.Context(), 3, cfg)
		check(t, err)
		t.Cleanup(func() { check(t, c.Close()) })
		_, js := connect(t, c.URL())
		var stream jetstream.Stream
		devtest.Eventually(t, 20*time.Second, "the cluster makes a stream", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			stream, err = js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, Replicas: 3})
			return err == nil
		})
		publish := func() {
			devtest.Eventually(t, 20*time.Second, "the cluster stores", func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				_, err := js.Publish(ctx, "s.1", nil)
				return err == nil
			})
		}
		publish()
		check(t, c.Nodes()[2].Kill())
		publish()
		check(t, c.Nodes()[2].Restart(t.Context()))
		devtest.Eventually(t, 20*time.Second, "the server that was killed catches up", func() bool {
			info, err := stream.Info(t.Context())
			return err == nil && len(info.Cluster.Replicas) == 2 && info.Cluster.Replicas[0].Current && info.Cluster.Replicas[1].Current
		})
		check(t, c.Close())
		check(t, c.Close())
	})
}

func TestAServerThatDoesNotStartSaysWhy(t *testing.T) {
	t.Parallel()
	_, err := devstack.StartNATS(t.Context(), devstack.NATSConfig{Options: "nonsense {"})
	if err == nil || !strings.Contains(err.Error(), "Parse error on line 8") {
		t.Errorf("error is %v, want the server's message about its configuration", err)
	}
}

func TestAPlainNATSHasNoJetStream(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, cfg devstack.NATSConfig) {
		cfg.Options = "jetstream: disabled"
		_, js := connect(t, startNATS(t, cfg).URL())
		if _, err := js.AccountInfo(t.Context()); !errors.Is(err, jetstream.ErrJetStreamNotEnabled) {
			t.Errorf("it says %v, want that it has no JetStream", err)
		}
	})
}
