package inbox_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/wire"
)

// failing is a handler that fails for events whose id begins with "bad", and takes effect for
// others.
func failing(name string, err error) postroom.Handler {
	return postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		if strings.HasPrefix(ev.ID, "bad") {
			return err
		}
		return effect(name).Handle(ctx, tx, ev)
	})
}

func TestHowFailuresAreHeld(t *testing.T) {
	t.Parallel()
	wrong := errors.New("wrong")
	tests := []struct {
		name string
		fail func(ctx context.Context, tx pgx.Tx) error
		sub  func(*inbox.Subscription)
		want heldEntry
	}{
		{"an error", func(context.Context, pgx.Tx) error { return wrong }, nil, heldEntry{State: "due", Attempts: 1, Class: "error"}},
		{
			"the last attempt", func(context.Context, pgx.Tx) error { return wrong }, func(s *inbox.Subscription) { s.Attempts = 1 },
			heldEntry{State: "dead", Attempts: 1, Class: "error"},
		},
		{
			"permanent", func(context.Context, pgx.Tx) error { return postroom.Permanent(wrong) }, nil,
			heldEntry{State: "dead", Attempts: 1, Class: "permanent"},
		},
		{
			"permanent although later", func(context.Context, pgx.Tx) error { return postroom.RetryAfter(time.Hour, postroom.Permanent(wrong)) }, nil,
			heldEntry{State: "dead", Attempts: 1, Class: "permanent"},
		},
		{"a panic", func(context.Context, pgx.Tx) error { panic("no") }, nil, heldEntry{State: "due", Attempts: 1, Class: "panic"}},
		{"a constraint", func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO postroom.sweep DEFAULT VALUES")
			return err
		}, nil, heldEntry{State: "due", Attempts: 1, Class: "23505"}},
		{
			"a handler that waits for its context", func(ctx context.Context, _ pgx.Tx) error { <-ctx.Done(); return ctx.Err() },
			func(s *inbox.Subscription) { s.Timeout = 3 * time.Second },
			heldEntry{State: "due", Attempts: 1, Class: "timeout"},
		},
		{"a statement that takes too long", func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SELECT pg_sleep(60)")
			return err
		}, func(s *inbox.Subscription) { s.Timeout = 3 * time.Second }, heldEntry{State: "due", Attempts: 1, Class: "timeout"}},
		{
			"a handler that ignores its context", func(context.Context, pgx.Tx) error { devtest.Forever(); return nil },
			func(s *inbox.Subscription) { s.Timeout = 3 * time.Second },
			heldEntry{State: "due", Attempts: 1, Class: "timeout"},
		},
		{"a handler that rolls back by a statement", func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "ROLLBACK")
			return err
		}, nil, heldEntry{State: "due", Attempts: 1, Class: "transaction"}},
		{"a constraint at the commit", func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO checked VALUES ($1), ($1)", 1)
			return err
		}, nil, heldEntry{State: "due", Attempts: 1, Class: "23505"}},
		{"contention without end", func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "DO $$ BEGIN RAISE SQLSTATE '40001'; END $$")
			return err
		}, nil, heldEntry{State: "due", Attempts: 1, Class: "contention"}},
	}
	for _, batch := range []int{1, 10} {
		for _, tt := range tests {
			t.Run(fmt.Sprintf("%s, batch %d", tt.name, batch), func(t *testing.T) {
				t.Parallel()
				b := newBench(t)
				sub := b.subscription("h")
				b.exec("CREATE TABLE checked (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
				sub.Schedule, sub.Attempts, sub.Batch, sub.Workers = postroom.Backoff{time.Hour}, 8, batch, 1 // each commit begins the next transaction
				if tt.sub != nil {
					tt.sub(&sub)
				}
				b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
					err := effect("h").Handle(ctx, tx, ev)
					if ev.ID == "bad" {
						err = tt.fail(ctx, tx)
					}
					return err
				}))
				b.publish("good 1", "bad", "good 2")
				b.run()
				b.eventually("all to be decided", func() bool { return b.ledger("h") == 3 })
				b.drained()
				tt.want.Key, tt.want.Failures = "/shop bad", 1
				if got := b.held("h"); len(got) != 1 || got["/shop bad"] != tt.want {
					t.Errorf("held: %+v, want %+v", got, tt.want)
				}
				b.wantOnce("h", "good 1", "good 2")
			})
		}
	}
}

func TestRetriesFollowTheSchedule(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sub := b.subscription("h")
	sub.Schedule, sub.Attempts = postroom.Backoff{time.Minute, time.Hour}, 3
	b.in.Handle(sub, postroom.HandlerFunc(func(_ context.Context, _ pgx.Tx, ev postroom.Event) error {
		if ev.ID == "asks" {
			return postroom.RetryAfter(24*time.Hour, errors.New("not now"))
		}
		return errors.New("always")
	}))
	b.run()
	b.publish("follows", "asks")
	next := func(id string, attempts int, least time.Duration) {
		t.Helper()
		var wait float64
		b.eventually(fmt.Sprintf("attempt %d of %s", attempts, id), func() bool {
			err := b.pool.QueryRow(t.Context(), `SELECT extract(epoch FROM next_at - now())::float8 FROM postroom.held
				WHERE event_id = $1 AND attempts = $2 AND claimed_by IS NULL`, id, attempts).Scan(&wait)
			return err == nil
		})
		// At most a fifth is added, and some time has passed.
		if got := time.Duration(wait * float64(time.Second)); got < least-20*time.Second || got > least*6/5 {
			t.Errorf("attempt %d of %s is followed by the next in %s, want %s and a fifth at most", attempts, id, got, least)
		}
	}
	next("follows", 1, time.Minute)
	next("asks", 1, 24*time.Hour)
	b.exec("UPDATE postroom.held SET next_at = now() WHERE event_id = 'follows'")
	next("follows", 2, time.Hour)
	b.exec("UPDATE postroom.held SET next_at = now() WHERE event_id = 'follows'")
	b.eventually("its death", func() bool { return b.dead("h") == 1 })
	b.overrideDeadNextAtAndAttempts("h", "/shop follows")
	next("follows", 1, time.Minute)
}

// If an event failed before it took effect, its failures stay in the inbox row, up to a limit.
// An event that never failed has none there.
func TestInboxRowKeepsFailuresOfASuccess(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"plain", "ordered", "external"} { // each has its own statement
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			var tries atomic.Int32
			fails := func(id string) error {
				if id == "fails" {
					switch tries.Add(1) {
					case 1:
						panic("boom")
					case 2:
						return errors.New(strings.Repeat("é", 1000))
					}
				}
				return nil
			}
			sub := b.subscription("h")
			sub.Schedule, sub.Attempts = postroom.Backoff{time.Millisecond}, 5
			if kind == "ordered" {
				sub.Order = inbox.HoldKey
			}
			if kind == "external" {
				sub = inbox.Subscription{Name: "h", Workers: 1, Attempts: 5, Schedule: sub.Schedule}
				b.in.HandleExternal(sub, func(_ context.Context, attempt *inbox.Attempt) error { return fails(attempt.Event.ID) })
				b.accept("h", "fails", "never")
			} else {
				b.in.Handle(sub, postroom.HandlerFunc(func(_ context.Context, _ pgx.Tx, ev postroom.Event) error { return fails(ev.ID) }))
			}
			b.run()
			for _, id := range []string{"fails", "never"} {
				switch kind {
				case "plain":
					b.publish(id)
				case "ordered":
					b.publishEvent(postroom.Event{ID: id, Source: "/shop", Type: b.stream + ".placed", Key: "k", Data: []byte("1")})
				}
			}
			b.eventually("both events to be decided", func() bool {
				var n int
				err := b.pool.QueryRow(t.Context(), "SELECT count(*) FROM postroom.inbox i WHERE NOT EXISTS (SELECT FROM postroom.held h WHERE h.dedupe_key = i.dedupe_key)").Scan(&n)
				return err == nil && n == 2
			})
			var kept string
			if err := b.pool.QueryRow(t.Context(), "SELECT string_agg(concat_ws(' ', dedupe_key, n, f->>'class', right(f->>'text', 4), length(f->>'text') = 300, f ? 'stack', (f->>'at')::timestamptz < at), ', ' ORDER BY n) "+
				"FROM postroom.inbox, jsonb_array_elements(failures) WITH ORDINALITY AS e (f, n)").Scan(&kept); err != nil {
				t.Fatal(err)
			}
			if want := "/shop fails 1 panic boom f f t, /shop fails 2 error éééé t f t"; kept != want {
				t.Errorf("inbox has %q, want %q", kept, want)
			}
		})
	}
}

func TestAPanicIsHeldWithItsPlace(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sub := b.subscription("h")
	sub.Attempts = 1
	b.in.Handle(sub, postroom.HandlerFunc(func(context.Context, pgx.Tx, postroom.Event) error { panic("no") }))
	b.publish("a")
	b.run()
	b.eventually("its death", func() bool { return b.dead("h") == 1 })
	var text, frame, stack string
	var print []byte
	err := b.pool.QueryRow(t.Context(), `SELECT f ->> 'text', f ->> 'frame', f ->> 'stack', cause
		FROM (SELECT failures -> 0 AS f, cause FROM postroom.held) h`).Scan(&text, &frame, &stack, &print)
	if err != nil {
		t.Fatal(err)
	}
	here := "TestAPanicIsHeldWithItsPlace"
	if !strings.Contains(text, "panic: no") || !strings.Contains(frame, here) || !strings.Contains(stack, here) || len(print) != 16 {
		t.Errorf("failure: text %q, frame %q, stack %q, fingerprint %x", text, frame, stack, print)
	}
}

func TestConflictIsHeldBesideTheDecidedEvent(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{1, 10} {
		b := newBench(t)
		b.anew(func(cfg *inbox.Config) { cfg.AckWait = time.Minute }) // so that no event is delivered again
		sub := b.subscription("h")
		sub.Batch = batch
		b.in.Handle(sub, effect("h"))
		b.run()
		b.publish("a")
		b.eventually("the effect", func() bool { return len(b.effects("h")) == 1 })
		other := postroom.Event{ID: "a", Source: "/shop", Type: b.stream + ".placed", Data: []byte("other")}
		for range 3 { // however often it comes
			b.publishEvent(other)
		}
		b.eventually("the conflict and its repetitions", func() bool { return b.counted("h", "conflict") == 1 && b.counted("h", "duplicate") == 2 })
		b.drained()
		b.wantOnce("h", "a")
		all := b.held("h")
		if len(all) != 1 {
			t.Fatalf("held: %+v", all)
		}
		for key, o := range all {
			if !strings.HasPrefix(key, "/shop a#") || o.State != "dead" || o.Class != "conflict" {
				t.Errorf("held: %+v", o)
			}
		}
	}
}

// A message that is not an event becomes dead, and keeps all its bytes. It does not become an event
// later.
func TestUndecodableMessagesAreHeldWhole(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in.Handle(b.subscription("h"), failing("h", errors.New("always")))
	b.run()
	header := nats.Header{"ce-id": {"1", "2"}, "X-Own": {"\xff\x01 value"}}
	b.publishRaw(&nats.Msg{Subject: b.stream + ".placed", Header: header, Data: []byte{0, 255, 1}})
	// It can be decoded, but no column accepts one of its headers.
	decodes := nats.Header(wire.Encode(postroom.Event{ID: "bad 1", Source: "/shop", Type: b.stream + ".placed", LoggedAt: time.Now(), Time: time.Now()}))
	decodes["X-Nul"] = []string{"a\x00b"}
	b.publishRaw(&nats.Msg{Subject: b.stream + ".placed", Header: decodes, Data: []byte("body")})
	b.publish("good")
	b.eventually("both to be dead", func() bool { return b.dead("h") == 2 })
	b.drained()
	b.wantOnce("h", "good")

	var raw, data []byte
	err := b.pool.QueryRow(t.Context(), "SELECT raw_headers, data FROM postroom.held WHERE class = 'undecodable'").Scan(&raw, &data)
	if err != nil {
		t.Fatal(err)
	}
	if want := "X-Own: \xff\x01 value\r\nce-id: 1\r\nce-id: 2\r\n"; string(raw) != want || !slices.Equal(data, []byte{0, 255, 1}) {
		t.Errorf("held: headers %q, want %q; data %v", raw, want, data)
	}
	for key := range b.held("h") {
		b.overrideDeadNextAtAndAttempts("h", key)
	}
	b.eventually("both to be dead again", func() bool { return b.dead("h") == 2 })
	b.eventually("the counters", func() bool { return b.counted("h", "dead") == 4 })
}

// publishBlock publishes a message with a block of headers as it stands, which the client library would
// not send.
func (b *bench) publishBlock(lines, body string) {
	b.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(b.nc.ConnectedUrl(), "nats://"))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = conn.Close() }() // the server has answered by then
	block := "NATS/1.0\r\n" + lines + "\r\n"
	if _, err := fmt.Fprintf(conn, "CONNECT {\"headers\":true,\"verbose\":false}\r\nHPUB %s %d %d\r\n%s%s\r\nPING\r\n", b.stream+".placed", len(block), len(block)+len(body), block, body); err != nil {
		b.Fatal(err)
	}
	for answers := bufio.NewScanner(conn); answers.Scan() && answers.Text() != "PONG"; {
		if strings.HasPrefix(answers.Text(), "-ERR") {
			b.Fatal(answers.Text())
		}
	}
}

// The client delivers a message without headers if it cannot read them. That message is not an event
// without headers, which would have another type and identity: it is dead, also after a replay.
func TestMessagesWhoseHeadersCannotBeReadAreDead(t *testing.T) {
	t.Parallel()
	for name, order := range map[string]inbox.Order{"unordered": inbox.Unordered, "ordered": inbox.HoldKey} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			s := b.subscription("h")
			s.Order = order
			b.in.Handle(s, effect("h"))
			b.run()
			b.publishBlock("Nats-Msg-Id: m-1\r\nce-id: 1\r\nce-type: order.refunded\r\nX-Note: a\nb\r\n", "body")
			b.publishBlock("no colon\r\n", "body")
			b.publishBlock("", "body") // a block without headers can be read
			b.eventually("two to be dead, and an effect", func() bool { return b.dead("h") == 2 && len(b.effects("h")) == 1 })
			for key, o := range b.held("h") {
				if o.Class != "undecodable" {
					t.Errorf("held: %+v", o)
				}
				b.overrideDeadNextAtAndAttempts("h", key)
			}
			b.eventually("the counters", func() bool { return b.counted("h", "dead") == 4 })
			if n := len(b.effects("h")); n != 1 || b.dead("h") != 2 {
				t.Errorf("%d effects and %d dead after a replay", n, b.dead("h"))
			}
		})
	}
}

// attentive returns the bench's stream, which allows direct gets or does not, and a function that begins a
// handler. The handler looks often whether the stream lost messages.
func (b *bench) attentive(order inbox.Order, direct bool) (stream jetstream.Stream, begin func() (stop func())) {
	b.Helper()
	stream, err := b.js.Stream(b.Context(), b.stream)
	if err != nil {
		b.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.AllowDirect = direct
	if stream, err = b.js.UpdateStream(b.Context(), cfg); err != nil {
		b.Fatal(err)
	}
	return stream, func() (stop func()) {
		b.anew(nil)
		inbox.LookOften(b.in, 20*time.Millisecond)
		s := b.subscription("h")
		s.Order = order
		b.in.Handle(s, effect("h"))
		return b.run()
	}
}

// A message whose headers cannot be read stops no handler, even if it is the last that the handler has
// decided when a process starts, or a consumer is created again.
func TestAHandlerGoesOnAfterAMessageThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for name, order := range map[string]inbox.Order{"unordered": inbox.Unordered, "ordered": inbox.HoldKey} {
		for _, direct := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, direct %t", name, direct), func(t *testing.T) {
				t.Parallel()
				b := newBench(t)
				stream, begin := b.attentive(order, direct)
				stop := begin()
				b.publish("1")
				b.publishBlock("no colon\r\n", "body")
				b.eventually("the effect and a death", func() bool { return b.dead("h") == 1 && len(b.effects("h")) == 1 })
				b.eventually("the position to be recorded", func() bool {
					var floor int64
					if err := b.pool.QueryRow(t.Context(), "SELECT floor FROM postroom.subscription WHERE handler = 'h'").Scan(&floor); err != nil {
						t.Fatal(err)
					}
					return floor == 2
				})
				b.eventually("the lag to be known", func() bool {
					lag, err := b.in.Lag(t.Context())
					return err == nil && len(lag) == 1 && lag[0].Pending == 0
				})
				stop()
				for consumer := range stream.ConsumerNames(t.Context()).Name() {
					if err := stream.DeleteConsumer(t.Context(), consumer); err != nil {
						t.Fatal(err)
					}
				}
				begin()
				b.publish("2")
				b.eventually("the next effect", func() bool { return len(b.effects("h")) == 2 })
				if n := alarmed(b, b.meter, "lost_tail"); n != 0 {
					t.Errorf("%d alarms of a lost tail, want none", n)
				}
			})
		}
	}
}

// A server adds the place of a message to a copy that it republishes to another subject. If a stream has such
// copies, and allows direct gets, their places there count, and not those in the stream of the originals.
func TestAHandlerOfMessagesFromAnotherStreamLosesNothing(t *testing.T) {
	t.Parallel()
	for name, order := range map[string]inbox.Order{"unordered": inbox.Unordered, "ordered": inbox.HoldKey} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			stream, begin := b.attentive(order, true)
			stop := begin()
			b.publish("1")
			header := nats.Header(wire.Encode(postroom.Event{ID: "2", Source: "/shop", Type: b.stream + ".placed", LoggedAt: time.Now(), Time: time.Now()}))
			header.Set(jetstream.StreamHeader, "OTHER")
			header.Set(jetstream.SubjectHeader, "other")
			header.Set(jetstream.SequenceHeader, "1")
			header.Set(jetstream.TimeStampHeaer, time.Now().Add(time.Hour).Format(time.RFC3339Nano))
			b.publishRaw(&nats.Msg{Subject: b.stream + ".placed", Header: header})
			b.eventually("both effects", func() bool { return len(b.effects("h")) == 2 })
			b.eventually("the position to be recorded", func() bool {
				var floor int64
				if err := b.pool.QueryRow(t.Context(), "SELECT floor FROM postroom.subscription WHERE handler = 'h'").Scan(&floor); err != nil {
					t.Fatal(err)
				}
				return floor == 2
			})
			stop()
			for consumer := range stream.ConsumerNames(t.Context()).Name() {
				if err := stream.DeleteConsumer(t.Context(), consumer); err != nil {
					t.Fatal(err)
				}
			}
			begin()
			b.publish("3")
			b.eventually("the next effect", func() bool { return len(b.effects("h")) == 3 })
			b.wantOnce("h", "1", "2", "3")
			if n := alarmed(b, b.meter, "lost_tail"); n != 0 {
				t.Errorf("%d alarms of a lost tail, want none", n)
			}
		})
	}
}

func TestEventsTooOldForTheInboxAreHeld(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	cfg := b.config()
	cfg.DedupeWindow = 24 * time.Hour
	b.in = inbox.New(b.pool, b.nc, cfg)
	b.in.Handle(b.subscription("h"), effect("h"))
	old := func(id string, age time.Duration) {
		at := time.Now().Add(-age)
		header := nats.Header(wire.Encode(postroom.Event{ID: id, Source: "/shop", Type: b.stream + ".placed", LoggedAt: at, Time: at}))
		header.Del(wire.MsgID)
		b.publishRaw(&nats.Msg{Subject: b.stream + ".placed", Header: header})
	}
	old("backfilled", 72*time.Hour) // it was there before the handler
	b.run()
	b.eventually("the backfill", func() bool { return len(b.effects("h")) == 1 })
	old("too old", 25*time.Hour)
	old("young enough", 23*time.Hour)
	old("backfilled", 72*time.Hour) // decided already, so its age does not matter
	b.eventually("an effect and a death", func() bool { return len(b.effects("h")) == 2 && b.dead("h") == 1 })
	b.drained()
	b.wantOnce("h", "backfilled", "young enough")
	if got := b.held("h")["/shop too old"]; got.Class != "too_old" {
		t.Errorf("held: %+v", got)
	}
	b.overrideDeadNextAtAndAttempts("h", "/shop too old") // a held event's age is not checked again
	b.eventually("its effect", func() bool { return b.effects("h")["too old"] == 1 })
}

// The broker has delivered the event three times without an answer. So the event may have
// ended the processes that took it.
func TestSuspectEventIsHeldAndRunsAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	patient := func(cfg *inbox.Config) { cfg.AckWait = time.Minute } // so that no event is delivered again
	b.anew(patient)
	var running, most atomic.Int32
	sub := b.subscription("h")
	sub.Workers = 4
	handler := postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		n := running.Add(1)
		defer running.Add(-1)
		if ev.ID == "suspect" {
			most.Store(max(n, running.Load()))
			_, err := tx.Exec(ctx, "SELECT pg_sleep(0.1)")
			most.Store(max(most.Load(), running.Load()))
			return errors.Join(err, effect("h").Handle(ctx, tx, ev))
		}
		return effect("h").Handle(ctx, tx, ev)
	})
	b.in.Handle(sub, handler)
	stop := b.run()
	b.publish("first")
	b.eventually("the consumer", func() bool { return len(b.effects("h")) == 1 })
	stop()
	b.publish("suspect")
	b.deliverAndNak(3)

	b.anew(patient)
	b.in.Handle(sub, handler)
	want := []string{"first", "suspect"}
	for i := range 200 {
		want = append(want, fmt.Sprint("e", i))
	}
	b.publish(want[2:]...)
	b.run()
	b.eventually("all effects", func() bool { return len(b.effects("h")) == len(want) })
	b.drained()
	b.wantOnce("h", want...)
	if got := b.counted("h", "held"); got != 1 {
		t.Errorf("%d were held, want the suspect", got)
	}
	if got := most.Load(); got != 1 {
		t.Errorf("%d handlers ran while the suspect did", got)
	}
}

// A suspect is too old, so it dies without a call of DedupeKey. After a replay, it runs alone and has
// the key that its handler makes: an event with this key was decided, so it does not take effect.
func TestASuspectThatIsTooOldHasItsOwnKeyAfterAReplay(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	old := func(cfg *inbox.Config) {
		cfg.AckWait, cfg.DedupeWindow = time.Minute, 24*time.Hour
	}
	b.anew(old)
	sub := b.subscription("h")
	sub.DedupeKey = func(postroom.Event) string { return "order-1" }
	b.in.Handle(sub, effect("h"))
	stop := b.run()
	b.publish("first")
	b.eventually("the first effect", func() bool { return len(b.effects("h")) == 1 })
	stop()
	at := time.Now().Add(-25 * time.Hour)
	header := nats.Header(wire.Encode(postroom.Event{ID: "twin", Source: "/shop", Type: b.stream + ".placed", LoggedAt: at, Time: at}))
	b.publishRaw(&nats.Msg{Subject: b.stream + ".placed", Header: header})
	b.deliverAndNak(3)

	b.anew(old)
	b.in.Handle(sub, effect("h"))
	b.run()
	b.eventually("its death", func() bool { return b.held("h")["/shop twin"].Class == "too_old" })
	if !b.held("h")["/shop twin"].Solitary {
		t.Error("it does not run alone after a replay")
	}
	b.overrideDeadNextAtAndAttempts("h", "/shop twin")
	b.eventually("its end", func() bool { return len(b.held("h")) == 0 })
	b.wantOnce("h", "first")
}

// deliverAndNak takes each message of the only consumer n times and gives it back.
func (b *bench) deliverAndNak(n int) {
	b.Helper()
	stream, err := b.js.Stream(b.Context(), b.stream)
	if err != nil {
		b.Fatal(err)
	}
	for info := range stream.ListConsumers(b.Context()).Info() {
		c, err := stream.Consumer(b.Context(), info.Name)
		if err != nil {
			b.Fatal(err)
		}
		for range n {
			msgs, err := c.Fetch(1, jetstream.FetchMaxWait(5*time.Second))
			if err != nil {
				b.Fatal(err)
			}
			for msg := range msgs.Messages() {
				if err := msg.Nak(); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
}

// A held event has the same content when it runs.
func TestHeldEventKeepsItsContent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var runs []string
	seen := make(chan postroom.Event, 2)
	b.in.Handle(b.subscription("h"), postroom.HandlerFunc(func(_ context.Context, _ pgx.Tx, ev postroom.Event) error {
		seen <- ev
		if runs = append(runs, ev.ID); len(runs) == 1 {
			return errors.New("once")
		}
		return nil
	}))
	b.run()
	b.publishEvent(postroom.Event{
		ID: "a", Source: "/shop", Type: b.stream + ".placed", Key: "k", ContentType: "text/plain", Data: []byte{0, 1, 255},
		Headers: map[string]string{"x-tenant": "ä"}, CorrelationID: "c", CausationID: "b",
		TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", TraceState: "a=b",
	})
	text := func(ev postroom.Event) string {
		ev.LoggedAt, ev.Time = ev.LoggedAt.UTC().Truncate(time.Microsecond), ev.Time.UTC().Truncate(time.Microsecond) // as producers write them
		s, err := json.Marshal(ev)
		if err != nil {
			t.Fatal(err)
		}
		return string(s)
	}
	first, second := text(<-seen), text(<-seen)
	if first != second {
		t.Errorf("the first run saw  %s\nthe second one      %s", first, second)
	}
}

// The id of another service's event may be too long for an index. The event is held
// nevertheless, and does not stop those behind it.
func TestEventWithALongIDIsHeld(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.subscription("h")
	s.Attempts = 1
	b.in.Handle(s, postroom.HandlerFunc(func(context.Context, pgx.Tx, postroom.Event) error { return errors.New("no") }))
	var id strings.Builder
	for i := range 200 { // it does not compress well
		fmt.Fprintf(&id, "%x", sha256.Sum256([]byte{byte(i)}))
	}
	b.publish(id.String(), "next")
	b.run()
	devtest.Eventually(t, 30*time.Second, "both events to be dead", func() bool { return b.dead("h") == 2 })
}
