// Package webhook receives webhooks: it verifies a provider's request, stores it as an event of an
// inbox, and answers after the commit. The inbox then runs a handler for the event. If the handler
// fails, the inbox tries again, and the event takes effect once.
//
//	in.Handle(inbox.Subscription{Name: "payments.apply"}, postroom.JSON(apply))
//	mux.Handle("/webhooks/stripe", webhook.New(in, webhook.Config{
//		Source: "/webhooks/stripe", Handler: "payments.apply",
//		Scheme: webhook.Stripe(os.Getenv("STRIPE_WEBHOOK_SECRET")),
//	}))
//
// # Schemes
//
// A [Scheme] knows how a provider signs: [Standard], [Stripe], [GitHub], [Shopify], [Slack], and
// [HMAC] for other providers. Each accepts several secrets, so that a provider can change its
// secret: add the new secret, let the provider change, remove the old secret.
//
// # What is not covered
//
// Providers deliver in any order, so an event may arrive before the event that caused it. GitHub
// and Shopify do not sign the id of a delivery; see [IDFromBody].
package webhook
