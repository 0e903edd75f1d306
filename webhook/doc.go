// Package webhook receives webhooks: it verifies a provider's request, stores the request as an
// event of an inbox, and answers after the commit. The inbox runs the event's handler, and tries
// again after a failure, so that the event takes effect once. A [Sender] sends events to customers.
//
//	in.Handle(inbox.Subscription{Name: "payments.apply"}, ChargeSucceeded.Handler(apply))
//	mux.Handle("/webhooks/stripe", webhook.NewReceiver(in, webhook.ReceiverConfig{
//		Source: "/webhooks/stripe", Handler: "payments.apply",
//		Scheme: webhook.Stripe(os.Getenv("STRIPE_WEBHOOK_SECRET")),
//	}))
//
// # Schemes
//
// A [Scheme] knows how a provider signs: [Standard], [Stripe], [GitHub], [Shopify], [Slack], and
// [HMAC] for other providers. Each scheme accepts several secrets. So you can change a secret: add
// the new secret here, let the provider use it, and then remove the old secret.
//
// # What is not covered
//
// Providers deliver in any order, so an event may arrive before the event that caused it. GitHub
// and Shopify do not sign the id of a delivery; see [IDFromBody].
package webhook
