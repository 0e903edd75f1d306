package behaviours

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
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

var draws = flag.Int("draws", 3, "how many times handlers are drawn")

func TestHandlersThatBehaveAtRandom(t *testing.T) {
	for i := range *draws {
		t.Run(fmt.Sprintf("draw %d", i), func(t *testing.T) { t.Parallel(); run(t, devtest.Random(t, i)) })
	}
}

const (
	attempts = 2
	events   = 60
	keys     = 6
	timeout  = 2 * time.Second // of a handler
)

// plan is how a handler behaves for an event.
type plan struct {
	id, key string
	way     way    // how it writes
	fault   *fault // how it fails; nil: it does not
	once    bool   // whether the fault comes only at the first run, so that the event is good
	step    bool   // whether an external handler calls a vendor before the rest
}

func (p *plan) good() bool { return p.fault == nil || p.once }

func (p *plan) String() string {
	text := fmt.Sprintf("%s, key %q, writes with %s", p.id, p.key, p.way.name)
	if p.step {
		text += " after a step"
	}
	switch {
	case p.fault == nil:
	case p.once:
		text = fmt.Sprintf("%s, key %q: %s at the first run, then writes with %s", p.id, p.key, p.fault.name, p.way.name)
	default:
		text = fmt.Sprintf("%s, key %q: %s at each run", p.id, p.key, p.fault.name)
	}
	return text
}

// player is a handler that behaves as planned.
type player struct {
	name     string
	sub      inbox.Subscription
	external bool
	accepted bool
	plans    []*plan // by the order of the events
	byID     map[string]*plan

	mu    sync.Mutex
	runs  map[string]int            // by event
	calls map[string]map[string]int // by event and key: the calls of the vendor
}

// draw draws the plans of a handler. About a quarter of the events are bad.
func (h *player) draw(r *rand.Rand) {
	h.runs, h.calls, h.byID = map[string]int{}, map[string]map[string]int{}, map[string]*plan{}
	slow := 0
	for i := range events {
		p := &plan{id: fmt.Sprintf("e%02d", i), way: ways[r.IntN(len(ways))], step: h.external && r.IntN(2) == 0}
		if r.IntN(4) > 0 {
			p.key = fmt.Sprintf("k%d", r.IntN(keys))
		}
		if r.IntN(4) == 0 {
			p.fault = &faults[r.IntN(len(faults))]
			p.once = r.IntN(3) == 0 && !p.fault.last
			switch {
			case h.sub.Order != inbox.Unordered && p.fault.commits: // other events of the key that ran in its transaction may take effect again, as the page on dead events says
				p.fault = nil
			case h.accepted && p.fault.name == "ROLLBACK AND CHAIN": // if another event of its batch then commits, those between them take effect again
				p.fault = nil
			case strings.HasPrefix(p.fault.name, "no time"): // these take the whole time of a handler
				if slow++; slow > 2 {
					p.fault = nil
				}
			}
		}
		h.plans, h.byID[p.id] = append(h.plans, p), p
	}
}

// do is one run of the handler in a transaction.
func (h *player) do(ctx context.Context, tx pgx.Tx, id string) error {
	p := h.byID[id]
	h.mu.Lock()
	h.runs[id]++
	first := h.runs[id] == 1
	h.mu.Unlock()
	if p.fault != nil && (first || !p.once) {
		return p.fault.fail(ctx, tx, h.name, id)
	}
	return p.way.write(ctx, tx, h.name, id)
}

func (h *player) register(in *inbox.Inbox) {
	if !h.external {
		in.Handle(h.sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error { return h.do(ctx, tx, ev.ID) }))
		return
	}
	in.HandleExternal(h.sub, func(ctx context.Context, attempt *inbox.Attempt) error {
		id := attempt.Event.ID
		if h.byID[id].step {
			if _, err := inbox.Step(ctx, attempt, "charge", func(_ context.Context, key string) (string, error) { return h.charge(id, key), nil }); err != nil {
				return err
			}
		}
		attempt.OnSuccess(func(ctx context.Context, tx pgx.Tx) error { return h.do(ctx, tx, id) })
		return nil
	})
}

// charge is the vendor: it carries out each key once.
func (h *player) charge(id, key string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.calls[id] == nil {
		h.calls[id] = map[string]int{}
	}
	h.calls[id][key]++
	return "charged"
}

// players returns one handler of each kind, with random settings.
func players(r *rand.Rand, stream string) []*player {
	reads := func(name string) inbox.Subscription {
		return inbox.Subscription{
			Name: name, Stream: stream, Types: []string{stream + "." + name}, Workers: 1 + r.IntN(3), Attempts: attempts, Timeout: timeout,
			Schedule: postroom.Backoff{10 * time.Millisecond},
			Pause:    inbox.Pause{Off: true}, // a paused handler runs one event at a time
		}
	}
	plain, batched, hold, skip, external := reads("plain"), reads("batched"), reads("hold"), reads("skip"), reads("external")
	batched.Batch = 2 + r.IntN(30)
	hold.Order, skip.Order = inbox.HoldKey, inbox.SkipKey
	external.Workers, external.VendorWindow = 1+r.IntN(8), time.Hour
	accepted := reads("accepted")
	accepted.Stream, accepted.Types, accepted.Batch = "", nil, 1+r.IntN(10)
	if r.IntN(2) == 0 {
		plain.Isolation, batched.Isolation = pgx.Serializable, pgx.RepeatableRead
	}
	all := []*player{{sub: plain}, {sub: batched}, {sub: hold}, {sub: skip}, {sub: external, external: true}, {sub: accepted, accepted: true}}
	for _, h := range all {
		h.name = h.sub.Name
		h.draw(r)
	}
	return all
}

func run(t *testing.T, r *rand.Rand) {
	pool, nc := open(t, r), devtest.NATS(t)
	stream := nats.NewInbox()[len("_INBOX."):]
	if err := natsjs.EnsureStream(t.Context(), nc, jetstream.StreamConfig{Name: stream, Subjects: []string{stream + ".>"}}); err != nil {
		t.Fatal(err)
	}
	locked := prepare(t, pool)
	defer locked()
	all := players(r, stream)
	in := inbox.New(pool, nc, inbox.Config{Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), AckWait: 5 * time.Second})
	for _, h := range all {
		h.register(in)
	}
	// Half of the events come before the inbox begins, so that there are whole batches.
	half := events / 2
	bring(t, in, nc, all, 0, half)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() {
		err := in.Run(ctx)
		if ctx.Err() == nil {
			t.Errorf("Run = %v, before its context ended", err)
		}
		ended <- err
	}()
	bring(t, in, nc, all, half, events)
	for _, h := range all {
		t.Cleanup(func() { h.explain(t, pool) })
		devtest.Eventually(t, 30*time.Second, "all events of handler "+h.name+" to be decided, and none to be due", func() bool { return h.settled(t, pool) })
	}
	stop()
	if err := devtest.Receive(t, 10*time.Second, "the inbox to stop", ended); err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
	for _, h := range all {
		h.check(t, pool)
	}
	devtest.Eventually(t, 10*time.Second, "each connection to be back in the pool", func() bool { return pool.Stat().AcquiredConns() == 0 })
	leftovers(t, pool)
}

// open returns a pool that is large enough for the workers of all handlers. It sends statements in a
// random mode, and may have a hook for new connections.
func open(t *testing.T, r *rand.Rand) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(devtest.DatabaseURL(t))
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 30
	cfg.ConnConfig.DefaultQueryExecMode = []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	}[r.IntN(6)]
	if r.IntN(3) == 0 {
		cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "SET app.shop = 'mine'")
			return err
		}
	}
	t.Logf("mode %s, a hook: %t", cfg.ConnConfig.DefaultQueryExecMode, cfg.AfterConnect != nil)
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// prepare makes the tables of the handlers. It locks the row of one of them until the function that
// it returns is called.
func prepare(t *testing.T, pool *pgxpool.Pool) (release func()) {
	t.Helper()
	_, err := pool.Exec(t.Context(), `
		CREATE TABLE effect (handler text NOT NULL, event text NOT NULL, n serial);
		CREATE TABLE one (id int PRIMARY KEY);
		CREATE TABLE late (id int UNIQUE DEFERRABLE INITIALLY DEFERRED);
		CREATE TABLE locked AS SELECT 1 AS id;
		CREATE TABLE refused (code text);
		CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''too late'' USING ERRCODE = NEW.code; END';
		CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON refused DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()`)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "BEGIN; SELECT FROM locked FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	return func() { _ = conn.Close(context.Background()) } // the server rolls back
}

// bring publishes and accepts the events from one position to another.
func bring(t *testing.T, in *inbox.Inbox, nc *nats.Conn, all []*player, from, to int) {
	t.Helper()
	js := devtest.JetStream(t, nc)
	for i := from; i < to; i++ {
		for _, h := range all { // each handler has its own subject, because its keys are its own
			p := h.plans[i]
			ev := postroom.Event{
				ID: p.id, Source: "/" + h.name, Type: h.name, Key: p.key, ContentType: "application/json",
				Data: []byte(`"` + p.id + `"`), Time: time.Now(), LoggedAt: time.Now(),
			}
			if h.accepted {
				if _, err := in.Accept(t.Context(), h.name, ev); err != nil {
					t.Fatal(err)
				}
				continue
			}
			ev.Type = h.sub.Types[0]
			header := nats.Header(wire.Encode(ev))
			if _, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: ev.Type, Header: header, Data: ev.Data}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// settled reports whether each event is decided, and none is due or running.
func (h *player) settled(t *testing.T, pool *pgxpool.Pool) (done bool) {
	t.Helper()
	err := pool.QueryRow(t.Context(), `
		SELECT (SELECT count(*) FROM postroom.inbox WHERE handler = $1) = $2
		   AND NOT EXISTS (SELECT FROM postroom.held WHERE handler = $1 AND (next_at IS NOT NULL OR claimed_by IS NOT NULL))`, h.name, events).Scan(&done)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// explain logs, if the test failed, which events are not decided, or not settled.
func (h *player) explain(t *testing.T, pool *pgxpool.Pool) {
	if !t.Failed() {
		return
	}
	rows, _ := pool.Query(context.WithoutCancel(t.Context()), `
		SELECT format('%s is not decided', id) FROM unnest($2::text[]) AS e (id)
		WHERE NOT EXISTS (SELECT FROM postroom.inbox WHERE handler = $1 AND dedupe_key = format('/%s %s', $1, id))
		UNION ALL
		SELECT format('%s is due at %s, claimed by %s, solitary %s, attempts %s: %s', event_id, next_at, claimed_by, solitary, attempts, failures)
		FROM postroom.held WHERE handler = $1 AND (next_at IS NOT NULL OR claimed_by IS NOT NULL)`, h.name, ids())
	open, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Log(err)
	}
	for _, line := range open {
		t.Logf("%s: %s: %s", h.name, line, h.byID[line[:3]])
	}
}

// seen is what became of an event.
type seen struct {
	Event   string
	Effects int
	Order   int // the number of its effect
	Held    bool
	Dead    bool
	Failure string
}

func (h *player) check(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	rows, _ := pool.Query(t.Context(), `
		SELECT e.id, (SELECT count(*) FROM effect WHERE handler = $1 AND event = e.id), coalesce((SELECT max(n) FROM effect WHERE handler = $1 AND event = e.id), 0),
		       held.id IS NOT NULL, held.dead_at IS NOT NULL, coalesce(held.failures::text, '')
		FROM unnest($2::text[]) AS e (id) LEFT JOIN postroom.held ON held.handler = $1 AND held.event_id = e.id
		ORDER BY e.id`, h.name, ids())
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[seen])
	if err != nil {
		t.Fatal(err)
	}
	blocked, last := map[string]bool{}, map[string]int{} // by key
	for i, s := range all {
		p := h.plans[i]
		waits := h.sub.Order == inbox.HoldKey && p.key != "" && blocked[p.key]
		var wrong []string
		complain := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
		switch {
		case waits:
			if s.Effects != 0 || !s.Held || s.Dead {
				complain("it must wait behind the dead event of its key")
			}
		case h.shares(s):
		case p.good():
			if s.Effects != 1 || s.Held {
				complain("a good event must have one effect, and not be held")
			}
		default:
			blocked[p.key] = true
			if s.Effects != 0 || !s.Dead {
				complain("a bad event must have no effect, and be dead")
			}
			if !strings.Contains(s.Failure, p.fault.says) {
				complain("the failure must say %q", p.fault.says)
			}
		}
		if h.sub.Order != inbox.Unordered && p.key != "" && s.Effects == 1 {
			if s.Order < last[p.key] {
				complain("it took effect before an earlier event of its key")
			}
			last[p.key] = s.Order
		}
		if charged := h.calls[p.id]; len(charged) > 1 || p.step && len(charged) == 0 && !waits {
			complain("the vendor got %d keys", len(charged))
		}
		if len(wrong) > 0 {
			t.Errorf("%s (batch %d, workers %d): %s: %s\n\t%+v, %d runs", h.name, h.sub.Batch, h.sub.Workers, p, strings.Join(wrong, "; "), s, h.runs[p.id])
		}
	}
}

// shares reports whether an event is dead because the handler committed the transaction of its
// batch, maybe at another event: what the event did until then is committed. Of the events of a
// stream, the inbox rows are committed too, also of those that had not run.
func (h *player) shares(s seen) bool {
	return h.sub.Batch > 1 && s.Dead && strings.Contains(s.Failure, "COMMIT itself") && (h.runs[s.Event] > 0 || !h.accepted)
}

func ids() []string {
	all := make([]string, events)
	for i := range all {
		all[i] = fmt.Sprintf("e%02d", i)
	}
	return all
}

// leftovers looks for sessions that are in a transaction.
func leftovers(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	rows, _ := pool.Query(t.Context(), `
		SELECT state || ': ' || query FROM pg_stat_activity
		WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid() AND query NOT LIKE 'BEGIN; SELECT FROM locked%'
		  AND query NOT LIKE '%pg_sleep%'`) // the server notices only at its end that the client has gone
	open, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if open = slices.DeleteFunc(open, func(s string) bool { return strings.Contains(s, "autovacuum") }); len(open) > 0 {
		t.Errorf("sessions with an open transaction: %q", open)
	}
}
