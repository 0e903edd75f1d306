package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
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

// cataloged is a fakeSource that knows its subjects.
type cataloged struct {
	*fakeSource

	subjects []string
	err      error
	asked    int // how often: once for each check of the streams
}

func (c *cataloged) Subjects(context.Context) ([]string, error) {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	c.asked++
	return c.subjects, c.err
}

func (c *cataloged) looks() int {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	return c.asked
}

func using(subjects ...string) *cataloged {
	return &cataloged{fakeSource: newFakeSource(), subjects: subjects}
}

func management(t *testing.T, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js := devtest.JetStream(t, nc)
	return js
}

// ensure makes a stream as Postroom does.
func ensure(t *testing.T, nc *nats.Conn, cfg jetstream.StreamConfig) {
	t.Helper()
	if err := natsjs.EnsureStream(t.Context(), nc, cfg); err != nil {
		t.Fatal(err)
	}
}

// create makes a stream as an operator would who does not know Postroom.
func create(t *testing.T, nc *nats.Conn, cfg jetstream.StreamConfig) {
	t.Helper()
	if _, err := management(t, nc).CreateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}

// Body and headers of an event must fit into a message of the server. If they do not, the relay
// refuses to start, unless the operator accepts that.
func TestCheckComparesTheLargestMessageOfTheServer(t *testing.T) {
	t.Parallel()
	const most = 1 << 20
	for limit, refused := range map[int]bool{most - 1: true, most: false} {
		nc := devtest.PlainNATS(t, fmt.Sprintf("jetstream: enabled\nmax_payload: %d", limit), natsjs.ConnectOptions()...)
		create(t, nc, jetstream.StreamConfig{Name: "SMALL", Subjects: []string{"small.a"}})
		check := func(accept ...broker.Risk) error {
			return relay.Over(using("small.a"), natsjs.NewPublisher(nc), relay.Config{AcceptRisks: accept}).Check(t.Context())
		}
		err := check()
		if errors.Is(err, natsjs.SmallMessages) != refused || errors.Is(err, postroom.ErrUnrecoverable) != refused || (err != nil) != refused {
			t.Errorf("max_payload %d: Check = %v, want a refusal: %t", limit, err, refused)
		}
		if refused && !strings.Contains(err.Error(), "max_payload") {
			t.Errorf("max_payload %d: Check = %v, want what to change", limit, err)
		}
		if err := check(natsjs.SmallMessages); err != nil {
			t.Errorf("max_payload %d, accepted: Check = %v, want nil", limit, err)
		}
	}
}

func TestCheckExaminesStreams(t *testing.T) {
	t.Parallel()
	nc := devtest.NATS(t)
	create(t, nc, jetstream.StreamConfig{Name: "EX-ORIGIN", Subjects: []string{"ex.origin"}})
	// A stream that Postroom makes has none of the risks. Nor has a stream with the server's
	// defaults.
	tests := []struct {
		name string
		cfg  jetstream.StreamConfig
		want []broker.Risk
	}{
		{"defaults", jetstream.StreamConfig{}, nil},
		{"limits with discard new", jetstream.StreamConfig{Discard: jetstream.DiscardNew, MaxMsgs: 3, MaxBytes: 1 << 20}, nil},
		{"discard old without a limit", jetstream.StreamConfig{MaxAge: time.Hour, MaxConsumers: 3}, nil},
		{"a limit per subject that refuses", jetstream.StreamConfig{Discard: jetstream.DiscardNew, MaxMsgsPerSubject: 3, DiscardNewPerSubject: true}, nil},
		{"messages as large as ours", jetstream.StreamConfig{MaxMsgSize: 1 << 20}, nil},
		{"interest", jetstream.StreamConfig{Retention: jetstream.InterestPolicy}, []broker.Risk{natsjs.InterestRetention}},
		{"work queue", jetstream.StreamConfig{Retention: jetstream.WorkQueuePolicy}, []broker.Risk{natsjs.WorkQueueRetention}},
		{"old messages dropped", jetstream.StreamConfig{MaxMsgs: 3}, []broker.Risk{natsjs.DiscardOld}},
		{"old bytes dropped", jetstream.StreamConfig{MaxBytes: 3 << 20}, []broker.Risk{natsjs.DiscardOld}},
		{"old messages of a subject dropped", jetstream.StreamConfig{MaxMsgsPerSubject: 3}, []broker.Risk{natsjs.DiscardOld}},
		{"old messages of a subject dropped behind discard new", jetstream.StreamConfig{Discard: jetstream.DiscardNew, MaxMsgsPerSubject: 3}, []broker.Risk{natsjs.DiscardOld}},
		{"rollup", jetstream.StreamConfig{AllowRollup: true}, []broker.Risk{natsjs.Rollup}},
		{"async", jetstream.StreamConfig{PersistMode: jetstream.AsyncPersistMode}, []broker.Risk{natsjs.AsyncPersistence}},
		{"memory", jetstream.StreamConfig{Storage: jetstream.MemoryStorage}, []broker.Risk{natsjs.MemoryStorage}},
		{"short window", jetstream.StreamConfig{Duplicates: 500 * time.Millisecond}, []broker.Risk{natsjs.ShortDuplicateWindow}},
		{"small messages", jetstream.StreamConfig{MaxMsgSize: 1<<20 - 1}, []broker.Risk{natsjs.SmallMessages}},
		{"subject transform", jetstream.StreamConfig{SubjectTransform: &jetstream.SubjectTransformConfig{Source: "ex.>", Destination: "other.>"}}, []broker.Risk{natsjs.SubjectTransform}},
		{"subject transform to the same", jetstream.StreamConfig{SubjectTransform: &jetstream.SubjectTransformConfig{Source: "ex.>", Destination: "ex.>"}}, nil},
		{"several", jetstream.StreamConfig{AllowRollup: true, Storage: jetstream.MemoryStorage}, []broker.Risk{natsjs.Rollup, natsjs.MemoryStorage}},
		{"no acks", jetstream.StreamConfig{NoAck: true}, []broker.Risk{natsjs.NoAcks}},
		{"sealed", jetstream.StreamConfig{Sealed: true}, []broker.Risk{natsjs.Sealed}},
		{"mirror", jetstream.StreamConfig{Mirror: &jetstream.StreamSource{Name: "EX-ORIGIN"}}, []broker.Risk{natsjs.Mirror}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.cfg.PersistMode != jetstream.DefaultPersistMode {
				devtest.NeedsNATS(t, nc, 12)
			}
			cfg, subject := tt.cfg, "ex."+strings.ReplaceAll(tt.name, " ", "-")
			cfg.Name = "EX-" + strings.ReplaceAll(tt.name, " ", "-")
			src, scope := using(subject), relay.Config{}
			if cfg.Mirror != nil { // has no subjects: only its name leads there
				src, scope.Streams = using(), []string{cfg.Name}
			} else {
				cfg.Subjects = []string{subject}
			}
			sealed := cfg.Sealed
			cfg.Sealed = false
			create(t, nc, cfg)
			if sealed {
				cfg.Sealed = true
				if _, err := management(t, nc).UpdateStream(t.Context(), cfg); err != nil {
					t.Fatal(err)
				}
			}
			check := func(scope relay.Config) error {
				return relay.Over(src, natsjs.NewPublisher(nc), scope).Check(t.Context())
			}

			err := check(scope)
			if len(tt.want) == 0 {
				if err != nil {
					t.Errorf("Check = %v, want nil", err)
				}
				return
			}
			if !errors.Is(err, postroom.ErrUnrecoverable) {
				t.Fatalf("Check = %v, want a refusal", err)
			}
			var fault *natsjs.StreamError
			if !errors.As(err, &fault) || fault.Stream != cfg.Name || fault.Problem == "" || fault.Remedy == "" {
				t.Errorf("Check = %v, want a StreamError of %s", err, cfg.Name)
			}
			byName := slices.Contains(natsjs.Risks(), tt.want[0])
			for _, risk := range tt.want {
				if !errors.Is(err, risk) {
					t.Errorf("Check = %v, want %s in it", err, risk)
				}
				if got := strings.Contains(err.Error(), "--accept "+string(risk)); got != byName {
					t.Errorf("Check says how to accept %s: %t, want %t: %v", risk, got, byName, err)
				}
			}
			run, cancel := context.WithTimeout(t.Context(), devtest.Patience(t, 20*time.Second))
			defer cancel()
			if err := relay.Over(src, natsjs.NewPublisher(nc), scope).Run(run); !errors.Is(err, tt.want[0]) || !errors.Is(err, postroom.ErrUnrecoverable) {
				t.Errorf("Run = %v, want the refusal", err)
			}
			if !byName {
				return
			}
			if len(tt.want) > 1 {
				scope.AcceptRisks = tt.want[1:]
				if err := check(scope); !errors.Is(err, tt.want[0]) || errors.Is(err, tt.want[1]) {
					t.Errorf("Check = %v where %s is accepted", err, tt.want[1])
				}
			}
			scope.AcceptRisks = tt.want
			if err := check(scope); err != nil {
				t.Errorf("Check = %v where that is accepted", err)
			}
		})
	}
}

func TestCheckFindsSubjectsWithoutAStream(t *testing.T) {
	t.Parallel()
	nc := devtest.NATS(t)
	ensure(t, nc, jetstream.StreamConfig{Name: "COV-A", Subjects: []string{"cov.a.>"}})
	ensure(t, nc, jetstream.StreamConfig{Name: "COV-B", Subjects: []string{"cov.b.*", "cov.c"}})
	many := make([]string, 50)
	for i := range many {
		many[i] = "cov.none." + strings.Repeat("x", i+1)
	}
	tests := []struct {
		name     string
		subjects []string
		streams  []string
		want     []string // in the error; if empty, no error
		not      string
	}{
		{"no events", nil, nil, nil, ""},
		{"two streams", []string{"cov.a.1", "cov.a.2", "cov.b.1", "cov.c"}, nil, nil, ""},
		{"named streams", []string{"cov.a.1", "cov.c"}, []string{"COV-A", "COV-B"}, nil, ""},
		{"one without", []string{"cov.a.1", "cov.b.1.2"}, nil, []string{"subjects cov.b.1.2:", "postroom stream ensure"}, "cov.a.1"},
		{"many without", many, nil, []string{"and others"}, many[20]},
		{"in another than the named", []string{"cov.a.1", "cov.c"}, []string{"COV-A"}, []string{"subjects cov.c:", "COV-A", "Config.Streams"}, "COV-B"},
		{"no such stream", []string{"cov.a.1"}, []string{"COV-A", "COV-X"}, []string{"stream COV-X does not exist"}, "cov.a.1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := relay.Over(using(tt.subjects...), natsjs.NewPublisher(nc), relay.Config{Streams: tt.streams}).Check(t.Context())
			if len(tt.want) == 0 {
				if err != nil {
					t.Errorf("Check = %v, want nil", err)
				}
				return
			}
			if !errors.Is(err, broker.ErrNoStream) || errors.Is(err, postroom.ErrUnrecoverable) {
				t.Fatalf("Check = %v, want ErrNoStream and no refusal: a stream can be created while the relay runs", err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("Check = %v, want %q in it", err, want)
				}
			}
			if tt.not != "" && strings.Contains(err.Error(), tt.not) {
				t.Errorf("Check = %v, want no %q in it", err, tt.not)
			}
		})
	}
}

func TestCheckReturnsOutagesOfTheCatalog(t *testing.T) {
	src := using()
	src.err = errors.New("connection refused")
	err := relay.Over(src, natsjs.NewPublisher(devtest.NATS(t)), relay.Config{}).Check(t.Context())
	if !errors.Is(err, src.err) || errors.Is(err, postroom.ErrUnrecoverable) {
		t.Errorf("Check = %v, want the outage", err)
	}
}

func TestConfigOfChecksIsValidated(t *testing.T) {
	err := relay.Over(newFakeSource(), &fakePublisher{}, relay.Config{
		Streams: []string{"SHOP", "order.>"}, AcceptRisks: []broker.Risk{natsjs.DiscardOld, natsjs.Sealed, "bad-luck"}, CheckEvery: 1,
	}).Check(t.Context())
	if !errors.Is(err, postroom.ErrUnrecoverable) {
		t.Fatalf("Check = %v, want a refusal", err)
	}
	for _, want := range []string{`Streams holds "order.>"`, `AcceptRisks holds "sealed"`, `AcceptRisks holds "bad-luck"`, "discard-old", "CheckEvery"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("Check = %v, want %q in it", err, want)
		}
	}
}

// logged collects a relay's log messages.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), part)
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func TestDriftIsNoticedWhileRunning(t *testing.T) {
	t.Parallel()
	nc := devtest.NATS(t)
	cfg := jetstream.StreamConfig{Name: "DRIFT", Subjects: []string{"drift.>"}}
	create(t, nc, cfg)
	src, log := using("drift.a"), &logged{}
	r := relay.Over(src, natsjs.NewPublisher(nc), relay.Config{CheckEvery: time.Second, Logger: log.logger()})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	devtest.Eventually(t, 10*time.Second, "the relay to be ready", func() bool { return r.Health().Ready() == nil })

	cfg.MaxMsgs = 5
	update := func() {
		t.Helper()
		if _, err := management(t, nc).UpdateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	update()
	devtest.Eventually(t, 10*time.Second, "the drift", func() bool {
		h := r.Health()
		return len(h.Faults) == 1 && errors.Is(h.Faults[0], natsjs.DiscardOld)
	})
	checked := r.Health().StreamsOKAt
	looks := src.looks()
	devtest.Eventually(t, 20*time.Second, "two looks more", func() bool { return src.looks() >= looks+3 }) // the third begins after two
	if n := log.count("stream check failed"); n != 1 {
		t.Errorf("%d warnings of one drift, want 1", n)
	}
	if h := r.Health(); h.State != relay.Leading || h.Ready() != nil || !h.StreamsOKAt.Equal(checked) {
		t.Errorf("health %+v, want a relay that still runs", h)
	}

	cfg.MaxMsgs = -1
	update()
	devtest.Eventually(t, 10*time.Second, "the end of the drift", func() bool { return len(r.Health().Faults) == 0 })
	if n := log.count("stream check passed again"); n != 1 {
		t.Errorf("%d notes of its end, want 1", n)
	}

	if err := management(t, nc).DeleteStream(t.Context(), "DRIFT"); err != nil {
		t.Fatal(err)
	}
	devtest.Eventually(t, 10*time.Second, "the loss of the stream", func() bool {
		h := r.Health()
		return len(h.Faults) == 1 && errors.Is(h.Faults[0], broker.ErrNoStream)
	})

	// A new term looks at the streams as a start does, and is not refused.
	cfg.MaxMsgs = 5
	create(t, nc, cfg)
	src.Set(func() { src.recorded = func(*fakeTerm, context.Context) error { return errors.New("connection lost") } })
	devtest.Eventually(t, 20*time.Second, "the loss of the term", func() bool { return r.Health().Err != nil })
	src.Set(func() { src.recorded = nil })
	devtest.Eventually(t, 20*time.Second, "a new term", func() bool {
		h := r.Health()
		return h.State == relay.Leading && h.Ready() == nil && len(h.Faults) == 1 && errors.Is(h.Faults[0], natsjs.DiscardOld)
	})
	stop()
	if err := <-done; err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
}

// A relay that starts again serves the same streams as one that runs: a stream that takes no events, or
// that can lose events, does not stop the others. The log and Health name it. But the first relay of a
// log does not start with such a stream.
func TestAFaultyStreamDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	nc := devtest.NATS(t)
	for name, tt := range map[string]struct {
		change func(*jetstream.StreamConfig)
		risk   broker.Risk
	}{
		"sealed": {func(cfg *jetstream.StreamConfig) { cfg.Sealed = true }, natsjs.Sealed},
		"rollup": {func(cfg *jetstream.StreamConfig) { cfg.AllowRollup = true }, natsjs.Rollup},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			good, faulty := "again."+name+".good", "again."+name+".faulty"
			create(t, nc, jetstream.StreamConfig{Name: "GOOD-" + name, Subjects: []string{good}})
			cfg := jetstream.StreamConfig{Name: "FAULTY-" + name, Subjects: []string{faulty}}
			create(t, nc, cfg)
			src, log := using(good, faulty), &logged{}
			add := func(subject string) {
				src.Mu.Lock()
				defer src.Mu.Unlock()
				seq := int64(len(src.Events) + 1)
				src.Events = append(src.Events, broker.Event{Seq: seq, Event: postroom.Event{
					ID: fmt.Sprint(name, seq), Source: "/shop", Type: subject, Subject: subject, ContentType: "application/json", Data: []byte("1"),
					Time: time.Now(), LoggedAt: time.Now(),
				}})
			}
			published := func(seqs ...int64) func() bool {
				return func() bool {
					done := src.PublishedSeqs()
					return !slices.ContainsFunc(seqs, func(seq int64) bool { return !slices.Contains(done, seq) })
				}
			}
			start := func() (r *relay.Relay, stop func() error) {
				ctx, cancel := context.WithCancel(t.Context())
				r, done := relay.Over(src, natsjs.NewPublisher(nc), relay.Config{Logger: log.logger()}), make(chan error, 1)
				go func() { done <- r.Run(ctx) }()
				return r, func() error {
					cancel()
					return <-done
				}
			}
			add(good)
			add(faulty)
			_, stop := start()
			devtest.Eventually(t, 10*time.Second, "both events to be published", published(1, 2))
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			tt.change(&cfg)
			if _, err := management(t, nc).UpdateStream(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
			add(faulty)
			add(good)
			r, stop := start()
			devtest.Eventually(t, 10*time.Second, "the event of the other stream to be published", published(4))
			h := r.Health()
			if len(h.Faults) != 1 || !errors.Is(h.Faults[0], tt.risk) || !errors.Is(h.Ready(), tt.risk) {
				t.Errorf("Health has the faults %v, and Ready = %v, want %s", h.Faults, h.Ready(), tt.risk)
			}
			if n := log.count("stream check failed"); n != 1 {
				t.Errorf("%d warnings, want 1", n)
			}
			if err := stop(); err != nil {
				t.Errorf("Run = %v, want nil", err)
			}
			first := relay.Over(using(good, faulty), natsjs.NewPublisher(nc), relay.Config{Logger: log.logger()})
			if err := first.Run(t.Context()); !errors.Is(err, tt.risk) || !errors.Is(err, postroom.ErrUnrecoverable) {
				t.Errorf("Run of the log's first relay = %v, want a refusal", err)
			}
		})
	}
}

func TestARelayWaitsForItsStream(t *testing.T) {
	t.Parallel()
	nc := devtest.NATS(t)
	r := relay.Over(using("wait.a"), natsjs.NewPublisher(nc), relay.Config{CheckEvery: time.Second})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	devtest.Eventually(t, 10*time.Second, "the relay to lead", func() bool { return r.Health().State == relay.Leading })
	if err := r.Health().Ready(); !errors.Is(err, broker.ErrNoStream) {
		t.Errorf("Ready = %v, want ErrNoStream", err)
	}
	ensure(t, nc, jetstream.StreamConfig{Name: "WAIT", Subjects: []string{"wait.>"}})
	devtest.Eventually(t, 10*time.Second, "the relay to be ready", func() bool { return r.Health().Ready() == nil })
	stop()
	if err := <-done; err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
}

// If a publisher cannot make batches, Atomic is a fault of the Config, reported with all
// others.
func TestAtomicNeedsABatcher(t *testing.T) {
	t.Parallel()
	r := relay.Over(newFakeSource(), publishOnly{}, relay.Config{Atomic: true, Window: -1})
	err := r.Check(t.Context())
	if !errors.Is(err, postroom.ErrUnrecoverable) {
		t.Errorf("Check = %v, want a refusal", err)
	}
	for _, want := range []string{"Atomic is set", "Window is -1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Check = %v, want %q in it", err, want)
		}
	}
}

// publishOnly is a publisher that cannot look at its streams, and says so.
type publishOnly struct {
	broker.PublishOnly
	promptPublisher
}

func (publishOnly) Abilities() broker.Abilities { return broker.Abilities{} }

func (p publishOnly) Connected() bool { return true }

// Check fails if a publisher lacks an ability, and says what that costs, unless Config.AcceptRisks
// has the risk.
func TestCheckReportsWhatAPublisherCannotDo(t *testing.T) {
	t.Parallel()
	for _, accept := range [][]broker.Risk{nil, {broker.NotInspected}, {broker.NotVerified}, {broker.NotInspected, broker.NotVerified}} {
		cfg := relay.Config{AcceptRisks: accept}
		err := relay.Over(newFakeSource(), publishOnly{}, cfg).Check(t.Context())
		for _, risk := range []broker.Risk{broker.NotInspected, broker.NotVerified} {
			if got, want := errors.Is(err, risk), !slices.Contains(accept, risk); got != want {
				t.Errorf("Check with %v accepted = %v, want %s: %t", accept, err, risk, want)
			}
		}
		if refused := errors.Is(err, postroom.ErrUnrecoverable); refused != (len(accept) < 2) {
			t.Errorf("Check with %v accepted = %v, refused %t", accept, err, refused)
		}
		if len(accept) < 2 {
			run := relay.Over(newFakeSource(), publishOnly{}, cfg).Run(t.Context())
			if !errors.Is(run, postroom.ErrUnrecoverable) {
				t.Errorf("Run with %v accepted = %v, want a refusal", accept, run)
			}
		}
	}
}
