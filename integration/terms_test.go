package integration

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/relay"
	"github.com/postroom/postroom/relay/broker"
)

// A term must not end because it has much to do. Each of these tests gives a relay one large load,
// with live events beside it. The load has its full size with POSTROOM_SOAK=1. The tests print how
// long it took, and how late the live events were.

// loadRig is a relay with a large load.
type loadRig struct {
	*testing.T

	pool *pgxpool.Pool
	nc   *nats.Conn
	js   jetstream.JetStream
	name string

	mu       sync.Mutex
	copies   map[string]int // of each event, in the streams
	last     map[string]int // the number of the last event of each key
	broken   []string       // events that came before an earlier one of their key
	latest   time.Duration  // the longest time between the write of a live event and its message
	terms    int
	failures []string // why terms ended
}

// sized returns the size of a load.
func sized(soak, short int) int {
	if os.Getenv("POSTROOM_SOAK") == "1" {
		return soak
	}
	return short
}

// loadPatience is longer than any load takes.
const loadPatience = 6 * time.Minute

// subject returns the subject of a kind of events.
func (l *loadRig) subject(kind string) string { return l.name + "." + kind }

func openLoadRig(t *testing.T) *loadRig {
	t.Helper()
	nc := devtest.NATS(t)
	cfg, err := pgxpool.ParseConfig(devtest.DatabaseURL(t))
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 10
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return &loadRig{
		T: t, pool: pool, nc: nc, js: devtest.JetStream(t, nc), name: nats.NewInbox()[len("_INBOX."):],
		copies: map[string]int{}, last: map[string]int{},
	}
}

// stream makes or changes the stream of a kind of events.
func (l *loadRig) stream(kind string, cfg jetstream.StreamConfig) {
	l.Helper()
	cfg.Name, cfg.Subjects, cfg.AllowAtomicPublish = l.name+"-"+kind, []string{l.subject(kind)}, true
	cfg.Subjects = append(cfg.Subjects, natsjs.LeaseSubjects(cfg.Name))
	if _, err := l.js.CreateOrUpdateStream(l.Context(), cfg); err != nil {
		l.Fatal(err)
	}
}

// follow counts the messages of a stream.
func (l *loadRig) follow(kind string) {
	l.Helper()
	c, err := l.js.OrderedConsumer(l.Context(), l.name+"-"+kind, jetstream.OrderedConsumerConfig{FilterSubjects: []string{l.subject(kind)}})
	if err != nil {
		l.Fatal(err)
	}
	reading, err := c.Consume(l.count)
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(reading.Stop)
}

// count counts a message. The id of its event is the key, and a number that rises for each key.
func (l *loadRig) count(m jetstream.Msg) {
	meta, err := m.Metadata()
	if err != nil {
		l.Errorf("metadata: %v", err)
		return
	}
	id := m.Headers().Get("ce-id")
	key, number, _ := strings.Cut(id, "-")
	n, _ := strconv.Atoi(number)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.copies[id]++; l.copies[id] > 1 {
		return
	}
	if m.Headers().Get("ce-partitionkey") != "" && n < l.last[key] {
		l.broken = append(l.broken, id)
	}
	l.last[key] = max(l.last[key], n)
	if key == "live" {
		wrote, _ := strconv.ParseInt(string(m.Data()), 10, 64)
		l.latest = max(l.latest, meta.Timestamp.Sub(time.UnixMicro(wrote)))
	}
}

// relay runs a relay until the test ends.
func (l *loadRig) relay(cfg relay.Config) {
	cfg.Logger = slog.New(l)
	cfg.Lease = time.Duration(sized(5, 30)) * time.Second // a busy machine may be slow to renew a short one, and a small load shows nothing about that
	r := relay.New(l.pool, natsjs.NewPublisher(l.nc), cfg)
	ctx, cancel := context.WithCancel(context.WithoutCancel(l.Context()))
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	l.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			l.Errorf("Run = %v", err)
		}
	})
	devtest.Eventually(l.T, loadPatience, "the relay to lead", func() bool { return r.Health().State == relay.Leading })
}

// Enabled, Handle, WithAttrs and WithGroup make the rig the relay's log.
func (l *loadRig) Enabled(context.Context, slog.Level) bool { return true }

func (l *loadRig) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.Message == "relay leads" {
		l.terms++
	}
	if r.Level >= slog.LevelWarn {
		text := r.Message
		r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
		l.failures = append(l.failures, text)
	}
	return nil
}

func (l *loadRig) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l *loadRig) WithGroup(string) slog.Handler      { return l }

type executor interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// insert writes the events number from through to of a name, in the order of their numbers. The other
// values are SQL.
func (l *loadRig) insert(db executor, kind, name string, from, to int, key, notBefore, data string) {
	l.Helper()
	_, err := db.Exec(context.WithoutCancel(l.Context()), fmt.Sprintf(`INSERT INTO postroom.outbox (digest, source, event_id, type, subject, key, not_before, data)
		SELECT decode(repeat('00', 16), 'hex'), '/load', '%s-' || n, 'load', '%s', %s, %s, %s FROM generate_series(%d, %d) n ORDER BY n`,
		name, l.subject(kind), key, notBefore, data, from, to))
	if err != nil {
		l.Errorf("write: %v", err)
	}
}

// live writes an event of its own key every few milliseconds, until the returned function is called.
func (l *loadRig) live(kind string) (stop func() int) {
	l.Helper()
	ctx, cancel := context.WithCancel(l.Context())
	written := make(chan int, 1)
	go func() {
		n := 0
		for ; ctx.Err() == nil; n++ {
			_, err := l.pool.Exec(context.WithoutCancel(ctx), `INSERT INTO postroom.outbox (digest, source, event_id, type, subject, key, data)
				VALUES (decode(repeat('00', 16), 'hex'), '/load', $1, 'live', $2, 'live', convert_to((extract(epoch FROM clock_timestamp()) * 1000000)::bigint::text, 'UTF8'))`,
				fmt.Sprint("live-", n+1), l.subject(kind))
			if err != nil {
				l.Errorf("write: %v", err)
				break
			}
			time.Sleep(5 * time.Millisecond) // the pace of the load, not a synchronisation
		}
		written <- n
	}()
	return func() int {
		cancel()
		return <-written
	}
}

// lastOf returns the highest number of the events of a name in the streams.
func (l *loadRig) lastOf(name string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last[name]
}

// events returns how many different events are in the streams.
func (l *loadRig) events() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.copies)
}

// held returns how many events are held.
func (l *loadRig) held() (n int) {
	l.Helper()
	if err := l.pool.QueryRow(l.Context(), "SELECT count(*) FROM postroom.held").Scan(&n); err != nil {
		l.Fatal(err)
	}
	return n
}

// want fails the test if there were more terms, if an event was published twice, or if a key has lost
// its order. It prints what happened.
func (l *loadRig) want(terms int, began time.Time, live int) {
	l.Helper()
	took := time.Since(began)
	devtest.Eventually(l.T, loadPatience, "the last live event", func() bool { return l.lastOf("live") == live })
	l.mu.Lock()
	defer l.mu.Unlock()
	copies := 0
	for _, n := range l.copies {
		copies += n
	}
	l.Logf("MEASURED %s: took %s; %d terms; %d events in %d copies; %d live events, the latest after %s", l.Name(), took.Round(time.Millisecond), l.terms, len(l.copies), copies, live, l.latest.Round(time.Millisecond))
	if l.terms != terms {
		l.Errorf("%d terms, want %d: %s", l.terms, terms, l.failures[:min(len(l.failures), 3)])
	}
	if copies > len(l.copies) {
		l.Errorf("%d events have %d copies", len(l.copies), copies)
	}
	if len(l.broken) > 0 {
		l.Errorf("%d events came before an earlier one of their key, such as %s", len(l.broken), l.broken[0])
	}
}

// Hundreds of thousands of events are scheduled in one transaction.
func TestATermWithManyScheduledEvents(t *testing.T) {
	t.Parallel()
	l := openLoadRig(t)
	l.stream("a", jetstream.StreamConfig{})
	l.follow("a")
	l.relay(relay.Config{})
	stop := l.live("a")
	n := sized(500_000, 5_000)
	l.insert(l.pool, "a", "later", 1, n, "NULL", "now() + interval '1 day'", "'{}'")
	began := time.Now()
	devtest.Eventually(t, loadPatience, "all to be held", func() bool { return l.held() == n })
	l.want(1, began, stop())
}

// A load commits late, while another transaction has taken the seqs between its rows.
func TestATermWithInterleavedLoads(t *testing.T) {
	t.Parallel()
	l := openLoadRig(t)
	l.stream("a", jetstream.StreamConfig{})
	l.follow("a")
	l.relay(relay.Config{})
	n := sized(300_000, 5_000)
	tx, err := l.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }() // no effect after the commit
	l.insert(tx, "a", "late", 1, n, "CASE WHEN nextval('postroom.outbox_seq_seq') > 0 THEN 'k' || n % 1000 END", "NULL", "'{}'")
	stop := l.live("a")
	devtest.Eventually(t, loadPatience, "a live event to be published", func() bool { return l.lastOf("live") > 10 })
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	devtest.Eventually(t, loadPatience, "all to be published", func() bool { return l.lastOf("late") == n && l.events() >= n })
	l.want(1, began, stop())
}

// Two streams alternate in the log, and one of them is made again.
func TestATermThatRepairsAStream(t *testing.T) {
	t.Parallel()
	l := openLoadRig(t)
	l.stream("a", jetstream.StreamConfig{})
	l.stream("b", jetstream.StreamConfig{})
	n := sized(400_000, 5_000)
	for from := 1; from <= n; from += 50_000 {
		to := min(from+49_999, n)
		_, err := l.pool.Exec(t.Context(), fmt.Sprintf(`INSERT INTO postroom.outbox (digest, source, event_id, type, subject, data)
			SELECT decode(repeat('00', 16), 'hex'), '/load', CASE s WHEN 1 THEN 'a' ELSE 'b' END || '-' || n, 'load', CASE s WHEN 1 THEN '%s' ELSE '%s' END, '{}'
			FROM generate_series(%d, %d) n, generate_series(1, 2) s ORDER BY n, s`, l.subject("a"), l.subject("b"), from, to))
		if err != nil {
			t.Fatal(err)
		}
	}
	l.relay(relay.Config{})
	messages := func(kind string) int {
		s, err := l.js.Stream(t.Context(), l.name+"-"+kind)
		if err != nil {
			return 0
		}
		return int(s.CachedInfo().State.Msgs) //nolint:gosec // few
	}
	devtest.Eventually(t, loadPatience, "the first publishing", func() bool { return messages("a") >= n && messages("b") >= n })
	var high int64
	devtest.Eventually(t, loadPatience, "the recording", func() bool {
		if err := l.pool.QueryRow(t.Context(), "SELECT high FROM postroom.relay").Scan(&high); err != nil {
			t.Fatal(err)
		}
		return int(high) == 2*n
	})
	if err := l.js.DeleteStream(t.Context(), l.name+"-a"); err != nil {
		t.Fatal(err)
	}
	l.stream("a", jetstream.StreamConfig{})
	l.follow("a")
	l.follow("b")
	stop := l.live("b")
	began := time.Now()
	l.insert(l.pool, "a", "new", 1, 1, "NULL", "NULL", "'{}'")
	devtest.Eventually(t, loadPatience, "the lost events to be published again", func() bool { return messages("a") >= n+1 })
	// A term ends when a stream was made again.
	l.want(2, began, stop())
}

// The first event of a key is too large for its stream. More than a gigabyte waits behind it.
func TestATermWithLargeEventsBehindADeadOne(t *testing.T) {
	t.Parallel()
	l := openLoadRig(t)
	l.stream("a", jetstream.StreamConfig{MaxMsgSize: 950_000})
	l.follow("a")
	l.relay(relay.Config{AcceptRisks: []broker.Risk{natsjs.SmallMessages}})
	stop := l.live("a")
	n := sized(1300, 100)
	l.insert(l.pool, "a", "large", 1, n, "'k'", "NULL", "convert_to(repeat('x', CASE n WHEN 1 THEN 960000 ELSE 930000 END), 'UTF8')")
	began := time.Now()
	devtest.Eventually(t, loadPatience, "all to be held", func() bool { return l.held() == n })
	l.want(1, began, stop())
}

// A key was held, and its writers go on. It leaves the table held.
func TestATermDrainsAHeldKey(t *testing.T) {
	t.Parallel()
	for _, atomic := range []bool{false, true} {
		t.Run(fmt.Sprintf("atomic %t", atomic), func(t *testing.T) {
			t.Parallel()
			l := openLoadRig(t)
			if atomic {
				devtest.NeedsNATS(t, l.nc, 12)
			}
			l.stream("a", jetstream.StreamConfig{MaxMsgSize: 4000})
			l.follow("a")
			l.relay(relay.Config{Atomic: atomic, AcceptRisks: []broker.Risk{natsjs.SmallMessages}})
			stop := l.live("a")
			first := sized(20_000, 1_000)
			l.insert(l.pool, "a", "k", 1, 1, "'k'", "NULL", "convert_to(repeat('x', 5000), 'UTF8')")
			l.insert(l.pool, "a", "k", 2, first, "'k'", "NULL", "'{}'")
			devtest.Eventually(t, loadPatience, "all to be held", func() bool { return l.held() == first })
			l.stream("a", jetstream.StreamConfig{})

			// Events of the key are written all the time, until it has left held: 1,500 a second, or as many
			// as are published, because a busy machine does not publish so many.
			ctx, cancel := context.WithCancel(t.Context())
			written := make(chan int, 1)
			go func() {
				n := first
				for next := time.Now(); ctx.Err() == nil; next = next.Add(20 * time.Millisecond) {
					time.Sleep(time.Until(next)) // the pace of the load, not a synchronisation
					to := sized(n+30, max(n, l.lastOf("k")+50))
					l.insert(l.pool, "a", "k", n+1, to, "'k'", "NULL", "'{}'")
					n = to
				}
				written <- n
			}()
			if _, err := l.pool.Exec(t.Context(), "UPDATE postroom.held SET dead_at = NULL, next_at = now() WHERE dead_at IS NOT NULL"); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			devtest.Eventually(t, loadPatience, "no event of the key to be held, although its writers go on", func() bool { return l.held() == 0 })
			took := time.Since(began)
			cancel()
			all := <-written
			t.Logf("MEASURED %s: free after %s, %d written", t.Name(), took.Round(time.Millisecond), all)
			devtest.Eventually(t, loadPatience, "all to be published", func() bool { return l.lastOf("k") == all })
			l.want(1, began, stop())
		})
	}
}

// One key has more events than the relay may read.
func TestATermWithAHotKey(t *testing.T) {
	t.Parallel()
	l := openLoadRig(t)
	l.stream("a", jetstream.StreamConfig{})
	l.follow("a")
	l.relay(relay.Config{})
	stop := l.live("a")
	n := sized(60_000, 12_000)
	l.insert(l.pool, "a", "hot", 1, n, "'hot'", "NULL", "'{}'")
	began := time.Now()
	devtest.Eventually(t, loadPatience, "all to be published", func() bool { return l.lastOf("hot") == n })
	l.want(1, began, stop())
}
