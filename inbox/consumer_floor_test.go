package inbox_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
)

// external is an external handler that inserts a row for each event.
func external(name string) inbox.ExternalHandler {
	return func(_ context.Context, attempt *inbox.Attempt) error {
		attempt.OnSuccess(func(ctx context.Context, tx pgx.Tx) error {
			return effect(name).Handle(ctx, tx, attempt.Event)
		})
		return nil
	}
}

// registrations registers the handler h of each kind that has a durable consumer.
var registrations = map[string]func(b *bench, in *inbox.Inbox){
	"unordered": func(b *bench, in *inbox.Inbox) { in.Handle(b.subscription("h"), effect("h")) },
	"external":  func(b *bench, in *inbox.Inbox) { in.HandleExternal(b.subscription("h"), external("h")) },
}

// take takes the next n messages of the handler's consumer and acknowledges them, as a person does
// with the command nats consumer next.
func (b *bench) take(n int) (taken int) {
	b.Helper()
	durable, err := b.js.Consumer(b.Context(), b.stream, b.consumers()[0].Name)
	if err != nil {
		b.Fatal(err)
	}
	batch, err := durable.Fetch(n, jetstream.FetchMaxWait(time.Second))
	if err != nil {
		b.Fatal(err)
	}
	for msg := range batch.Messages() {
		if err := msg.DoubleAck(b.Context()); err != nil {
			b.Fatal(err)
		}
		taken++
	}
	return taken
}

// A person reads messages of the handler's consumer while no process runs, and acknowledges them.
// The next process notices that, and the handler gets the events.
func TestMessagesThatAPersonAcknowledged(t *testing.T) {
	t.Parallel()
	for name, register := range registrations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			register(b, b.in)
			stop := b.run()
			b.publish(ids("a", 5)...)
			b.eventually("the first effects", func() bool { return len(b.effects("h")) == 5 })
			b.drained()
			stop()
			b.publish(ids("b", 5)...)
			if n := b.take(5); n != 5 {
				t.Fatalf("the person took %d messages", n)
			}
			b.publish("last")
			var log lines
			b.anew(func(cfg *inbox.Config) { cfg.Logger = log.logger() })
			register(b, b.in)
			b.run()
			b.eventually("all effects", func() bool { return len(b.effects("h")) == 11 })
			b.drained()
			b.wantOnce("h", append(append(ids("a", 5), ids("b", 5)...), "last")...)
			if n := alarmed(b, b.meter, "undecided"); n != 1 || !log.has("messages were acknowledged that are not decided") || !log.has("from_seq=6") {
				t.Errorf("%d alarms, want one, with the first message in the log", n)
			}
		})
	}
}

// A person reads messages while a process reads, too. The process notices that some messages did not
// come to it. It has later messages when the broker's floor moves, so only the numbers of the
// deliveries show that.
func TestMessagesThatAPersonAcknowledgedBesideAProcess(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	inbox.LookOften(b.in, 20*time.Millisecond)
	goOn, finish := make(chan struct{}), make(chan struct{})
	b.in.Handle(b.subscription("h"), postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		if ev.ID == "before" {
			return effect("h").Handle(ctx, tx, ev)
		}
		wait := goOn
		if ev.ID == "a000" { // so the broker's floor does not move before all others are decided
			wait = finish
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return ctx.Err()
		}
		return effect("h").Handle(ctx, tx, ev)
	}))
	b.publish("before")
	b.run()
	b.eventually("the process to have looked once", func() bool { return b.floorAt("h") == 1 })
	b.publish(ids("a", 30)...)
	b.eventually("the process to have as many messages as it may", func() bool {
		all := b.consumers()
		return len(all) == 1 && all[0].NumAckPending >= 15 && all[0].NumWaiting == 0
	})
	if n := b.take(3); n != 3 {
		t.Fatalf("the person took %d messages", n)
	}
	close(goOn)
	b.eventually("the effects of the other messages", func() bool { return len(b.effects("h")) == 27 })
	close(finish)
	b.eventually("all effects", func() bool { return len(b.effects("h")) == 31 })
	b.eventually("the floor", func() bool { return b.floorAt("h") == 31 })
	b.drained()
	b.wantOnce("h", append(ids("a", 30), "before")...)
	if n := alarmed(b, b.meter, "undecided"); n != 1 {
		t.Errorf("%d alarms, want one", n)
	}
}

// The database is replaced by a copy that lacks the last transactions, while a process runs. The
// handler gets their events again. An ordered handler applies them in order.
func TestADatabaseThatLostTransactions(t *testing.T) {
	t.Parallel()
	own := func(b *bench, in *inbox.Inbox) {
		sub := b.subscription("h")
		sub.DedupeKey = func(ev postroom.Event) string { return "own " + ev.ID }
		in.Handle(sub, effect("h"))
	}
	for name, register := range map[string]func(b *bench, in *inbox.Inbox){
		"unordered": registrations["unordered"], "external": registrations["external"], "with its own keys": own,
		"ordered": func(b *bench, in *inbox.Inbox) { in.Handle(b.ordered("h", inbox.HoldKey), effect("h")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := devtest.OwnPostgres(t, durable)
			admin := migrated(t, server.URL())
			cfg := admin.Config()
			cfg.ConnConfig.User, cfg.MaxConns = "app", 10
			if _, err := admin.Exec(t.Context(), "CREATE ROLE app LOGIN SUPERUSER"); err != nil {
				t.Fatal(err)
			}
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			b := newBenchOn(t, pool, devtest.NATS(t))
			if name == "ordered" {
				b.anew(func(cfg *inbox.Config) { cfg.AckWait = time.Minute }) // a reader keeps its lease over the outage
			}
			inbox.LookOften(b.in, 20*time.Millisecond)
			register(b, b.in)
			b.run()
			publish := func(from, to int) {
				for i := from; i < to; i++ {
					b.publishKey("k", i)
				}
			}
			publish(0, 5)
			b.eventually("the floor", func() bool { return b.floorAt("h") == 5 })
			lock, err := admin.Begin(t.Context()) // so the floor stays until the server ends
			if err == nil {
				_, err = lock.Exec(t.Context(), "SELECT FROM postroom.subscription FOR NO KEY UPDATE")
			}
			if err != nil {
				t.Fatal(err)
			}
			publish(5, 10)
			b.eventually("all effects", func() bool { return len(b.effects("h")) == 10 })
			b.eventually("no event to be in flight", func() bool { all := b.consumers(); return len(all) == 1 && all[0].NumAckPending == 0 })
			if _, err := admin.Exec(t.Context(), "ALTER ROLE app NOLOGIN"); err != nil {
				t.Fatal(err)
			}
			if err := server.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = lock.Rollback(t.Context()) // its connection is broken
			if err := server.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			devtest.Eventually(t, time.Minute, "the copy without the last transactions", func() bool {
				_, err := admin.Exec(t.Context(), `
					DELETE FROM effect WHERE event ~ '0000[5-9]$';
					DELETE FROM postroom.inbox WHERE dedupe_key ~ '0000[5-9]$';
					ALTER ROLE app LOGIN`)
				return err == nil
			})
			publish(10, 12)
			b.eventually("all effects", func() bool {
				var n int
				err := b.pool.QueryRow(t.Context(), "SELECT count(DISTINCT event) FROM effect").Scan(&n)
				return err == nil && n == 12
			})
			b.drained()
			var want []string
			for i := range 12 {
				want = append(want, fmt.Sprintf("k-%05d", i))
			}
			b.wantOnce("h", want...)
			if n := b.outOfOrder("h"); name == "ordered" && n > 0 {
				t.Errorf("%d events took effect out of order", n)
			}
		})
	}
}

// Someone restores the tables from a backup while a process runs. The handler gets again what the
// backup lacks.
func TestTablesThatWereSetBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	inbox.LookOften(b.in, 20*time.Millisecond)
	b.in.Handle(b.subscription("h"), effect("h"))
	b.run()
	b.publish(ids("a", 5)...)
	b.eventually("the floor", func() bool { return b.floorAt("h") == 5 })
	b.publish(ids("b", 5)...)
	b.eventually("the next floor", func() bool { return b.floorAt("h") == 10 })
	b.exec("DELETE FROM effect WHERE event ~ '^b'; DELETE FROM postroom.inbox WHERE dedupe_key ~ ' b'; UPDATE postroom.subscription SET floor = 5")
	b.eventually("all effects", func() bool { return len(b.effects("h")) == 10 })
	b.drained()
	b.wantOnce("h", append(ids("a", 5), ids("b", 5)...)...)
}

// A process that gets all messages of its consumer knows what it decided. It reads no message twice
// to find that out.
func TestTheFloorOfASingleProcess(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	inbox.LookOften(b.in, 10*time.Millisecond)
	b.in.Handle(b.subscription("h"), effect("h"))
	b.run()
	b.publish("first")
	b.eventually("the first floor", func() bool { return b.floorAt("h") == 1 })
	made, err := b.nc.SubscribeSync("$JS.API.CONSUMER.CREATE." + b.stream + ".>")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		b.publish(ids(fmt.Sprint("e", i), 10)...)
		b.eventually("the floor", func() bool { return b.floorAt("h") == 1+10*(i+1) })
	}
	if err := b.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if n, _, err := made.Pending(); n != 0 || err != nil {
		t.Errorf("%d consumers were created to read messages again, want none (%v)", n, err)
	}
}

// Some acknowledged messages have no inbox row, and are not missing nevertheless: a message of a type
// that no process asked for, one that is too old to have a row, one from before its subject was
// added, and one whose key an earlier version of the program made.
func TestAcknowledgedMessagesWithoutRowsThatAreNotMissing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sub := b.subscription("h")
	sub.DedupeKey = func(ev postroom.Event) string { return "own " + ev.ID }
	b.in.Handle(sub, effect("h"))
	stop := b.run()
	b.publish("a", "b")
	b.eventually("the first effects", func() bool { return len(b.effects("h")) == 2 })
	b.drained()
	stop()

	again := func(what string, types ...string) (stop func()) {
		var log lines
		b.anew(func(cfg *inbox.Config) { cfg.Logger = log.logger() })
		inbox.LookOften(b.in, 20*time.Millisecond)
		sub := b.subscription("h")
		sub.Types = append(sub.Types, types...)
		b.in.Handle(sub, effect("h"))
		end := b.run()
		return func() {
			b.Helper()
			b.eventually("the floor: "+what, func() bool {
				all := b.consumers()
				return len(all) == 1 && b.floorAt("h") == int(all[0].AckFloor.Stream) //nolint:gosec // a small number
			})
			b.drained()
			end()
			if n := alarmed(b, b.meter, "undecided"); n != 0 || log.has("not decided, reading again") {
				t.Errorf("%s: %d alarms, want none", what, n)
			}
			b.exec("UPDATE postroom.subscription SET floor = 0") // the next process looks at all messages again
		}
	}
	again("keys of an earlier version")()
	b.exec("UPDATE postroom.subscription SET own_keys = false")
	b.exec("UPDATE postroom.inbox SET digest = decode('00112233445566778899aabbccddeeff', 'hex'), dedupe_key = replace(dedupe_key, 'own ', '/shop ')")

	stop = again("a type that no process asked for")
	other := &nats.Msg{Subject: b.stream + ".placed", Header: nats.Header{"ce-id": {"c"}, "ce-source": {"/shop"}, "ce-type": {"other"}, "ce-specversion": {"1.0"}}}
	b.publishRaw(other)
	b.publish("d")
	b.eventually("the event after it", func() bool { return b.effects("h")["d"] == 1 })
	stop()

	b.publishEvent(postroom.Event{ID: "e", Source: "/shop", Type: b.stream + ".more", ContentType: "application/json", Data: []byte("1")})
	b.publish("f")
	stop = again("an event that is not read")
	b.eventually("the event after it", func() bool { return b.effects("h")["f"] == 1 })
	stop()
	stop = again("a new subject", b.stream+".more")
	b.eventually("the new subject", func() bool { return strings.Contains(fmt.Sprint(b.consumers()[0].Config.FilterSubjects), ".more") })
	stop()
	again("after the new subject", b.stream+".more")()

	b.exec("INSERT INTO postroom.dedupe_window (handler, kept, expired_before) VALUES ('h', '1 day', now() + '1 h') ON CONFLICT (handler) DO UPDATE SET expired_before = excluded.expired_before")
	b.exec("DELETE FROM postroom.inbox WHERE dedupe_key = '/shop a'")
	b.exec("UPDATE postroom.subscription SET skipped_through = 0") // otherwise no process looks at the first messages
	again("an event that is too old")()
	b.wantOnce("h", "a", "b", "d", "f")
}
