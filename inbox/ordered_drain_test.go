package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
)

// claims counts the events that the runners claimed themselves. It is a pool's tracer.
type claims struct{ n atomic.Int64 }

func (c *claims) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (c *claims) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (c *claims) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (c *claims) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	if strings.Contains(data.SQL, "claimed_by = $1, next_at") {
		c.n.Add(data.CommandTag.RowsAffected())
	}
}
func (c *claims) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// heldCount returns how many events of a handler are held.
func (b *bench) heldCount(name string) (n int) {
	b.Helper()
	if err := b.pool.QueryRow(b.Context(), "SELECT count(*) FROM postroom.held WHERE handler = $1", name).Scan(&n); err != nil {
		b.Fatal(err)
	}
	return n
}

// made returns how many effects a handler made of events whose ids match a LIKE pattern.
func (b *bench) made(name, like string) (n int) {
	b.Helper()
	if err := b.pool.QueryRow(b.Context(), "SELECT count(*) FROM effect WHERE handler = $1 AND event LIKE $2", name, like).Scan(&n); err != nil {
		b.Fatal(err)
	}
	return n
}

// Events behind a head run one after the other. The transaction that settles an event claims the
// next one. For a hundred events the runner itself claims only once.
func TestHeldEventsOfAKeyRunOneAfterTheOther(t *testing.T) {
	t.Parallel()
	const waiting = 600
	seen := &claims{}
	b := newBenchOn(t, poolWith(t, func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer, cfg.MaxConns = seen, 10 }), devtest.NATS(t))
	s := newScript("o")
	s.set("a-00000", errBad)
	said := &strings.Builder{} // read when the inbox has ended
	cfg := b.config()
	cfg.Logger = slog.New(slog.NewTextHandler(said, nil))
	b.in = inbox.New(b.pool, b.nc, cfg)
	others := make(chan struct{})
	b.in.Handle(b.ordered("o", inbox.HoldKey), postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		if ev.ID == numbered("a", waiting/2, waiting/2)[0] {
			select {
			case <-others:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return s.Handle(ctx, tx, ev)
	}))
	stop := b.run()
	for i := range waiting + 1 {
		b.publishKey("a", i)
	}
	b.eventually("all to wait", func() bool { return b.heldCount("o") == waiting+1 })
	before := seen.n.Load()
	s.set("a-00000", nil)
	began := time.Now()
	b.overrideDeadNextAtAndAttempts("o", "/shop a-00000")
	b.eventually("the first of them", func() bool { return s.ran("a-00001") > 0 })
	for i := range 50 { // these neither wait for the others nor delay them
		b.publishKey("b", i)
		b.publishKey("a", waiting+1+i)
	}
	b.eventually("the other key's effects, although one of this key is not done", func() bool { return b.made("o", "b-%") == 50 })
	close(others)
	devtest.Eventually(t, time.Minute, "no event to be held", func() bool { return b.heldCount("o") == 0 })
	took := time.Since(began)
	b.eventually("the last effect", func() bool { return len(b.orderOf("o", "a")) == waiting+51 })
	stop()
	if strings.Contains(said.String(), "could not be claimed") {
		t.Errorf("it could not claim the due events:\n%s", said)
	}
	if n := b.outOfOrder("o"); n > 0 {
		t.Errorf("%d effects out of order", n)
	}
	if n := seen.n.Load() - before; n > 2*waiting/100 {
		t.Errorf("%d events were claimed alone, want one of each hundred", n)
	}
	t.Logf("%d events drained in %s, %d claims", waiting, took, seen.n.Load()-before)
}

// chaos runs several inboxes on one stream, which start and stop at random.
type chaos struct {
	*bench

	kind   inbox.Order
	handle postroom.Handler
	stops  []func()
	random *rand.Rand
}

func (c *chaos) start() {
	c.in = inbox.New(c.pool, c.nc, c.config())
	sub := c.ordered("o", c.kind)
	sub.Attempts, sub.Schedule = 20, postroom.Backoff{5 * time.Millisecond, 20 * time.Millisecond}
	c.in.Handle(sub, c.handle)
	c.stops = append(c.stops, c.run())
}

// replace stops one of the inboxes and starts another.
func (c *chaos) replace() {
	i := c.random.IntN(len(c.stops))
	c.stops[i]()
	c.stops = append(c.stops[:i], c.stops[i+1:]...)
	c.start()
}

// stuck returns how many keys wait although no event of theirs is due, runs or is dead.
func (b *bench) stuck(name string) (n int) {
	b.Helper()
	err := b.pool.QueryRow(b.Context(), `
		SELECT count(DISTINCT chain) FROM postroom.held w
		WHERE handler = $1 AND next_at IS NULL AND dead_at IS NULL
		  AND NOT EXISTS (SELECT FROM postroom.held h WHERE h.handler = w.handler AND h.chain = w.chain AND h.pos < w.pos)`, name).Scan(&n)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

func TestOrderedHandlersThatComeAndGo(t *testing.T) {
	t.Parallel()
	const keys, each = 40, 60
	for _, order := range []inbox.Order{inbox.HoldKey, inbox.SkipKey} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			t.Parallel()
			b := newBenchOn(t, poolWith(t, func(cfg *pgxpool.Config) { cfg.MaxConns = 24 }), devtest.NATS(t))
			random := devtest.Random(t, 0)
			var bad sync.Map // events that never succeed
			c := &chaos{bench: b, kind: order, random: random, handle: postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
				if _, is := bad.Load(ev.ID); is {
					return errBad
				}
				if random.IntN(8) == 0 {
					return errors.New("not now")
				}
				return effect("o").Handle(ctx, tx, ev)
			})}
			dead := 0
			if order == inbox.SkipKey {
				for k := range keys {
					bad.Store(fmt.Sprintf("k%d-%05d", k, random.IntN(each)), true)
					dead++
				}
			}
			for range 3 {
				c.start()
			}
			var publishing sync.WaitGroup
			publishing.Go(func() { b.publishKeyed(keys, each) })
			stops := 0
			due := 100 // effects after which one inbox is replaced
			devtest.Eventually(t, time.Minute, "all effects", func() bool {
				n := b.made("o", "%")
				if n >= due && n < keys*each*9/10 {
					c.replace()
					stops++
					due = n + 100
				}
				if stuck := b.stuck("o"); stuck > 0 {
					t.Fatalf("%d keys are stuck after %d effects", stuck, n)
				}
				return n == keys*each-dead
			})
			publishing.Wait()
			b.eventually("all other events to be decided, and the dead ones to be held", func() bool { return b.dead("o") >= dead && len(b.held("o")) == b.dead("o") })
			for event, n := range b.effects("o") {
				if n != 1 {
					t.Errorf("%s took effect %d times", event, n)
				}
			}
			if n := b.outOfOrder("o"); n > 0 {
				t.Errorf("%d effects out of order", n)
			}
			if n := b.dead("o"); n != dead {
				t.Errorf("%d are dead, want %d: %v", n, dead, b.held("o"))
			}
			t.Logf("%d stops", stops)
		})
	}
}
