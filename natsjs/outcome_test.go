package natsjs_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/relay/broker"
)

// codeOf returns the broker's code of an error, or 0 if the broker did not send it.
func codeOf(err error) int {
	var refused *natsjs.BrokerError
	if errors.As(err, &refused) {
		return refused.Code
	}
	return 0
}

// header gives an event a header that Event.Validate would not let through.
func header(name, value string) func(*broker.Event) {
	return func(ev *broker.Event) { ev.Headers = map[string]string{name: value} }
}

func data(bytes int) func(*broker.Event) {
	return func(ev *broker.Event) { ev.Data = make([]byte, bytes) }
}

// The answers of a real broker, and the outcomes that the relay gets. If the stream is known,
// the outcome names it, because an outage belongs to a stream.
func TestOutcomesOfAStream(t *testing.T) {
	t.Parallel()
	nc := devtest.NATS(t)
	tests := []struct {
		name   string
		cfg    jetstream.StreamConfig
		before int // events that the stream has
		change func(*broker.Event)
		class  broker.Class
		code   int
	}{
		{"stored", jetstream.StreamConfig{}, 0, nil, broker.Stored, 0},
		{"larger than the stream allows", jetstream.StreamConfig{MaxMsgSize: 1000}, 0, data(1000), broker.Permanent, 10054},
		{"headers above 64 KiB", jetstream.StreamConfig{}, 0, header("large", strings.Repeat("x", 66_000)), broker.Permanent, 10097},
		{"no time to live", jetstream.StreamConfig{}, 0, header("Nats-TTL", "1h"), broker.Permanent, 10166},
		{"no schedules", jetstream.StreamConfig{}, 0, header("Nats-Schedule", "@every 1h"), broker.Permanent, 10188},
		{"full of messages", jetstream.StreamConfig{Discard: jetstream.DiscardNew, MaxMsgs: 1}, 1, nil, broker.Unavailable, 10077},
		{"full of bytes", jetstream.StreamConfig{Discard: jetstream.DiscardNew, MaxBytes: 1000}, 1, data(900), broker.Unavailable, 10077},
		{"full of the subject", jetstream.StreamConfig{Discard: jetstream.DiscardNew, DiscardNewPerSubject: true, MaxMsgsPerSubject: 1}, 1, nil, broker.Unavailable, 10077},
		{"a fence that does not hold", jetstream.StreamConfig{}, 1, header("Nats-Expected-Last-Sequence", "7"), broker.Unknown, 10071},
		{"a counter", jetstream.StreamConfig{AllowMsgCounter: true}, 0, nil, broker.Refused, 10169},
		{"sealed", jetstream.StreamConfig{Sealed: true}, 1, nil, broker.Unroutable, 10109},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			switch tt.code {
			case 10166, 10169, 10188: // an older server does not know these features, and stores the message as usual
				devtest.NeedsNATS(t, nc, 12)
			}
			cfg, subject := tt.cfg, fmt.Sprintf("outcome.%d.a", i)
			cfg.Name, cfg.Subjects, cfg.Sealed = fmt.Sprint("OUTCOME-", i), []string{subject}, false
			create(t, nc, cfg)
			p := publish(t, nc)
			for n := range tt.before {
				p.send(event(int64(n), subject, fmt.Sprint("before ", n)))
				if o := p.next(); o.class != broker.Stored {
					t.Fatalf("the stream does not take the event before: %+v", o)
				}
			}
			if cfg.Sealed = tt.cfg.Sealed; cfg.Sealed {
				if _, err := devtest.JetStream(t, nc).UpdateStream(t.Context(), cfg); err != nil {
					t.Fatal(err)
				}
			}
			ev := event(100, subject, "it")
			if tt.change != nil {
				tt.change(&ev)
			}
			p.send(ev)
			o := p.next()
			if o.class != tt.class || codeOf(o.err) != tt.code || (o.err == nil) != (tt.class == broker.Stored) {
				t.Errorf("%s with %v, want %s with code %d", o.class, o.err, tt.class, tt.code)
			}
			if o.stream != cfg.Name || o.duplicate {
				t.Errorf("outcome %+v, want one of the stream %s", o, cfg.Name)
			}
			if tt.class == broker.Stored {
				p.send(ev)
				if o := p.next(); o.class != broker.Stored || !o.duplicate || o.stream != cfg.Name {
					t.Errorf("outcome of the repetition: %+v, want a duplicate", o)
				}
			}
		})
	}
}

// These events fail before they reach a stream.
func TestOutcomesOfAnEventThatReachesNoStream(t *testing.T) {
	t.Parallel()
	nc := devtest.NATS(t)
	stream(t, nc, jetstream.StreamConfig{Name: "REACH", Subjects: []string{"reach.>"}})
	tests := []struct {
		name, subject string
		change        func(*broker.Event)
		class         broker.Class
		err           error
	}{
		{"larger than the connection allows", "reach.a", data(1 << 20), broker.Permanent, nats.ErrMaxPayload},
		{"no subject", "", nil, broker.Permanent, nats.ErrBadSubject},
		{"no stream", "nowhere.a", nil, broker.Unroutable, broker.ErrNoStream},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := publish(t, nc)
			ev := event(1, tt.subject, "a")
			if tt.change != nil {
				tt.change(&ev)
			}
			p.send(ev, event(2, "reach.b", "b "+tt.name))
			for range 2 {
				switch o := p.next(); {
				case o.seq == 1 && (o.class != tt.class || !errors.Is(o.err, tt.err)):
					t.Errorf("%s with %v, want %s with %v", o.class, o.err, tt.class, tt.err)
				case o.seq == 2 && o.class != broker.Stored:
					t.Errorf("the event beside it: %+v", o)
				}
			}
		})
	}
}

// If an account is full, its streams are unavailable, as if they were full.
func TestOutcomeOfAFullAccount(t *testing.T) {
	t.Parallel()
	server := startNATS(t, devstack.NATSConfig{Options: `accounts { A { jetstream: { max_file: 10000 }, users: [ { user: a, password: a } ] } }`})
	nc := connect(t, server.URL(), nats.UserInfo("a", "a"))
	stream(t, nc, jetstream.StreamConfig{Name: "ACCOUNT", Subjects: []string{"account.a"}})
	p := publish(t, nc)
	for n, size := range []int{100, 20_000, 100} { // the server checks no limit while the account is empty
		ev := event(int64(n), "account.a", fmt.Sprint(n))
		data(size)(&ev)
		p.send(ev)
		o := p.next()
		if size == 100 && o.class != broker.Stored {
			t.Errorf("outcome %+v of an event for which there is room", o)
		}
		if size > 100 && (o.class != broker.Unavailable || codeOf(o.err) != 10002 || o.stream != "ACCOUNT") {
			t.Errorf("%s with %v, want unavailable with code 10002", o.class, o.err)
		}
	}
}

// startNATS returns a server for this test alone, with options. Its log shows what the test
// provokes.
func startNATS(t *testing.T, cfg devstack.NATSConfig) *devstack.NATS {
	t.Helper()
	n := openNATS(t, cfg)
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// openNATS is startNATS for a server that the caller closes.
func openNATS(t *testing.T, cfg devstack.NATSConfig) *devstack.NATS {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	n, err := devstack.StartNATS(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// The class follows from the code, whatever the words: for each code of the table, and for
// codes outside of it. A program that listens on the subject answers as a broker would.
func TestOutcomesByCode(t *testing.T) {
	t.Parallel()
	nc := devtest.NATS(t)
	tests := []struct {
		status, code int
		class        broker.Class
	}{
		{400, 10071, broker.Unknown},
		{409, 10158, broker.Unknown},
		{400, 10164, broker.Unknown},
		{400, 10201, broker.Unknown},
		{400, 10002, broker.Unavailable},
		{503, 10008, broker.Unavailable},
		{503, 10023, broker.Unavailable},
		{503, 10035, broker.Unavailable},
		{503, 10039, broker.Unavailable},
		{503, 10076, broker.Unavailable},
		{503, 10077, broker.Unavailable},
		{400, 10120, broker.Unavailable},
		{429, 10210, broker.Unavailable},
		{429, 10211, broker.Unavailable},
		{400, 10054, broker.Permanent},
		{400, 10097, broker.Permanent},
		{400, 10166, broker.Permanent},
		{400, 10188, broker.Permanent},
		// These codes are not in the table, so their status decides.
		{500, 19999, broker.Unavailable},
		{503, 19999, broker.Unavailable},
		{429, 19999, broker.Unavailable},
		{409, 19999, broker.Unavailable},
		{400, 19999, broker.Refused},
		{403, 19999, broker.Refused},
		{404, 19999, broker.Refused},
		{0, 0, broker.Refused},
	}
	texts := []string{"", "maximum messages exceeded", "no space left on device", "duplicate message id is in process", "resource limits exceeded"}
	stream(t, nc, jetstream.StreamConfig{Name: "CODES", Subjects: []string{"codes"}}) // only a stream that exists refuses an event
	_, err := nc.Subscribe("code.*.*.*", func(m *nats.Msg) {
		token := strings.Split(m.Subject, ".")
		n, _ := strconv.Atoi(token[3])
		_ = m.Respond(fmt.Appendf(nil, `{"error":{"code":%s,"err_code":%s,"description":%q},"stream":"CODES","seq":0}`, token[1], token[2], texts[n]))
	})
	if err != nil {
		t.Fatal(err)
	}
	p := publish(t, nc)
	for _, tt := range tests {
		for n, text := range texts {
			p.send(event(1, fmt.Sprintf("code.%d.%d.%d", tt.status, tt.code, n), "a"))
			o := p.next()
			var answer *natsjs.BrokerError
			if !errors.As(o.err, &answer) || *answer != (natsjs.BrokerError{Code: tt.code, Status: tt.status, Description: text}) {
				t.Fatalf("%+v, want the answer %d %d %q", o, tt.status, tt.code, text)
			}
			if o.class != tt.class || o.stream != "CODES" {
				t.Errorf("%d (%d) %q: %s of stream %q, want %s", tt.code, tt.status, text, o.class, o.stream, tt.class)
			}
		}
	}
}

// denying are the options of a server with two users, of whom one may not
// publish everywhere.
func denying(subject string) string {
	return fmt.Sprintf(`authorization { users: [
		{ user: op, password: op },
		{ user: relay, password: relay, permissions: { publish: { deny: %q } } },
	] }`, subject)
}

// If a publish is not allowed, the broker only sends an error text on the connection. It does
// not answer the publish itself.
func TestOutcomeOfAPublishThatIsNotAllowed(t *testing.T) {
	t.Parallel()
	const subjects = 100
	server := startNATS(t, devstack.NATSConfig{Options: denying("per.secret.>")})
	s := stream(t, connect(t, server.URL(), nats.UserInfo("op", "op")), jetstream.StreamConfig{Name: "PER", Subjects: []string{"per.>"}})
	handled := make(chan error, 10*subjects)
	nc := connect(t, server.URL(), nats.UserInfo("relay", "relay"),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { handled <- err }))
	p := publish(t, nc)
	if p.send(event(0, "per.open", "first")); p.next().class != broker.Stored { // it is at work
		t.Fatal("the event before was not stored")
	}
	var batch []broker.Event
	for n := range int64(subjects) {
		batch = append(batch, event(2*n, fmt.Sprintf("per.open.%d", n), fmt.Sprint("open ", n)), event(2*n+1, fmt.Sprintf("per.secret.%d", n), fmt.Sprint("secret ", n)))
	}
	began := time.Now()
	p.send(batch...)
	for range batch {
		switch o := p.next(); {
		case o.seq%2 == 0 && o.class != broker.Stored:
			t.Errorf("an event that is allowed: %+v", o)
		case o.seq%2 == 1 && (o.class != broker.Unroutable || !errors.Is(o.err, broker.ErrNotAllowed)):
			t.Fatalf("an event that is not allowed: %s with %v, want unroutable with ErrNotAllowed", o.class, o.err)
		}
	}
	t.Logf("the publisher noticed after %s", time.Since(began)) // if it had waited for answers, the outcomes would be unknown
	if err := devtest.Receive(t, 10*time.Second, "a call of the connection's own error handler", handled); !errors.Is(err, nats.ErrPermissionViolation) {
		t.Errorf("the connection's own error handler got %v", err)
	}

	if err := server.Reload(denying("other")); err != nil {
		t.Fatal(err)
	}
	p.send(event(1, "per.secret.0", "secret 0"))
	for o := p.next(); o.class != broker.Stored; o = p.next() { // the broker ends connections whose user has changed
		p.send(event(1, "per.secret.0", "secret 0"))
	}
	if info, err := s.Info(t.Context()); err != nil || info.State.Msgs != subjects+2 {
		t.Errorf("%d messages in the stream (%v), want %d", info.State.Msgs, err, subjects+2)
	}
}

// The table above relies on this behaviour of the server.
func TestALimitPerSubjectDropsOldMessagesBehindDiscardNew(t *testing.T) {
	t.Parallel()
	nc := devtest.NATS(t)
	create(t, nc, jetstream.StreamConfig{Name: "PER", Subjects: []string{"per.>"}, Discard: jetstream.DiscardNew, MaxMsgsPerSubject: 1})
	p := publish(t, nc)
	p.send(event(1, "per.a", "a"))
	first := p.next()
	p.send(event(2, "per.a", "b"))
	if second := p.next(); first.err != nil || second.err != nil {
		t.Fatalf("outcomes %v and %v, want both acknowledged", first.err, second.err)
	}
	s, err := devtest.JetStream(t, nc).Stream(t.Context(), "PER")
	if err != nil {
		t.Fatal(err)
	}
	if n := s.CachedInfo().State.Msgs; n != 1 {
		t.Errorf("%d messages, want 1: the first is dropped", n)
	}
}
