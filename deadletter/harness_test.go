package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
)

func TestMain(m *testing.M) { devtest.Main(m) }

const patience = 30 * time.Second

// rig is a database with dead events, and an operator.
type rig struct {
	*testing.T

	pool  *pgxpool.Pool
	store *deadletter.Store
	by    postroom.Audit
}

func newRig(t *testing.T) *rig {
	t.Helper()
	n := &rig{T: t, pool: devtest.Pool(t), by: postroom.Audit{Actor: "ann", Reason: "the vendor is back"}}
	n.store = deadletter.New(n.pool, deadletter.Config{})
	n.exec("CREATE TABLE effect (handler text, id text, body text, n bigint GENERATED ALWAYS AS IDENTITY)")
	return n
}

func (n *rig) exec(sql string, args ...any) {
	n.Helper()
	if _, err := n.pool.Exec(n.Context(), sql, args...); err != nil {
		n.Fatalf("%s: %v", sql, err)
	}
}

// number returns the number that a query returns.
func (n *rig) number(sql string, args ...any) (count int64) {
	n.Helper()
	if err := n.pool.QueryRow(n.Context(), sql, args...).Scan(&count); err != nil {
		n.Fatalf("%s: %v", sql, err)
	}
	return count
}

// texts returns the column that a query returns.
func (n *rig) texts(sql string, args ...any) []string {
	n.Helper()
	rows, _ := n.pool.Query(n.Context(), sql, args...) // CollectRows reports the error
	texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		n.Fatalf("%s: %v", sql, err)
	}
	return texts
}

func (n *rig) want(what string, want int64, sql string, args ...any) {
	n.Helper()
	if got := n.number(sql, args...); got != want {
		n.Errorf("%s: %d, want %d", what, got, want)
	}
}

// inbox returns an inbox that reads no stream.
func (n *rig) inbox() *inbox.Inbox {
	return inbox.New(n.pool, nil, inbox.Config{
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), IdlePoll: 5 * time.Millisecond,
	})
}

// run runs an inbox until stop is called, or the test ends.
func (n *rig) run(in *inbox.Inbox) (stop func()) {
	n.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- in.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				n.Errorf("inbox: %v", err)
			}
		})
	}
	n.Cleanup(stop)
	return stop
}

// apply is a handler's effect.
func apply(ctx context.Context, tx pgx.Tx, handler string, ev postroom.Event) error {
	_, err := tx.Exec(ctx, "INSERT INTO effect (handler, id, body) VALUES ($1, $2, $3)", handler, ev.ID, string(ev.Data))
	return err
}

// sub is a subscription for which each failure is final.
func sub(name string) inbox.Subscription {
	return inbox.Subscription{Name: name, Workers: 1, Attempts: 1, Pause: inbox.Pause{Off: true}} // a paused handler would not make its events dead
}

// die makes events dead at a handler: it accepts them, and they fail with the errors of why.
func (n *rig) die(handler string, why func(ev postroom.Event) error, events ...postroom.Event) {
	n.Helper()
	in := n.inbox()
	in.Handle(sub(handler), postroom.HandlerFunc(func(_ context.Context, _ pgx.Tx, ev postroom.Event) error { return why(ev) }))
	before := n.number("SELECT count(*) FROM postroom.held WHERE dead_at IS NOT NULL")
	for _, ev := range events {
		n.accept(in, handler, ev)
	}
	stop := n.run(in)
	devtest.Eventually(n, patience, "the events to be dead", func() bool {
		return n.number("SELECT count(*) FROM postroom.held WHERE dead_at IS NOT NULL") == before+int64(len(events))
	})
	stop()
}

func (n *rig) accept(in *inbox.Inbox, handler string, ev postroom.Event) {
	n.Helper()
	if got, err := in.Accept(n.Context(), handler, ev); err != nil || got != inbox.Stored {
		n.Fatalf("accept %s: %v, %v", ev.ID, got, err)
	}
}

// handle runs a handler that applies its events, except those for which fails returns an error.
func (n *rig) handle(handler string, fails func(ev postroom.Event) error) (stop func()) {
	n.Helper()
	in := n.inbox()
	s := sub(handler)
	s.Workers, s.Attempts, s.Schedule = 1, 5, postroom.Backoff{time.Millisecond}
	in.Handle(s, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		if fails != nil {
			if err := fails(ev); err != nil {
				return err
			}
		}
		return apply(ctx, tx, handler, ev)
	}))
	return n.run(in)
}

// seed writes dead events directly into held, as many as a test of numbers needs. Their handlers
// are h<i%handlers>, and their failures have the given number of causes.
func (n *rig) seed(count, handlers, causes int) {
	n.Helper()
	n.exec(`INSERT INTO postroom.inbox (handler, dedupe_key)
		SELECT 'h' || i % $2, '/shop e' || i FROM generate_series(1, $1::int) i`, count, handlers)
	n.exec(`INSERT INTO postroom.held (handler, dedupe_key, dead_at, attempts, class, cause, failures, first_failed_at, logged_at,
			source, event_id, type, subject, key, content_type, data)
		SELECT 'h' || i % $2, '/shop e' || i, now() - i * interval '1 second', 5, 'error', decode(md5((i % $3)::text), 'hex'),
			jsonb_build_array(jsonb_build_object('at', now(), 'class', 'error', 'text', 'cause ' || i % $3)), now(), now(),
			'/shop', 'e' || i, 'order.placed', 'order.placed', 'k' || i % 100, 'application/json', convert_to('{"n":' || i || '}', 'UTF8')
		FROM generate_series(1, $1::int) i`, count, handlers, causes)
}

// event returns an event of the shop.
func event(id string) postroom.Event {
	return postroom.Event{ID: id, Source: "/shop", Type: "order.placed", Key: "k", Data: []byte(`{"id":"` + id + `"}`)}
}

func events(count int) []postroom.Event {
	all := make([]postroom.Event, count)
	for i := range all {
		all[i] = event(fmt.Sprintf("e%d", i+1))
		all[i].Key = fmt.Sprintf("k%d", i+1)
	}
	return all
}

var errDeclined = errors.New("card declined")

func declined(postroom.Event) error { return errDeclined }

// runReplay runs a replay to its end.
func (n *rig) runReplay(job deadletter.Replay) deadletter.Replay {
	n.Helper()
	ctx, cancel := context.WithTimeout(n.Context(), devtest.Patience(n, patience))
	defer cancel()
	done, err := n.store.RunReplay(ctx, job.ID, deadletter.RunOptions{})
	if err != nil {
		n.Fatal(err)
	}
	return done
}

func (n *rig) replay(f deadletter.Filter, o deadletter.ReplayOptions) deadletter.Replay {
	n.Helper()
	job, err := n.store.CreateReplay(n.Context(), f, o, n.by)
	if err != nil {
		n.Fatal(err)
	}
	return job
}

// wantOnce checks that each of the events took effect once.
func (n *rig) wantOnce(handler string, want int64) {
	n.Helper()
	n.want("events with an effect at "+handler, want, "SELECT count(DISTINCT id) FROM effect WHERE handler = $1", handler)
	n.want("effects at "+handler, want, "SELECT count(*) FROM effect WHERE handler = $1", handler)
}
