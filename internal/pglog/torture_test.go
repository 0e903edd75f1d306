package pglog_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/outbox"
)

// What producers do in the torture tests. Every account is a key. A transaction locks the accounts
// that it changes and increments the count of each. So the count shows the order in which the
// transactions of a key committed.
const (
	tortureProducers = 24
	tortureKeys      = 400
	tortureTime      = 6 * time.Second
)

// change is the data of an event: the n-th change of an account.
type change struct{ Account, N int }

// ledger is what the producers did, as far as they know.
type ledger struct {
	mu         sync.Mutex
	committed  map[string]change // by event id
	rolledBack map[string]change
	late       int // transactions that were held open
}

func (l *ledger) note(committed bool, changes map[string]change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, c := range changes {
		if committed {
			l.committed[id] = c
		} else {
			l.rolledBack[id] = c
		}
	}
}

// produce runs transactions until ctx ends: with ids taken early, savepoints
// that are rolled back, rollbacks, and some that stay open for seconds.
func produce(ctx context.Context, t *testing.T, pool *pgxpool.Pool, l *ledger, rng *rand.Rand) {
	t.Helper()
	shop := outbox.New(outbox.Config{Source: "/shop"})
	for ctx.Err() == nil {
		changes := make(map[string]change)
		err := pgx.BeginFunc(context.WithoutCancel(ctx), pool, func(tx pgx.Tx) error {
			return oneTransaction(ctx, tx, shop, l, changes, rng)
		})
		switch {
		case err == nil:
			l.note(true, changes)
		case errors.Is(err, errOnPurpose):
			l.note(false, changes)
		default:
			t.Errorf("producer: %v", err)
			return
		}
	}
}

var errOnPurpose = errors.New("rolled back on purpose")

func oneTransaction(ctx context.Context, tx pgx.Tx, shop *outbox.Outbox, l *ledger, changes map[string]change, rng *rand.Rand) error {
	background := context.WithoutCancel(ctx)
	if rng.IntN(3) == 0 { // the id is older than everything this transaction writes
		if _, err := tx.Exec(background, "SELECT pg_current_xact_id()"); err != nil {
			return err
		}
		pause(ctx, time.Duration(rng.IntN(30))*time.Millisecond)
	}
	accounts := rng.Perm(tortureKeys)[:1+rng.IntN(3)]
	slices.Sort(accounts) // locks are taken in one order
	for _, account := range accounts {
		if rng.IntN(4) == 0 {
			if err := rolledBackSavepoint(background, tx, shop, l, account); err != nil {
				return err
			}
		}
		id, c, err := changeAccount(background, tx, shop, account)
		if err != nil {
			return err
		}
		changes[id] = c
	}
	switch n := rng.IntN(100); {
	case n < 2:
		l.mu.Lock()
		l.late++
		l.mu.Unlock()
		pause(ctx, time.Duration(1+rng.IntN(2000))*time.Millisecond)
	case n < 20:
		return errOnPurpose
	case n < 40:
		pause(ctx, time.Duration(rng.IntN(20))*time.Millisecond)
	}
	return nil
}

// changeAccount locks an account, increments its count and writes the event, inside a savepoint now
// and then.
func changeAccount(ctx context.Context, tx pgx.Tx, shop *outbox.Outbox, account int) (string, change, error) {
	c := change{Account: account}
	err := tx.QueryRow(ctx, "UPDATE account SET n = n + 1 WHERE id = $1 RETURNING n", account).Scan(&c.N)
	if err != nil {
		return "", c, err
	}
	ev := postroom.NewEvent("account.changed", c)
	ev.Key = strconv.Itoa(account)
	if c.N%3 == 0 {
		return ev.ID, c, pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return shop.Write(ctx, tx, ev) })
	}
	return ev.ID, c, shop.Write(ctx, tx, ev)
}

// rolledBackSavepoint writes an event that must never be seen.
func rolledBackSavepoint(ctx context.Context, tx pgx.Tx, shop *outbox.Outbox, l *ledger, account int) error {
	err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		id, c, err := changeAccount(ctx, tx, shop, account)
		if err != nil {
			return err
		}
		l.note(false, map[string]change{id: c})
		return errOnPurpose
	})
	if errors.Is(err, errOnPurpose) {
		return nil
	}
	return err
}

// pause is part of what the producers do, not a way to wait for something.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// reader is a relay without a broker: it publishes into a list.
type reader struct {
	log       *pglog.Log
	published []change // in the order of publishing
	seen      map[string]int
	crashes   int
	late      int
	search    bool // each pass follows a search for late rows
}

// lead reads for one term, which has the given number of passes or ends with ctx. If crash is set,
// it records only every fifth pass, and ends without a last recording.
func (r *reader) lead(ctx context.Context, t *testing.T, passes int, crash bool) {
	t.Helper()
	background := context.WithoutCancel(ctx)
	term, err := pglog.Lead(background, r.log, "reader", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if r.search || crash && passes%2 == 0 {
		term.SearchAlways()
	}
	var acked []int64
	for pass := 0; pass < passes && ctx.Err() == nil; pass++ {
		page, err := term.Read(background, 100, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.late += page.Late
		for _, ev := range page.Events {
			var c change
			if err := json.Unmarshal(ev.Data, &c); err != nil {
				t.Fatal(err)
			}
			r.published = append(r.published, c)
			r.seen[ev.ID]++
			acked = append(acked, ev.Seq)
		}
		if !crash || pass%5 == 4 {
			if err := term.Record(background, eventlog.Progress{Published: acked}); err != nil {
				t.Fatal(err)
			}
			acked = acked[:0]
		}
		if len(page.Events) == 0 {
			pause(ctx, time.Millisecond)
		}
	}
	if crash {
		r.crashes++
		err = term.Abandon()
	} else {
		err = term.Release(background, eventlog.Progress{Published: acked})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// torture runs producers and a reader at the same time, then compares the published events
// with the committed ones.
func torture(t *testing.T, crash, search bool) {
	server := devtest.Postgres(t)
	pool := poolOf(t, tortureProducers+4)
	mustExec(t, pool, "CREATE TABLE account (id int PRIMARY KEY, n int NOT NULL DEFAULT 0)")
	mustExec(t, pool, "INSERT INTO account (id) SELECT generate_series(0, $1)", tortureKeys)
	writerElsewhere(t, server.URL())

	l := &ledger{committed: map[string]change{}, rolledBack: map[string]change{}}
	r := &reader{log: pglog.New(pool), seen: map[string]int{}, search: search}
	for n := 0; n == 0 || n < 10 && !l.complete(r, crash); n++ { // a busy machine needs more than one
		l.run(t, pool, r, crash, n)
	}
	t.Logf("%d committed, %d rolled back, %d held open, %d late rows, %d crashes, %d published",
		len(l.committed), len(l.rolledBack), l.late, r.late, r.crashes, len(r.published))
	l.compare(t, r, crash)
}

// run lets producers and the reader work for tortureTime. Then the reader reads the rest.
func (l *ledger) run(t *testing.T, pool *pgxpool.Pool, r *reader, crash bool, n int) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), tortureTime)
	defer stop()
	var producers sync.WaitGroup
	for i := range tortureProducers {
		rng := devtest.Random(t, n<<16+1+i)
		producers.Go(func() { produce(ctx, t, pool, l, rng) })
	}
	rng := devtest.Random(t, n<<16)
	if crash {
		for ctx.Err() == nil {
			r.lead(ctx, t, 1+rng.IntN(60), true)
		}
	} else {
		r.lead(ctx, t, math.MaxInt, false)
	}
	producers.Wait()
	for before := -1; before != len(r.published); { // until a whole term finds no event
		before = len(r.published)
		r.lead(t.Context(), t, 20, false)
	}
}

// complete reports whether everything has happened that a torture test is about.
func (l *ledger) complete(r *reader, crash bool) bool {
	return r.late > 0 && l.late > 0 && len(l.rolledBack) > 0 && (!crash || r.crashes > 0)
}

// compare reports lost events, events that were rolled back and published, and events that were
// published twice without a crash. It also reports accounts whose changes were published out of
// order, by the first publication of each.
func (l *ledger) compare(t *testing.T, r *reader, crashed bool) {
	t.Helper()
	for id, c := range l.committed {
		switch n := r.seen[id]; {
		case n == 0:
			t.Errorf("lost: account %d, change %d", c.Account, c.N)
		case n > 1 && !crashed:
			t.Errorf("published %d times without a crash: account %d, change %d", n, c.Account, c.N)
		}
	}
	for id, c := range l.rolledBack {
		if r.seen[id] > 0 {
			t.Errorf("ghost: account %d, change %d was rolled back and published", c.Account, c.N)
		}
	}
	first := map[int]int{}
	seen := map[change]bool{}
	for _, c := range r.published {
		if seen[c] {
			continue
		}
		seen[c] = true
		if c.N != first[c.Account]+1 {
			t.Errorf("out of order: account %d, change %d after %d", c.Account, c.N, first[c.Account])
		}
		first[c.Account] = c.N
	}
	if !l.complete(r, crashed) {
		t.Error("inconclusive: nothing was late, held open, rolled back or crashed")
	}
}

func TestReaderNeitherLosesNorDoubles(t *testing.T) {
	t.Parallel()
	torture(t, false, false)
}

func TestReaderThatSearchesNeitherLosesNorDoubles(t *testing.T) {
	t.Parallel()
	torture(t, false, true)
}

func TestReaderLosesNothingWhenItCrashes(t *testing.T) {
	t.Parallel()
	torture(t, true, false)
}

// writerElsewhere holds a writing transaction open in another database of the cluster until
// the test ends. No pass may wait for it.
func writerElsewhere(t *testing.T, url string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "BEGIN; SELECT pg_current_xact_id()"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// poolOf returns a pool of the given size on a database for this test alone.
func poolOf(t *testing.T, size int32) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(devtest.DatabaseURL(t))
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = size
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}
