package devtest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom/internal/devstack"
)

// broker starts the shared server on its first call.
var broker = sync.OnceValues(func() (*devstack.NATS, error) {
	n, err := startNATS()
	running.Store(n)
	return n, err
})

var running atomic.Pointer[devstack.NATS]

func startNATS() (*devstack.NATS, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startPatience)
	defer cancel()
	return devstack.StartNATS(ctx, devstack.NATSConfig{})
}

func stopNATS() error {
	if n := running.Load(); n != nil {
		return n.Close()
	}
	return nil
}

// NATSURL returns the URL of the embedded server that this process's tests
// share, JetStream included: tests must name their streams and subjects apart.
func NATSURL(t testing.TB) string {
	t.Helper()
	n, err := broker()
	if err != nil {
		t.Fatal(err)
	}
	return n.URL()
}

// NATS returns a connection to the server of [NATSURL]. It reconnects for ever,
// buffers nothing meanwhile, and is closed when the test ends.
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

// OwnNATS returns a server of the test's own, which it may stop and restart.
// It is gone when the test ends.
func OwnNATS(t testing.TB) *devstack.NATS {
	t.Helper()
	n, err := startNATS()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}
