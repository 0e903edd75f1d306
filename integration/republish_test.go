package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/operator"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/relay"
	"github.com/postroom/postroom/relay/broker"
)

const republishPatience = 2 * time.Minute

// copies returns the message ids of each event in a stream, and how many messages have the
// mark of a republish.
func copies(t *testing.T, js jetstream.JetStream, name string) (ids map[string][]string, marked int) {
	t.Helper()
	stream, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	reader, err := stream.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{HeadersOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	ids = map[string][]string{}
	for total := stream.CachedInfo().State.Msgs; total > 0; {
		batch, err := reader.Fetch(int(min(total, 1000)), jetstream.FetchMaxWait(5*time.Second)) //nolint:gosec // small
		if err != nil {
			t.Fatal(err)
		}
		for m := range batch.Messages() {
			id := m.Headers().Get("ce-id")
			ids[id] = append(ids[id], m.Headers().Get("Nats-Msg-Id"))
			if m.Headers().Get("postroom-republish") != "" {
				marked++
			}
			total--
		}
		if err := batch.Error(); err != nil {
			t.Fatal(err)
		}
	}
	return ids, marked
}

// Relays are killed during a republish, again and again, while clients write. The stream has
// each event of the republish exactly twice and every other event once. Handlers apply each
// once.
func TestRepublishWithRelaysThatAreKilled(t *testing.T) {
	t.Parallel()
	s := openShop(t, devtest.NATS(t), 2*time.Minute)
	terms := map[*process]int{}
	for i := range 2 {
		terms[startRelay(t, fmt.Sprint("relay ", i), s.url, devtest.NATSURL(t))] = 0
	}
	leader := leaderOf(t, terms)
	s.grow(1000) // from now on they write beside the republish
	store := operator.New(s.pool, operator.Config{})
	order := operator.RepublishRequest{Rate: 200, Name: "all of it"}
	devtest.Eventually(t, republishPatience, "1000 events to be published", func() bool {
		p, err := store.PreviewRepublish(t.Context(), order)
		return err == nil && p.Events >= 1000
	})
	order.Until = time.Now() // later events would not be part of the republish when the order is repeated
	for _, is := range []struct{ what, sql string }{
		{"every event written before that to be committed", `SELECT NOT EXISTS (SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND xact_start <= $1 AND pid <> pg_backend_pid())`},
		{"and to be published", `SELECT high >= (SELECT max(seq) FROM postroom.outbox WHERE created_at <= $1) FROM postroom.relay`},
	} {
		devtest.Eventually(t, republishPatience, is.what, func() (done bool) {
			err := s.pool.QueryRow(t.Context(), is.sql, order.Until).Scan(&done)
			return err == nil && done
		})
	}
	r, err := store.Republish(t.Context(), order, postroom.Audit{Actor: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	now := func() operator.Republish {
		t.Helper()
		found, err := store.FindRepublish(t.Context(), r.ID)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	for round := range 3 {
		from := now().Published
		devtest.Eventually(t, republishPatience, "the republish to make progress", func() bool { return now().Published > from+100 })
		leader.kill()
		if n := now(); n.State != operator.RepublishRunning {
			t.Fatalf("killed too late: %+v", n)
		}
		delete(terms, leader)
		terms[startRelay(t, fmt.Sprint("relay ", 2+round), s.url, devtest.NATSURL(t))] = 0
		leader = leaderOf(t, terms)
		if same, err := store.Republish(t.Context(), order, postroom.Audit{Actor: "ann"}); err != nil || same.ID != r.ID || !same.AlreadyRunning {
			t.Fatalf("the same order while it runs is %+v, %v", same, err)
		}
	}
	devtest.Eventually(t, republishPatience, "the republish to be done", func() bool { return now().State == operator.RepublishDone })
	done := now()
	if done.Published+done.Skipped < r.Events || done.Held != 0 { // more if one was committed late
		t.Errorf("done: %+v", done)
	}
	s.waitUntilIdle()

	ids, marked := copies(t, s.js, s.stream)
	twice := int64(0)
	for id, messages := range ids {
		again := 0
		for _, m := range messages {
			if strings.HasSuffix(m, fmt.Sprint("#g", r.ID)) {
				again++
			}
		}
		if again > 1 || len(messages)-again != 1 {
			t.Errorf("event %s is in the stream as %q", id, messages)
		}
		twice += int64(again)
	}
	if twice != done.Published || int64(marked) != twice {
		t.Errorf("%d events are in the stream twice, %d messages have the mark; the republish says %d", twice, marked, done.Published)
	}
}

// No kind of handler repeats an effect. If an ordered handler has no inbox row for a
// republished event, it holds the event as late.
func TestRepublishHasNoSecondEffect(t *testing.T) {
	t.Parallel()
	const events = 60
	d := openOrderedDepot(t)
	note := func(handler string) func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		return func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
			_, err := tx.Exec(ctx, "INSERT INTO effect (handler, event) VALUES ($1, $2)", handler, ev.ID)
			return err
		}
	}
	cfg, err := pgxpool.ParseConfig(d.url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 30
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	in := inbox.New(pool, d.js.Conn(), inbox.Config{AckWait: 5 * time.Second})
	sub := func(name string) inbox.Subscription {
		return inbox.Subscription{Name: name, Stream: d.stream, Types: []string{d.typed("placed")}}
	}
	in.Handle(sub("plain"), postroom.HandlerFunc(note("plain")))
	batched, ordered := sub("batched"), sub("ordered")
	batched.Batch, ordered.Order = 20, inbox.HoldKey
	in.Handle(batched, postroom.HandlerFunc(note("batched")))
	in.Handle(ordered, postroom.HandlerFunc(note("ordered")))
	in.HandleExternal(sub("external"), func(ctx context.Context, attempt *inbox.Attempt) error {
		_, err := inbox.Step(ctx, attempt, "charge", func(ctx context.Context, _ string) (struct{}, error) {
			_, err := d.pool.Exec(ctx, "INSERT INTO effect (handler, event) VALUES ('external', $1)", attempt.Event.ID)
			return struct{}{}, err
		})
		return err
	})
	store := operator.New(d.pool, operator.Config{})
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() {
		ended <- postroom.Run(ctx, in, relay.New(d.pool, natsjs.NewPublisher(d.js.Conn()), relay.Config{}))
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
	})

	out := outbox.New(outbox.Config{Source: "/shop"})
	err = pgx.BeginFunc(t.Context(), d.pool, func(tx pgx.Tx) error {
		for i := range events {
			ev := postroom.NewEvent(d.typed("placed"), i)
			ev.ID, ev.Key = fmt.Sprintf("e%03d", i), fmt.Sprint("k", i%7)
			if err := out.Write(t.Context(), tx, ev); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	handlers := []string{"plain", "batched", "external", "ordered"}
	devtest.Eventually(t, republishPatience, "all effects", func() bool {
		return d.number("SELECT count(*) FROM effect") == events*len(handlers)
	})
	d.waitUntilIdle("plain", "batched", "external")
	devtest.Eventually(t, republishPatience, "all to be recorded as published", func() bool {
		return d.number("SELECT (high = (SELECT max(seq) FROM postroom.outbox) AND isempty(pending))::int FROM postroom.relay") == 1
	})
	d.overrideDedupeWindow("ordered", "e007")

	r, err := store.Republish(t.Context(), operator.RepublishRequest{Keys: []string{"k0", "k1", "k2"}, Rate: 200}, postroom.Audit{Actor: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	devtest.Eventually(t, republishPatience, "the republish to be done", func() bool {
		found, err := store.FindRepublish(t.Context(), r.ID)
		return err == nil && found.State == operator.RepublishDone && found.Published == r.Events
	})
	ids, marked := copies(t, d.js, d.stream)
	for i := range events {
		id, want := fmt.Sprintf("e%03d", i), 1
		if i%7 < 3 {
			want = 2
		}
		if got := len(ids[id]); got != want {
			t.Errorf("%s is in the stream %d times, want %d", id, got, want)
		}
	}
	last := events + marked
	d.waitUntilIdle("plain", "batched", "external")
	devtest.Eventually(t, republishPatience, "the ordered reader at the stream's end", func() bool {
		return d.number("SELECT floor FROM postroom.subscription WHERE handler = 'ordered'") == last
	})
	for _, handler := range handlers {
		for id, n := range d.tally(handler) {
			if n != 1 {
				t.Errorf("%s took effect %d times at %s, want once", id, n, handler)
			}
		}
		if got := len(d.tally(handler)); got != events {
			t.Errorf("%d events took effect at %s, want %d", got, handler, events)
		}
	}
	if n := d.number("SELECT count(*) FROM postroom.held WHERE handler = 'ordered' AND event_id = 'e007' AND class = 'late' AND chain IS NULL"); n != 1 {
		t.Errorf("%d events are held as late, want e007", n)
	}
	if n := d.number("SELECT count(*) FROM postroom.held"); n != 1 {
		t.Errorf("%d events are held, want one", n)
	}
}

// overrideDedupeWindow removes an inbox row, as if the dedupe window had passed. The inbox's own tests
// and the scenario "expiry" of soak wait for the window.
func (d *depot) overrideDedupeWindow(handler, event string) {
	d.Helper()
	d.exec("DELETE FROM postroom.inbox WHERE handler = $1 AND dedupe_key LIKE '% ' || $2", handler, event)
}

// If the broker refuses an event of a republish, it is held with the republish's id. When it
// is tried again, it is published with the republish's mark and message id.
func TestRefusedEventKeepsTheMarkOfItsRepublish(t *testing.T) {
	t.Parallel()
	o := openRefusalRig(t, devtest.NATS(t))
	o.stream("a", jetstream.StreamConfig{})
	o.write(letter{kind: "a", key: "k"}, letter{kind: "a", key: "k", size: 6000}, letter{kind: "a", key: "k"})
	o.relay(relay.Config{AcceptRisks: []broker.Risk{natsjs.SmallMessages}})
	o.waitForStored("a", 3)
	o.stream("a", jetstream.StreamConfig{MaxMsgSize: 5000})
	store := operator.New(o.pool, operator.Config{})
	devtest.Eventually(t, republishPatience, "the events to be recorded as published", func() bool {
		p, err := store.PreviewRepublish(t.Context(), operator.RepublishRequest{})
		return err == nil && p.Events == 3
	})
	r, err := store.Republish(t.Context(), operator.RepublishRequest{All: true}, postroom.Audit{Actor: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	held := o.waitForHeld(1)
	if held[0].ID != "k-1" || held[0].State != "dead" {
		t.Errorf("held %+v, want k-1 dead", held[0])
	}
	o.write(letter{kind: "a", key: "k"}) // its key does not wait
	o.waitForStored("a", 3+2+1)
	devtest.Eventually(t, republishPatience, "the republish to be done", func() bool {
		found, err := store.FindRepublish(t.Context(), r.ID)
		return err == nil && found.State == operator.RepublishDone && found.Published == 2 && found.Held == 1
	})

	o.stream("a", jetstream.StreamConfig{})
	o.overrideDeath()
	o.waitForHeld(0)
	ids, marked := copies(t, o.js, o.name+"-a")
	if got, want := fmt.Sprint(ids["k-1"]), fmt.Sprintf("[/office#k-1 /office#k-1#r1#g%d]", r.ID); got != want || marked != 3 {
		t.Errorf("k-1 is in the stream as %s, and %d messages have the mark; want %s and 3", got, marked, want)
	}
}
