package inbox_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/repeat"
)

// count returns how many lines of the log contain a part.
func (l *lines) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), part)
}

// If a role has no rights, the inbox says once which command grants them. It works as soon as
// the role has them.
func TestInboxNamesTheGrantThatItLacks(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	as, role := devtest.RolePool(t, b.pool)
	var log lines
	cfg := b.config()
	cfg.Logger = log.logger()
	b.in = inbox.New(as, b.nc, cfg)
	b.in.Handle(b.subscription("billing"), effect("billing"))
	advice := "SELECT postroom.grant_inbox('" + role + "')"
	err := b.in.Check(t.Context())
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "42501" || errors.Is(err, postroom.ErrUnrecoverable) || !strings.Contains(err.Error(), advice) {
		t.Errorf("Check = %v, want 42501, not refused, with %q", err, advice)
	}
	began := time.Now()
	stop := b.run()
	b.eventually("the advice", func() bool { return log.has("inbox cannot start yet") && log.has(advice) })
	// If the role has rights only on the inbox table, the parts that need more report that,
	// each once.
	b.exec("SELECT postroom.grant_inbox('" + role + "'); GRANT SELECT, INSERT ON effect TO " + role + "; GRANT USAGE ON SEQUENCE effect_n_seq TO " + role)
	b.exec("REVOKE INSERT ON postroom.inbox FROM " + role)
	b.publish("a")
	b.eventually("the refusal of inbox", func() bool { return log.has("database out of reach, waiting") })
	b.exec("GRANT INSERT ON postroom.inbox TO " + role)
	b.eventually("the effect", func() bool { return b.effects("billing")["a"] == 1 })
	stop()
	for _, line := range []string{"inbox cannot start yet", "database out of reach, waiting"} {
		if n, most := log.count(line), 1+int(time.Since(began)/repeat.Every); n < 1 || n > most {
			t.Errorf("%d lines %q, want 1 to %d", n, line, most)
		}
	}
	if n := log.count(advice); n < 2 {
		t.Errorf("%d lines have %q, want both", n, advice)
	}
}

func TestABrokerWithoutJetStream(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	const accounts = `accounts { none { users: [{user: none, password: x}] }, some { jetstream: enabled, users: [{user: some, password: x}] } }`
	tests := []struct {
		name    string
		nc      *nats.Conn
		refused bool
		wants   string
	}{
		{"at all", devtest.PlainNATS(t, "jetstream: disabled"), false, "start nats-server with -js"},
		{"in this account", devtest.PlainNATS(t, accounts, nats.UserInfo("none", "x")), true, "the account of this user has no JetStream"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var log lines
			in := inbox.New(pool, tt.nc, inbox.Config{Logger: log.logger()})
			in.Handle(inbox.Subscription{Name: "billing", Stream: "SHOP", Types: []string{"a"}}, effect("billing"))
			err := in.Check(t.Context())
			if err == nil || !strings.Contains(err.Error(), tt.wants) || errors.Is(err, postroom.ErrUnrecoverable) != tt.refused {
				t.Errorf("Check = %v, want %q, refused %t", err, tt.wants, tt.refused)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- in.Run(ctx) }()
			if !tt.refused {
				devtest.Eventually(t, 20*time.Second, "the advice", func() bool { return log.has(tt.wants) })
				cancel()
			}
			if err := <-done; (err != nil) != tt.refused || err != nil && !strings.Contains(err.Error(), tt.wants) {
				t.Errorf("Run = %v, want an error: %t", err, tt.refused)
			}
			cancel()
		})
	}
}

// The log says at the start what is read, and at the end what Run waits for.
func TestLogNamesStreamsAndWaits(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var log lines
	cfg := b.config()
	cfg.Logger = log.logger()
	cfg.DrainTimeout = 30 * time.Second
	b.in = inbox.New(b.pool, b.nc, cfg)
	sub := b.subscription("billing")
	sub.Workers = 2
	entered, leave := make(chan struct{}), make(chan struct{})
	b.in.Handle(sub, postroom.HandlerFunc(func(context.Context, pgx.Tx, postroom.Event) error {
		close(entered)
		<-leave
		return nil
	}))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- b.in.Run(ctx) }()
	b.eventually("what is read", func() bool { return log.has("handler begins") })
	for _, part := range []string{"handler=billing", "stream=" + b.stream, "types=" + sub.Types[0], "workers=2", "ordered=false"} {
		if !log.has(part) {
			t.Errorf("the log does not say %q at the start", part)
		}
	}
	b.publish("a")
	<-entered
	cancel()
	b.eventually("what is waited for", func() bool {
		return log.has("inbox stopping, waiting for running handlers") && log.has(`running="billing: 1"`) && log.has("at_most=30s")
	})
	if log.has("inbox stopped") {
		t.Error("the log says that it stopped while a handler runs")
	}
	close(leave)
	if err := <-done; err != nil || !log.has("inbox stopped") {
		t.Errorf("Run = %v, and the log says that it stopped: %t", err, log.has("inbox stopped"))
	}
}

// If a handler asks for a type that is probably misspelt, the inbox warns at the start. If its
// types were never written, the inbox only logs a note.
func TestInboxWarnsOfAMisspeltTypeAtTheStart(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name            string
		asks, published []string
		subjects        bool
		says            string
		level           string
	}{
		{"an empty stream", []string{"plcaed"}, nil, false, "", ""},
		{"all is well", []string{"placed", "refunded"}, []string{"placed"}, false, "", ""},
		{"a slip", []string{"plcaed"}, []string{"placed"}, false, "STREAM.plcaed is in stream STREAM; did you mean STREAM.placed?", "WARN"},
		{"none of its types", []string{"shipped"}, []string{"placed"}, false, "no event of type STREAM.shipped is in stream STREAM yet, but events of other types are", "INFO"},
		{"subjects", []string{"plcaed"}, []string{"placed"}, true, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			var log lines
			cfg := b.config()
			cfg.Logger = log.logger()
			b.in = inbox.New(b.pool, b.nc, cfg)
			sub := b.subscription("billing")
			sub.Types = nil
			for _, kind := range tt.asks {
				sub.Types = append(sub.Types, b.stream+"."+kind)
			}
			if tt.subjects {
				sub.Types, sub.Subjects = nil, sub.Types
			}
			b.in.Handle(sub, effect("billing"))
			for n, kind := range tt.published {
				b.publishEvent(postroom.Event{ID: string(rune('a' + n)), Source: "/shop", Type: b.stream + "." + kind, ContentType: "text/plain"})
			}
			stop := b.run()
			warning, note := "handler asks for types that its stream does not have", "the handler waits for its first event"
			line := map[string]string{"WARN": warning, "INFO": note, "": "handler begins"}[tt.level]
			b.eventually(line, func() bool { return log.has(line) })
			stop() // it waits for the goroutine that compares the types
			if log.has(warning) != (tt.level == "WARN") || log.has(note) != (tt.level == "INFO") || !log.has(strings.ReplaceAll(tt.says, "STREAM", b.stream)) {
				t.Errorf("the log has %q, want %q", log.text.String(), tt.says)
			}
		})
	}
}
