package outage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/wire"
	"github.com/postroom/postroom/natsjs"
)

func TestMain(m *testing.M) { devtest.Main(m) }

const (
	processes = 2
	workers   = 8 // of a handler and process

	// before is the number of calls of a process that fail before its handler pauses: the calls of
	// twenty events, and the calls that were on their way.
	before = 20 + workers

	// apart is the shortest time between two probes of a process. It is a little less than a
	// second, because a probe is sent before it is counted.
	apart = 900 * time.Millisecond
)

// kinds are the handlers, one of each kind.
var kinds = []string{"transactional", "external", "ordered"}

// A vendor is away when handlers begin with 5,000 events, and comes back after a while.
func TestVendorOutage(t *testing.T) {
	t.Parallel()
	events, lasts := 300, 6*time.Second
	if text := os.Getenv("POSTROOM_OUTAGE"); text != "" {
		var err error
		if lasts, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
		events = 5000
	}
	v := &vendor{away: true, failed: make(map[string][]time.Time), done: make(map[string]int)}
	v.server = httptest.NewServer(v)
	t.Cleanup(v.server.Close)
	s := open(t)
	s.publish(events)
	began := time.Now()
	for i := range processes {
		s.run(v, fmt.Sprint("process ", i))
	}
	devtest.Eventually(t, lasts+2*time.Minute, "the outage to be over", func() bool { return time.Since(began) > lasts })
	v.recover()
	returned := time.Now()
	devtest.Eventually(t, 10*time.Minute, "everything to be done", func() bool {
		return s.number("SELECT count(*) FROM effect") >= events*len(kinds) && s.number("SELECT count(*) FROM postroom.held") == 0
	})
	t.Logf("outage %s, %d events for each of %d handlers, in %d processes; all done %s after its end",
		lasts, events, len(kinds), processes, time.Since(returned).Round(time.Second))
	if dead := s.number("SELECT count(*) FROM postroom.held WHERE dead_at IS NOT NULL") + s.number("SELECT count(*) FROM postroom.archive"); dead > 0 {
		t.Errorf("%d events died", dead)
	}
	for _, kind := range kinds {
		if n, all := s.number("SELECT count(DISTINCT event) FROM effect WHERE handler = $1", kind), s.number("SELECT count(*) FROM effect WHERE handler = $1", kind); n != events || all != events {
			t.Errorf("%s: %d effects of %d events, want each of %d once", kind, all, n, events)
		}
	}
	v.report(t, lasts)
}

// vendor is the vendor that the handlers call. It answers 503 while it is away.
type vendor struct {
	server *httptest.Server

	mu     sync.Mutex
	away   bool
	failed map[string][]time.Time // calls while it was away, by handler and process
	done   map[string]int         // calls after that
}

func (v *vendor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v.mu.Lock()
	defer v.mu.Unlock()
	who := r.Header.Get("From")
	if v.away {
		v.failed[who] = append(v.failed[who], time.Now())
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	v.done[who]++
}

func (v *vendor) recover() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.away = false
}

// report logs how often the vendor was called, and fails if it was too often.
func (v *vendor) report(t *testing.T, lasts time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, kind := range kinds {
		for i := range processes {
			who := fmt.Sprintf("%s, process %d", kind, i)
			calls := v.failed[who]
			probes := calls[min(before, len(calls)):]
			t.Logf("| %s | %d | %d | %d |", who, min(before, len(calls)), len(probes), v.done[who])
			if most := int(lasts/time.Second) + 1; len(probes) > most {
				t.Errorf("%s: %d probes in %s", who, len(probes), lasts)
			}
			for i := 1; i < len(probes); i++ {
				if gap := probes[i].Sub(probes[i-1]); gap < apart {
					t.Errorf("%s: two probes within %s", who, gap)
				}
			}
			if len(calls) == 0 {
				t.Errorf("%s made no call: the test shows nothing", who)
			}
		}
	}
}

// call calls the vendor for a handler of a process.
func (v *vendor) call(ctx context.Context, who string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, v.server.URL, strings.NewReader("{}"))
	if err != nil {
		return err
	}
	req.Header.Set("From", who)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	if err := resp.Body.Close(); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New("vendor: " + resp.Status)
	}
	return nil
}

// site is a stream and a database in which handlers note their effects.
type site struct {
	*testing.T

	url    string
	pool   *pgxpool.Pool
	js     jetstream.JetStream
	stream string
}

func open(t *testing.T) *site {
	t.Helper()
	s := &site{T: t, url: devtest.DatabaseURL(t), stream: nats.NewInbox()[len("_INBOX."):]}
	var err error
	if s.pool, err = pgxpool.New(t.Context(), s.url); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.pool.Close)
	s.js = devtest.JetStream(t, devtest.NATS(t))
	if err := natsjs.EnsureStream(t.Context(), s.js.Conn(), jetstream.StreamConfig{Name: s.stream, Subjects: []string{s.stream + ".>"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.pool.Exec(t.Context(), "CREATE TABLE effect (handler text NOT NULL, event text NOT NULL)"); err != nil { // no primary key, so that a second effect shows
		t.Fatal(err)
	}
	return s
}

// publish stores n events in the stream, each with a key of its own.
func (s *site) publish(n int) {
	s.Helper()
	for i := range n {
		id := fmt.Sprint("event-", i)
		ev := postroom.Event{
			ID: id, Source: "/shop", Type: s.stream + ".placed", Key: id, ContentType: "application/json", Data: []byte("1"),
			LoggedAt: time.Now(), Time: time.Now(),
		}
		if _, err := s.js.PublishMsgAsync(&nats.Msg{Subject: ev.Type, Header: nats.Header(wire.Encode(ev)), Data: ev.Data}, jetstream.WithStallWait(time.Minute)); err != nil {
			s.Fatal(err)
		}
	}
	devtest.Receive(s, time.Minute, "the broker to take the events", s.js.PublishAsyncComplete())
}

func (s *site) number(sql string, args ...any) (n int) {
	s.Helper()
	if err := s.pool.QueryRow(s.Context(), sql, args...).Scan(&n); err != nil {
		s.Fatal(err)
	}
	return n
}

// run runs an inbox with a handler of each kind, on a pool of its own, until the test ends.
func (s *site) run(v *vendor, process string) {
	s.Helper()
	cfg, err := pgxpool.ParseConfig(s.url)
	if err != nil {
		s.Fatal(err)
	}
	cfg.MaxConns = int32(len(kinds)*(workers+1) + 4)
	pool, err := pgxpool.NewWithConfig(s.Context(), cfg)
	if err != nil {
		s.Fatal(err)
	}
	in := inbox.New(pool, s.js.Conn(), inbox.Config{Logger: slog.New(slog.DiscardHandler)})
	effect := func(ctx context.Context, tx pgx.Tx, handler, event string) error {
		_, err := tx.Exec(ctx, "INSERT INTO effect (handler, event) VALUES ($1, $2)", handler, event)
		return err
	}
	for _, kind := range kinds {
		who := kind + ", " + process
		sub := inbox.Subscription{Name: kind, Stream: s.stream, Types: []string{s.stream + ".placed"}, Workers: workers}
		switch kind {
		case "external":
			in.HandleExternal(sub, func(ctx context.Context, attempt *inbox.Attempt) error {
				id := attempt.Event.ID
				attempt.OnSuccess(func(ctx context.Context, tx pgx.Tx) error { return effect(ctx, tx, kind, id) })
				return v.call(ctx, who)
			})
			continue
		case "ordered":
			sub.Order = inbox.HoldKey
		}
		in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
			return errors.Join(v.call(ctx, who), effect(ctx, tx, kind, ev.ID))
		}))
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.Context()))
	done := make(chan error, 1)
	go func() { done <- in.Run(ctx) }()
	s.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			s.Errorf("Run = %v", err)
		}
		pool.Close()
	})
}
