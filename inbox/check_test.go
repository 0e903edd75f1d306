package inbox_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/schema"
)

var durable = devstack.Config{Durable: true}

// migrated returns a pool on the database of the given URL, after migrating it.
func migrated(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if _, err := schema.Migrate(t.Context(), pool, ""); err != nil {
		t.Fatal(err)
	}
	return pool
}

// An inbox refuses a server that is too old, and makes no consumer there.
func TestServersThatAreTooOld(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	nc, err := nats.Connect(devtest.NATSOfVersion(t, "2.10.26"), natsjs.ConnectOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	b.in = inbox.New(b.pool, nc, b.config())
	b.in.Handle(b.subscription("billing"), effect("billing"))
	ctx, cancel := context.WithTimeout(t.Context(), devtest.Patience(t, time.Minute)) // for the case that Run does not refuse it
	defer cancel()
	for what, err := range map[string]error{"Check": b.in.Check(ctx), "Run": b.in.Run(ctx)} {
		if !errors.Is(err, postroom.ErrUnrecoverable) || !strings.Contains(err.Error(), "has version 2.10.26, on which handlers can stop") {
			t.Errorf("%s = %v, want that the server is too old", what, err)
		}
	}
}

// checked is a handler that knows its types, and whether it could work.
type checked struct {
	types []string
	err   error
	asked int
}

func (h *checked) Handle(context.Context, pgx.Tx, postroom.Event) error { return nil }
func (h *checked) Types() []string                                      { return h.types }

func (h *checked) Check(context.Context) error {
	h.asked++
	return h.err
}

// An inbox asks each handler once, and refuses a handler that would not get all of its types.
func TestCheckAsksHandlers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	named := func(name string, types ...string) inbox.Subscription {
		sub := b.subscription(name)
		sub.Types = types
		return sub
	}
	check := func(h postroom.Handler, subs ...inbox.Subscription) error {
		in := inbox.New(b.pool, b.nc, inbox.Config{})
		for _, sub := range subs {
			in.Handle(sub, h)
		}
		return in.Check(t.Context())
	}
	h := &checked{types: []string{"a.b", "c.d"}}
	if err := check(h, named("one", "a.b", "e.f"), named("two", "c.d")); err != nil || h.asked != 1 {
		t.Errorf("two subscriptions with all types: %v, asked %d times", err, h.asked)
	}
	if err := check(h, named("one", "a.b")); !errors.Is(err, postroom.ErrUnrecoverable) || !strings.Contains(err.Error(), "handler one: it handles c.d,") {
		t.Errorf("without a type: %v", err)
	}
	h.err = errors.New("not ready")
	if err := check(h, named("one", "a.b", "c.d")); !errors.Is(err, h.err) || errors.Is(err, postroom.ErrUnrecoverable) {
		t.Errorf("a handler that is not ready: %v", err)
	}
	chained := postroom.Chain(h, func(next postroom.Handler) postroom.Handler { return next })
	if err := check(chained, named("one", "a.b"), named("two", "c.d")); !errors.Is(err, h.err) {
		t.Errorf("a handler in middleware that is not ready: %v", err)
	}
	h.err = nil
	if err := check(chained, named("one", "a.b")); err == nil || !strings.Contains(err.Error(), "it handles c.d,") {
		t.Errorf("a handler in middleware without a type: %v", err)
	}
	var mux postroom.Mux
	mux.On("a.b", postroom.HandlerFunc(func(context.Context, pgx.Tx, postroom.Event) error { return nil }))
	if err := check(&mux, named("one", "c.d")); err == nil || !strings.Contains(err.Error(), "it handles a.b,") {
		t.Errorf("a Mux without its type: %v", err)
	}
	bySubject := b.subscription("subjects")
	bySubject.Types, bySubject.Subjects = nil, []string{"x.>"}
	if err := check(&mux, bySubject); err != nil {
		t.Errorf("a Mux that reads by subjects: %v", err)
	}
}

func TestCheckRefuses(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sub := b.subscription("billing")
	tests := []struct {
		name  string
		cfg   inbox.Config
		sub   func(*inbox.Subscription)
		wants []string // in the error
	}{
		{"a bad config, all faults at once", inbox.Config{Schema: "a b", AckWait: time.Millisecond, DrainTimeout: -1}, nil, []string{"Schema", "AckWait", "DrainTimeout"}},
		{"a bad subscription, all faults at once", inbox.Config{}, func(s *inbox.Subscription) {
			s.Name, s.Stream, s.Types, s.Workers, s.From, s.Schedule, s.DedupeWindow = "a b", "a.b", []string{"a..b"}, -1, 7, postroom.Backoff{-1}, time.Millisecond
		}, []string{"Name", "Stream", "Types", "Workers", "From", "Schedule", "DedupeWindow"}},
		{"neither types nor subjects", inbox.Config{}, func(s *inbox.Subscription) { s.Types = nil }, []string{"Types or Subjects"}},
		{"both types and subjects", inbox.Config{}, func(s *inbox.Subscription) { s.Subjects = []string{"a"} }, []string{"Types or Subjects"}},
		{"more workers than connections", inbox.Config{}, func(s *inbox.Subscription) { s.Workers = 500 }, []string{"pool_max_conns", "500"}},
		{"a schema that was not migrated", inbox.Config{Schema: "elsewhere"}, nil, []string{"migrate up"}},
		{"a stream that does not exist", inbox.Config{}, func(s *inbox.Subscription) { s.Stream = "NOSUCH" }, []string{"NOSUCH", "stream ensure"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := inbox.New(b.pool, b.nc, tt.cfg)
			sub := sub
			if tt.sub != nil {
				tt.sub(&sub)
			}
			in.Handle(sub, effect("x"))
			for name, err := range map[string]error{"Check": in.Check(t.Context()), "Run": in.Run(t.Context())} {
				if !errors.Is(err, postroom.ErrUnrecoverable) {
					t.Errorf("%s = %v, want a refusal", name, err)
				}
				for _, want := range tt.wants {
					if err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("%s = %v, want %q in it", name, err, want)
					}
				}
			}
		})
	}
}

// If the stream of one handler is missing at a start, the other handlers begin, as they go on while the
// inbox runs. The log names the stream. But a handler that is new may have the wrong name of a stream, and
// an inbox in which no handler could run does not start.
func TestAHandlerWithoutItsStreamDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	b := newBenchOn(t, devtest.Pool(t), devtest.NATS(t))
	other := jetstream.StreamConfig{Name: b.stream + "-other", Subjects: []string{b.stream + "-other"}}
	ensure := func() {
		t.Helper()
		if err := natsjs.EnsureStream(t.Context(), b.nc, other); err != nil {
			t.Fatal(err)
		}
	}
	at := func(name string, missing bool) inbox.Subscription {
		sub := b.subscription(name)
		if missing {
			sub.Stream, sub.Types = other.Name, []string{other.Name}
		}
		return sub
	}
	publish := func(id string) {
		b.publish(id)
		b.publishEvent(postroom.Event{ID: id, Source: "/shop", Type: other.Name, ContentType: "application/json", Data: []byte("1")})
	}
	var log told
	start := func(subs ...inbox.Subscription) *inbox.Inbox {
		cfg := b.config()
		cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		in := inbox.New(b.pool, b.nc, cfg)
		for _, sub := range subs {
			in.Handle(sub, effect(sub.Name))
		}
		return in
	}
	ensure()
	publish("before")
	b.in = start(at("plain", false), at("late", true))
	stop := b.run()
	b.eventually("both effects", func() bool { return len(b.effects("plain")) == 1 && len(b.effects("late")) == 1 })
	stop()
	if err := b.js.DeleteStream(t.Context(), other.Name); err != nil {
		t.Fatal(err)
	}
	b.publish("without")
	for what, in := range map[string]*inbox.Inbox{
		"a new handler":     start(at("plain", false), at("new", true)),
		"no other handler":  start(at("late", true)),
		"the check of both": start(at("plain", false), at("late", true)),
	} {
		check := in.Run
		if what == "the check of both" {
			check = in.Check
		}
		if err := check(t.Context()); !errors.Is(err, postroom.ErrUnrecoverable) || !strings.Contains(err.Error(), other.Name) {
			t.Errorf("%s: %v, want a refusal that names the stream", what, err)
		}
	}
	b.in = start(at("plain", false), at("late", true))
	b.run()
	b.eventually("the effect of the other handler", func() bool { return len(b.effects("plain")) == 2 })
	if want := `msg="handler cannot read its stream, the other handlers begin" handler=late error="stream ` + other.Name; !strings.Contains(log.String(), want) {
		t.Errorf("the log does not have %q: %s", want, log.String())
	}
	ensure()
	publish("after")
	b.eventually("the effects of both", func() bool { return len(b.effects("plain")) == 3 && len(b.effects("late")) == 2 })
}

func TestCheckRefusesAnInboxWithoutHandlers(t *testing.T) {
	t.Parallel()
	in := inbox.New(devtest.Pool(t), devtest.NATS(t), inbox.Config{})
	if err := in.Check(t.Context()); !errors.Is(err, postroom.ErrUnrecoverable) || !strings.Contains(err.Error(), "Handle") {
		t.Errorf("Check = %v, want a refusal that names Handle", err)
	}
}

func TestHandlePanicsOnASecondHandlerOfAName(t *testing.T) {
	t.Parallel()
	in := inbox.New(nil, nil, inbox.Config{})
	in.Handle(inbox.Subscription{Name: "billing"}, effect("a"))
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	in.Handle(inbox.Subscription{Name: "billing"}, effect("b"))
}

func TestLagBeforeRun(t *testing.T) {
	t.Parallel()
	for name, order := range map[string]inbox.Order{"plain": inbox.Unordered, "ordered": inbox.HoldKey} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			sub := b.subscription("h")
			sub.Order = order
			in := inbox.New(b.pool, b.nc, inbox.Config{})
			in.Handle(sub, postroom.HandlerFunc(func(context.Context, pgx.Tx, postroom.Event) error { return nil }))
			if lags, err := in.Lag(t.Context()); err == nil || !strings.Contains(err.Error(), "does not read the stream") {
				t.Errorf("Lag = %v, %v; want an error", lags, err)
			}
		})
	}
}

func TestRunTwiceAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in.Handle(b.subscription("billing"), effect("billing"))
	b.run()
	b.publish("a")
	b.eventually("the effect", func() bool { return len(b.effects("billing")) == 1 })
	if err := b.in.Run(t.Context()); !errors.Is(err, inbox.ErrRunning) {
		t.Errorf("a second Run = %v, want ErrRunning", err)
	}
}

// Two databases on one stream have separate consumers. If a consumer has our name but belongs to
// another database, it is refused.
func TestConsumersBelongToOneDatabase(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in.Handle(b.subscription("billing"), effect("billing"))
	stop := b.run()
	other := newBenchOn(t, devtest.Pool(t), b.nc)
	other.exec("UPDATE postroom.instance SET id = gen_random_uuid()") // the databases of tests are copies of one
	other.stream, other.in = b.stream, inbox.New(other.pool, b.nc, inbox.Config{})
	other.in.Handle(other.subscription("billing"), effect("billing"))
	other.run()
	b.publish("a")
	b.eventually("an effect in each", func() bool { return len(b.effects("billing")) == 1 && len(other.effects("billing")) == 1 })
	stop()

	stream, err := b.js.Stream(t.Context(), b.stream)
	if err != nil {
		t.Fatal(err)
	}
	for info := range stream.ListConsumers(t.Context()).Info() {
		cfg := info.Config
		cfg.Metadata = map[string]string{"postroom-instance": "another instance", "postroom-handler": "billing"}
		if _, err := stream.UpdateConsumer(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	b.in = inbox.New(b.pool, b.nc, inbox.Config{})
	b.in.Handle(b.subscription("billing"), effect("billing"))
	ctx, cancel := context.WithTimeout(t.Context(), devtest.Patience(t, 20*time.Second))
	defer cancel()
	if err := b.in.Run(ctx); !errors.Is(err, inbox.ErrForeignConsumer) || !errors.Is(err, postroom.ErrUnrecoverable) {
		t.Errorf("Run = %v, want ErrForeignConsumer", err)
	}
}

func TestRunWaitsForTheDatabase(t *testing.T) {
	t.Parallel()
	server := devtest.OwnPostgres(t, durable)
	b := newBenchOn(t, migrated(t, server.URL()), devtest.NATS(t))
	b.in.Handle(b.subscription("billing"), effect("billing"))
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	b.eventually("an outage", func() bool { // a backend may outlive the postmaster for a moment
		err := b.in.Check(t.Context())
		return err != nil && !errors.Is(err, postroom.ErrUnrecoverable)
	})
	b.run()
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.publish("a")
	b.eventually("the effect", func() bool {
		var n int
		err := b.pool.QueryRow(t.Context(), "SELECT count(*) FROM effect").Scan(&n)
		return err == nil && n == 1
	})
}

// A server refuses a consumer whose subjects overlap.
func TestSubjectsMayOverlap(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sub := b.subscription("any")
	for _, subjects := range [][]string{{"placed", "placed"}, {">"}, {"placed", "*"}} {
		b.in = inbox.New(b.pool, b.nc, inbox.Config{})
		sub.Types, sub.Subjects = nil, nil
		for _, subject := range subjects {
			sub.Subjects = append(sub.Subjects, b.stream+"."+subject)
		}
		b.in.Handle(sub, effect("any"))
		stop := b.run()
		id := strings.Join(subjects, "-")
		b.publish(id)
		b.eventually("the effect of "+id, func() bool { return b.effects("any")[id] == 1 })
		stop()
	}
}
