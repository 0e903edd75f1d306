package webhook_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/webhook"
)

// tenantOf gives an event to an account.
func tenantOf(account string) func(ev *postroom.Event) {
	return func(ev *postroom.Event) { ev.Headers = map[string]string{"tenant": account} }
}

// Endpoints of two customers are on one host. The endpoints of one customer fail. The other
// customer's endpoint gets its event at once, with its first attempt.
func TestFailingEndpointsDoNotStopOthersOnTheirHost(t *testing.T) {
	t.Parallel()
	const failing = 20
	r, to := newRig(t, func(cfg *webhook.SenderConfig) { cfg.AccountHeader = "tenant" }), newReceiver(t)
	to.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if strings.HasPrefix(req.URL.Path, "/fails") {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		to.ServeHTTP(w, req)
	})
	for n := range failing {
		r.add(webhook.EndpointSpec{ID: fmt.Sprint("fails", n), Account: "one", URL: fmt.Sprint(to.URL, "/fails/", n)})
	}
	r.add(webhook.EndpointSpec{ID: "works", Account: "other", URL: to.URL + "/works"})
	r.run()
	r.emit("e1", tenantOf("one"))
	r.eventually("all to fail or to wait", func() bool {
		return one[int](r, "SELECT count(*) FROM postroom.held WHERE handler = 'webhooks' AND class IS NOT NULL AND claimed_by IS NULL") == failing
	})
	if n := one[int](r, "SELECT count(*) FROM postroom.held WHERE handler = 'webhooks' AND class = 'error' AND attempts = 1"); n != failing {
		t.Errorf("%d deliveries failed, want %d: the others were held back", n, failing)
	}
	r.emit("e2", tenantOf("other"))
	r.eventually("an attempt at the endpoint that works", func() bool {
		_, held := r.heldOf("works")
		return held || len(to.requests()) > 0
	})
	if d, held := r.heldOf("works"); held || len(to.requests()) != 1 {
		t.Errorf("%d requests to the endpoint that works; held: %+v", len(to.requests()), d)
	}
}

// An endpoint hangs and does not read. Another endpoint on the same host still gets its event. The
// two share no connection, so the first endpoint cannot fill the window of the second.
func TestAnEndpointThatDoesNotReadDoesNotStopOthersOnItsHost(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(cfg *webhook.SenderConfig) { cfg.AccountHeader = "tenant" })
	to := &receiver{status: http.StatusNoContent}
	hangs, begun := make(chan struct{}), make(chan struct{}, 100)
	var givenUp atomic.Bool
	to.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/hangs" {
			begun <- struct{}{}
			select {
			case <-hangs:
			case <-req.Context().Done():
				givenUp.Store(true)
			}
			return
		}
		to.ServeHTTP(w, req)
	}))
	to.EnableHTTP2 = true
	to.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	to.Config.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerConnection: 1 << 16, MaxReceiveBufferPerStream: 1 << 16}
	to.StartTLS()
	t.Cleanup(to.Close)
	t.Cleanup(func() { close(hangs) })
	r.add(webhook.EndpointSpec{ID: "hangs", Account: "one", URL: to.URL + "/hangs"})
	r.add(webhook.EndpointSpec{ID: "works", Account: "other", URL: to.URL + "/works"})
	r.run()
	large := []byte(`"` + strings.Repeat("x", postroom.MaxData-2) + `"`)
	r.emit("e1", func(ev *postroom.Event) { tenantOf("one")(ev); ev.Data = large })
	devtest.Receive(t, patience, "a request that hangs", begun)
	r.emit("e2", func(ev *postroom.Event) { tenantOf("other")(ev); ev.Data = large })
	r.eventually("an attempt at the endpoint that works", func() bool {
		_, held := r.heldOf("works")
		return held || len(to.requests()) > 0
	})
	if d, held := r.heldOf("works"); held {
		t.Errorf("the endpoint that works did not get its event: %+v", d)
	}
	if givenUp.Load() {
		t.Error("the endpoint that works got its event only after the sender had given up the request that hangs")
	}
}
