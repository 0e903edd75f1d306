// Package webhook receives webhooks: it verifies a provider's request, stores it as an event of
// an inbox, and answers after the commit. The inbox then runs a handler for the event, tries
// again if that fails, and lets it take effect once.
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
// [HMAC] for others. Each takes several secrets, so that a provider can change its secret: add
// the new one, let the provider change, remove the old one.
//
// # What is not covered
//
// Providers deliver in any order, so an event may come before the one that caused it. GitHub and
// Shopify do not sign the id of a delivery; see [IDFromBody].
package webhook
