package webhook_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/webhook"
)

// The answer to the record of a failed attempt is lost, or that to the record of a success. The
// endpoint gets no second request for it, is disabled once, and no longer fails after its success.
func TestRecordsOfAttemptsWhoseAnswersAreLost(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, file string
		status     int
		state      string // of the endpoint, and of its delivery
	}{
		{"it is gone", "failed", http.StatusGone, "disabled, last 410, 1 audited, 1 dead"},
		{"it works again", "succeeded", http.StatusNoContent, "works, last 204, 0 audited, 0 dead"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			line, _, _ := strings.Cut(devtest.SQL(t, "sql/"+tt.file+".sql"), "\n")
			losing := &devtest.Losing{Mark: line}
			r := newRig(t, nil)
			if tt.file == "succeeded" { // the inbox commits it together with the delivery
				losing.Mark = "COMMIT"
				losing.Lost.Store(true)
			}
			pool := losing.Pool(t, r.pool)
			r.in = inbox.New(pool, nil, inbox.Config{IdlePoll: 20 * time.Millisecond, Logger: silent})
			r.sender = webhook.NewSender(r.in, r.cfg)
			r.in.Handle(inbox.Subscription{Name: "fanout"}, r.sender.FanOut())
			to := newReceiver(t)
			to.answer(tt.status)
			r.add(webhook.EndpointSpec{ID: "a", URL: to.URL})
			r.emit("e", nil)
			if tt.file == "succeeded" {
				to.before = func() { losing.Lost.Store(false) }
			}
			r.run()
			r.eventually("an end", func() bool {
				r.overrideNextAtAndPause()
				return one[int](r, "SELECT count(*) FROM postroom.held WHERE dead_at IS NULL") == 0 && losing.Lost.Load()
			})
			got := one[string](r, `SELECT CASE WHEN disabled_at IS NOT NULL THEN 'disabled' WHEN failing_since IS NOT NULL THEN 'fails' ELSE 'works' END || ', last ' || last_status
				|| ', ' || (SELECT count(*) FROM postroom.audit WHERE action = 'webhook disable') || ' audited, ' || (SELECT count(*) FROM postroom.held) || ' dead'
				FROM postroom.webhook_endpoint`)
			if n := len(to.requests()); got != tt.state || n != 1 {
				t.Errorf("%s, after %d requests; want %s, after one", got, n, tt.state)
			}
		})
	}
}
