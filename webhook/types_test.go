package webhook_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/inspect"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/webhook"
)

// A receiver refuses types that no event of its scheme can have, such as the provider's own names:
// it would answer 200 and drop each event.
func TestCheckRefusesTypesThatNoEventHas(t *testing.T) {
	t.Parallel()
	stripe := webhook.Stripe("s")
	for _, tt := range []struct {
		scheme webhook.Scheme
		types  []string
		want   string // in the error; empty if there is none
	}{
		{stripe, []string{"charge.succeeded"}, `"stripe."`},
		{stripe, []string{"stripe.charge.succeeded", "charge.*"}, "charge.*"},
		{stripe, []string{"stripe"}, `"stripe."`},
		{stripe, []string{"stripe.charge.succeeded"}, ""},
		{stripe, []string{"stripe.charge.*", "*.invoice.paid", "stripe.>", ">"}, ""},
		{webhook.IDFromBody(stripe), []string{"charge.succeeded"}, `"stripe."`},
		{webhook.GitHub("s"), []string{"issues.opened"}, `"github."`},
		{webhook.Shopify("s"), []string{"orders.create"}, `"shopify."`},
		{webhook.Slack("s"), []string{"message"}, `"slack."`},
		{webhook.Standard(secret), []string{"invoice.paid"}, `"standard."`},
		{webhook.HMAC{Secrets: []string{"s"}, Signature: "x", ID: "id"}, []string{"paid"}, `"hmac."`},
		{webhook.HMAC{Name: "acme.eu", Secrets: []string{"s"}, Signature: "x", ID: "id"}, []string{"acme.paid"}, `"acme.eu."`},
		{webhook.HMAC{Name: "acme.eu", Secrets: []string{"s"}, Signature: "x", ID: "id"}, []string{"acme.eu.paid", "acme.>"}, ""},
		{verifier(func() (webhook.Message, error) { return webhook.Message{}, errors.New("no") }), []string{"paid"}, ""}, // it does not tell its name
	} {
		e := newEndpoint(t, func(c *webhook.ReceiverConfig) { c.Scheme, c.Types = tt.scheme, tt.types })
		err := e.Check(t.Context())
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%T %q: %v, want nil", tt.scheme, tt.types, err)
		case tt.want != "" && (!errors.Is(err, postroom.ErrUnrecoverable) || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%T %q: %v, want an unrecoverable error with %s", tt.scheme, tt.types, err, tt.want)
		}
	}
	own := newEndpoint(t, func(c *webhook.ReceiverConfig) {
		c.Scheme, c.Types = stripe, []string{"paid"}
		c.Event = func(m webhook.Message, _ http.Header, body []byte) (postroom.Event, error) {
			return postroom.Event{Type: "paid", ID: m.ID, Data: body}, nil
		}
	})
	if err := own.Check(t.Context()); err != nil {
		t.Errorf("with types of its own: %v", err)
	}
}

// If no event of the scheme can have one of the types, each request is a fault: the provider sends it
// again, and nothing is lost. That holds for a scheme that does not tell its name, too.
func TestTypesThatMatchNothingAreAFault(t *testing.T) {
	t.Parallel()
	ofUser := verifier(func() (webhook.Message, error) { return webhook.Message{Scheme: "acme", ID: "a", Type: "paid"}, nil })
	for name, set := range map[string]func(*webhook.ReceiverConfig){
		"a scheme":        func(c *webhook.ReceiverConfig) { c.Types = []string{"invoice.paid"} },
		"a user's scheme": func(c *webhook.ReceiverConfig) { c.Scheme, c.Types = ofUser, []string{"paid"} },
		"tenants": func(c *webhook.ReceiverConfig) {
			c.Types = []string{"invoice.paid"}
			c.Choose = func(*http.Request) (string, webhook.Scheme, error) { return "one", webhook.Standard(secret), nil }
		},
	} {
		e := newEndpoint(t, set)
		e.want(signed(t, "a", `{"type":"invoice.paid"}`), 500, "webhook_misconfigured")
		if len(e.events()) != 0 || !strings.Contains(e.log.String(), "level=ERROR") {
			t.Errorf("%s: stored %v, log:\n%s", name, e.events(), e.log)
		}
	}
}

// muxOf returns a Mux that adds the ids of events to a table, and its types.
func muxOf(types ...string) *postroom.Mux {
	var mux postroom.Mux
	for _, eventType := range types {
		mux.On(eventType, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
			_, err := tx.Exec(ctx, "INSERT INTO effect VALUES ($1)", ev.ID)
			return err
		}))
	}
	return &mux
}

// An inbox does not start if one of its receivers has a fault, even if no process runs the handler
// here.
func TestInboxChecksItsReceivers(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	for name, tt := range map[string]struct {
		set  func(c *webhook.ReceiverConfig)
		want string
	}{
		"an empty secret":                      {func(c *webhook.ReceiverConfig) { c.Scheme = webhook.Stripe("") }, "no secret"},
		"no source":                            {func(c *webhook.ReceiverConfig) { c.Source = "" }, "Source is required"},
		"an unknown handler":                   {func(c *webhook.ReceiverConfig) { c.Handler = "other" }, "no such handler"},
		"a type of the provider":               {func(c *webhook.ReceiverConfig) { c.Types = []string{"charge.succeeded"} }, `"stripe."`},
		"a type that the handler lacks":        {func(c *webhook.ReceiverConfig) { c.Types = []string{"stripe.charge.failed"} }, "which handler h does not take"},
		"wildcards that the handler lacks":     {func(c *webhook.ReceiverConfig) { c.Types = []string{"stripe.refund.*"} }, "which handler h does not take"},
		"a type that the handler has":          {func(c *webhook.ReceiverConfig) { c.Types = []string{"stripe.charge.succeeded"} }, ""},
		"wildcards with a type of the handler": {func(c *webhook.ReceiverConfig) { c.Types = []string{"stripe.charge.*"} }, ""},
		"no fault":                             {func(*webhook.ReceiverConfig) {}, ""},
	} {
		for _, declared := range []bool{false, true} {
			in := inbox.New(pool, nil, inbox.Config{Logger: silent})
			if declared {
				in.Declare(inbox.Subscription{Name: "h", Types: []string{"stripe.charge.succeeded"}})
			} else {
				in.Handle(inbox.Subscription{Name: "h"}, muxOf("stripe.charge.succeeded"))
			}
			cfg := webhook.ReceiverConfig{Source: "/stripe", Handler: "h", Scheme: webhook.Stripe("s"), Logger: silent}
			tt.set(&cfg)
			webhook.NewReceiver(in, cfg)
			for what, start := range map[string]func(context.Context) error{"Check": in.Check, "Run": in.Run} {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				if tt.want == "" && what == "Run" {
					cancel() // Run returns at once
				}
				err := start(ctx)
				switch {
				case tt.want == "" && err != nil:
					t.Errorf("%s, declared %t: %s returned %v", name, declared, what, err)
				case tt.want != "" && (!errors.Is(err, postroom.ErrUnrecoverable) || !strings.Contains(err.Error(), tt.want)):
					t.Fatalf("%s, declared %t: %s returned %v, want %q", name, declared, what, err, tt.want)
				}
				cancel()
			}
		}
	}
	in := inbox.New(pool, nil, inbox.Config{Logger: silent})
	in.Handle(inbox.Subscription{Name: "h"}, muxOf("stripe.charge.succeeded", "charge.refunded"))
	webhook.NewReceiver(in, webhook.ReceiverConfig{Source: "/stripe", Handler: "h", Scheme: webhook.Stripe("s"), Logger: silent})
	if err := in.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "the handler's Types has charge.refunded") {
		t.Errorf("a handler with a type of the provider: %v", err)
	}
}

// A receiver without Types stores only events that its handler, a Mux, knows. So events of other
// types do not delay them.
func TestReceiverStoresTheTypesOfItsHandler(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.exec("CREATE TABLE effect (id text)")
	mux := &postroom.Mux{}
	r.in.Handle(inbox.Subscription{Name: "h"}, mux)
	receiver := webhook.NewReceiver(r.in, webhook.ReceiverConfig{Source: "/acme", Handler: "h", Scheme: webhook.Standard(secret), Patience: patience, Logger: silent})
	*mux = *muxOf("standard.paid") // it gets its handlers only now
	r.run()
	answer := func(id, kind string) {
		t.Helper()
		w := httptest.NewRecorder()
		if receiver.ServeHTTP(w, signed(t, id, `{"type":"`+kind+`"}`)); w.Code != 200 {
			t.Errorf("%s: answered %d %s", id, w.Code, w.Body)
		}
	}
	for n := range 60 {
		answer(fmt.Sprint("unknown", n), fmt.Sprint("other", n))
	}
	for n := range 5 {
		answer(fmt.Sprint("known", n), "paid")
	}
	r.eventually("the known events to take effect", func() bool { return one[int](r, "SELECT count(*) FROM effect WHERE id LIKE 'known%'") == 5 })
	if n := one[int](r, "SELECT count(*) FROM postroom.inbox WHERE handler = 'h'"); n != 5 {
		t.Errorf("%d events were stored, want 5", n)
	}
	ev := postroom.Event{ID: "a", Source: "/acme", Type: "standard.other", Data: []byte("{}")}
	if _, err := r.in.Accept(t.Context(), "h", ev); !errors.Is(err, postroom.ErrUnknownType) {
		t.Errorf("Accept of an unknown type = %v, want ErrUnknownType", err)
	}
}

// The inbox refuses a subscription of FanOut that lacks a type of the sender.
func TestInboxRefusesAFanOutWithoutATypeOfItsSender(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	for _, tt := range []struct {
		types []string // of the subscription
		mux   bool
		want  string
	}{
		{[]string{"order.paid"}, false, "SenderConfig.Types has order.placed"},
		{[]string{"order.paid"}, true, "SenderConfig.Types has order.placed"},
		{[]string{"order.paid", "order.placed", "order.internal"}, false, ""},
		{[]string{"order.paid", "order.placed"}, true, ""},
		{nil, false, ""},
	} {
		in := inbox.New(pool, devtest.NATS(t), inbox.Config{Logger: silent})
		s := webhook.NewSender(in, webhook.SenderConfig{Name: "webhooks", Types: []string{"order.placed", "order.paid"}, AcceptOnly: true, Logger: silent})
		h := s.FanOut()
		if tt.mux {
			var mux postroom.Mux
			for _, eventType := range tt.types {
				mux.On(eventType, s.FanOut())
			}
			h = &mux
		}
		in.Handle(inbox.Subscription{Name: "fanout", Stream: "no-such-stream", Types: tt.types}, h)
		err := in.Check(t.Context())
		if want := cmp.Or(tt.want, "no-such-stream"); !errors.Is(err, postroom.ErrUnrecoverable) || !strings.Contains(err.Error(), want) { // the stream is looked at after the handlers
			t.Errorf("types %q, in a Mux: %t: %v, want %q", tt.types, tt.mux, err, want)
		}
	}
}

// An event belongs to the account that a header names, in upper or lower case.
func TestAccountHeaderInAnyCase(t *testing.T) {
	t.Parallel()
	r, to := newRig(t, func(cfg *webhook.SenderConfig) { cfg.AccountHeader, cfg.Types = "Tenant-Id", []string{"order.placed"} }), newReceiver(t)
	for _, account := range []string{"acme", "other", ""} {
		r.add(webhook.EndpointSpec{ID: cmp.Or(account, "none"), Account: account, URL: to.URL + "/" + account})
	}
	log := outbox.New(outbox.Config{Source: "/shop"})
	err := pgx.BeginFunc(t.Context(), r.pool, func(tx pgx.Tx) error {
		return log.Write(t.Context(), tx, postroom.Event{ID: "written", Type: "order.placed", Headers: map[string]string{"tenant-id": "acme"}, Data: []byte("{}")})
	})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := r.sender.Resend(t.Context(), "acme", time.Now().Add(-time.Hour), ann); err != nil || n != 1 {
		t.Errorf("resent %d events, %v; want 1", n, err)
	}
	r.run()
	r.emit("accepted", func(ev *postroom.Event) { ev.Headers = map[string]string{"TENANT-ID": "acme"} })
	r.eventually("both events to be delivered", func() bool {
		return len(to.requests()) == 2 && one[int](r, "SELECT count(*) FROM postroom.held") == 0
	})
	if n := one[int](r, "SELECT count(*) FROM postroom.inbox WHERE handler = 'webhooks' AND dedupe_key NOT LIKE 'acme %'"); n != 0 {
		t.Errorf("%d deliveries to endpoints of other accounts", n)
	}
	r.cfg.AccountHeader = "tenant id"
	if err := webhook.NewSender(inbox.New(r.pool, nil, inbox.Config{Logger: silent}), r.cfg).Check(t.Context()); err == nil || !strings.Contains(err.Error(), "AccountHeader") {
		t.Errorf("a header that no event can have: %v", err)
	}
}

// overrideTimesOfFilters makes everything that filters noted, and the endpoints, older by a day.
func (r *rig) overrideTimesOfFilters() {
	r.Helper()
	r.exec("UPDATE postroom.filter SET since = since - interval '25 hours', taken_at = taken_at - interval '25 hours'")
	r.exec("UPDATE postroom.webhook_endpoint SET created_at = created_at - interval '25 hours'")
}

// unmatched returns the findings of status about filters.
func (r *rig) unmatched() (texts []string) {
	r.Helper()
	s, err := inspect.New(r.pool, nil, inspect.Config{}).Status(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	for _, f := range s.Findings {
		if f.Code == inspect.FoundNoMatch {
			texts = append(texts, f.Text)
		}
	}
	return texts
}

// Status finds a receiver that takes nothing while events come, and no other.
func TestStatusFindsAReceiverThatTakesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	in := inbox.New(r.pool, nil, inbox.Config{Logger: silent})
	in.Declare(inbox.Subscription{Name: "h"})
	answer := func(receiver *webhook.Receiver, id, kind string) {
		t.Helper()
		w := httptest.NewRecorder()
		if receiver.ServeHTTP(w, signed(t, id, `{"type":"`+kind+`"}`)); w.Code != 200 {
			t.Errorf("%s: answered %d %s", id, w.Code, w.Body)
		}
	}
	receiverOf := func(source string) *webhook.Receiver {
		return webhook.NewReceiver(in, webhook.ReceiverConfig{
			Source: source, Handler: "h", Scheme: webhook.Standard(secret), Types: []string{"standard.paid"}, Patience: patience, Logger: silent,
		})
	}
	never, works, before := receiverOf("/never"), receiverOf("/works"), receiverOf("/before")
	answer(never, "a", "refunded")
	answer(works, "b", "refunded")
	answer(works, "c", "paid")
	answer(before, "d", "paid")
	if found := r.unmatched(); len(found) != 0 {
		t.Errorf("within a day: %q", found)
	}
	r.overrideTimesOfFilters()
	answer(receiverOf("/works"), "e", "paid") // another process
	if found := r.unmatched(); len(found) != 1 || !strings.Contains(found[0], "receiver of webhooks /never has taken no event for 25h") || !strings.Contains(found[0], "standard.refunded") {
		t.Errorf("found %q, want the receiver /never", found)
	}
	answer(receiverOf("/before"), "f", "refunded")
	if found := r.unmatched(); len(found) != 2 {
		t.Errorf("found %q, want the receiver /before, too", found)
	}
	r.exec("UPDATE postroom.filter SET passed_at = passed_at - interval '25 hours'")
	if found := r.unmatched(); len(found) != 0 {
		t.Errorf("nothing came for a day: %q", found)
	}
}

// Status finds a sender that finds no endpoint for any event, and endpoints whose types never come.
func TestStatusFindsASenderWithoutEndpoints(t *testing.T) {
	t.Parallel()
	r, to := newRig(t, func(cfg *webhook.SenderConfig) {
		cfg.AccountHeader, cfg.Types = "tenant", []string{"order.placed", "order.paid"}
	}), newReceiver(t)
	r.add(webhook.EndpointSpec{ID: "wrong", Account: "acme", URL: to.URL, Types: []string{"placed"}})
	r.add(webhook.EndpointSpec{ID: "right", Account: "acme", URL: to.URL, Types: []string{"order.placed", "order.lost"}})
	r.add(webhook.EndpointSpec{ID: "all", Account: "acme", URL: to.URL})
	r.run()
	r.emit("e1", func(ev *postroom.Event) { ev.Headers = map[string]string{"account": "acme"} }) // another header
	internal := postroom.Event{ID: "e2", Source: "/shop", Type: "order.internal"}
	if _, err := r.in.Accept(t.Context(), "fanout", internal); !errors.Is(err, postroom.ErrUnknownType) {
		t.Errorf("Accept of a type that customers do not get: %v, want ErrUnknownType", err)
	}
	err := pgx.BeginFunc(t.Context(), r.pool, func(tx pgx.Tx) error { return r.sender.FanOut().Handle(t.Context(), tx, internal) }) // of a stream
	if err != nil {
		t.Error(err)
	}
	r.eventually("it to be handled", func() bool {
		return one[int](r, "SELECT count(*) FROM postroom.inbox WHERE handler = 'fanout'") == 1 && one[int](r, "SELECT count(*) FROM postroom.held") == 0
	})
	if found := r.unmatched(); len(found) != 0 {
		t.Errorf("within a day: %q", found)
	}
	r.overrideTimesOfFilters()
	found := strings.Join(r.unmatched(), "\n")
	if !strings.Contains(found, "sender of webhooks webhooks has found no endpoint for an event for 25h") ||
		!strings.Contains(found, "none of the types that come: 1, for instance wrong, which gets [placed]; these come: [order.placed]") {
		t.Errorf("found %s", found)
	}
	r.emit("e3", tenantOf("acme"))
	r.eventually("the deliveries", func() bool { return len(to.requests()) == 2 })
	if found := r.unmatched(); len(found) != 1 || !strings.Contains(found[0], "wrong") {
		t.Errorf("found %q, want the endpoint", found)
	}
}
