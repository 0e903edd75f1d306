// Package inbox applies events exactly once.
//
// A handler gets events from a stream, and has rows in the table inbox. For each delivery the inbox
// runs one transaction. In this transaction, the inbox inserts a row, which says that this handler
// has decided this event, and then runs the handler. After the commit it acknowledges the message.
// If the broker delivers the event again, the inbox finds the row and does not run the handler.
//
// If a handler fails, the event is held: it gets a row in the table held. Its inbox row stays, so
// that another delivery does not run the event. The inbox tries a held event again on the handler's
// schedule. When the event's attempts are used up, it is dead, and an operator decides.
package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/accept"
	"github.com/postroom/postroom/inbox/internal/claims"
	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/dryrun"
	"github.com/postroom/postroom/inbox/internal/gate"
	"github.com/postroom/postroom/inbox/internal/holder"
	"github.com/postroom/postroom/inbox/internal/invoke"
	"github.com/postroom/postroom/inbox/internal/ledger"
	"github.com/postroom/postroom/inbox/internal/preflight"
	"github.com/postroom/postroom/inbox/internal/share"
	"github.com/postroom/postroom/inbox/internal/signals"
	"github.com/postroom/postroom/inbox/internal/stream"
	"github.com/postroom/postroom/inbox/internal/upkeep"
	"github.com/postroom/postroom/internal/jsremedy"
	"github.com/postroom/postroom/internal/remedy"
	"github.com/postroom/postroom/internal/repeat"
	"github.com/postroom/postroom/internal/sleep"
	"github.com/postroom/postroom/schema"
)

// Inbox runs handlers. Register them with [Inbox.Handle], then call [Inbox.Run].
type Inbox struct {
	core

	err      error // the faults of the Config and the subscriptions, or nil
	loops    []*loop
	running  atomic.Bool
	node     *upkeep.Node
	runner   *claims.Runner
	holder   *holder.Holder
	receipts *ledger.Receipts
	acceptor accept.Acceptor
	dryRuns  *dryrun.Runner

	mu      sync.Mutex // protects the field below, because a program may add intakes while the inbox runs
	intakes []*Intake

	lookEvery, floorEvery time.Duration
}

// core has what all parts of an inbox use.
type core struct {
	cfg     Config
	pool    *pgxpool.Pool
	db      *ledger.DB
	nc      *nats.Conn
	signals *signals.Signals
	gates   gate.Set
	lines   repeat.Lines // limits log lines that repeat
	renewer remedy.Renewer
	state   healthState

	// The lock alone lets an event that may end the process run alone. External handlers do not take
	// it, because their calls may take hours.
	alone delivery.Alone
}

// How often a process checks its consumer, and how often it records the position of the handler.
const (
	lookEvery  = 15 * time.Second
	floorEvery = time.Minute
)

// New returns an inbox that reads from nc and keeps its tables in pool's database.
// Connect nc with natsjs.ConnectOptions, or at least with nats.MaxReconnects(-1); without
// nats.IgnoreAuthErrorAbort, Run ends if the broker refuses the user twice. nc may be nil if
// no handler reads a stream. New does no I/O and returns no error: if the
// Config has faults, [Inbox.Check] and [Inbox.Run] return them.
func New(pool *pgxpool.Pool, nc *nats.Conn, cfg Config) *Inbox {
	cfg = cfg.defaults()
	in := &Inbox{
		core: core{cfg: cfg, pool: pool, nc: nc, gates: gate.Set{}, signals: signals.New(cfg.MeterProvider, cfg.TracerProvider, cfg.LogOutcomes)},
		err:  cfg.validate(), lookEvery: lookEvery, floorEvery: floorEvery,
	}
	name, err := schema.Name(cfg.Schema)
	if err != nil { // validate has reported it, and Run refuses to start
		name = schema.DefaultName
	}
	in.db = ledger.New(pool, name, in.lostSession)
	in.receipts = ledger.NewReceipts(in.db)
	accepts := ledger.NewAccepts(in.db)
	if cfg.OnDead != nil {
		accepts.OnDead = func(ctx context.Context, tx *ledger.Borrowed, handler string, t delivery.Task, h delivery.Holding) error {
			return in.tell(ctx, tx, handler, t, h)
		}
	}
	in.acceptor = accept.Acceptor{Store: accepts, Wake: func() { in.runner.Accepted() }, Handlers: make(map[string]accept.Handler)}
	in.dryRuns = dryrun.NewRunner(ledger.Claims{DB: in.db}, cfg.Logger, func(ctx context.Context, h delivery.HeldEvent) (dryrun.Finding, error) {
		return dryRun(ctx, in.byName(h.Handler), h)
	})
	in.node = upkeep.NewNode(upkeep.NodeConfig{
		Processes: ledger.Upkeep{DB: in.db}, Windows: in.windows, Paused: in.gates.Report, DedupeWindow: cfg.DedupeWindow, Log: cfg.Logger, Advise: in.advise,
	})
	in.runner = claims.NewRunner(claims.Config{
		Ledger: ledger.Claims{DB: in.db}, Process: in.node.Name(), DryRuns: in.dryRuns, Log: cfg.Logger, Warn: in.warn, Outage: outage,
		Drain: cfg.DrainTimeout, IdlePoll: cfg.IdlePoll, Renewal: cfg.AckWait, Alone: &in.alone, AloneAfter: time.Minute,
	})
	return in
}

// Handle registers a transactional handler. The changes that the handler makes in its transaction
// are committed once for each event. Call Handle before Run. Handle panics if the name has a
// handler already, or if h is nil. [Inbox.Check] and [Inbox.Run] return other faults of the
// subscription, and call h.Check(ctx) if h has that method. If h has a method Types, as a
// postroom.TypedHandler does, they check that the subscriptions of h have all these types. A
// subscription without Types takes them from h: see [Subscription.Types]. If h has a method CheckSubscription(types []string, order
// string) error, they call it with the subscription's Types and the name of its Order, such as
// "HoldKey".
func (in *Inbox) Handle(sub Subscription, h postroom.Handler) {
	if h == nil {
		panic(fmt.Sprintf("inbox: Handle: no handler for %q", sub.Name))
	}
	typed, ok := h.(postroom.TypedHandler)
	//guard:a-subscription-takes-the-types-of-its-handler false
	if ok && sub.Stream != "" && len(sub.Subjects) == 0 && len(sub.Types) == 0 {
		sub.Types = typed.Types()
	}
	in.register(sub, h, nil)
}

// HandleExternal registers a handler that calls other systems. No transaction of this database can
// undo such a call. The inbox first stores the event in the table held and acknowledges it. Then it
// runs the handler outside a transaction, because a call may take long. One process at a time runs
// the handler for an event. While the handler runs, the process renews its claim on the event. If
// that process dies or stalls, another process takes over after Config.AckWait. The receipts tell
// the new process which steps are done.
//
// A step happens at least once, and only once if the vendor recognises keys: see [Step].
// The changes of the functions of [Attempt.OnSuccess] are committed once. Call HandleExternal
// before Run. It panics as [Inbox.Handle] does.
func (in *Inbox) HandleExternal(sub Subscription, h ExternalHandler) {
	if h == nil {
		panic(fmt.Sprintf("inbox: HandleExternal: no handler for %q", sub.Name))
	}
	in.register(sub, nil, h)
}

// Declare names a handler that other processes run, so that this process can accept events
// for it. It uses the fields Name, Types, Order, DedupeKey and Timeout of the subscription:
// set them to the same values as in those processes. Call Declare before [Inbox.Accept]. It
// panics if the name has a handler already.
func (in *Inbox) Declare(sub Subscription) {
	if !validName.MatchString(sub.Name) {
		in.err = errors.Join(in.err, fmt.Errorf("subscription %q: %s", sub.Name, nameProblem))
	}
	in.acceptsFor(sub.defaults(false), nil)
}

func (in *Inbox) register(sub Subscription, h postroom.Handler, external ExternalHandler) {
	in.acceptsFor(sub.defaults(external != nil), h)
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

// windows returns how long each handler needs its inbox rows.
func (in *Inbox) windows() []delivery.Window {
	all := make([]delivery.Window, len(in.loops))
	for i, c := range in.loops {
		all[i] = c.window
	}
	return all
}

// lostSession logs that a connection was closed.
func (in *core) lostSession(ctx context.Context, why error) {
	in.lines.Warn(ctx, in.cfg.Logger, "connection closed: a handler changed its session", why)
}

// advise adds advice to an error. Use it only for errors of the inbox's own statements
// and requests to the broker, not for errors of handlers: the advice is about Postroom's
// tables, and would be wrong for the handlers' tables.
func (in *core) advise(err error) error {
	return jsremedy.Explain(remedy.Explain(err, remedy.Use{Grant: "inbox", Schema: cmp.Or(in.cfg.Schema, schema.DefaultName), DB: in.pool}))
}

// warn logs an error with advice. The inbox will try the failed work again.
func (in *core) warn(ctx context.Context, what string, err error, args ...any) {
	in.lines.Warn(ctx, in.cfg.Logger, what, in.advise(err), args...)
	in.state.failed(in.advise(err))
	in.renew(ctx, err)
}

// renew resets the pool if err says that its connections take no writes, and new connections do.
func (in *core) renew(ctx context.Context, err error) {
	//guard:an-inbox-leaves-a-server-that-takes-no-writes remove
	in.renewer.Renew(ctx, in.pool, err)
}

// Run handles events until ctx ends.
//
// When ctx ends, Run takes no more events, and gives events that have not begun back to the broker.
// It waits for running handlers up to Config.DrainTimeout, and returns nil. It returns an error
// only if [Inbox.Check] or a stream's reader finds one that a person must correct, if the broker
// connection was closed, or if another Run has not ended. It logs an outage, and waits it out.
func (in *Inbox) Run(ctx context.Context) error {
	if !in.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer in.running.Store(false)
	defer context.AfterFunc(ctx, in.state.begin())()
	defer in.state.set(Stopped)

	if err := in.waitUntilReady(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	queues, workers := make([]*claims.Queue, len(in.loops)), share.Workers(in.needs(), in.pool.Config().MaxConns)
	for i, c := range in.loops {
		c.workers = workers[i]
		c.open()
		queues[i] = c.retries.queue
		c.announce(ctx)
	}
	in.runner.Serve(queues)
	in.state.set(Running)
	defer invoke.TellStop(ctx, in.cfg.Logger, in.cfg.DrainTimeout, in.atWork)()
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { in.preflight().TellUnseen(ctx) })
	in.holder = newHolder(in)
	parts := []postroom.Runner{in.node, in.runner, claims.Renewer{Runner: in.runner}, in.holder, in.sweeper(), in.gauges(), in.dryRuns, in.pauses()}
	var loops sync.WaitGroup
	for _, c := range in.loops {
		loops.Add(1)
		parts = append(parts, postroom.RunnerFunc(func(ctx context.Context) error {
			defer loops.Done()
			return c.Run(ctx)
		}))
	}
	go func() {
		loops.Wait()
		in.holder.Close()
	}()
	err := postroom.Run(ctx, parts...)
	in.node.Leave(ctx) // only after the handlers ended: until Leave, no process removes inbox rows that they still need
	for _, c := range in.loops {
		c.invoker.Close()
	}
	if err != nil {
		return fmt.Errorf("inbox: %w", err)
	}
	return nil
}

// waitUntilReady waits until the inbox can start. It returns only an error that a person must correct.
func (in *Inbox) waitUntilReady(ctx context.Context) error {
	for failures := 1; ctx.Err() == nil; failures++ {
		err := in.check(ctx, (*preflight.Inbox).Start)
		if err == nil {
			err = in.node.Beat(ctx)
		}
		if err == nil {
			err = in.pauses().Ask(ctx)
		}
		if err == nil {
			in.node.ListUnknown(ctx)
		}
		if err == nil || errors.Is(err, postroom.ErrUnrecoverable) {
			return err
		}
		if ctx.Err() == nil {
			in.state.failed(in.advise(stream.Plain(err, in.nc)))
			in.lines.Warn(ctx, in.cfg.Logger, "inbox cannot start yet", in.advise(stream.Plain(err, in.nc)), "failures", failures)
		}
		in.revive(ctx, err)
		in.renew(ctx, err)
		sleep.For(ctx, outage.Delay(failures))
	}
	return nil
}

// revive makes a deaf connection connect again, if err says that a request got no answer.
func (in *Inbox) revive(ctx context.Context, err error) {
	for _, c := range in.loops {
		if c.sub.Stream != "" && errors.Is(err, context.DeadlineExceeded) && in.nc.IsConnected() {
			jsremedy.Revive(ctx, in.nc, jsremedy.AboutStream(c.sub.Stream))
			return
		}
	}
}

// outage has the waits before an inbox tries again to reach the database or the broker.
var outage = postroom.Backoff{100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second}

// outage logs that the database is out of reach, and waits before the next try.
func (in *core) outage(life delivery.Lifetime, log *slog.Logger, err error, failures int) {
	in.lines.Warn(life.Work, log, "database out of reach, waiting", in.advise(err), "failures", failures)
	in.state.failed(in.advise(err))
	in.renew(life.Work, err)
	sleep.For(life.Take, outage.Delay(failures))
}

// sweeper returns the part of the inbox that removes expired inbox rows.
func (in *Inbox) sweeper() *upkeep.Sweeper {
	return upkeep.NewSweeper(upkeep.SweeperConfig{
		Ledger: ledger.Upkeep{DB: in.db}, Windows: in.windows(), Steps: ledger.SweepSteps, Removed: in.signals.Removed, Warn: in.warn, Outage: outage,
	})
}

// pauses returns the part of the inbox that obeys operators who pause handlers.
func (in *Inbox) pauses() upkeep.Pauses {
	return upkeep.Pauses{Paused: ledger.Upkeep{DB: in.db}.Paused, Handlers: in.names(), Warn: in.warn, Set: in.gates.SetOperator}
}

// gauges returns the part that measures held events, and deliveries in memory.
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

// atWork returns the names of the handlers that are running events, each with the number of events.
func (in *Inbox) atWork() (running []string) {
	for _, c := range in.loops {
		if n := c.invoker.AtWork(); n > 0 {
			running = append(running, fmt.Sprintf("%s: %d", c.sub.Name, n))
		}
	}
	return running
}
