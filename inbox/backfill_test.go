package inbox_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
)

// publishBackfill sends events that are older than the inbox rows of a handler of remembering.
func (b *bench) publishBackfill(ids ...string) {
	b.Helper()
	for _, id := range ids {
		b.publishAged(id, 72*time.Hour)
	}
}

// startBackfill runs an inbox whose handler h keeps its rows for 48 hours.
func (b *bench) startBackfill(order inbox.Order, h postroom.Handler) (stop func()) {
	b.Helper()
	cfg := b.config()
	cfg.DrainTimeout = 50 * time.Millisecond
	b.in = inbox.New(b.pool, b.nc, cfg)
	inbox.LookOften(b.in, 20*time.Millisecond)
	sub := b.subscription("h")
	sub.Order, sub.Workers, sub.DedupeWindow = order, 1, 48*time.Hour
	b.in.Handle(sub, h)
	return b.run()
}

// overrideAgeOfRows lets the rows of the handler h expire.
func (b *bench) overrideAgeOfRows() {
	b.Helper()
	b.exec("UPDATE postroom.inbox SET at = at - interval '72 h'")
	if _, err := inbox.SweepOverridingDueAt(b.Context(), b.remembering("h", 48*time.Hour)); err != nil {
		b.Fatal(err)
	}
	if n := b.ledger("h"); n > 0 {
		b.Fatalf("%d rows are left", n)
	}
}

// remakeConsumers deletes each consumer of the stream and creates it again with its configuration.
func (b *bench) remakeConsumers() {
	b.Helper()
	all := b.consumers()
	b.loseConsumers()
	for _, info := range all {
		if _, err := b.js.CreateConsumer(b.Context(), b.stream, info.Config); err != nil {
			b.Fatal(err)
		}
	}
}

// stuck returns a handler that ends with its context if the event has one of the ids.
func stuck(at ...string) postroom.Handler {
	return postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		for _, id := range at {
			if ev.ID == id {
				<-ctx.Done()
				return ctx.Err()
			}
		}
		return effect("h").Handle(ctx, tx, ev)
	})
}

// A handler decides events that were in the stream before it, and their rows expire. Then the
// consumer delivers from the start again. Decided events do not run again. The others still run,
// although they are older than any row.
func TestADecidedBackfillDoesNotRunAgain(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		first   postroom.Handler
		decided int
	}{
		"the whole backfill is decided":       {effect("h"), 4},
		"the process stops amid the backfill": {stuck("c", "d"), 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.publishBackfill("a", "b", "c", "d")
			stop := b.startBackfill(inbox.Unordered, tt.first)
			b.eventually("the floor", func() bool { return b.floorAt("h") == tt.decided })
			stop()
			b.overrideAgeOfRows()
			b.remakeConsumers()
			b.startBackfill(inbox.Unordered, effect("h"))
			b.eventually("the decided events to be held, and the others to run", func() bool {
				return b.dead("h") == tt.decided && len(b.effects("h")) == 4
			})
			b.drained()
			b.wantOnce("h", "a", "b", "c", "d")
			for key, entry := range b.held("h") {
				if entry.Class != "too_old" {
					t.Errorf("%s is held: %+v", key, entry)
				}
			}
		})
	}
}

// The broker sets the consumer's state back while the process has no request, so the process does
// not look at its subscription again. It knows the floor nevertheless.
func TestADecidedBackfillIsDeliveredAgainToARunningProcess(t *testing.T) {
	t.Parallel()
	v := newBrittle(t)
	v.publishBackfill("a", "b", "c")
	blocked, resume := make(chan struct{}, 100), map[string]chan struct{}{"a": make(chan struct{}), "more000": make(chan struct{})}
	v.startBackfill(inbox.Unordered, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		if wait := resume[ev.ID]; wait != nil {
			blocked <- struct{}{}
			select {
			case <-wait:
			case <-ctx.Done():
			}
		}
		return effect("h").Handle(ctx, tx, ev)
	}))
	<-blocked
	saved, state := filepath.Join(t.TempDir(), "saved"), filepath.Join(filepath.Dir(v.messages()), "obs")
	v.stopped(func() error { return os.CopyFS(saved, os.DirFS(state)) })
	close(resume["a"])
	v.eventually("the floor", func() bool { return v.floorAt("h") == 3 })
	v.overrideAgeOfRows()
	v.publish(ids("more", 20)...)
	<-blocked
	v.eventually("the process to have as many messages as it may", func() bool {
		all := v.consumers()
		return len(all) == 1 && all[0].NumAckPending == 8 && all[0].NumWaiting == 0
	})
	v.stopped(func() error { return errors.Join(os.RemoveAll(state), os.CopyFS(state, os.DirFS(saved))) })
	close(resume["more000"])
	v.eventually("the decided events to be held, and the others to run", func() bool {
		return v.dead("h") == 3 && len(v.effects("h")) == 23
	})
	v.drained()
	v.wantOnce("h", append(ids("more", 20), "a", "b", "c")...)
}

// The broker loses acknowledged messages, and reading begins again below events of the backfill
// whose rows have expired. They do not run again.
func TestADecidedBackfillBehindALostTail(t *testing.T) {
	t.Parallel()
	for name, order := range map[string]inbox.Order{"unordered": inbox.Unordered, "ordered": inbox.HoldKey} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newBrittle(t)
			v.publishBackfill("a", "b")
			saved := v.save()
			v.publishBackfill("c", "d")
			stop := v.startBackfill(order, effect("h"))
			v.eventually("the floor", func() bool { return v.floorAt("h") == 4 })
			stop()
			v.overrideAgeOfRows()
			v.forget(saved)
			stop = v.startBackfill(order, effect("h"))
			v.eventually("an alarm", func() bool { return alarmed(v.bench, v.meter, "lost_tail") == 1 })
			v.eventually("the decided events to be held", func() bool { return v.dead("h") == 2 })
			stop()
			v.wantOnce("h", "a", "b", "c", "d")
			if _, backfill := v.floor("h"); backfill != 0 {
				t.Errorf("the next process exempts events up to %d from the limit of age", backfill)
			}
		})
	}
}

// noticed is a tracer that tells when a statement has run for the first time.
type noticed struct {
	line string // the first of the statement
	once sync.Once
	ran  chan struct{}
}

func (n *noticed) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, statement{}, data.SQL)
}

func (n *noticed) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if sql, _ := ctx.Value(statement{}).(string); strings.Contains(sql, n.line) {
		n.once.Do(func() { close(n.ran) })
	}
}

// While a process waits for the lease, the reader begins again at a lower floor. When the process
// gets the lease, it treats no event as new because of what it learned before it waited.
func TestAWaitingReaderLearnsThatTheBackfillIsDecided(t *testing.T) {
	t.Parallel()
	lead := &noticed{line: firstLine(t, "lead"), ran: make(chan struct{})}
	b := newBenchOn(t, devtest.Pool(t), devtest.NATS(t))
	b.publishBackfill("a", "b")
	stop := b.startBackfill(inbox.HoldKey, effect("h"))
	b.eventually("the floor", func() bool { return b.floorAt("h") == 2 })
	stop()
	b.overrideAgeOfRows()
	b.exec("UPDATE postroom.subscription SET reader = 'another', reader_until = 'infinity'")
	cfg := b.pool.Config()
	cfg.ConnConfig.Tracer = lead
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	b.pool = pool
	b.startBackfill(inbox.HoldKey, effect("h"))
	b.eventually("the process to wait for the lease", func() bool {
		select {
		case <-lead.ran:
			return true
		default:
			return false
		}
	})
	b.exec(`UPDATE postroom.subscription SET reader = NULL, reader_until = NULL,
		floor = 0, floor_id = NULL, floor_stored_at = NULL, backfill_through = 0`)
	b.eventually("the decided events to be held", func() bool { return b.dead("h") == 2 })
	b.wantOnce("h", "a", "b")
}

// One message of the backfill can never be held, because OnDead fails for it. So the handler's position
// stays before it, although all later messages of the backfill are decided. Their inbox rows expire,
// and then the consumer is lost, or the process of an ordered handler is started again. The events of
// these messages must not take effect again.
func TestADecidedBackfillBehindAMessageThatIsNeverDecided(t *testing.T) {
	t.Parallel()
	for name, order := range map[string]inbox.Order{"unordered": inbox.Unordered, "ordered": inbox.HoldKey} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.publishRaw(&nats.Msg{Subject: b.stream + ".placed", Header: nats.Header{"ce-time": {"never"}}, Data: []byte("1")})
			all := ids("e", 5)
			b.publish(all...)
			deploy := func() (stop func()) {
				cfg := b.config()
				cfg.OnDead = func(context.Context, pgx.Tx, inbox.Letter) error { return errFails }
				b.in = inbox.New(b.pool, b.nc, cfg)
				inbox.LookOften(b.in, 50*time.Millisecond)
				sub := b.subscription("h")
				sub.DedupeWindow, sub.Order = 2*time.Second, order
				b.in.Handle(sub, effect("h"))
				return b.run()
			}
			stop := deploy()
			b.eventually("the events", func() bool { return len(b.effects("h")) == 5 })
			b.eventually("their rows to expire", func() bool { return b.ledger("h") == 0 })
			if order == inbox.Unordered {
				b.loseConsumers()
			} else {
				stop()
				deploy()
			}
			b.publish("last")
			b.eventually("a later event", func() bool { return b.effects("h")["last"] == 1 })
			b.wantOnce("h", append(all, "last")...)
		})
	}
}
