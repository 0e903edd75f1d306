package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	watersql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/postmill"
	"github.com/postroom/postroom/relay"
	"github.com/postroom/postroom/relay/broker"
)

// The number of events in one test. 20,000 take minutes on a busy machine.
const (
	fewEvents  = 3_000
	allEvents  = 20_000 // with POSTROOM_SOAK=1
	keys       = 60
	writers    = 4 // each has keys of its own
	kills      = 6
	topicToday = "order.placed"
)

func events() int {
	if os.Getenv("POSTROOM_SOAK") == "1" {
		return allEvents
	}
	return fewEvents
}

// numbered is the payload of an event: the nth of its key.
type numbered struct {
	Key, N int
	Ghost  bool // of a transaction that was rolled back
}

// newRelay returns a relay that publishes with one of Watermill's publishers, which fails at
// random.
func newRelay(pool *pgxpool.Pool, pub *flaky) *relay.Relay {
	return relay.New(pool, postmill.NewBroker(pub, postmill.BrokerConfig{}), relay.Config{
		Lease: time.Second, IdlePoll: 20 * time.Millisecond, DrainTimeout: time.Millisecond, Logger: quiet,
		AcceptRisks: []broker.Risk{broker.NotInspected, broker.NotVerified},
	})
}

// flaky is a publisher that fails at random: one of 25 calls before it stores the message, and
// one of 25 after.
type flaky struct {
	message.Publisher

	random        *rand.Rand
	before, after atomic.Int64
}

func (f *flaky) Publish(topic string, messages ...*message.Message) error {
	switch f.random.IntN(25) {
	case 0:
		f.before.Add(1)
		return errors.New("the broker has hung up")
	case 1:
		f.after.Add(1)
		return errors.Join(f.Publisher.Publish(topic, messages...), errors.New("the broker's answer is lost"))
	}
	return f.Publisher.Publish(topic, messages...)
}

// Calls of a Watermill publisher may fail, and relays may die. The publisher still gets each
// committed event, no event of a transaction that rolled back, and the events of a key in
// their order.
func TestARelayOverWatermillLosesNothing(t *testing.T) {
	t.Run("GoChannel", func(t *testing.T) {
		url := devtest.DatabaseURL(t)
		// Without this, GoChannel keeps no order.
		channel := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})
		pub := &flaky{Publisher: channel, random: devtest.Random(t, writers)}
		testRelay(t, url, channel, func() (kill func()) { return startDoomed(t, url, pub) })
		must(t, channel.Close())
		t.Logf("%d calls of Publish failed before they stored the message, %d after that", pub.before.Load(), pub.after.Load())
	})
	t.Run("watermill-sql", func(t *testing.T) {
		url := devtest.DatabaseURL(t)
		pool := open(t, url)
		poll, random := time.Millisecond, devtest.Random(t, writers)
		sub, err := watersql.NewSubscriber(watersql.BeginnerFromPgx(pool), watersql.SubscriberConfig{
			SchemaAdapter: sqlSchema, OffsetsAdapter: watersql.DefaultPostgreSQLOffsetsAdapter{}, InitializeSchema: true, PollInterval: poll,
		}, watermill.NopLogger{})
		must(t, err)
		testRelay(t, url, sub, func() (kill func()) {
			return start(t, "relay", dbVar+"="+url, seedVar+"="+fmt.Sprint(random.Uint64())).kill
		})
		must(t, sub.Close())
	})
}

func open(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), url)
	must(t, err)
	t.Cleanup(pool.Close)
	return pool
}

var sqlSchema = watersql.DefaultPostgreSQLSchema{GeneratePayloadType: func(string) string { return "BYTEA" }}

// runRelay is a relay's process. Its broker is the tables of watermill-sql.
func runRelay(ctx context.Context, pool *pgxpool.Pool) error {
	pub, err := watersql.NewPublisher(watersql.BeginnerFromPgx(pool), watersql.PublisherConfig{SchemaAdapter: sqlSchema, AutoInitializeSchema: true}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	seed, err := strconv.ParseUint(os.Getenv(seedVar), 10, 64)
	if err != nil {
		return err
	}
	return newRelay(pool, &flaky{Publisher: pub, random: devtest.Seeded(seed, 0)}).Run(ctx)
}

// startDoomed runs a relay in this process, because GoChannel is in this process. The kill closes
// all connections of the relay, and it gets no new ones. So it records nothing more and does not
// release its lease. Calls of Publish that have begun continue while the next relay publishes.
func startDoomed(t *testing.T, url string, pub *flaky) (kill func()) {
	t.Helper()
	var dead atomic.Bool
	var mu sync.Mutex
	var all []net.Conn
	cfg, err := pgxpool.ParseConfig(url)
	must(t, err)
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		mu.Lock()
		defer mu.Unlock()
		if dead.Load() && err == nil {
			_ = conn.Close()
			return nil, errors.New("killed")
		}
		all = append(all, conn)
		return conn, err
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = newRelay(pool, pub).Run(ctx) // its connections are cut
	}()
	kill = sync.OnceFunc(func() {
		mu.Lock()
		dead.Store(true)
		for _, conn := range all {
			if conn != nil {
				_ = conn.Close()
			}
		}
		mu.Unlock()
		cancel()
	})
	t.Cleanup(func() {
		kill()
		<-ended
		pool.Close()
	})
	return kill
}

// testRelay writes events while a relay publishes them and is killed again and again.
func testRelay(t *testing.T, url string, sub message.Subscriber, start func() (kill func())) {
	t.Helper()
	began, want := time.Now(), events()
	messages, err := sub.Subscribe(context.Background(), topicToday)
	must(t, err)
	pool := open(t, url)
	var writing sync.WaitGroup
	for w := range writers {
		random := devtest.Random(t, w)
		writing.Go(func() { write(t, pool, random, w, want/writers) })
	}
	defer writing.Wait()
	kill := start()
	var r reader
	killed := 0
	for len(r.seen) < want && !t.Failed() {
		msg := devtest.Receive(t, time.Minute, fmt.Sprintf("message %d", len(r.seen)+1), messages)
		r.read(t, msg)
		msg.Ack()
		if killed < kills && len(r.seen) > (killed+1)*want/(kills+1) {
			killed++
			kill()
			kill = start()
		}
	}
	if killed != kills {
		t.Errorf("the relay was killed %d times, want %d", killed, kills)
	}
	t.Logf("%d events, %d of them repeated, %d kills, %s", len(r.seen), r.again, killed, time.Since(began).Round(time.Millisecond))
}

// write writes n events in transactions of up to ten, and as many events in transactions that
// roll back.
func write(t *testing.T, pool *pgxpool.Pool, random *rand.Rand, writer, n int) {
	rolledBack := errors.New("no")
	next := map[int]int{}
	for written := 0; written < n && !t.Failed(); {
		var committed, ghosts []postroom.Event
		for range min(1+random.IntN(10), n-written) {
			key := writer + writers*random.IntN(keys/writers)
			committed = append(committed, eventOf(numbered{Key: key, N: next[key]}))
			ghosts = append(ghosts, eventOf(numbered{Key: key, N: next[key], Ghost: true}))
			next[key]++
		}
		for _, events := range [][]postroom.Event{ghosts, committed} {
			err := pgx.BeginFunc(context.Background(), pool, func(tx pgx.Tx) error {
				err := shop.Write(context.Background(), tx, events...)
				if err == nil && &events[0] == &ghosts[0] {
					err = rolledBack
				}
				return err
			})
			if err != nil && !errors.Is(err, rolledBack) {
				t.Errorf("write events: %v", err)
				return
			}
		}
		written += len(committed)
	}
}

func eventOf(n numbered) postroom.Event {
	ev := postroom.NewEvent(topicToday, n)
	ev.Key = strconv.Itoa(n.Key)
	return ev
}

// reader is a consumer that remembers the events that came.
type reader struct {
	seen  map[string]bool // by source and id
	next  map[int]int     // by key: the number of the next event whose first copy may come
	again int
}

func (r *reader) read(t *testing.T, msg *message.Message) {
	t.Helper()
	if r.seen == nil {
		r.seen, r.next = map[string]bool{}, map[int]int{}
	}
	var n numbered
	must(t, json.Unmarshal(msg.Payload, &n))
	id := msg.Metadata.Get(postmill.MetadataSource) + " " + msg.Metadata.Get(postmill.MetadataID)
	switch {
	case r.seen[id]:
		r.again++
		return
	case n.Ghost:
		t.Errorf("event %d of key %d was rolled back, and published", n.N, n.Key)
	case n.N != r.next[n.Key]:
		t.Errorf("event %d of key %d was first published after %d others", n.N, n.Key, r.next[n.Key])
	case msg.Metadata.Get(postmill.MetadataKey) != strconv.Itoa(n.Key) || msg.UUID != msg.Metadata.Get(postmill.MetadataID):
		t.Errorf("message %s of key %d has metadata %v", msg.UUID, n.Key, msg.Metadata)
	}
	r.seen[id] = true
	r.next[n.Key]++
}
