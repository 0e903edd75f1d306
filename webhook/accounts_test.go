package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/sleep"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/webhook"
)

// A hundred endpoints of a customer hang, and many deliveries to them are due. Meanwhile all events
// of another customer arrive.
func TestOneAccountLeavesWorkersToOthers(t *testing.T) {
	t.Parallel()
	const endpoints, events = 100, 40
	r := newRig(t, func(cfg *webhook.SenderConfig) { cfg.AccountHeader, cfg.Timeout = "tenant", time.Minute })
	hangs, works := newReceiver(t), newReceiver(t)
	answer, begun := make(chan struct{}), make(chan struct{}, 1000)
	hangs.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		begun <- struct{}{}
		<-answer
		hangs.ServeHTTP(w, req)
	})
	for i := range endpoints {
		id := fmt.Sprintf("slow-%d", i)
		r.add(webhook.EndpointSpec{ID: id, Account: "slow", URL: hangs.URL})
		r.insertDue(id, 20)
	}
	r.add(webhook.EndpointSpec{ID: "quick", Account: "quick", URL: works.URL})
	r.run()
	t.Cleanup(func() { close(answer) })
	for range 32 {
		devtest.Receive(t, patience, "the first requests", begun)
	}
	all := make([]inbox.Acceptance, events)
	for i := range all {
		all[i] = inbox.Acceptance{Handler: "fanout", Event: postroom.Event{
			ID: fmt.Sprintf("e%d", i), Source: "/shop", Type: "order.placed", Headers: map[string]string{"tenant": "quick"}, Data: []byte(`1`),
		}}
	}
	if _, err := r.in.AcceptAll(context.Background(), all...); err != nil {
		t.Fatal(err)
	}
	r.eventually("the other customer's events", func() bool { return len(works.requests()) == events })
	if n := len(hangs.requests()); n != 0 {
		t.Errorf("%d requests to the first customer's endpoints were answered, and all should hang", n)
	}
	r.eventually("the first customer's other deliveries to wait", func() bool {
		return one[int](r, "SELECT count(*) FROM postroom.held WHERE key LIKE 'slow%' AND next_at <= now()") == 0
	})
}

// Large events for endpoints of one customer that hang fill the memory for events, and not all of it:
// the events of another customer arrive.
func TestOneAccountLeavesMemoryToOthers(t *testing.T) {
	t.Parallel()
	const endpoints = 40
	r := newRig(t, func(cfg *webhook.SenderConfig) { cfg.AccountHeader, cfg.Timeout = "tenant", time.Minute })
	hangs, works := newReceiver(t), newReceiver(t)
	answer, begun := make(chan struct{}), make(chan struct{}, endpoints)
	hangs.Config.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		begun <- struct{}{}
		<-answer
	})
	for i := range endpoints {
		id := fmt.Sprintf("slow-%d", i)
		r.add(webhook.EndpointSpec{ID: id, Account: "slow", URL: hangs.URL})
		r.insertDue(id, 1)
	}
	r.exec("UPDATE postroom.held SET data = convert_to(rpad('1', 900000, '1'), 'UTF8')")
	r.add(webhook.EndpointSpec{ID: "quick", Account: "quick", URL: works.URL})
	r.run()
	t.Cleanup(func() { close(answer) })
	for range 8 { // less than half of the memory of the handler
		devtest.Receive(t, patience, "the first requests", begun)
	}
	r.eventually("the first customer's other deliveries to wait", func() bool {
		return one[int](r, "SELECT count(*) FROM postroom.held WHERE key LIKE 'slow%' AND next_at <= now()") == 0
	})
	for n := range 20 {
		r.emit(fmt.Sprint("e", n), tenantOf("quick"))
		r.eventually("the other customer's event", func() bool { return len(works.requests()) == n+1 })
	}
}

// A header names the account of an event. An event without it goes to no endpoint, now or when it is
// sent again. The sender counts the event and logs it.
func TestAnEventWithoutAnAccountGoesNowhere(t *testing.T) {
	t.Parallel()
	meter, log := sdk.NewManualReader(), &journal{}
	r, to := newRig(t, func(cfg *webhook.SenderConfig) {
		cfg.AccountHeader, cfg.Types = "tenant", []string{"order.placed"}
		cfg.MeterProvider, cfg.Logger = sdk.NewMeterProvider(sdk.WithReader(meter)), slog.New(slog.NewTextHandler(log, nil))
	}), newReceiver(t)
	for _, account := range []string{"", "acme"} {
		r.add(webhook.EndpointSpec{ID: "of-" + account, Account: account, URL: to.URL})
	}
	out := outbox.New(outbox.Config{Source: "/shop"})
	headers := []map[string]string{nil, {"tenant": ""}, {"other": "acme"}}
	if err := pgx.BeginFunc(t.Context(), r.pool, func(tx pgx.Tx) (err error) {
		for _, h := range headers {
			err = errors.Join(err, out.Write(t.Context(), tx, postroom.Event{Type: "order.placed", Headers: h, Data: []byte("1")}))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, endpoint := range []string{"of-", "of-acme"} {
		if n, err := r.sender.Resend(t.Context(), endpoint, time.Now().Add(-time.Hour), ann); err != nil || n != 0 {
			t.Errorf("resent %d events to %s, %v", n, endpoint, err)
		}
	}
	r.run()
	for i, h := range headers {
		r.emit(fmt.Sprint("e", i), func(ev *postroom.Event) { ev.Headers = h })
	}
	r.eventually("all to be handled", func() bool {
		return one[int](r, "SELECT count(*) FROM postroom.held") == 0
	})
	if n := one[int](r, "SELECT count(*) FROM postroom.inbox WHERE handler = 'webhooks'"); n != 0 || len(to.requests()) != 0 {
		t.Errorf("%d deliveries, %d requests", n, len(to.requests()))
	}
	var all metricdata.ResourceMetrics
	if err := meter.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	counted := int64(0)
	for _, m := range all.ScopeMetrics[0].Metrics {
		if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == "postroom.webhook.delivered" {
			for _, p := range sum.DataPoints {
				if outcome, _ := p.Attributes.Value("outcome"); outcome.AsString() == "no_account" {
					counted += p.Value
				}
			}
		}
	}
	if counted != int64(len(headers)) || !strings.Contains(log.String(), "its event has no account") {
		t.Errorf("counted %d, want %d; log:\n%s", counted, len(headers), log)
	}
}

// No header names the account of an event. Each event goes to the endpoints without an account, and to
// no others.
func TestWithoutAnAccountHeaderEventsGoToEndpointsWithoutAnAccount(t *testing.T) {
	t.Parallel()
	r, to := newRig(t, nil), newReceiver(t)
	r.add(webhook.EndpointSpec{ID: "own", URL: to.URL})
	r.add(webhook.EndpointSpec{ID: "of-acme", Account: "acme", URL: to.URL})
	r.run()
	r.emit("e1", tenantOf("acme"))
	r.emit("e2", nil)
	r.eventually("the deliveries", func() bool {
		return one[int](r, "SELECT count(*) FROM postroom.inbox WHERE handler = 'fanout'") == 2 && one[int](r, "SELECT count(*) FROM postroom.held") == 0
	})
	if keys := one[string](r, "SELECT string_agg(dedupe_key, '; ' ORDER BY dedupe_key) FROM postroom.inbox WHERE handler = 'webhooks'"); keys != "own /shop e1; own /shop e2" {
		t.Errorf("deliveries: %s", keys)
	}
}

// Processes died again and again while deliveries hung, and an operator moved one of them. The
// deliveries then run at the same time, and hang again. The other handler of the process goes on.
func TestADeliveryThatHangsStopsNoHandler(t *testing.T) {
	t.Parallel()
	r, to := newRig(t, func(cfg *webhook.SenderConfig) { cfg.Timeout = time.Minute }), newReceiver(t)
	answer, begun := make(chan struct{}), make(chan struct{}, 10)
	to.Config.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		begun <- struct{}{}
		<-answer
	})
	for _, id := range []string{"a", "b"} {
		r.add(webhook.EndpointSpec{ID: id, URL: to.URL})
		r.insertDue(id, 1)
	}
	r.exec("UPDATE postroom.held SET attempts = 5, deaths = 3, epoch = 7, claimed_by = 'gone' WHERE key = 'a'")
	r.exec("UPDATE postroom.held SET attempts = 5, solitary = true WHERE key = 'b'")
	var others atomic.Int32
	r.in.Handle(inbox.Subscription{Name: "other"}, postroom.HandlerFunc(func(context.Context, pgx.Tx, postroom.Event) error {
		others.Add(1)
		return nil
	}))
	r.run()
	t.Cleanup(func() { close(answer) })
	for range 2 {
		devtest.Receive(t, patience, "a request of each delivery", begun)
	}
	for n := range int32(3) {
		if _, err := r.in.Accept(t.Context(), "other", postroom.Event{Source: "/shop", Type: "order.placed"}); err != nil {
			t.Fatal(err)
		}
		r.eventually("the other handler", func() bool { return others.Load() == n+1 })
	}
}

// For minutes, each of two customers gets an event a second. One of them has a hundred endpoints,
// which answer late, hang or fail. Of the other's events, 99 of 100 arrive within two seconds. This
// runs only with POSTROOM_SOAK, because it measures times.
func TestAccountsForMinutes(t *testing.T) {
	if os.Getenv("POSTROOM_SOAK") == "" {
		t.Skip("it measures times for five minutes: make soak runs it, with POSTROOM_SOAK")
	}
	const within = 5 * time.Minute
	r := newRig(t, func(cfg *webhook.SenderConfig) { cfg.AccountHeader = "tenant" })
	var mu sync.Mutex
	sent, took := make(map[string]time.Time), make(map[string]time.Duration)
	serve := func(do http.HandlerFunc) string {
		to := newReceiver(t)
		to.Config.Handler = do
		return to.URL
	}
	works := serve(func(_ http.ResponseWriter, req *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		id := req.Header.Get("webhook-id")
		if _, again := took[id]; !again {
			took[id] = time.Since(sent[id])
		}
	})
	bad := []string{
		serve(func(w http.ResponseWriter, req *http.Request) {
			_, _ = io.Copy(io.Discard, req.Body)
			sleep.For(req.Context(), 3*time.Second)
			w.WriteHeader(http.StatusNoContent)
		}),
		serve(func(_ http.ResponseWriter, req *http.Request) {
			_, _ = io.Copy(io.Discard, req.Body)
			<-req.Context().Done()
		}),
		serve(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }),
	}
	for i := range 100 {
		r.add(webhook.EndpointSpec{ID: fmt.Sprintf("bad-%d", i), Account: "bad", URL: bad[i%len(bad)]})
	}
	r.add(webhook.EndpointSpec{ID: "works", Account: "works", URL: works})
	r.run()
	each := time.NewTicker(time.Second)
	defer each.Stop()
	n := 0
	for ; time.Duration(n)*time.Second < within; n++ {
		<-each.C
		id := fmt.Sprintf("works-%d", n)
		mu.Lock()
		sent[id] = time.Now()
		mu.Unlock()
		for _, tenant := range []string{"bad", "works"} {
			r.emit(fmt.Sprintf("%s-%d", tenant, n), func(ev *postroom.Event) { ev.Headers = map[string]string{"tenant": tenant} })
		}
	}
	r.eventually("the customer's events", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(took) == n
	})
	mu.Lock()
	defer mu.Unlock()
	var all []time.Duration
	for _, d := range took {
		all = append(all, d)
	}
	slices.Sort(all)
	half, most := all[len(all)/2], all[len(all)*99/100]
	t.Logf("%d events: half within %s, 99 of 100 within %s, all within %s; %d deliveries to the others wait", n, half, most, all[len(all)-1],
		one[int](r, "SELECT count(*) FROM postroom.held WHERE key LIKE 'bad%'"))
	if most > 2*time.Second {
		t.Errorf("99 of 100 events came within %s, want 2s", most)
	}
}
