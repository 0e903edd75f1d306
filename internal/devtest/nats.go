package devtest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/devstack"
)

// broker starts the shared server on its first call, and returns it.
var broker = sync.OnceValues(func() (*devstack.NATS, error) {
	n, err := startNATS()
	if err != nil {
		return nil, err
	}
	running.Store(n)
	conn, err := nats.Connect(n.URL())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	announce("NATS", conn.ConnectedServerVersion(), n.Source(), n.Hostname())
	return n, nil
})

var running atomic.Pointer[devstack.NATS]

func startNATS() (*devstack.NATS, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startPatience)
	defer cancel()
	return devstack.StartNATS(ctx, brokerConfig())
}

// brokerConfig returns the configuration of a server for tests.
func brokerConfig() devstack.NATSConfig { return devstack.NATSConfig{Container: where() == containers} }

// noBroker ends a test because no server could start. It skips the test if there is no program for
// a server.
func noBroker(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, devstack.ErrNoNATS) {
		Missing(t, err)
	}
	t.Fatal(err)
}

func stopNATS() error {
	if n := running.Load(); n != nil {
		return n.Close()
	}
	return nil
}

// SharedNATS returns the server that this process's tests share. Do not stop or close it:
// see [OwnNATS].
func SharedNATS(t testing.TB) *devstack.NATS {
	t.Helper()
	n, err := broker()
	if err != nil {
		noBroker(t, err)
	}
	return n
}

// NATSURL returns the URL of the server that this process's tests share. The tests also
// share its JetStream, so each test must use different names of streams and subjects.
func NATSURL(t testing.TB) string {
	t.Helper()
	return SharedNATS(t).URL()
}

// NATS returns a connection to the server of [NATSURL]. The connection reconnects for ever, and
// buffers nothing while it is down. The connection closes when the test ends.
func NATS(t testing.TB) *nats.Conn {
	t.Helper()
	conn, err := nats.Connect(NATSURL(t),
		nats.Name(t.Name()),
		nats.MaxReconnects(-1),
		nats.ReconnectBufSize(-1), nats.FlusherTimeout(5*time.Second),
		nats.ReconnectWait(50*time.Millisecond),
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// JetStream returns the JetStream API of a connection. It waits up to a minute for an
// answer, because a busy machine may need longer than the client's default of five
// seconds.
func JetStream(t testing.TB, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// Answers waits until the server of a connection answers. Call it after the test has stopped the
// server and started it again. For a moment, the client may still think that its old connection
// works, and lose the messages that the test publishes.
func Answers(t testing.TB, nc *nats.Conn) {
	t.Helper()
	Eventually(t, time.Minute, "the broker to answer on the test's connection", func() bool { return nc.FlushTimeout(time.Second) == nil })
}

// NeedsNATS skips a test if the server of a connection is older than version 2.minor.
func NeedsNATS(t testing.TB, nc *nats.Conn, minor int) {
	t.Helper()
	version := nc.ConnectedServerVersion()
	var has int
	if _, err := fmt.Sscanf(version, "2.%d.", &has); err == nil && has < minor {
		t.Skipf("SKIPPED, NOTHING WAS TESTED: the server has version %s, and this came with 2.%d", version, minor)
	}
}

// OwnNATS returns a server that only this test uses. The test may stop and restart it. OwnNATS
// removes the server when the test ends.
func OwnNATS(t testing.TB) *devstack.NATS {
	t.Helper()
	return own(t, brokerConfig())
}

func own(t testing.TB, cfg devstack.NATSConfig) *devstack.NATS {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startPatience)
	defer cancel()
	n, err := devstack.StartNATS(ctx, cfg)
	if err != nil {
		noBroker(t, err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// PlainNATS returns a connection, with the given options, to a server that only this test uses. The
// parameter configuration is added to the server's configuration file: for instance users,
// accounts, or no JetStream (jetstream: disabled).
func PlainNATS(t testing.TB, configuration string, options ...nats.Option) *nats.Conn {
	t.Helper()
	n := own(t, devstack.NATSConfig{Options: configuration})
	nc, err := nats.Connect(n.URL(), append([]nats.Option{nats.MaxReconnects(-1)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// NATSOfVersion returns the URL of the server of [NATSURL], which tells its clients that it has the
// given version.
func NATSOfVersion(t testing.TB, version string) string {
	t.Helper()
	real, err := url.Parse(NATSURL(t))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go tellVersion(client, real.Host, version)
		}
	}()
	return "nats://" + listener.Addr().String()
}

var versionOfServer = regexp.MustCompile(`"version":"[^"]*"`)

// tellVersion connects a client to a server, and changes the version in what the server tells of
// itself, first and later.
func tellVersion(client net.Conn, address, version string) {
	defer func() { _ = client.Close() }()
	server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", address)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	go func() {
		_, _ = io.Copy(server, client) // ends with the connection
		_ = server.Close()
	}()
	from := bufio.NewReader(server)
	for {
		line, err := from.ReadBytes('\n')
		if bytes.HasPrefix(line, []byte("INFO ")) {
			line = versionOfServer.ReplaceAll(line, []byte(`"version":"`+version+`"`))
		}
		if _, failed := client.Write(line); failed != nil || err != nil {
			return
		}
	}
}

// OwnNATSCluster returns the servers of a cluster that only this test uses. The servers have
// elected a leader. The test may kill, pause, stop and restart them. OwnNATSCluster removes them
// when the test ends.
func OwnNATSCluster(t testing.TB, size int) *devstack.NATSCluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startPatience)
	defer cancel()
	c, err := devstack.StartNATSCluster(ctx, size, brokerConfig())
	if err != nil {
		noBroker(t, err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	conn, err := nats.Connect(c.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js := JetStream(t, conn)
	Eventually(t, startPatience, "the cluster to make a stream on every server", func() bool {
		try, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		_, err := js.CreateOrUpdateStream(try, jetstream.StreamConfig{Name: "TRY", Subjects: []string{"try"}, Replicas: size})
		return err == nil && js.DeleteStream(try, "TRY") == nil
	})
	return c
}
