package inbox_test

import (
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
)

// told is a log that can be read while it is written.
type told struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *told) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *told) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// While the broker is away, the log says so. The handler goes on when the broker is back.
func TestLogReportsThatTheBrokerIsAway(t *testing.T) {
	t.Parallel()
	broker := devtest.OwnNATS(t)
	nc, err := nats.Connect(broker.URL(), natsjs.ConnectOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	b := newBenchOn(t, devtest.Pool(t), nc)
	var log told
	cfg := b.config()
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	b.in = inbox.New(b.pool, nc, cfg)
	b.in.Handle(b.subscription("h"), effect("h"))
	b.publish("before")
	b.run()
	b.eventually("the effect", func() bool { return len(b.effects("h")) == 1 })
	broker.Stop()
	b.eventually("the log to mention it", func() bool {
		return strings.Contains(log.String(), `msg="reading interrupted, will begin again" handler=h error="no connection to the broker"`)
	})
	if err := broker.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	devtest.Answers(t, nc)
	b.publish("after")
	b.eventually("the other effect", func() bool { return len(b.effects("h")) == 2 })
	b.wantOnce("h", "before", "after")
	if strings.Contains(log.String(), "outbound buffer") {
		t.Errorf("the log mentions a buffer that does not exist: %s", log.String())
	}
}
