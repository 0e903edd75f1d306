package webhook_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/webhook"
)

// backlog is how many deliveries to one endpoint are due before the delivery to another endpoint.
const backlog = 20_000

// insertDue makes deliveries to an endpoint due. They have been due for longer than all others.
func (r *rig) insertDue(endpoint string, n int) {
	r.Helper()
	r.exec(`INSERT INTO postroom.inbox (handler, dedupe_key) SELECT 'webhooks', $1 || ' /shop p' || n FROM generate_series(1, $2::int) n`, endpoint, n)
	r.exec(`INSERT INTO postroom.held (handler, dedupe_key, next_at, logged_at, source, event_id, type, subject, key, content_type, data)
		SELECT 'webhooks', $1 || ' /shop p' || n, now() - interval '1 minute', now(), '/shop', 'p' || n, 'order.placed', 'order.placed', $1, 'application/json', '{}'
		FROM generate_series(1, $2::int) n`, endpoint, n)
}

// claims returns how often the unfinished deliveries to an endpoint were claimed.
func (r *rig) claims(endpoint string) int {
	r.Helper()
	return one[int](r, "SELECT coalesce(sum(epoch), 0) FROM postroom.held WHERE handler = 'webhooks' AND key = $1", endpoint)
}

// Many due deliveries to a paused endpoint do not delay a delivery to another endpoint: few of them
// are claimed before that one. Their wait costs them no attempt, and they do not come back before
// the pause ends.
func TestAPausedEndpointWithABacklogDoesNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	r, to := newRig(t, nil), newReceiver(t)
	for _, id := range []string{"paused", "works"} {
		r.add(webhook.EndpointSpec{ID: id, URL: to.URL})
	}
	r.exec("UPDATE postroom.webhook_endpoint SET failing_since = now(), paused_until = now() + interval '1 hour' WHERE id = 'paused'")
	r.insertDue("paused", backlog)
	r.insertDue("works", 1)
	r.run()
	r.eventually("the other's delivery", func() bool { return len(to.requests()) > 0 })
	if n := r.claims("paused"); n > backlog/50 {
		t.Errorf("%d claims of deliveries to the paused endpoint before the other's, want %d at most", n, backlog/50)
	}
	r.eventually("all to wait", func() bool {
		return one[int](r, "SELECT count(*) FROM postroom.held WHERE key = 'paused' AND claimed_by IS NULL AND attempts = 0 AND next_at > now() + interval '50 minutes'") == backlog
	})
	if n := one[int](r, "SELECT max(n) FROM (SELECT count(*) AS n FROM postroom.held WHERE key = 'paused' GROUP BY floor(extract(epoch FROM next_at))) AS each"); n > 100+backlog/200 {
		t.Errorf("%d deliveries are due within one second after the pause, want 100, and a few that were claimed before", n)
	}
	if n := len(to.requests()); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}

// The same holds for an endpoint that has as many deliveries under way as it may have.
func TestASlowEndpointWithABacklogDoesNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	r, fast, slow := newRig(t, nil), newReceiver(t), newReceiver(t)
	begun, answer := make(chan struct{}, backlog), make(chan struct{})
	slow.Config.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		begun <- struct{}{}
		<-answer
	})
	r.add(webhook.EndpointSpec{ID: "slow", URL: slow.URL})
	r.add(webhook.EndpointSpec{ID: "works", URL: fast.URL})
	r.insertDue("slow", backlog)
	r.insertDue("works", 1)
	r.run()
	t.Cleanup(func() { close(answer) })
	devtest.Receive(t, patience, "a request to the slow endpoint", begun)
	r.eventually("the other's delivery", func() bool { return len(fast.requests()) > 0 })
	if n := r.claims("slow"); n > backlog/50 {
		t.Errorf("%d claims of deliveries to the slow endpoint before the other's, want %d at most", n, backlog/50)
	}
	if n := one[int](r, "SELECT count(*) FROM postroom.held WHERE key = 'slow' AND attempts > 1 OR dead_at IS NOT NULL"); n != 0 {
		t.Errorf("%d deliveries lost an attempt by waiting", n)
	}
	before := one[time.Time](r, "SELECT max(next_at) FROM postroom.held WHERE key = 'slow'")
	if after := time.Until(before); after > 20*time.Minute {
		t.Errorf("the last delivery to the slow endpoint is due in %s", after)
	}
}
