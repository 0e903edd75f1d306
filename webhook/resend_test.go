package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/webhook"
)

// An endpoint gets the events of the log that it was not given, and no others.
func TestResend(t *testing.T) {
	t.Parallel()
	r, to := newRig(t, func(cfg *webhook.SenderConfig) {
		cfg.AccountHeader, cfg.Types = "tenant", []string{"order.placed", "order.paid"}
	}), newReceiver(t)
	log := outbox.New(outbox.Config{Source: "/shop"})
	write := func(id, kind, tenant string, later time.Duration) {
		t.Helper()
		ev := postroom.Event{ID: id, Type: kind, Data: []byte(`{"n":1}`), Headers: map[string]string{"tenant": tenant}}
		if later > 0 {
			ev.NotBefore = time.Now().Add(later)
		}
		if err := pgx.BeginFunc(t.Context(), r.pool, func(tx pgx.Tx) error { return log.Write(t.Context(), tx, ev) }); err != nil {
			t.Fatal(err)
		}
	}
	write("old", "order.placed", "acme", 0)
	r.exec("UPDATE postroom.outbox SET created_at = now() - interval '2 hours'")
	write("e1", "order.placed", "acme", 0)
	write("other-type", "order.paid", "acme", 0)
	write("other-tenant", "order.placed", "other", 0)
	write("scheduled", "order.placed", "acme", time.Hour)
	write("cancelled", "order.placed", "acme", time.Hour)
	if !one[bool](r, "SELECT postroom.cancel('/shop', 'cancelled')") {
		t.Fatal("not cancelled")
	}
	r.exec("UPDATE postroom.outbox SET not_before = now() - interval '1 minute' WHERE event_id = 'cancelled'")
	write("e2", "order.placed", "acme", 0)
	r.add(webhook.EndpointSpec{ID: "e", Account: "acme", URL: to.URL, Types: []string{"order.placed"}})
	r.run()
	r.emit("e1", func(ev *postroom.Event) { ev.Headers = map[string]string{"tenant": "acme"} }) // it was given e1 before
	r.eventually("the first delivery", func() bool { return len(to.requests()) > 0 })

	for _, want := range []int64{1, 0} { // the second time there is nothing left
		if n, err := r.sender.Resend(t.Context(), "e", time.Now().Add(-time.Hour), ann); err != nil || n != want {
			t.Fatalf("resent %d events, %v; want %d", n, err, want)
		}
	}
	id, err := r.sender.Test(t.Context(), "e", ann)
	if err != nil {
		t.Fatal(err)
	}
	r.eventually("three deliveries", func() bool { return len(to.requests()) >= 3 })
	got := make(map[string]string)
	for _, request := range to.requests() {
		got[request.header.Get("webhook-id")] = decoded(t, request.body).Type
	}
	if len(got) != 3 || got["e1"] != "order.placed" || got["e2"] != "order.placed" || got[id] != "webhook.test" {
		t.Errorf("the endpoint got %v", got)
	}
	if n := one[int](r, "SELECT count(*) FROM postroom.audit WHERE action IN ('webhook resend', 'webhook test') AND details ->> 'endpoint' = 'e'"); n != 3 {
		t.Errorf("%d rows in the audit, want 3", n)
	}

	if err := r.store.Disable(t.Context(), "e", ann); err != nil {
		t.Fatal(err)
	}
	_, err = r.sender.Resend(t.Context(), "e", time.Now(), ann)
	_, unknown := r.sender.Test(t.Context(), "nobody", ann)
	_, anonymous := r.sender.Test(t.Context(), "e", postroom.Audit{})
	if !errors.Is(err, webhook.ErrEndpointDisabled) || !errors.Is(unknown, webhook.ErrUnknownEndpoint) || anonymous == nil {
		t.Error(fmt.Errorf("%w; %w; %w", err, unknown, anonymous))
	}
}

// SQL that says that it has checked its row writes rows that are no events. The relay does not publish
// them, and an endpoint gets all events before and after them.
func TestResendLeavesOutWhatIsNoEvent(t *testing.T) {
	t.Parallel()
	r, to := newRig(t, func(cfg *webhook.SenderConfig) { cfg.Types = []string{"order.placed"} }), newReceiver(t)
	log := outbox.New(outbox.Config{Source: "/shop"})
	for n, bad := range []string{
		"SET data = (SELECT string_agg(sha256(int4send(n)), '') FROM generate_series(1, 150000) n)",
		"SET trace_state = repeat('x', 10000000)",
		"SET event_id = 'a b'",
	} {
		for _, id := range []string{"bad", fmt.Sprint(n)} {
			if err := pgx.BeginFunc(t.Context(), r.pool, func(tx pgx.Tx) error {
				return log.Write(t.Context(), tx, postroom.Event{ID: id, Type: "order.placed", Data: []byte(`{"n":1}`)})
			}); err != nil {
				t.Fatal(err)
			}
			if id == "bad" {
				r.exec("UPDATE postroom.outbox " + strings.Replace(bad, "SET ", "SET source = '/bad/"+fmt.Sprint(n)+"', ", 1) + " WHERE event_id = 'bad' AND source = '/shop'")
			}
		}
	}
	r.add(webhook.EndpointSpec{ID: "e", URL: to.URL})
	if n, err := r.sender.Resend(t.Context(), "e", time.Now().Add(-time.Hour), ann); err != nil || n != 3 {
		t.Errorf("resent %d events, %v; want 3", n, err)
	}
}

// The inbox no longer recognises a delivered event whose row it has removed. If the log still has the
// event, Resend refuses a time that would include the event, and sends it to no endpoint again.
func TestResendTakesNoEventThatTheInboxForgot(t *testing.T) {
	t.Parallel()
	r, to := newRig(t, func(cfg *webhook.SenderConfig) { cfg.Types = []string{"order.placed"} }), newReceiver(t)
	log := outbox.New(outbox.Config{Source: "/shop"})
	write := func(id, age string) {
		t.Helper()
		ev := postroom.Event{ID: id, Type: "order.placed", Data: []byte(`{"n":1}`)}
		if err := pgx.BeginFunc(t.Context(), r.pool, func(tx pgx.Tx) error { return log.Write(t.Context(), tx, ev) }); err != nil {
			t.Fatal(err)
		}
		r.exec("UPDATE postroom.outbox SET created_at = now() - $2::interval WHERE event_id = $1", id, age)
	}
	refuses := func(ago time.Duration) {
		t.Helper()
		n, err := r.sender.Resend(t.Context(), "e", time.Now().Add(-ago), ann)
		if n != 0 || err == nil || !strings.Contains(err.Error(), "may no longer recognise") {
			t.Errorf("resent %d events from %s ago, %v; want an error", n, ago, err)
		}
	}
	const day = 24 * time.Hour
	write("e1", "32 days")
	write("e2", "20 days")
	r.add(webhook.EndpointSpec{ID: "e", URL: to.URL})
	if n, err := r.sender.Resend(t.Context(), "e", time.Now().Add(-25*day), ann); err != nil || n != 1 { // no inbox has run: no row was removed
		t.Fatalf("resent %d events, %v; want e2", n, err)
	}
	r.run()
	r.emit("e1", nil)
	r.eventually("the deliveries", func() bool {
		return len(to.requests()) == 2 && one[int](r, "SELECT count(*) FROM postroom.held") == 0
	})
	refuses(33 * day)
	refuses(29*day + time.Hour)
	if n, err := r.sender.Resend(t.Context(), "e", time.Now().Add(-29*day+time.Hour), ann); err != nil || n != 0 {
		t.Errorf("resent %d events, %v; want none", n, err)
	}

	// The rows expire, and the inbox removes them.
	r.exec("UPDATE postroom.inbox SET at = now() - interval '31 days'")
	r.eventually("the sweep", func() bool {
		r.exec("UPDATE postroom.sweep SET due_at = now()")
		return one[int](r, "SELECT count(*) FROM postroom.inbox") == 0
	})
	refuses(33 * day)

	// In the past, rows were kept for a shorter time.
	r.exec("UPDATE postroom.dedupe_window SET expired_before = now() - interval '10 days' WHERE handler = 'webhooks'")
	refuses(11 * day)
	if n, err := r.sender.Resend(t.Context(), "e", time.Now().Add(-9*day), ann); err != nil || n != 0 {
		t.Errorf("resent %d events, %v; want none", n, err)
	}
}

// The log also has internal events. An endpoint of all types gets only the types of
// SenderConfig.Types, from the fan-out and from Resend. Without SenderConfig.Types, Resend sends
// nothing.
func TestInternalEventsAreNotSent(t *testing.T) {
	t.Parallel()
	r, to := newRig(t, func(cfg *webhook.SenderConfig) { cfg.Types = []string{"order.placed", "order.paid"} }), newReceiver(t)
	log := outbox.New(outbox.Config{Source: "/shop"})
	err := pgx.BeginFunc(t.Context(), r.pool, func(tx pgx.Tx) error {
		for _, kind := range []string{"payment.charge", "order.placed", "checkout.deadline", "checkout.decision"} {
			if err := log.Write(t.Context(), tx, postroom.Event{ID: kind, Type: kind, Data: []byte(`{"card":"4242"}`)}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	r.add(webhook.EndpointSpec{ID: "e", URL: to.URL})
	if n, err := r.sender.Resend(t.Context(), "e", time.Now().Add(-time.Hour), ann); err != nil || n != 1 {
		t.Errorf("resent %d events, %v; want 1", n, err)
	}
	for _, kind := range []string{"payment.charge", "order.paid"} {
		ev := postroom.Event{ID: "emitted-" + kind, Source: "/shop", Type: kind, Data: []byte("{}")}
		if err := pgx.BeginFunc(t.Context(), r.pool, func(tx pgx.Tx) error { return r.sender.FanOut().Handle(t.Context(), tx, ev) }); err != nil {
			t.Error(err)
		}
	}
	if due := one[[]string](r, "SELECT array_agg(type ORDER BY type) FROM postroom.held WHERE handler = 'webhooks'"); !slices.Equal(due, []string{"order.paid", "order.placed"}) {
		t.Errorf("due are %v", due)
	}

	r.cfg.Types, r.cfg.AcceptOnly = nil, true
	unbounded := webhook.NewSender(inbox.New(r.pool, nil, inbox.Config{Logger: silent}), r.cfg)
	if n, err := unbounded.Resend(t.Context(), "e", time.Now().Add(-time.Hour), ann); err == nil || n != 0 || !strings.Contains(err.Error(), "SenderConfig.Types is empty") {
		t.Errorf("without types: resent %d events, %v", n, err)
	}
}

// most records the largest number of bytes of event data in one round trip of a transaction.
type most struct {
	pgx.Tx

	trips, bytes int
}

func (m *most) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	bytes := 0
	for _, q := range b.QueuedQueries {
		for _, arg := range q.Arguments {
			if all, ok := arg.([][]byte); ok {
				for _, one := range all {
					bytes += len(one)
				}
			}
		}
	}
	m.trips, m.bytes = m.trips+1, max(m.bytes, bytes)
	return m.Tx.SendBatch(ctx, b)
}

// Events have many bytes. Few of them are in memory at the same time, and a large one is not left
// out.
func TestLargeEventsAreTakenInParts(t *testing.T) {
	t.Parallel()
	const bound, large, endpoints, events = 4 << 20, 900 << 10, 12, 13
	r := newRig(t, func(cfg *webhook.SenderConfig) { cfg.Types = []string{"order.placed"} })
	for n := range endpoints {
		r.add(webhook.EndpointSpec{ID: fmt.Sprint("e", n), URL: "https://example.com"})
	}
	due := func() int { return one[int](r, "SELECT count(*) FROM postroom.held WHERE handler = 'webhooks'") }
	for _, bytes := range []int{large, bound + 1<<20} {
		ev := postroom.Event{ID: fmt.Sprint(bytes), Source: "/shop", Type: "order.placed", ContentType: "application/octet-stream", Data: make([]byte, bytes)}
		before := due()
		tx, err := r.pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		noted := &most{Tx: tx}
		if err := r.sender.FanOut().Handle(t.Context(), noted, ev); err != nil {
			t.Fatal(err)
		}
		if n := due(); n != before {
			t.Errorf("%d deliveries of %d bytes are due before the commit", n-before, bytes)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := due(); n != before+endpoints {
			t.Errorf("%d deliveries of %d bytes, want %d", n-before, bytes, endpoints)
		}
		if few := bytes <= bound; noted.trips < 2 || few && (noted.bytes > bound+bound/10 || noted.bytes < 2*bytes) || !few && noted.bytes > bytes+bytes/10 {
			t.Errorf("%d round trips of %d bytes at the most, for events of %d", noted.trips, noted.bytes, bytes)
		}
	}

	log := outbox.New(outbox.Config{Source: "/shop"})
	for n := range events {
		ev := postroom.Event{ID: fmt.Sprint("e", n), Type: "order.placed", ContentType: "application/octet-stream", Data: make([]byte, large)}
		if n%2 == 0 {
			ev.Data, ev.Headers = []byte("{}"), map[string]string{"note": strings.Repeat("x", 30<<10)}
		}
		if err := pgx.BeginFunc(t.Context(), r.pool, func(tx pgx.Tx) error { return log.Write(t.Context(), tx, ev) }); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := r.sender.Resend(t.Context(), "e0", time.Now().Add(-time.Hour), ann); err != nil || n != events {
		t.Errorf("resent %d events, %v; want %d", n, err, events)
	}
	if parts := one[[]int64](r, "SELECT array_agg(events ORDER BY id) FROM postroom.audit WHERE action = 'webhook resend'"); !slices.Equal(parts, []int64{9, 4}) {
		t.Errorf("resent in parts of %v events; want 9, four of them large, and 4", parts)
	}
}
