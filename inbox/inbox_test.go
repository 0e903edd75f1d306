package inbox_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/wire"
)

func TestEachHandlerAppliesEachEventOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.anew(func(cfg *inbox.Config) { cfg.AckWait = time.Minute }) // so that no event is delivered again
	b.in.Handle(b.subscription("billing"), effect("billing"))
	b.in.Handle(b.subscription("analytics"), effect("analytics"))
	b.run()
	b.publish("a", "b", "a", "c", "a") // copies, as a relay that crashed sends them
	b.eventually("3 effects each", func() bool { return len(b.effects("billing")) == 3 && len(b.effects("analytics")) == 3 })
	b.drained()
	for _, name := range []string{"billing", "analytics"} {
		b.wantOnce(name, "a", "b", "c")
		if got := b.counted(name, "duplicate"); got != 2 {
			t.Errorf("%s counted %d duplicates, want 2", name, got)
		}
		if got := b.counted(name, "done"); got != 3 {
			t.Errorf("%s counted %d done, want 3", name, got)
		}
	}
}

func TestAnotherEventUnderTheSameIdentityIsNotApplied(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in.Handle(b.subscription("billing"), effect("billing"))
	b.run()
	b.publish("a")
	b.eventually("the effect", func() bool { return len(b.effects("billing")) == 1 })
	b.publishEvent(postroom.Event{ID: "a", Source: "/shop", Type: b.stream + ".placed", Data: []byte("other")})
	b.eventually("the conflict", func() bool { return b.counted("billing", "conflict") > 0 })
	b.publishEvent(postroom.Event{ID: "a", Source: "/bank", Type: b.stream + ".placed", Data: []byte("other")}) // another identity
	b.eventually("the other source's", func() bool { return b.effects("billing")["a"] == 2 })
}

func TestForeignMessagesHaveAnIdentity(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sub := b.subscription("any")
	sub.Types, sub.Subjects = nil, []string{b.stream + ".>"}
	b.in.Handle(sub, effect("any"))
	b.run()
	b.publishRaw(&nats.Msg{Subject: b.stream + ".x", Data: []byte("plain")})
	b.publishRaw(&nats.Msg{Subject: b.stream + ".x", Data: []byte("plain")})
	b.publishRaw(&nats.Msg{Subject: b.stream + ".x", Header: nats.Header{wire.MsgID: {"msg-1"}}})
	b.eventually("three effects", func() bool { return len(b.effects("any")) == 3 })
	if n := b.effects("any")["msg-1"]; n != 1 {
		t.Errorf("effects %v, want one under the message id", b.effects("any"))
	}
}

func TestTypesThatAreNotTakenAreSkipped(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.anew(func(cfg *inbox.Config) { cfg.AckWait = time.Minute }) // so that no event is delivered again
	b.in.Handle(b.subscription("billing"), effect("billing"))
	b.run()
	header := nats.Header(wire.Encode(postroom.Event{ID: "x", Source: "/shop", Type: "something.else", LoggedAt: time.Now(), Time: time.Now()}))
	b.publishRaw(&nats.Msg{Subject: b.stream + ".placed", Header: header})
	b.publish("a")
	b.eventually("the effect", func() bool { return len(b.effects("billing")) == 1 })
	b.drained()
	b.wantOnce("billing", "a")
	if got := b.counted("billing", "skipped"); got != 1 {
		t.Errorf("counted %d skipped, want 1", got)
	}
}

// By default, workers leave connections for handlers that also use the pool.
func TestHandlersMayUseThePool(t *testing.T) {
	t.Parallel()
	cfg, err := pgxpool.ParseConfig(devtest.DatabaseURL(t))
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 4
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	b := newBenchOn(t, pool, devtest.NATS(t))
	sub := b.subscription("pool")
	sub.Workers = 0
	b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		if _, err := pool.Exec(ctx, "SELECT pg_sleep(0.01)"); err != nil {
			return err
		}
		return effect("pool").Handle(ctx, tx, ev)
	}))
	b.run()
	var want []string
	for i := range 50 {
		want = append(want, fmt.Sprint("e", i))
	}
	b.publish(want...)
	b.eventually("all effects", func() bool { return len(b.effects("pool")) == len(want) })
}

// Two different sources, of which one has a space and the other the text %20, have an event with the
// same id and content. Both events take effect.
func TestSourcesWithASpace(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in.Handle(b.subscription("h"), postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		_, err := tx.Exec(ctx, "INSERT INTO effect (handler, event) VALUES ('h', $1)", ev.Source)
		return err
	}))
	for _, source := range []string{"/a%20b", "/a%2520b"} { // as they are in a header
		b.publishRaw(&nats.Msg{Subject: b.stream + ".placed", Data: []byte("1"), Header: nats.Header{
			"ce-id": {"1"}, "ce-source": {source}, "ce-type": {b.stream + ".placed"}, "ce-specversion": {"1.0"},
		}})
	}
	b.run()
	b.eventually("both deliveries to end", func() bool { return b.counted("h", "done")+b.counted("h", "duplicate") == 2 })
	b.wantOnce("h", "/a b", "/a%20b")
}
