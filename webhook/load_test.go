package webhook_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/webhook"
)

// manyEndpoints has many endpoints on one server, distinguished by their names.
type manyEndpoints struct {
	*rig

	server *httptest.Server
	healed chan struct{} // closed when all of them work

	mu  sync.Mutex
	got map[string]map[string]int // how often an endpoint got an event
}

// isHealed reports whether the failing endpoints work now.
func (c *manyEndpoints) isHealed() bool {
	select {
	case <-c.healed:
		return true
	default:
		return false
	}
}

func (c *manyEndpoints) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	_, _ = io.Copy(io.Discard, req.Body)
	id, _, _ := strings.Cut(req.Host, ".")
	switch {
	case strings.HasPrefix(id, "hangs") && !c.isHealed():
		select {
		case <-req.Context().Done():
			return
		case <-c.healed:
		}
	case strings.HasPrefix(id, "breaks") && !c.isHealed():
		w.WriteHeader(http.StatusInternalServerError)
		return
	case strings.HasPrefix(id, "moves"):
		w.Header().Set("Connection", "close") // so that its name is looked up again
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.got[id] == nil {
		c.got[id] = make(map[string]int)
	}
	c.got[id][req.Header.Get("webhook-id")]++
}

// count returns how many events came to endpoints whose names begin with the prefix.
func (c *manyEndpoints) count(prefix string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, events := range c.got {
		if strings.HasPrefix(id, prefix) {
			n += len(events)
		}
	}
	return n
}

// newCrowd returns endpoints that work, hang, break, and change their address after the first
// lookup of their name.
func newManyEndpoints(t *testing.T, timeout time.Duration, works, hangs, breaks, moves int) *manyEndpoints {
	t.Helper()
	c := &manyEndpoints{healed: make(chan struct{}), got: make(map[string]map[string]int)}
	c.server = httptest.NewTLSServer(c)
	c.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	t.Cleanup(c.server.Close)
	c.rig = newRig(t, func(cfg *webhook.SenderConfig) {
		cfg.Timeout = timeout
		cfg.Resolver = resolver(func(name string, lookup int) (string, bool) {
			if strings.HasPrefix(name, "moves") && lookup > 1 && !c.isHealed() {
				return "169.254.169.254", true
			}
			return "127.0.0.1", true
		})
	})
	port := c.server.URL[strings.LastIndex(c.server.URL, ":"):]
	for kind, n := range map[string]int{"works": works, "hangs": hangs, "breaks": breaks, "moves": moves} {
		for i := range n {
			id := fmt.Sprintf("%s-%d", kind, i)
			c.add(webhook.EndpointSpec{ID: id, URL: "https://" + id + ".example.com" + port})
		}
	}
	return c
}

// start emits events and runs the sender. It returns how long the working endpoints took.
func (c *manyEndpoints) start(events, works int) time.Duration {
	c.Helper()
	all := make([]inbox.Acceptance, events)
	for i := range all {
		all[i] = inbox.Acceptance{Handler: "fanout", Event: postroom.Event{ID: fmt.Sprintf("e%d", i), Source: "/shop", Type: "order.placed", Data: []byte(`{"n": 1}`)}}
	}
	if _, err := c.in.AcceptAll(c.Context(), all...); err != nil {
		c.Fatal(err)
	}
	began := time.Now()
	c.run()
	c.eventually("the healthy endpoints to have all events", func() bool { return c.count("works") == works*events })
	return time.Since(began)
}

// Endpoints that hang, break, or move to a forbidden address do not delay other endpoints, and
// nothing is lost.
func TestManyEndpoints(t *testing.T) {
	events, timeout, full := 8, 10*time.Second, os.Getenv("POSTROOM_WEBHOOK_FULL") != ""
	if full { // 10,000 deliveries, as in production
		events, timeout = 100, 20*time.Second
	}
	const works, hangs, breaks, moves = 89, 5, 5, 1
	if full {
		alone := newManyEndpoints(t, timeout, works, 0, 0, 0).start(events, works)
		t.Logf("without the others, the healthy endpoints took %s", alone)
	}
	c := newManyEndpoints(t, timeout, works, hangs, breaks, moves)
	t.Logf("together with the others, the healthy endpoints took %s", c.start(events, works))

	c.eventually("the endpoint that moved to have one event, and the others none", func() bool {
		return c.count("moves") == 1 && one[int](c.rig, "SELECT count(*) FROM postroom.held WHERE class = 'permanent' AND dead_at IS NOT NULL") == events-1
	})
	const owed = "SELECT count(*) FROM postroom.held WHERE handler = 'webhooks'"
	c.eventually("the delivered events to be decided, and the others to be held", func() bool {
		return one[int](c.rig, owed) == events*(hangs+breaks)+events-1
	})
	if n := one[int](c.rig, "SELECT count(*) FROM postroom.webhook_endpoint WHERE failing_since IS NOT NULL AND id NOT LIKE 'hangs%' AND id NOT LIKE 'breaks%'"); n != 0 {
		t.Errorf("%d healthy endpoints fail", n)
	}

	close(c.healed)
	replayed := c.replay(deadletter.Filter{Class: "permanent"})
	c.eventually("the rest to be delivered", func() bool {
		c.overrideNextAtAndPause()
		return one[int](c.rig, owed) == 0
	})
	if job := <-replayed; job.Succeeded != events-1 {
		t.Errorf("replayed %+v, want %d", job, events-1)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, got := range c.got {
		if len(got) != events {
			t.Errorf("%s got %d events, want %d", id, len(got), events)
		}
		for event, n := range got {
			if n != 1 && !strings.HasPrefix(id, "hangs") {
				t.Errorf("%s got %s %d times", id, event, n)
			}
		}
	}
	if len(c.got) != works+hangs+breaks+moves {
		t.Errorf("%d endpoints got a request", len(c.got))
	}
}
