// Package inbox applies events exactly once.
//
// Each handler has a durable consumer and a ledger. A delivery is one
// transaction: a ledger row that says this handler has decided this event, then
// the handler with its effects, then the commit, and only then the
// acknowledgement. Whatever is delivered again meets its ledger row.
//
// What a handler cannot do now is held, in the database: its ledger row stays, so
// that the straight path never runs it again, and a row of held says what is still
// owed. From there it is tried again on its schedule, and ends dead, in sight of
// an operator, when its attempts are spent.
package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/ledger"
	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/jsremedy"
	"github.com/postroom/postroom/internal/remedy"
	"github.com/postroom/postroom/internal/repeat"
	"github.com/postroom/postroom/internal/telemetry"
	"github.com/postroom/postroom/schema"
)

// Config tunes an [Inbox]. The zero value is ready to use.
type Config struct {
	// Schema is the database schema that holds Postroom's tables.
	//
	// Defaults to "postroom".
	Schema string

	// AckWait is how long the broker waits for a sign of life from a process that
	// holds an event before it delivers the event again, to another. Signs are
	// sent three times as often. So long last, too, and are
	// renewed as often, the claims of external handlers and the lease of the process
	// that reads for an ordered one.
	//
	// Defaults to 30 seconds.
	AckWait time.Duration

	// DrainTimeout is how long Run lets handlers finish after its context ended.
	// Then their contexts end too, and their events are delivered again.
	//
	// Defaults to 10 seconds.
	DrainTimeout time.Duration

	// Ledger is how long an event is remembered after it was decided. Then its
	// row is removed, unless the event is still owed. All processes of a database
	// have to agree on it, up to what AgeGate allows.
	//
	// Defaults to 30 days.
	Ledger time.Duration

	// AgeGate is the age from which the ledger is not trusted to remember an event:
	// one that was logged longer ago is held as dead, of class too_old, and not
	// run by itself. What a stream held when its handler was new is exempt. It
	// has to be shorter than Ledger by a hundredth at the least.
	//
	// Defaults to 29 days, or as much of Ledger.
	AgeGate time.Duration

	// PullBytes is how many bytes of events all handlers together ask the broker for
	// and have in hand, by and large: at the least 2 MiB for each handler. It has to be
	// well below max_pending of the server (64 MB), which disconnects a client for
	// which it has to keep more. Of a slow link less is asked for: what arrives in an
	// eighth of AckWait.
	//
	// As much again is what all handlers together have claimed of the events in held,
	// and as much what runs along with these in their keys: at the least 2 MiB for each
	// handler, and one event for each however large it is. A handler of large events
	// then runs fewer at a time than it has workers.
	//
	// Defaults to 32 MiB.
	PullBytes int

	// IdlePoll is how often held events are looked for while none is due. What this
	// process holds itself is run when it is due.
	//
	// Defaults to 250 milliseconds.
	IdlePoll time.Duration

	// Logger receives what Run survives.
	//
	// Defaults to slog.Default.
	Logger *slog.Logger

	// MeterProvider receives metrics.
	//
	// Defaults to the global provider of OpenTelemetry.
	MeterProvider metric.MeterProvider

	// TracerProvider receives a span for each time a handler runs.
	//
	// Defaults to the global provider of OpenTelemetry.
	TracerProvider trace.TracerProvider
}

func (c Config) defaults() Config {
	c.AckWait = cmp.Or(c.AckWait, 30*time.Second)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, 10*time.Second)
	c.Ledger = cmp.Or(c.Ledger, 30*24*time.Hour)
	c.AgeGate = cmp.Or(c.AgeGate, c.Ledger/30*29)
	c.PullBytes = cmp.Or(c.PullBytes, 32<<20)
	c.IdlePoll = cmp.Or(c.IdlePoll, 250*time.Millisecond)
	c.Logger = guard.Logger(cmp.Or(c.Logger, slog.Default()))
	return c
}

func (c Config) validate() error {
	var faults []error
	if _, err := schema.Name(c.Schema); err != nil {
		faults = append(faults, fmt.Errorf("config: Schema: %w", err))
	}
	if c.AckWait < time.Second {
		faults = append(faults, fmt.Errorf("config: AckWait is %s, want at least 1s", c.AckWait))
	}
	if c.DrainTimeout < 0 {
		faults = append(faults, fmt.Errorf("config: DrainTimeout is %s, want none or more", c.DrainTimeout))
	}
	if c.Ledger < time.Second {
		faults = append(faults, fmt.Errorf("config: Ledger is %s, want at least 1s", c.Ledger))
	}
	if c.AgeGate <= 0 || c.AgeGate > c.Ledger-c.Ledger/100 {
		faults = append(faults, fmt.Errorf("config: AgeGate is %s, want less than Ledger (%s) by a hundredth at the least: an event that is older than its ledger row would be applied again",
			c.AgeGate, c.Ledger))
	}
	if c.PullBytes < leastShare {
		faults = append(faults, fmt.Errorf("config: PullBytes is %d, want at least %d", c.PullBytes, leastShare))
	}
	if c.IdlePoll < time.Millisecond {
		faults = append(faults, fmt.Errorf("config: IdlePoll is %s, want at least 1ms", c.IdlePoll))
	}
	return errors.Join(faults...)
}

// Inbox runs handlers. Register them with [Inbox.Handle], then call [Inbox.Run].
type Inbox struct {
	pool     *pgxpool.Pool
	db       *ledger.DB
	nc       *nats.Conn
	cfg      Config
	err      error // what is wrong with the Config
	metrics  *metrics
	tracer   trace.Tracer
	loops    []*loop
	running  atomic.Bool
	node     *node
	runner   *runner
	holder   *holder
	receipts *receipts
	trials   *trials
	settler  ledger.Group[*ledger.Settlement]
	clock    clock

	// alone is held for writing while an event runs that may end the process, and
	// for reading by all others.
	alone sync.RWMutex

	lines repeat.Lines // of the log, which repeat

	lookEvery, floorEvery time.Duration
}

// How often a process looks at its consumer, and how often it notes how far the
// handler has come.
const (
	lookEvery  = 15 * time.Second
	floorEvery = time.Minute
)

// New returns an inbox that reads from nc and keeps its ledger in pool's
// database. nc has to be made with nats.MaxReconnects(-1), which is among
// natsjs.ConnectOptions; it may be nil where no handler reads a stream. It does no I/O and cannot fail: faults of the Config are returned by
// [Inbox.Check] and [Inbox.Run].
func New(pool *pgxpool.Pool, nc *nats.Conn, cfg Config) *Inbox {
	cfg = cfg.defaults()
	in := &Inbox{
		pool: pool, nc: nc, cfg: cfg, err: cfg.validate(), metrics: newMetrics(cfg.MeterProvider),
		tracer: telemetry.Tracer(cfg.TracerProvider), lookEvery: lookEvery, floorEvery: floorEvery,
	}
	name, err := schema.Name(cfg.Schema)
	if err != nil { // which validate has reported, and Run refuses
		name = schema.DefaultName
	}
	in.db = ledger.New(pool, name, in.lostSession)
	in.runner, in.node, in.receipts, in.trials = newRunner(in), newNode(in), newReceipts(in), newTrials(in)
	in.settler.Write = in.db.SettleMany
	return in
}

// Handle registers a transactional handler: its effects are made through the
// transaction that it is given, and are committed once for each event. It is
// called before Run. It panics where the name has a handler already, or h is
// nil; other faults of the subscription are returned by [Inbox.Check] and
// [Inbox.Run].
func (in *Inbox) Handle(sub Subscription, h postroom.Handler) {
	if h == nil {
		panic(fmt.Sprintf("inbox: Handle: no handler for %q", sub.Name))
	}
	in.register(sub, h, nil)
}

func (in *Inbox) register(sub Subscription, h postroom.Handler, external ExternalHandler) {
	if in.byName(sub.Name) != nil {
		panic(fmt.Sprintf("inbox: a second handler with the name %q", sub.Name))
	}
	if err := sub.validate(external != nil); err != nil {
		in.err = errors.Join(in.err, err)
	}
	in.loops = append(in.loops, newLoop(in, newHandler(in, sub, h, external)))
}

// byName returns a handler, or nil.
func (in *Inbox) byName(name string) *loop {
	for _, c := range in.loops {
		if c.sub.Name == name {
			return c
		}
	}
	return nil
}

// names returns the names of all handlers.
func (in *Inbox) names() []string {
	names := make([]string, len(in.loops))
	for i, c := range in.loops {
		names[i] = c.sub.Name
	}
	return names
}

// Check reports whether the inbox could start: the Config, the subscriptions,
// the size of the pool, the schema's version, the streams, and whether other
// processes keep the ledger for as long as this one trusts it. An error that matches
// postroom.ErrRefused has to be mended by a person; any other is an outage, which
// Run would wait out.
func (in *Inbox) Check(ctx context.Context) error {
	if err := in.checkSettings(); err != nil {
		return fmt.Errorf("inbox: %w", postroom.Refuse(err))
	}
	if err := schema.Require(ctx, in.pool, in.cfg.Schema); err != nil {
		return fmt.Errorf("inbox: %w", in.advise(err))
	}
	if err := in.checkLedger(ctx); err != nil {
		return fmt.Errorf("inbox: %w", in.advise(err))
	}
	if err := in.checkIsolation(ctx); err != nil {
		return fmt.Errorf("inbox: %w", in.advise(err))
	}
	var looked []string
	for _, c := range in.loops {
		if c.sub.Stream == "" {
			continue
		}
		js, err := jetstream.New(in.nc)
		if err != nil {
			return fmt.Errorf("inbox: %w", err)
		}
		stream, err := js.Stream(ctx, c.sub.Stream)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("inbox: %w", postroom.Refuse(fmt.Errorf(
				"stream %s of handler %s: %w: create it with 'postroom stream ensure' or natsjs.EnsureStream", c.sub.Stream, c.sub.Name, err)))
		}
		if jsremedy.IsOfAccount(err) {
			return fmt.Errorf("inbox: look up stream %s: %w", c.sub.Stream, postroom.Refuse(jsremedy.Explain(err)))
		}
		if err != nil {
			return fmt.Errorf("inbox: look up stream %s: %w", c.sub.Stream, in.advise(err))
		}
		if c.isOrdered() && stream.CachedInfo().Config.Retention != jetstream.LimitsPolicy {
			return fmt.Errorf("inbox: %w", postroom.Refuse(fmt.Errorf(
				"stream %s of handler %s keeps events for its consumers only, and an ordered handler has none that lasts: give it limits retention", c.sub.Stream, c.sub.Name)))
		}
		if !slices.Contains(looked, c.sub.Stream) {
			looked = append(looked, c.sub.Stream)
			if err := in.checkLimits(ctx, js, stream); err != nil {
				return fmt.Errorf("inbox: %w", err)
			}
		}
	}
	return nil
}

// lostSession logs that a connection was closed.
func (in *Inbox) lostSession(ctx context.Context, why error) {
	in.lines.Warn(ctx, in.cfg.Logger, "a connection was closed: a handler left it so that the next could not use it", why)
}

// advise returns an error of a statement of ours, or of a request to the broker's API,
// with what to do about it. It is not for what handlers return: of a table of theirs it
// would say the wrong thing.
func (in *Inbox) advise(err error) error {
	return jsremedy.Explain(remedy.Explain(err, remedy.Use{Grant: "inbox", Schema: cmp.Or(in.cfg.Schema, schema.DefaultName), DB: in.pool}))
}

// spare is how many connections of the pool workers leave to others: to
// handlers that use the pool beside their transaction, and to a relay that looks
// after its lease. Without them every worker could wait for another's connection.
const spare = 2

// checkSettings looks at what can be told without a server.
func (in *Inbox) checkSettings() error {
	if in.err != nil {
		return in.err
	}
	if len(in.loops) == 0 {
		return errors.New("no handler is registered; call Handle before Run")
	}
	readsStream := slices.ContainsFunc(in.loops, func(c *loop) bool { return c.sub.Stream != "" })
	if readsStream && in.nc == nil {
		return errors.New("there is no connection to NATS, and a handler that reads a stream")
	}
	if readsStream && (in.nc.Opts.MaxReconnect >= 0 || !in.nc.Opts.AllowReconnect) {
		return errors.New("the connection to NATS has bounded reconnects, after which it is closed for good: connect with nats.MaxReconnects(-1), or with natsjs.ConnectOptions()")
	}
	need := 0
	for _, c := range in.loops {
		need += max(c.connections(), 1) + c.leases()
	}
	if most := int(in.pool.Config().MaxConns); need+spare > most {
		return fmt.Errorf("the workers need %d connections and %d to spare, and the pool has %d: raise pool_max_conns or lower Workers",
			need, spare, most)
	}
	return nil
}

// leastShare is how many bytes of events each handler may have in hand.
const leastShare = 2 << 20

// share is how many bytes of events each handler may have in hand.
func (in *Inbox) share() int {
	streams := 0
	for _, c := range in.loops {
		if c.sub.Stream != "" {
			streams++
		}
	}
	return max(in.cfg.PullBytes/max(streams, 1), leastShare)
}

// heldShare is how many bytes of held events each handler may have claimed.
func (in *Inbox) heldShare() int { return max(in.cfg.PullBytes/max(len(in.loops), 1), leastShare) }

// shareOut sets the number of workers of each handler that did not choose one:
// an equal part of what the pool has left.
func (in *Inbox) shareOut() {
	left, open := int(in.pool.Config().MaxConns)-spare, 0
	for _, c := range in.loops {
		left -= c.connections() + c.leases()
		if c.sub.Workers == 0 {
			open++
		}
	}
	for _, c := range in.loops {
		c.workers = c.sub.Workers
		if c.workers == 0 {
			c.workers = min(max(left/open, 1), 32)
		}
	}
}

// Run handles events until ctx ends.
//
// When ctx ends, Run takes no more events, hands back what was not begun, gives
// running handlers up to Config.DrainTimeout, and returns nil. It returns an
// error only for what [Inbox.Check] refuses and for a closed connection to the
// broker; outages it logs and waits out.
func (in *Inbox) Run(ctx context.Context) error {
	if !in.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer in.running.Store(false)

	if err := in.waitUntilReady(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	in.shareOut()
	for _, c := range in.loops {
		c.open()
	}
	in.tellStart(ctx)
	defer in.tellStop(ctx)()
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { in.tellUnseen(ctx) })
	in.holder = newHolder(in)
	parts := []postroom.Runner{in.node, in.runner, &renewer{in}, in.holder, newSweeper(in), newGauges(in), in.trials}
	var loops sync.WaitGroup
	for _, c := range in.loops {
		loops.Add(1)
		parts = append(parts, runnerFunc(func(ctx context.Context) error {
			defer loops.Done()
			return c.Run(ctx)
		}))
	}
	go func() {
		loops.Wait()
		close(in.holder.done)
	}()
	err := postroom.Run(ctx, parts...)
	for _, c := range in.loops {
		c.invoker.Close()
	}
	if err != nil {
		return fmt.Errorf("inbox: %w", err)
	}
	return nil
}

// runnerFunc makes a function a postroom.Runner.
type runnerFunc func(ctx context.Context) error

func (f runnerFunc) Run(ctx context.Context) error { return f(ctx) }

// waitUntilReady waits until Check passes. It returns what Check refuses.
func (in *Inbox) waitUntilReady(ctx context.Context) error {
	for failures := 1; ctx.Err() == nil; failures++ {
		err := in.Check(ctx)
		if err == nil {
			err = in.node.beat(ctx)
		}
		if err == nil {
			in.node.listUnknown(ctx)
		}
		if err == nil || errors.Is(err, postroom.ErrRefused) {
			return err
		}
		if ctx.Err() == nil {
			in.lines.Warn(ctx, in.cfg.Logger, "inbox cannot start yet", in.advise(err), "failures", failures)
		}
		sleep(ctx, outage.Delay(failures))
	}
	return nil
}

// outage is the schedule on which an inbox tries again to reach what it needs.
var outage = postroom.Backoff{100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second}

// drain returns a context that outlives ctx by Config.DrainTimeout.
func (in *Inbox) drain(ctx context.Context) (context.Context, context.CancelFunc) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(in.cfg.DrainTimeout, cancel) })
	return work, func() { stop(); cancel() }
}
