package natsjs_test

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/relay"
	"github.com/postroom/postroom/relay/broker"
)

func TestMain(m *testing.M) {
	// Most tests wait for a server, so more of them run together than the machine has processors.
	// -parallel still has the last word.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	devtest.Main(m)
}

// outcome is the result that a publisher reported for an event.
type outcome struct {
	seq       int64
	duplicate bool
	class     broker.Class
	stream    string
	err       error
}

// publisher is a JetStreamPublisher at work.
type publisher struct {
	*testing.T

	batches  chan []*broker.Message
	outcomes chan outcome
	terms    atomic.Int64 // calls of Run
}

func publish(t *testing.T, nc *nats.Conn) *publisher {
	t.Helper()
	p := &publisher{T: t, batches: make(chan []*broker.Message), outcomes: make(chan outcome, 1000)}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	js := natsjs.NewPublisher(nc)
	go func() {
		err := broker.ErrReconnected
		for errors.Is(err, broker.ErrReconnected) { // as the relay does, in another term
			p.terms.Add(1)
			err = js.Run(ctx, p.batches, func(f *broker.Message, o broker.Outcome) {
				p.outcomes <- outcome{f.Seq, o.Duplicate, o.Class, o.Stream, o.Err}
			})
		}
		done <- err
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v, want nil after its context ended", err)
		}
	})
	return p
}

// send gives events to the publisher.
func (p *publisher) send(events ...broker.Event) { p.batches <- asMessages(events...) }

func asMessages(events ...broker.Event) []*broker.Message {
	var all []*broker.Message
	for _, ev := range events {
		all = append(all, &broker.Message{Event: ev})
	}
	return all
}

// next returns the outcome of the next event that gets one.
func (p *publisher) next() outcome {
	p.Helper()
	return devtest.Receive(p, 30*time.Second, "an event to have an outcome", p.outcomes)
}

func event(seq int64, subject, id string) broker.Event {
	at := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	return broker.Event{Seq: seq, Event: postroom.Event{
		ID: id, Source: "/shop", Type: subject, Subject: subject, Key: "k", ContentType: "application/json",
		Time: at, LoggedAt: at, Data: []byte(`{"n":1}`),
	}}
}

// connect returns a connection with the options that a relay needs.
func connect(t *testing.T, url string, more ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, append(natsjs.ConnectOptions(), more...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func stream(t *testing.T, nc *nats.Conn, cfg jetstream.StreamConfig) jetstream.Stream {
	t.Helper()
	if cfg.AllowAtomicPublish {
		devtest.NeedsNATS(t, nc, 12)
	}
	if err := natsjs.EnsureStream(t.Context(), nc, cfg); err != nil {
		t.Fatal(err)
	}
	js := devtest.JetStream(t, nc)
	s, err := js.Stream(t.Context(), cfg.Name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestJetStreamPublishesCloudEvents(t *testing.T) {
	t.Parallel()
	nc := devtest.NATS(t)
	s := stream(t, nc, jetstream.StreamConfig{Name: "WIRE", Subjects: []string{"wire.>"}})
	p := publish(t, nc)
	p.send(event(7, "wire.placed", "one"))
	if o := p.next(); o != (outcome{seq: 7, class: broker.Stored, stream: "WIRE"}) {
		t.Fatalf("outcome %+v, want stored", o)
	}
	m, err := s.GetMsg(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"Nats-Msg-Id": "/shop#one", "ce-specversion": "1.0", "ce-id": "one", "ce-source": "/shop", "ce-type": "wire.placed",
		"ce-partitionkey": "k", "content-type": "application/json",
		"ce-time": "2026-02-03T04:05:06Z", "postroom-logged-at": "2026-02-03T04:05:06Z",
	}
	for name, value := range want {
		if got := m.Header[name]; !slices.Equal(got, []string{value}) {
			t.Errorf("header %s = %q, want %q", name, got, value)
		}
	}
	if len(m.Header) != len(want) || string(m.Data) != `{"n":1}` {
		t.Errorf("headers %v with data %s", m.Header, m.Data)
	}

	p.send(event(8, "wire.placed", "one"))
	if o := p.next(); o != (outcome{seq: 8, duplicate: true, class: broker.Stored, stream: "WIRE"}) {
		t.Errorf("outcome of the repetition: %+v, want a duplicate", o)
	}
}

func TestJetStreamReportsEachEventOnItsOwn(t *testing.T) {
	t.Parallel()
	nc := devtest.NATS(t)
	stream(t, nc, jetstream.StreamConfig{Name: "OWN", Subjects: []string{"own.>"}})
	stream(t, nc, jetstream.StreamConfig{Name: "FULL", Subjects: []string{"full.>"}, MaxMsgs: 1})
	p := publish(t, nc)
	large := event(4, "own.large", "d")
	large.Data = make([]byte, 2<<20)
	p.send(event(1, "own.good", "a"), event(2, "nobody.there", "b"), event(3, "full.one", "c"), large, event(5, "own.good", "e"))
	got := map[int64]error{}
	for range 5 {
		o := p.next()
		got[o.seq] = o.err
	}
	p.send(event(6, "full.two", "f"))
	full := p.next()

	if got[1] != nil || got[3] != nil || got[5] != nil {
		t.Errorf("good events: %v, %v, %v, want no errors", got[1], got[3], got[5])
	}
	if !errors.Is(got[2], broker.ErrNoStream) {
		t.Errorf("no stream: %v, want ErrNoStream", got[2])
	}
	if !errors.Is(got[4], nats.ErrMaxPayload) {
		t.Errorf("too large: %v, want nats.ErrMaxPayload", got[4])
	}
	var refused *natsjs.BrokerError
	if !errors.As(full.err, &refused) || refused.Code != 10077 {
		t.Errorf("full stream: %v, want the broker's error 10077", full.err)
	}
}

// Anybody may answer on a subject that no stream has.
func TestOnlyAStreamAcknowledges(t *testing.T) {
	t.Parallel()
	nc := devtest.NATS(t)
	for _, answer := range []string{`{"seq":1}`, `{"stream":"","seq":1}`, `{"ok":true}`, ``, `hello`} {
		sub, err := nc.Subscribe("foreign.a", func(m *nats.Msg) { _ = m.Respond([]byte(answer)) })
		if err != nil {
			t.Fatal(err)
		}
		p := publish(t, nc)
		p.send(event(1, "foreign.a", "a"))
		if o := p.next(); o.err == nil {
			t.Errorf("the answer %q counts as an acknowledgement", answer)
		}
		if err := sub.Unsubscribe(); err != nil {
			t.Fatal(err)
		}
	}
}

// If a program listens on a subject that no stream takes, the server does not say that nobody listens.
// The publisher finds out that there is no stream, so that the relay does not wait for an answer for ever.
func TestAListenerIsNoStream(t *testing.T) {
	t.Parallel()
	nc := devtest.NATS(t)
	for name, answer := range map[string]string{"silent": "", "talkative": "thanks"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			subject := "listened." + name
			listening, err := nc.Subscribe(subject, func(m *nats.Msg) {
				if answer != "" {
					_ = m.Respond([]byte(answer))
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			p := publish(t, nc)
			repeatUntil := func(want broker.Class) {
				t.Helper()
				devtest.Eventually(t, time.Minute, want.String(), func() bool {
					p.send(event(1, subject, "a")) // as the relay does
					o := p.next()
					if o.class != want && o.class != broker.Unknown {
						t.Errorf("outcome %+v, want %s", o, want)
					}
					return o.class == want
				})
			}
			repeatUntil(broker.Unroutable)
			stream(t, nc, jetstream.StreamConfig{Name: "LISTENED-" + name, Subjects: []string{subject}})
			if err := listening.Unsubscribe(); err != nil {
				t.Fatal(err)
			}
			repeatUntil(broker.Stored)
		})
	}
}

func TestJetStreamSurvivesTheBroker(t *testing.T) {
	t.Parallel()
	server := devtest.OwnNATS(t)
	nc := connect(t, server.URL())
	s := stream(t, nc, jetstream.StreamConfig{Name: "OUT", Subjects: []string{"out.>"}})
	p := publish(t, nc)
	away := nc.StatusChanged(nats.RECONNECTING)
	server.Stop()
	select {
	case p.batches <- asMessages(event(1, "out.a", "a")): // before the client noticed
		if o := p.next(); o.err == nil {
			t.Errorf("outcome %+v while the broker is down", o)
		}
	case <-away: // a batch is taken when the broker is back
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.send(event(2, "out.b", "b"))
	for o := p.next(); o.seq != 2 || o.err != nil; o = p.next() {
		p.send(event(2, "out.b", "b")) // as the relay does
	}
	info, err := s.Info(t.Context())
	if err != nil || info.State.Msgs != 1 {
		t.Errorf("%d messages in the stream (%v), want the one that was acknowledged", info.State.Msgs, err)
	}
	if n := p.terms.Load(); n != 2 {
		t.Errorf("Run was called %d times: it has to return when the connection is back, so that the streams are compared", n)
	}
}

func TestCheckRefusesUnsafeConnections(t *testing.T) {
	t.Parallel()
	url := devtest.NATSURL(t)
	tests := []struct {
		name    string
		options []nats.Option
		want    string
	}{
		{"a reconnect buffer", []nats.Option{nats.ReconnectBufSize(8 << 20)}, "reconnect buffer"},
		{"bounded reconnects", []nats.Option{nats.MaxReconnects(60)}, "bounded"},
		{"no reconnects", []nats.Option{nats.NoReconnect()}, "bounded"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := natsjs.NewPublisher(connect(t, url, tt.options...)).Check(t.Context())
			if !errors.Is(err, natsjs.ErrUnsafeConnection) || !errors.Is(err, postroom.ErrUnrecoverable) {
				t.Errorf("Check = %v, want ErrUnsafeConnection, refused", err)
			}
			for _, want := range []string{tt.want, "natsjs.ConnectOptions()"} {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("Check = %v, want %q in it", err, want)
				}
			}
		})
	}
	if err := natsjs.NewPublisher(connect(t, url)).Check(t.Context()); err != nil {
		t.Errorf("Check of a connection made with ConnectOptions = %v", err)
	}
	closed := connect(t, url)
	closed.Close()
	if err := natsjs.NewPublisher(closed).Check(t.Context()); !errors.Is(err, postroom.ErrUnrecoverable) {
		t.Errorf("Check of a closed connection = %v, want a refusal", err)
	}
}

func TestRunReturnsWhenItsConnectionIsClosed(t *testing.T) {
	t.Parallel()
	nc := connect(t, devtest.NATSURL(t))
	src := using()
	ctx, cancel := context.WithTimeout(t.Context(), devtest.Patience(t, 30*time.Second))
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- relayOver(src, natsjs.NewPublisher(nc), relay.Config{}).Run(ctx) }()
	devtest.Eventually(t, 10*time.Second, "the relay to lead", func() bool {
		src.Mu.Lock()
		defer src.Mu.Unlock()
		return len(src.Terms) > 0
	})
	nc.Close()
	if err := <-done; !errors.Is(err, postroom.ErrUnrecoverable) || !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("Run = %v, want nats.ErrConnectionClosed, refused", err)
	}
}

func TestEnsureStream(t *testing.T) {
	t.Parallel()
	nc := devtest.NATS(t)
	s := stream(t, nc, jetstream.StreamConfig{Name: "ENSURED", Subjects: []string{"en.a.>", "en.b"}})
	cfg := s.CachedInfo().Config
	if cfg.Discard != jetstream.DiscardNew || cfg.Retention != jetstream.LimitsPolicy || !cfg.DenyDelete || !cfg.DenyPurge ||
		cfg.AllowRollup || cfg.Storage != jetstream.FileStorage || cfg.Duplicates <= 0 {
		t.Errorf("a new stream has %+v, which can lose events", cfg)
	}
	s = stream(t, nc, jetstream.StreamConfig{Name: "ENSURED", Subjects: []string{"en.a.x", "en.c"}})
	if got, want := s.CachedInfo().Config.Subjects, []string{"en.a.>", "en.b", "en.c"}; !slices.Equal(got, want) {
		t.Errorf("subjects %v, want %v", got, want)
	}
	s = stream(t, nc, jetstream.StreamConfig{Name: "LIMITED", Subjects: []string{"limited"}, MaxMsgsPerSubject: 5})
	if !s.CachedInfo().Config.DiscardNewPerSubject {
		t.Error("a stream with a limit for each subject drops the oldest message of a subject")
	}
	err := natsjs.EnsureStream(t.Context(), nc, jetstream.StreamConfig{Name: "no good", Subjects: []string{"x"}})
	if err == nil || !strings.Contains(err.Error(), "no good") {
		t.Errorf("EnsureStream with a bad name = %v, want an error that names it", err)
	}
}

// The server cannot make the stream's files at first, because another file has their name. It
// removes that file when it fails.
func TestEnsureStreamTriesAgain(t *testing.T) {
	t.Parallel()
	server := devtest.OwnNATS(t)
	nc, err := nats.Connect(server.URL(), natsjs.ConnectOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	// An older server leaves that file there.
	devtest.NeedsNATS(t, nc, 12)
	stream(t, nc, jetstream.StreamConfig{Name: "ANY", Subjects: []string{"any"}}) // so that there is a directory of streams
	if err := os.WriteFile(filepath.Join(server.Dir(), "$G", "streams", "BLOCKED"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := natsjs.EnsureStream(t.Context(), nc, jetstream.StreamConfig{Name: "BLOCKED", Subjects: []string{"blocked"}}); err != nil {
		t.Error(err)
	}
}
