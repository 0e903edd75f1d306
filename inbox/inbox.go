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
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/claims"
	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/ledger"
	"github.com/postroom/postroom/inbox/internal/signals"
	"github.com/postroom/postroom/inbox/internal/upkeep"
	"github.com/postroom/postroom/internal/jsremedy"
	"github.com/postroom/postroom/internal/pause"
	"github.com/postroom/postroom/internal/remedy"
	"github.com/postroom/postroom/internal/repeat"
	"github.com/postroom/postroom/schema"
)

// Inbox runs handlers. Register them with [Inbox.Handle], then call [Inbox.Run].
type Inbox struct {
	shared

	err      error // what is wrong with the Config
	loops    []*loop
	running  atomic.Bool
	node     *upkeep.Node
	runner   *claims.Runner
	holder   *holder
	receipts *ledger.Receipts
	dryRuns  *dryRuns

	lookEvery, floorEvery time.Duration
}

// shared is what all parts of an inbox use.
type shared struct {
	cfg     Config
	pool    *pgxpool.Pool
	db      *ledger.DB
	nc      *nats.Conn
	signals *signals.Signals
	lines   repeat.Lines // of the log, which repeat

	// alone is held for writing while an event runs that may end the process, and
	// for reading by all others.
	alone sync.RWMutex
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
		shared: shared{cfg: cfg, pool: pool, nc: nc, signals: signals.New(cfg.MeterProvider, cfg.TracerProvider)},
		err:    cfg.validate(), lookEvery: lookEvery, floorEvery: floorEvery,
	}
	name, err := schema.Name(cfg.Schema)
	if err != nil { // which validate has reported, and Run refuses
		name = schema.DefaultName
	}
	in.db = ledger.New(pool, name, in.lostSession)
	in.receipts, in.dryRuns = ledger.NewReceipts(in.db), newDryRuns(in)
	in.node = upkeep.NewNode(upkeep.NodeConfig{
		Processes: ledger.Upkeep{DB: in.db}, Handlers: in.names, DedupeWindow: cfg.DedupeWindow, MaxEventAge: cfg.MaxEventAge, Log: cfg.Logger, Advise: in.advise,
	})
	in.runner = claims.NewRunner(claims.Config{
		Ledger: ledger.Claims{DB: in.db}, Process: in.node.Name(), DryRuns: in.dryRuns, Log: cfg.Logger, Warn: in.warn, Outage: outage,
		Drain: cfg.DrainTimeout, IdlePoll: cfg.IdlePoll, Renewal: cfg.AckWait, Alone: &in.alone,
	})
	return in
}

// Handle registers a transactional handler: its effects are made through the
// transaction that it is given, and are committed once for each event. It is
// called before Run. It panics if the name has a handler already, or h is
// nil; other faults of the subscription are returned by [Inbox.Check] and
// [Inbox.Run].
func (in *Inbox) Handle(sub Subscription, h postroom.Handler) {
	if h == nil {
		panic(fmt.Sprintf("inbox: Handle: no handler for %q", sub.Name))
	}
	in.register(sub, h, nil)
}

// HandleExternal registers a handler that calls other systems, which no transaction
// of this database can undo. Its events are stored first, acknowledged, and run from
// held, with no transaction open: a call may take long. A handler is run by one
// process at a time, which renews its claim while it runs; where that process dies or
// stands still, another takes over after Config.AckWait, and finds in the receipts
// which steps are done.
//
// What a step did outside is done at least once, and not twice at a vendor that
// recognises keys; see [Attempt.Step]. What is done by [Attempt.OnSuccess] is committed once.
// It is called before Run, and panics as [Inbox.Handle] does.
func (in *Inbox) HandleExternal(sub Subscription, h ExternalHandler) {
	if h == nil {
		panic(fmt.Sprintf("inbox: HandleExternal: no handler for %q", sub.Name))
	}
	in.register(sub, nil, h)
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

// lostSession logs that a connection was closed.
func (in *shared) lostSession(ctx context.Context, why error) {
	in.lines.Warn(ctx, in.cfg.Logger, "a connection was closed: a handler left it so that the next could not use it", why)
}

// advise returns an error of a statement of ours, or of a request to the broker's API,
// with what to do about it. It is not for what handlers return: of a table of theirs it
// would say the wrong thing.
func (in *shared) advise(err error) error {
	return jsremedy.Explain(remedy.Explain(err, remedy.Use{Grant: "inbox", Schema: cmp.Or(in.cfg.Schema, schema.DefaultName), DB: in.pool}))
}

// warn logs what is tried again, with what to do about it.
func (in *shared) warn(ctx context.Context, what string, err error, args ...any) {
	in.lines.Warn(ctx, in.cfg.Logger, what, in.advise(err), args...)
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
	queues := make([]*claims.Queue, len(in.loops))
	for i, c := range in.loops {
		c.open()
		queues[i] = c.retries.queue
		c.announce(ctx)
	}
	in.runner.Serve(queues)
	defer in.tellStop(ctx)()
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { in.preflight().TellUnseen(ctx) })
	in.holder = newHolder(in)
	parts := []postroom.Runner{in.node, in.runner, claims.Renewer{Runner: in.runner}, in.holder, in.sweeper(), in.gauges(), in.dryRuns}
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
			err = in.node.Beat(ctx)
		}
		if err == nil {
			in.node.ListUnknown(ctx)
		}
		if err == nil || errors.Is(err, postroom.ErrUnrecoverable) {
			return err
		}
		if ctx.Err() == nil {
			in.lines.Warn(ctx, in.cfg.Logger, "inbox cannot start yet", in.advise(err), "failures", failures)
		}
		pause.For(ctx, outage.Delay(failures))
	}
	return nil
}

// outage is the schedule on which an inbox tries again to reach what it needs.
var outage = postroom.Backoff{100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second}

// lifetime returns that of a part which is to stop when ctx ends.
func (in *shared) lifetime(ctx context.Context) (life delivery.Lifetime, end func()) {
	return delivery.NewLifetime(ctx, in.cfg.DrainTimeout)
}

// sweeper returns what removes expired rows of the ledger.
func (in *Inbox) sweeper() *upkeep.Sweeper {
	return upkeep.NewSweeper(upkeep.SweeperConfig{
		Ledger: ledger.Upkeep{DB: in.db}, Keep: in.cfg.DedupeWindow, Steps: ledger.SweepSteps, Removed: in.signals.Removed, Warn: in.warn, Outage: outage,
	})
}

// gauges returns what measures what is held and in hand.
func (in *Inbox) gauges() *signals.Gauges {
	backlog := func(ctx context.Context) ([]delivery.Stock, error) {
		ctx, cancel := context.WithTimeout(ctx, ledger.WritePatience)
		defer cancel()
		return ledger.Upkeep{DB: in.db}.Backlog(ctx, in.names())
	}
	levels := func() []signals.Level {
		all := make([]signals.Level, len(in.loops))
		for i, c := range in.loops {
			all[i] = c.level()
		}
		return all
	}
	return in.signals.NewGauges(in.cfg.Logger, backlog, levels)
}

// tellStop logs what an inbox waits for when its context has ended, and returns what logs
// that it has stopped.
func (in *Inbox) tellStop(ctx context.Context) (stopped func()) {
	cancel := context.AfterFunc(ctx, func() {
		var running []string
		for _, c := range in.loops {
			if n := c.invoker.AtWork(); n > 0 {
				running = append(running, fmt.Sprintf("%s: %d", c.sub.Name, n))
			}
		}
		if len(running) == 0 {
			in.cfg.Logger.InfoContext(ctx, "inbox stops; no handler runs")
			return
		}
		in.cfg.Logger.InfoContext(ctx, "inbox stops; it waits for the handlers that run",
			"running", strings.Join(running, ", "), "at_most", in.cfg.DrainTimeout)
	})
	return func() {
		if !cancel() {
			in.cfg.Logger.InfoContext(ctx, "inbox stopped")
		}
	}
}
