package main

import (
	"net/http/httptest"
	"testing"

	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/webhook"
)

// A receiver of the scheme accepts what the command sends.
func TestWebhookSend(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	const secret = "whsec_dGVzdHMgb2Ygd2ViaG9va3M="
	for name, scheme := range map[string]webhook.Scheme{
		"standard": webhook.Standard(secret), "stripe": webhook.Stripe(secret), "github": webhook.GitHub(secret), "shopify": webhook.Shopify(secret),
		"slack": webhook.Slack(secret), "hmac": webhook.HMAC{Secrets: []string{secret}, Signature: "X-Signature", ID: "X-Webhook-Id", Type: "X-Webhook-Type"},
	} {
		in := inbox.New(pool, nil, inbox.Config{})
		in.Declare(inbox.Subscription{Name: "h"})
		server := httptest.NewServer(webhook.NewReceiver(in, webhook.ReceiverConfig{Source: "/" + name, Handler: "h", Scheme: scheme}))
		env := map[string]string{"WEBHOOK_SECRET": secret}
		postroom(t, env, "webhook", "send", "--scheme", name, "--id", "w-1", "--type", "thing.made", "--times", "2", server.URL).want(t, exitOK).says(t, "w-1 200 OK")
		var id, eventType string
		if err := pool.QueryRow(t.Context(), "SELECT event_id, type FROM postroom.held WHERE source = $1", "/"+name).Scan(&id, &eventType); err != nil || id != "w-1" || eventType != name+".thing.made" {
			t.Errorf("%s: stored %s of type %s, %v", name, id, eventType, err)
		}
		env["WEBHOOK_SECRET"] = "whsec_b3RoZXI="
		postroom(t, env, "webhook", "send", "--scheme", name, server.URL).want(t, exitFailed).says(t, "webhook_verification_failed", "1 of 1 answers are not 2xx")
		server.Close()
	}
	postroom(t, nil, "webhook", "send", "--scheme", "stripe", "http://localhost").want(t, exitUsage).says(t, "set WEBHOOK_SECRET")
	postroom(t, nil, "webhook", "send", "--scheme", "none", "http://localhost").want(t, exitUsage).says(t, "--scheme: want one of")
	postroom(t, nil, "webhook", "send").want(t, exitUsage).says(t, "give the URL of one endpoint")
}
