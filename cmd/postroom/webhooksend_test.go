package main

import (
	"context"
	"net/http/httptest"
	"testing"

	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/webhook"
)

// storing is an inbox that stores everything.
type storing struct{ events *[]inbox.Acceptance }

func (s storing) AcceptAll(_ context.Context, all ...inbox.Acceptance) ([]inbox.AcceptResult, error) {
	*s.events = append(*s.events, all...)
	return []inbox.AcceptResult{inbox.Stored}, nil
}

// A receiver of the scheme accepts what the command sends.
func TestWebhookSend(t *testing.T) {
	t.Parallel()
	const secret = "whsec_dGVzdHMgb2Ygd2ViaG9va3M="
	for name, scheme := range map[string]webhook.Scheme{
		"standard": webhook.Standard(secret), "stripe": webhook.Stripe(secret), "github": webhook.GitHub(secret), "shopify": webhook.Shopify(secret),
		"slack": webhook.Slack(secret), "hmac": webhook.HMAC{Secrets: []string{secret}, Signature: "X-Signature", ID: "X-Webhook-Id", Type: "X-Webhook-Type"},
	} {
		var events []inbox.Acceptance
		server := httptest.NewServer(webhook.New(storing{&events}, webhook.Config{Source: "/a", Handler: "h", Scheme: scheme}))
		env := map[string]string{"WEBHOOK_SECRET": secret}
		postroom(t, env, "webhook", "send", "--scheme", name, "--id", "w-1", "--type", "thing.made", "--times", "2", server.URL).want(t, exitOK).says(t, "w-1 200 OK")
		if len(events) != 2 || events[0].Event.ID != "w-1" || events[0].Event.Type != name+".thing.made" {
			t.Errorf("%s: stored %+v", name, events)
		}
		env["WEBHOOK_SECRET"] = "whsec_b3RoZXI="
		postroom(t, env, "webhook", "send", "--scheme", name, server.URL).want(t, exitFailed).says(t, "webhook_verification_failed", "1 of 1 answers are not 2xx")
		server.Close()
	}
	postroom(t, nil, "webhook", "send", "--scheme", "stripe", "http://localhost").want(t, exitUsage).says(t, "set WEBHOOK_SECRET")
	postroom(t, nil, "webhook", "send", "--scheme", "none", "http://localhost").want(t, exitUsage).says(t, "--scheme: want one of")
	postroom(t, nil, "webhook", "send").want(t, exitUsage).says(t, "give the URL of one endpoint")
}
