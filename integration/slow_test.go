package integration

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/relay"
)

// far is a proxy that makes a server seem far away: bytes of one side arrive later at the other
// side, and any number of bytes may be on the way. It sleeps to delay them. No test waits for a
// condition by sleeping.
type far struct {
	listener net.Listener
	network  string
	to       string
	oneWay   time.Duration
}

// putFar returns a pool whose connections have the given round trip to the database.
func putFar(t *testing.T, near *pgxpool.Pool, roundTrip time.Duration) *pgxpool.Pool {
	t.Helper()
	var err error
	cfg := near.Config()
	f := &far{oneWay: roundTrip / 2}
	f.network, f.to = pgconn.NetworkAddress(cfg.ConnConfig.Host, cfg.ConnConfig.Port)
	if f.listener, err = net.Listen("tcp4", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	var carrying sync.WaitGroup
	carrying.Go(func() { f.serve(&carrying) })
	cfg.ConnConfig.Host = "127.0.0.1"
	cfg.ConnConfig.Port = uint16(f.listener.Addr().(*net.TCPAddr).Port) //nolint:gosec // a port
	cfg.ConnConfig.Fallbacks = nil
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		pool.Close()
		if err := f.listener.Close(); err != nil {
			t.Error(err)
		}
		carrying.Wait()
	})
	return pool
}

func (f *far) serve(carrying *sync.WaitGroup) {
	for {
		client, err := f.listener.Accept()
		if err != nil {
			return // the test has ended
		}
		carrying.Go(func() { f.carry(client) })
	}
}

// carry connects a client to the server. If one side ends, so does the other.
func (f *far) carry(client net.Conn) {
	time.Sleep(2 * f.oneWay) // until the connection is made
	server, err := net.Dial(f.network, f.to)
	if err != nil {
		_ = client.Close() // the client notices that
		return
	}
	var both sync.WaitGroup
	both.Go(func() { f.send(server, client) })
	both.Go(func() { f.send(client, server) })
	both.Wait()
}

// send carries the bytes of one side to the other.
func (f *far) send(to, from net.Conn) {
	type piece struct {
		data []byte
		due  time.Time
	}
	defer func() { _, _ = to.Close(), from.Close() }() // may be closed
	onTheWay := make(chan piece, 1<<16)
	var arriving sync.WaitGroup
	arriving.Go(func() {
		for p := range onTheWay {
			time.Sleep(time.Until(p.due))
			if _, err := to.Write(p.data); err != nil {
				_ = from.Close() // the other side is gone
			}
		}
	})
	for {
		data := make([]byte, 64<<10)
		n, err := from.Read(data)
		if n > 0 {
			onTheWay <- piece{data[:n], time.Now().Add(f.oneWay)}
		}
		if err != nil {
			close(onTheWay)
			arriving.Wait()
			return
		}
	}
}

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// fewEvents makes a stream, writes events for it, and returns the stream.
func fewEvents(t *testing.T, nc *nats.Conn, pool *pgxpool.Pool, n int) jetstream.Stream {
	t.Helper()
	name := nats.NewInbox()[len("_INBOX."):]
	if err := natsjs.EnsureStream(t.Context(), nc, jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}}); err != nil {
		t.Fatal(err)
	}
	js := devtest.JetStream(t, nc)
	stream, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	out := outbox.New(outbox.Config{Source: "/far"})
	err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		for i := range n {
			ev := postroom.NewEvent(name+".placed", map[string]int{"n": i})
			if err := out.Write(t.Context(), tx, ev); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// slowDatabase finds the round trip in the line that mentions a longer lease, or a lease that should
// be longer still.
var slowDatabase = regexp.MustCompile(`msg="lease (?:lengthened for a slow database|may be too short)".* round_trip=(\S+)`)

// With its defaults a relay leads, publishes and records, however far away its database is. It
// does so in its first term, with a lease that it can keep.
func TestARelayOfADatabaseThatIsFarAway(t *testing.T) {
	t.Parallel()
	for _, roundTrip := range []time.Duration{200 * time.Millisecond, 700 * time.Millisecond} {
		t.Run(fmt.Sprint(roundTrip), func(t *testing.T) {
			t.Parallel()
			const n = 200
			nc, near := devtest.NATS(t), devtest.Pool(t)
			stream := fewEvents(t, nc, near, n)
			noteHeartbeats(t, near)
			var log lines
			r := relay.New(putFar(t, near, roundTrip), natsjs.NewPublisher(nc), relay.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- r.Run(ctx) }()

			var epoch int64
			var lasts time.Duration
			devtest.Eventually(t, 3*time.Minute, "all events to be published and recorded", func() bool {
				var high int64
				err := near.QueryRow(t.Context(), "SELECT high, epoch, expires_at - now() FROM postroom.relay WHERE isfinite(expires_at)").Scan(&high, &epoch, &lasts)
				return err == nil && high == n
			})
			stop()
			err := <-ended
			if err != nil {
				t.Error(err)
			}
			if info, err := stream.Info(t.Context()); err != nil || info.State.Msgs != n {
				t.Errorf("the stream has %d events, %v; want %d", info.State.Msgs, err, n)
			}
			gap := longestStall(t, near)
			if epoch != 1 && gap < eventlog.DefaultLease/3 { // a longer one leaves no time for a renewal
				t.Errorf("%d terms were needed, and the machine stalled for %s at most:\n%s", epoch, gap, log.String())
			}
			if lasts > eventlog.LongestLease {
				t.Errorf("the lease lasts for %s, longer than the longest", lasts)
			}
			var released bool
			if err := near.QueryRow(t.Context(), "SELECT owner IS NULL FROM postroom.relay").Scan(&released); err != nil || !released {
				t.Errorf("the lease was given back: %t, %v\n%s", released, err, log.String())
			}
			// A relay notes a longer round trip than that of the network if the machine stalls meanwhile.
			var noted time.Duration // zero if the log mentions none
			if line := slowDatabase.FindStringSubmatch(log.String()); line != nil {
				if noted, err = time.ParseDuration(line[1]); err != nil {
					t.Fatal(err)
				}
			}
			if roundTrip > 500*time.Millisecond && noted < roundTrip ||
				roundTrip < 500*time.Millisecond && epoch == 1 && noted > 0 && (noted < 500*time.Millisecond || gap < 100*time.Millisecond) {
				t.Errorf("the log mentions a longer lease for a round trip of %s (zero: not at all), want %s\n%s", noted, roundTrip, log.String())
			}
		})
	}
}

// If the user set a lease that the relay cannot keep, it is not lengthened. The relay says
// what to change, and tries again less and less often.
func TestALeaseThatIsTooShortForItsDatabase(t *testing.T) {
	t.Parallel()
	nc, near := devtest.NATS(t), devtest.Pool(t)
	fewEvents(t, nc, near, 1)
	var log lines
	r := relay.New(putFar(t, near, time.Second), natsjs.NewPublisher(nc),
		relay.Config{Lease: time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	devtest.Eventually(t, 3*time.Minute, "the relay to give up twice, and to lead again", func() bool {
		return strings.Count(log.String(), `msg="relay leads"`) >= 3
	})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, want := range []string{
		"a lease of 1s is too short for this database: the first renewal was not done after", "set relay.Config.Lease (--lease) to 1",
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, log.String())
		}
	}
}
