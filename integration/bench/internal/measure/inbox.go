package measure

import (
	"cmp"
	"context"
	_ "embed" // for the SQL statements
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/schema"
)

// workers is the number of workers of an inbox, and of its reference, the loop.
const workers = 32

// batchSize is how many events a batched handler handles in one transaction.
const batchSize = 100

// The size of a backlog is Config.Events, divided by one of these numbers. One by one, all events
// would take half a minute: too long. In batches, a quarter would take under a second: too short.
const (
	singlePart  = 4
	batchedPart = 2
)

// Each number is how many of 100 events fail: at each attempt (the constants rarely, often), or
// only at their first attempt (the constant flaky).
const (
	rarely = 1
	often  = 30
	flaky  = 5
)

// keys is how many keys the events share; stuck is how many other events wait behind a dead event.
const (
	keys  = 1000
	stuck = 100_000
)

var (
	//go:embed sql/effects.sql
	effectsSQL string
	//go:embed sql/effect.sql
	effectSQL string
	//go:embed sql/verify.sql
	verifySQL string
	//go:embed sql/forget.sql
	forgetSQL string
	//go:embed sql/settled.sql
	settledSQL string
	//go:embed sql/stuck.sql
	stuckSQL string
)

// inboxTrial measures an inbox that handles a load, in batches or one by one.
func inboxTrial(of load, batch int) trial {
	return backlogTrial(of, func(ctx context.Context, l *backlog) error {
		return l.inbox(ctx, inbox.Subscription{Workers: workers, Batch: batch})
	})
}

// orderedTrial measures an ordered inbox.
func orderedTrial(of load) trial {
	return backlogTrial(of, func(ctx context.Context, l *backlog) error {
		return l.inbox(ctx, inbox.Subscription{Workers: workers, Order: inbox.HoldKey})
	})
}

// A load is the work for an inbox.
type load struct {
	part     int  // the size of the backlog is Config.Events, divided by this number
	keys     int  // the number of keys that the events share; if 0, each event has a different key
	failing  int  // how many of each 100 events always fail
	flaky    int  // how many of each 100 events fail at their first attempt
	stuck    int  // how many other events wait behind a dead event until the end
	external bool // the handler makes a call for each event, and has no effect
}

// backlog has the events of a stream for a handler, and the results of the handler.
type backlog struct {
	b      *bench
	nc     *nats.Conn
	pool   *pgxpool.Pool
	schema string
	effect string // the text of sql/effect.sql
	events int
	load

	tried []atomic.Bool // for each event: whether the method flakes has made the handler fail for it
	seen  []atomic.Bool // for each event: whether the handler has done all its work
	count atomic.Int64  // the number of events for which the field seen is true
}

// backlogTrial measures how many events per second the function run handles. The function continues
// until its context ends.
func backlogTrial(of load, run func(ctx context.Context, l *backlog) error) trial {
	return func(ctx context.Context, b *bench) (sample, error) {
		schemaName, err := ledger(ctx, b)
		if err != nil {
			return sample{}, err
		}
		pool, err := workerPool(ctx, b)
		if err != nil {
			return sample{}, err
		}
		defer pool.Close()
		return b.withStream(ctx, func(nc *nats.Conn) (sample, error) {
			l := &backlog{
				b: b, nc: nc, pool: pool, schema: schemaName, effect: schema.In(schemaName, effectSQL),
				events: b.cfg.Events / of.part, load: of,
				tried: make([]atomic.Bool, b.cfg.Events/of.part), seen: make([]atomic.Bool, b.cfg.Events/of.part),
			}
			if err := errors.Join(l.block(ctx), l.publish(ctx)); err != nil {
				return sample{}, err
			}
			return l.measure(ctx, run)
		})
	}
}

// ledger returns a schema with empty tables for an inbox and its effects.
func ledger(ctx context.Context, b *bench) (string, error) {
	schemaName, created, err := b.createLog(ctx, "ledger")
	if err != nil {
		return "", err
	}
	if created {
		if _, err := b.pool.Exec(ctx, schema.In(schemaName, effectsSQL)); err != nil {
			return "", fmt.Errorf("create effects: %w", err)
		}
	}
	if _, err := b.pool.Exec(ctx, schema.In(schemaName, forgetSQL)); err != nil {
		return "", fmt.Errorf("empty ledger: %w", err)
	}
	return schemaName, b.rest(ctx)
}

// workerPool returns a pool with a connection for each worker, and room for the other connections
// of an inbox. It makes the connections before the measurement, because an inbox that has run for a
// while has its connections too.
func workerPool(ctx context.Context, b *bench) (*pgxpool.Pool, error) {
	database := b.cfg.Database.Copy()
	database.MaxConns = workers + 16
	database.ConnConfig.RuntimeParams["application_name"] = b.name
	pool, err := pgxpool.NewWithConfig(ctx, database)
	if err != nil {
		return nil, err
	}
	if err := connectAll(ctx, pool); err != nil {
		pool.Close()
		return nil, fmt.Errorf("connect workers: %w", err)
	}
	return pool, nil
}

func connectAll(ctx context.Context, pool *pgxpool.Pool) error {
	for range workers {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release() // this runs after the last connection is made
	}
	return nil
}

// measure calls the function run, and measures the time until the backlog is done. The rate counts
// all events, also the events that fail, because they are work too.
func (l *backlog) measure(ctx context.Context, run func(ctx context.Context, l *backlog) error) (sample, error) {
	var took time.Duration
	err := l.b.timed(func() (err error) {
		ctx, cancel := context.WithCancel(ctx)
		stopped, ended := make(chan struct{}), error(nil)
		began := time.Now()
		go func() {
			defer close(stopped)
			ended = run(ctx, l)
		}()
		err = l.wait(ctx, stopped)
		took = time.Since(began)
		cancel()
		<-stopped
		return errors.Join(err, ended)
	})
	if err != nil {
		return sample{}, err
	}
	if err := l.verify(ctx); err != nil {
		return sample{}, err
	}
	return sample{value: float64(l.events) / took.Seconds()}, nil
}

// wait returns when the backlog is done. It asks the servers only after the inbox has called the
// handler for every event, because earlier questions would slow the measured work.
func (l *backlog) wait(ctx context.Context, stopped <-chan struct{}) error {
	for {
		if l.count.Load() == int64(l.events) {
			if over, err := l.over(ctx); over || err != nil {
				return err
			}
		}
		sleep(ctx, 5*time.Millisecond)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case over(stopped):
			return errors.New("the handler ended")
		}
	}
}

// over reports whether every event is committed and acknowledged. The inbox also acknowledges an
// event that it holds: after a failure, behind an earlier event of its key, or for an external
// handler. With shared keys or external handlers, these events still run, so it calls settled.
func (l *backlog) over(ctx context.Context) (bool, error) {
	stream, err := l.b.js.Stream(ctx, l.b.stream())
	if err != nil {
		return false, fmt.Errorf("look up consumers: %w", err)
	}
	consumers := stream.ListConsumers(ctx)
	found, left := 0, 0
	for info := range consumers.Info() {
		found++
		left += int(info.NumPending) + info.NumAckPending //nolint:gosec // far below
	}
	if err := consumers.Err(); err != nil {
		return false, fmt.Errorf("look up consumers: %w", err)
	}
	if found == 0 || left > 0 || !l.external && l.keys == 0 {
		return found > 0 && left == 0, nil
	}
	return l.settled(ctx)
}

// settled reports whether all effects are committed and no event is left to handle.
func (l *backlog) settled(ctx context.Context) (settled bool, err error) {
	effects, owed := l.events, 0
	if l.external {
		effects = 0
	}
	if l.stuck > 0 {
		owed = l.stuck + 1
	}
	if err := l.b.pool.QueryRow(ctx, schema.In(l.schema, settledSQL), effects, owed).Scan(&settled); err != nil {
		return false, fmt.Errorf("count the events that are left: %w", err)
	}
	return settled, nil
}

// verify checks: each failing event is held, each other event has one effect (or call).
func (l *backlog) verify(ctx context.Context) error {
	var effects, events, held, calls int
	err := l.b.pool.QueryRow(ctx, schema.In(l.schema, verifySQL)).Scan(&effects, &events, &held, &calls)
	if err != nil {
		return fmt.Errorf("count effects: %w", err)
	}
	if l.external {
		if calls != l.events || held != 0 {
			return fmt.Errorf("%d calls of %d events and %d held, want one of each and none held", calls, l.events, held)
		}
		return nil
	}
	healthy := l.healthy()
	if l.stuck > 0 {
		held -= l.stuck + 1
	}
	if effects != healthy || events != healthy || held != l.events-healthy {
		return fmt.Errorf("%d effects of %d events and %d held, want %d of as many and %d held",
			effects, events, held, healthy, l.events-healthy)
	}
	return nil
}

var errProvoked = errors.New("a failure on purpose")

// apply does the handler's work for the event with the given key, and records that the work is
// done. If a batch failed, the handler may call apply again for the same event.
func (l *backlog) apply(ctx context.Context, tx pgx.Tx, key string) error {
	failed := errProvoked
	if !strings.HasPrefix(key, badKey) {
		if _, failed = tx.Exec(ctx, l.effect, key, 100); failed != nil {
			return failed
		}
	}
	return errors.Join(l.note(key), failed)
}

// note records that the handler has done all its work for the event with the given key.
func (l *backlog) note(key string) error {
	i, err := strconv.Atoi(key[min(len(goodKey), len(key)):])
	if err != nil || i >= len(l.seen) {
		return fmt.Errorf("no event of the backlog: %.40q", key)
	}
	if l.seen[i].CompareAndSwap(false, true) {
		l.count.Add(1)
	}
	return nil
}

// flakes reports whether a handler must fail for an event, and returns true only once for an event.
// The events that fail are spread over the keys.
func (l *backlog) flakes(key string) bool {
	i, err := strconv.Atoi(key[min(len(goodKey), len(key)):])
	return err == nil && i < len(l.tried) && (i+i/max(l.keys, 1))*l.flaky%100 < l.flaky && !l.tried[i].Swap(true)
}

// warnings returns a logger that drops lines below the level warning, because a measurement logs
// many lines about starts and ends.
func warnings(logger *slog.Logger) *slog.Logger {
	return slog.New(onlyWarnings{logger.Handler()})
}

type onlyWarnings struct{ slog.Handler }

func (h onlyWarnings) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && h.Handler.Enabled(ctx, level)
}

func (h onlyWarnings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return onlyWarnings{h.Handler.WithAttrs(attrs)}
}

func (h onlyWarnings) WithGroup(name string) slog.Handler {
	return onlyWarnings{h.Handler.WithGroup(name)}
}

// inbox runs an inbox on the backlog.
func (l *backlog) inbox(ctx context.Context, sub inbox.Subscription) error {
	sub.Name, sub.Stream, sub.Types = "bench", l.b.stream(), []string{l.b.subject()}
	logger := warnings(l.b.cfg.Logger)
	if l.failing+l.flaky > 0 {
		logger = slog.New(slog.DiscardHandler) // the benchmark provokes the failures, and their log would disturb the report
	}
	switch {
	case l.failing > 0:
		sub.Schedule = postroom.Backoff{time.Hour} // so that the inbox makes only the first attempt
	case l.flaky > 0:
		sub.Schedule, sub.Attempts = postroom.Backoff{100 * time.Millisecond}, 8 // short, so that the measurement does not wait long for the last events
	}
	in := inbox.New(l.pool, l.nc, inbox.Config{Schema: l.schema, Logger: logger})
	in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		key := cmp.Or(ev.CorrelationID, ev.Key)
		if l.flakes(key) {
			return errProvoked
		}
		return l.apply(ctx, tx, key)
	}))
	return in.Run(ctx)
}
