package integration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/outbox"
)

const (
	accounts = 25 // each is a key: few, so that each has many changes
	handlers = 2

	// Each client waits this long before a change, unless the test wants more changes. More of them
	// would only cost processor time.
	clientWait = 500 * time.Millisecond
)

var errOnPurpose = errors.New("rolled back on purpose")

// shop is what every scenario runs: clients that increment accounts and write an event for each
// change, and handlers that count these events.
type shop struct {
	*testing.T

	url    string
	pool   *pgxpool.Pool
	nc     *nats.Conn
	js     jetstream.JetStream
	stream string

	mu         sync.Mutex
	committed  map[string]change // by event id
	rolledBack map[string]bool

	displaced map[string]bool // events that an operator removed from the middle of the stream: if they come back, then late

	stopClients, stopHandlers func()

	mixed    atomic.Bool   // clients also write notes: events without a key, and scheduled ones
	wanted   atomic.Int64  // changes: until then clients do not wait
	patience time.Duration // for the last event's effect; the backlog of an outage has to be drained
}

// change is the data of an event: the n-th change of an account. If Account is negative, the event is a
// note beside the change: its place in the order is not promised, because it is scheduled or has no key.
type change struct{ Account, N int }

// openShop makes the tables, the stream and the handlers. The stream drops repetitions within
// window, and the inbox drops later ones.
func openShop(t *testing.T, nc *nats.Conn, window time.Duration) *shop {
	t.Helper()
	return openShopWith(t, nc, jetstream.StreamConfig{Duplicates: window, DenyDelete: true, AllowAtomicPublish: true})
}

// openShopWith is openShop with a stream of some configuration.
func openShopWith(t *testing.T, nc *nats.Conn, stream jetstream.StreamConfig) *shop {
	t.Helper()
	url := devtest.DatabaseURL(t)
	return openShopThrough(t, nc, url, url, stream)
}

// openShopThrough is openShopWith for a shop that reaches the database by another URL than the
// relays.
func openShopThrough(t *testing.T, nc *nats.Conn, url, through string, stream jetstream.StreamConfig) *shop {
	t.Helper()
	s := &shop{T: t, url: url, nc: nc, committed: map[string]change{}, rolledBack: map[string]bool{}, patience: 2 * time.Minute}
	cfg, err := pgxpool.ParseConfig(through)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 20
	if s.pool, err = pgxpool.NewWithConfig(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.pool.Close)
	s.js = devtest.JetStream(t, nc)
	s.stream = nats.NewInbox()[len("_INBOX."):]
	stream.Name, stream.Subjects, stream.Discard = s.stream, []string{s.stream + ".>"}, jetstream.DiscardNew
	if stream.AllowAtomicPublish {
		stream.Subjects = append(stream.Subjects, natsjs.LeaseSubjects(s.stream))
	}
	if _, err = s.js.CreateStream(t.Context(), stream); err != nil {
		t.Fatal(err)
	}
	s.exec("CREATE TABLE account (id int PRIMARY KEY, n int NOT NULL DEFAULT 0)")
	s.exec("INSERT INTO account (id) SELECT generate_series(1, $1)", accounts)
	s.exec("CREATE TABLE effect (handler int NOT NULL, event text NOT NULL)") // no key: a second effect would show
	s.stopHandlers = s.startHandlers()
	s.stopClients = s.startClients()
	return s
}

func (s *shop) exec(sql string, args ...any) {
	s.Helper()
	if _, err := s.pool.Exec(s.Context(), sql, args...); err != nil {
		s.Fatal(err)
	}
}

// background runs a function until the returned one is called, once or more often.
func (s *shop) background(run func(ctx context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.Context()))
	var wg sync.WaitGroup
	wg.Go(func() { run(ctx) })
	stop = func() { cancel(); wg.Wait() }
	s.Cleanup(stop)
	return stop
}

func (s *shop) startHandlers() (stop func()) {
	in := inbox.New(s.pool, s.nc, inbox.Config{AckWait: 5 * time.Second})
	for n := range handlers {
		sub := inbox.Subscription{Name: fmt.Sprintf("handler.%d", n), Stream: s.stream, Types: []string{s.stream + ".changed"}, Workers: 3}
		in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
			_, err := tx.Exec(ctx, "INSERT INTO effect VALUES ($1, $2)", n, ev.ID)
			return err
		}))
	}
	return s.background(func(ctx context.Context) {
		if err := in.Run(ctx); err != nil {
			s.Errorf("inbox: %v", err)
		}
	})
}

func (s *shop) startClients() (stop func()) {
	var random []*rand.Rand // each client has its own
	for i := range 6 {
		random = append(random, devtest.Random(s.T, i))
	}
	return s.background(func(ctx context.Context) {
		out := outbox.New(outbox.Config{Source: "/shop"})
		var clients sync.WaitGroup
		for _, random := range random {
			clients.Go(func() {
				for ctx.Err() == nil {
					if err := s.changeAccount(ctx, out, random); err != nil {
						s.Errorf("client: %v", err)
						return
					}
				}
			})
		}
		clients.Wait()
	})
}

// pause is how long a client waits before a change.
func (s *shop) pause() time.Duration {
	if int64(s.orders()) < s.wanted.Load() {
		return 0
	}
	return clientWait
}

// changeAccount counts an account up in a transaction. One in ten rolls back, and some stay
// open for a while.
func (s *shop) changeAccount(ctx context.Context, out *outbox.Outbox, random *rand.Rand) error {
	select { // a part of the client's work, not a way to wait
	case <-ctx.Done():
	case <-time.After(s.pause()):
	}
	work := context.WithoutCancel(ctx)
	c := change{Account: 1 + random.IntN(accounts)}
	written := map[string]change{}
	write := func(tx pgx.Tx, c change, key string, due time.Time) error {
		ev := postroom.NewEvent(s.stream+".changed", c)
		ev.Key, ev.NotBefore = key, due
		written[ev.ID] = c
		return out.Write(work, tx, ev)
	}
	err := pgx.BeginFunc(work, s.pool, func(tx pgx.Tx) error {
		if err := tx.QueryRow(work, "UPDATE account SET n = n + 1 WHERE id = $1 RETURNING n", c.Account).Scan(&c.N); err != nil {
			return err
		}
		if err := write(tx, c, strconv.Itoa(c.Account), time.Time{}); err != nil {
			return err
		}
		if s.mixed.Load() {
			key, due := "", time.Time{}
			if random.IntN(2) == 0 {
				key, due = strconv.Itoa(c.Account), time.Now().Add(time.Duration(random.IntN(2000))*time.Millisecond)
			}
			if err := write(tx, change{-c.Account, c.N}, key, due); err != nil {
				return err
			}
		}
		switch random.IntN(100) {
		case 0:
			select { // a part of the client's work, not a way to wait
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		case 1, 2, 3, 4, 5, 6, 7, 8, 9, 10:
			return errOnPurpose
		}
		return nil
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case errors.Is(err, errOnPurpose):
		for id := range written {
			s.rolledBack[id] = true
		}
		return nil
	case err != nil:
		return err
	}
	maps.Copy(s.committed, written)
	return nil
}

func (s *shop) orders() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.committed)
}

// hurry lets the clients commit n more changes as fast as they can. It does not wait for that, so
// that a fault can come in the midst of work.
func (s *shop) hurry(n int) (target int) {
	target = s.orders() + n
	s.wanted.Store(int64(target))
	return target
}

// grow waits until n more changes are committed.
func (s *shop) grow(n int) {
	s.Helper()
	target := s.hurry(n)
	devtest.Eventually(s.T, time.Minute, fmt.Sprintf("%d more changes", n), func() bool { return s.orders() >= target })
}

// waitUntilIdle stops the clients, waits until all changes took effect, and checks the promises.
func (s *shop) waitUntilIdle() {
	s.Helper()
	s.stopClients()
	want := handlers * len(s.committed)
	var got int
	defer func() {
		if s.Failed() {
			s.Logf("%d of %d effects are there", got, want)
		}
	}()
	devtest.Eventually(s.T, s.patience, "every event to take effect at every handler", func() bool {
		sql := "SELECT count(*) FROM effect" // the other statement takes longer
		if got >= want {
			sql = "SELECT count(DISTINCT (handler, event)) FROM effect"
		}
		seen := got
		err := s.pool.QueryRow(s.Context(), sql).Scan(&got)
		return err == nil && seen >= want && got >= want
	})
	s.stopHandlers()
	s.checkEffects()
	s.checkStream()
}

func (s *shop) checkEffects() {
	s.Helper()
	rows, _ := s.pool.Query(s.Context(), "SELECT event, count(*), count(DISTINCT handler) FROM effect GROUP BY event")
	type row struct {
		Event           string
		Effects, Places int
	}
	effects, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	if err != nil {
		s.Fatal(err)
	}
	for _, e := range effects {
		if e.Effects != handlers || e.Places != handlers {
			s.Errorf("EffectOnce: event %s took effect %d times at %d handlers, want once at each of %d", e.Event, e.Effects, e.Places, handlers)
		}
		if _, ok := s.committed[e.Event]; !ok {
			s.Errorf("NoGhost: event %s was not committed and took effect", e.Event)
		}
	}
	if len(effects) != len(s.committed) {
		s.Errorf("NoLoss: %d events took effect, %d were committed", len(effects), len(s.committed))
	}
}

// reader returns a reader of the whole stream. A cluster may still be electing the server that
// answers.
func (s *shop) reader() (stream jetstream.Stream, reader jetstream.Consumer) {
	s.Helper()
	var err error
	ok := func() bool {
		ctx, cancel := context.WithTimeout(s.Context(), 5*time.Second)
		defer cancel()
		if stream, err = s.js.Stream(ctx, s.stream); err == nil {
			reader, err = stream.OrderedConsumer(s.Context(), jetstream.OrderedConsumerConfig{})
		}
		return err == nil
	}
	devtest.Eventually(s.T, s.patience, "the stream to be read", ok)
	return stream, reader
}

// checkStream reads the whole stream.
func (s *shop) checkStream() {
	s.Helper()
	stream, reader := s.reader()
	seen, last, republished := map[string]bool{}, map[int]int{}, map[change]bool{}
	var gaps []change
	messages, until := stream.CachedInfo().State.Msgs, time.Now().Add(s.patience)
	for read := uint64(0); read < messages; {
		batch, err := reader.Fetch(int(min(messages-read, 1000)), jetstream.FetchMaxWait(5*time.Second)) //nolint:gosec // small
		if err != nil {
			s.Fatal(err)
		}
		for m := range batch.Messages() {
			read++
			if strings.HasPrefix(m.Subject(), "postroom.lease.") {
				continue
			}
			id := m.Headers().Get("ce-id")
			if seen[id] {
				continue
			}
			seen[id] = true
			c, ok := s.committed[id]
			if !ok {
				s.Errorf("NoGhost: event %s was not committed and is in the stream (rolled back: %t)", id, s.rolledBack[id])
				continue
			}
			if m.Headers().Get("postroom-republish") != "" || s.displaced[id] { // it comes late, and a republish marks it so
				republished[c] = true
				continue
			}
			if c.Account < 0 {
				continue
			}
			if c.N <= last[c.Account] {
				s.Errorf("KeyOrder: change %d of account %d comes after %d", c.N, c.Account, last[c.Account])
			}
			for n := last[c.Account] + 1; n < c.N; n++ {
				gaps = append(gaps, change{c.Account, n})
			}
			last[c.Account] = c.N
		}
		// In a cluster a reader exists a moment before it can be reached.
		if err := batch.Error(); err != nil && (!errors.Is(err, nats.ErrNoResponders) || time.Now().After(until)) {
			s.Fatal(err)
		}
	}
	for _, c := range gaps {
		if !republished[c] {
			s.Errorf("KeyOrder: change %d of account %d does not come before the next", c.N, c.Account)
		}
	}
	if len(seen) != len(s.committed) {
		s.Errorf("NoLoss: %d events are in the stream, %d were committed", len(seen), len(s.committed))
	}
	s.Logf("%d committed, %d rolled back, %d messages in the stream of which %d are repetitions; %d events came late",
		len(s.committed), len(s.rolledBack), messages, int(messages)-len(seen), len(republished)) //nolint:gosec // a count
	if len(s.committed) == 0 || len(s.rolledBack) == 0 {
		s.Error("inconclusive: nothing was committed or nothing rolled back")
	}
}
