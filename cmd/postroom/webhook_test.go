package main

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/webhook"
)

func TestEndpointsOnTheCommandLine(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	env := inDatabase(s.pool)
	postroom(t, env, "webhook", "endpoints").want(t, exitOK).says(t, "there are no endpoints")
	postroom(t, env, "webhook", "add").want(t, exitUsage).says(t, "give one URL")
	postroom(t, env, "webhook", "add", "http://example.com").want(t, exitFailed).says(t, "https://")
	added := decode[map[string]string](t, postroom(t, env, "webhook", "add", "https://example.com/x", "--account", "acme", "--type", "order.placed", "--json").want(t, exitOK))
	id := added["id"]
	if !strings.HasPrefix(added["secret"], "whsec_") || id == "" {
		t.Errorf("added %v", added)
	}
	postroom(t, env, "webhook", "add", "https://example.com", "--id", "b").want(t, exitOK).says(t, "endpoint: b\nsecret:   whsec_")
	postroom(t, env, "webhook", "rotate", "b").want(t, exitOK).says(t, "secret:   whsec_")
	postroom(t, env, "webhook", "rotate", "c").want(t, exitFailed).says(t, "there is no such endpoint")
	postroom(t, env, "webhook", "disable", "b").want(t, exitUsage).says(t, "give a --reason: the audit keeps it")
	postroom(t, env, "webhook", "disable", "b", "--reason", "the customer left", "--actor", "ann").want(t, exitOK).says(t, "disabled; events that wait", "postroom webhook enable b, then postroom dead replay --class endpoint_disabled --key b")
	postroom(t, env, "webhook", "test", "b").want(t, exitFailed).says(t, "the endpoint is disabled")
	postroom(t, env, "webhook", "endpoints").want(t, exitOK).says(t, id, "acme", "order.placed", "new", "the customer left", "https://example.com/x")
	s.exec(t, "UPDATE postroom.webhook_endpoint SET failing_since = '2026-01-02T03:04:05Z' WHERE id <> 'b'")
	postroom(t, env, "status").want(t, exitOK).says(t, "webhook endpoints that fail: 1, "+id+" since 2026-01-02T03:04:05Z", "webhook endpoints that are disabled: 1")
	s.exec(t, "UPDATE postroom.webhook_endpoint SET paused_until = '2126-01-02T03:04:05Z' WHERE id <> 'b'")
	postroom(t, env, "webhook", "endpoints").want(t, exitOK).says(t, "fails since 2026-01-02T03:04:05Z, paused until 2126-01-02T03:04:05Z")
	for _, status := range []string{"503", "0"} {
		s.exec(t, "UPDATE postroom.webhook_endpoint SET last_status = "+status+", last_at = now() WHERE id <> 'b'")
		postroom(t, env, "webhook", "endpoints").want(t, exitOK).says(t, "LAST STATUS", "paused until 2126-01-02T03:04:05Z   "+status+" ")
	}
	postroom(t, env, "webhook", "enable", "b").want(t, exitOK).says(t, "enabled")
	postroom(t, env, "webhook", "test", "b").want(t, exitOK).says(t, "is due")
	postroom(t, env, "webhook", "resend", id).want(t, exitUsage).says(t, "--since")
	postroom(t, env, "webhook", "resend", id, "--since", "1h", "--account-header", "tenant").want(t, exitUsage).says(t, "--type is required")
	postroom(t, env, "webhook", "resend", id, "--since", "1h", "--type", "order.placed", "--account-header", "").want(t, exitUsage).says(t, "--account-header")
	for _, accounts := range [][]string{nil, {"--account-header", "tenant", "--no-accounts"}} {
		args := append([]string{"webhook", "resend", id, "--since", "1h", "--type", "order.placed"}, accounts...)
		postroom(t, env, args...).want(t, exitUsage).says(t, "give --account-header", "or else --no-accounts")
	}
	postroom(t, env, "webhook", "resend", id, "--since", "1h", "--type", "order.placed", "--account-header", "tenant").want(t, exitOK).says(t, "0 events due")
	postroom(t, env, "webhook", "resend", id, "--since", "1h", "--type", "order.placed", "--no-accounts").want(t, exitOK).says(t, "0 events due")
	postroom(t, env, "webhook", "resend", id, "--since", time.Now().Add(-time.Hour).UTC().Format(time.RFC3339), "--type", "order.placed", "--no-accounts").want(t, exitOK).says(t, "0 events due")
	for _, tt := range []struct {
		args []string
		want map[string]any
	}{
		{[]string{"disable", "b", "--reason", "the customer left"}, map[string]any{"id": "b", "state": "disabled"}},
		{[]string{"enable", "b"}, map[string]any{"id": "b", "state": "enabled"}},
		{[]string{"resend", id, "--since", "1h", "--type", "order.placed", "--no-accounts"}, map[string]any{"id": id, "events": 0.0}},
	} {
		got := decode[map[string]any](t, postroom(t, env, append(append([]string{"webhook"}, tt.args...), "--json")...).want(t, exitOK))
		if !maps.Equal(got, tt.want) {
			t.Errorf("webhook %s --json = %v, want %v", tt.args[0], got, tt.want)
		}
	}
	postroom(t, env, "webhook", "remove", id).want(t, exitUsage).says(t, "give a --reason: the audit keeps it")
	removed := decode[map[string]any](t, postroom(t, env, "webhook", "remove", id, "--reason", "the customer left", "--json").want(t, exitOK))
	if want := map[string]any{"id": id, "state": "removed"}; !maps.Equal(removed, want) {
		t.Errorf("webhook remove --json = %v, want %v", removed, want)
	}
	postroom(t, env, "webhook", "remove", id, "--reason", "again").want(t, exitFailed).says(t, "there is no such endpoint")
	tested := decode[map[string]string](t, postroom(t, env, "webhook", "test", "b", "--json").want(t, exitOK))
	if tested["id"] != "b" || tested["event"] == "" {
		t.Errorf("webhook test --json = %v", tested)
	}
	shown, err := json.Marshal(decode[struct{ Endpoints []webhook.Endpoint }](t, postroom(t, env, "webhook", "endpoints", "--json").want(t, exitOK)).Endpoints)
	if err != nil || strings.Contains(string(shown), "whsec_") {
		t.Errorf("endpoints --json: %s, %v", shown, err)
	}
}

// A sender fails to deliver the event of 'webhook test', and delivers another. 'events show' prints the
// failure, and 'held list' shows the event that waits. They find no event that was delivered.
func TestEventsShowPrintsTheFailuresOfATest(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	env := inDatabase(pool)
	var answer atomic.Int64
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(answer.Load())) }))
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	quiet := slog.New(slog.DiscardHandler)
	postroom(t, env, "webhook", "add", server.URL, "--id", "ep").want(t, exitOK)
	postroom(t, env, "webhook", "add", server.URL, "--id", "other").want(t, exitOK)
	for status, says := range map[int]string{http.StatusNoContent: "nothing is known about this event", http.StatusNotFound: "1 attempt, error: handle webhook.test"} {
		answer.Store(int64(status))
		event := decode[map[string]string](t, postroom(t, env, "webhook", "test", "ep", "--json").want(t, exitOK))["event"]
		in := inbox.New(pool, nil, inbox.Config{IdlePoll: 20 * time.Millisecond, Logger: quiet})
		webhook.NewSender(in, webhook.SenderConfig{Name: "webhooks", AllowedPrefixes: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, RootCAs: roots, Logger: quiet})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- in.Run(ctx) }()
		devtest.Eventually(t, 30*time.Second, "an attempt to end", func() bool {
			return rowCount(t, pool, "SELECT count(*) FROM postroom.held WHERE event_id = '"+event+"' AND class IS NULL") == 0
		})
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		code := exitOK
		if status == http.StatusNoContent {
			code = exitFailed
		}
		postroom(t, env, "events", "show", event).want(t, code).says(t, says)
		for _, endpoint := range []string{"ep", "other"} {
			held := postroom(t, env, "held", "list", "--handler", "webhooks", "--key", endpoint).want(t, exitOK)
			if listed := strings.Contains(held.out, event); listed != (status == http.StatusNotFound && endpoint == "ep") {
				t.Errorf("after %d, the event is among those that %s waits for: %t", status, endpoint, listed)
			}
		}
	}
}
