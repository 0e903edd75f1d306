// Package relay moves committed events from a log to a broker.
//
// One relay of a log leads and publishes. The other relays stand by. The leader reads ahead, and
// keeps a limited number of events in flight. Each key has at most one event in flight, or the
// events of one atomic batch. The leader records the acknowledgements. If an event gets no ack,
// the leader publishes it again, with the same message id, until the broker acknowledges it.
//
// The log is the table outbox, into which package outbox writes. This package sends no statement
// itself. The broker is a [broker.Publisher], which package natsjs implements for NATS JetStream.
package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/repeat"
	"github.com/postroom/postroom/internal/sleep"
	"github.com/postroom/postroom/internal/telemetry"
	"github.com/postroom/postroom/relay/broker"
)

// ErrRunning is what [Relay.Run] returns if another Run of the same relay has not ended.
var ErrRunning = errors.New("relay: already running")

// KeepForever is a value of Config.Retention: the relay removes nothing from the log.
const KeepForever time.Duration = -1

// Config tunes a [Relay]. The zero value is ready to use.
type Config struct {
	// Schema is the database schema that holds Postroom's tables.
	//
	// Defaults to "postroom".
	Schema string

	// Atomic publishes events in atomic batches: one acknowledgement for up to 1,000 events of one
	// stream. A batch may contain any number of events of one key. Atomic is faster if the broker
	// syncs each acknowledged message to the disk, or if many events have the same key. With
	// Atomic, the broker itself refuses a leader that was replaced. The streams must allow atomic
	// batches: natsjs.EnsureStream makes such streams. The publisher must support batches too, as
	// the publisher of natsjs does: see [broker.Abilities].
	//
	// Defaults to single publishes.
	Atomic bool

	// Window is the largest number of events in flight: sent and not acknowledged. A larger window
	// raises throughput until the broker is busy. It also raises the number of duplicates after a
	// crash. With Atomic, each stream has up to two batches in flight, or one if the stream has
	// several replicas. The default has room for a third batch, which waits for its turn.
	//
	// Defaults to 4,096, and with Atomic to 3,000.
	Window int

	// MaxUnpublished is the largest number of events that are read from the log and not
	// yet published. It limits the relay's memory.
	//
	// Defaults to 10,000.
	MaxUnpublished int

	// Lease is how long the other relays wait before they take over from a leader that crashed. The
	// leader renews the lease each time a third of it is over. A renewal takes time, so the lease
	// must be at least as long as ten round trips to the database.
	//
	// Defaults to 5 seconds. If ten round trips to the database take longer, it defaults to the
	// time of ten round trips, up to 30 seconds. If the leader could not renew the default lease in
	// time, the relay logs that and doubles the next lease. The leader stores the length of its
	// lease in the database, and the other relays wait for that long.
	Lease time.Duration

	// IdlePoll is the longest wait between two reads of a log without new events. After a
	// read with new events the relay reads again within a millisecond, or within 25
	// milliseconds if more than 1,500 events come in a second. [Relay.Wake] ends the wait of
	// an idle relay, but not the wait of up to 25 milliseconds of a busy relay.
	//
	// Defaults to 250 milliseconds.
	IdlePoll time.Duration

	// Retention is how long published events stay in the log. During that time the log
	// detects an event that is written twice, and the relay can publish an event again if
	// the broker lost it. [KeepForever] keeps all events.
	//
	// Defaults to 72 hours.
	Retention time.Duration

	// DrainTimeout is how long Run waits for acknowledgements after its context ended.
	// The next leader publishes again the events that are not acknowledged in that time.
	//
	// Defaults to 10 seconds.
	DrainTimeout time.Duration

	// Streams are the names of the streams that Check examines. Each subject in use must belong to
	// one of these streams.
	//
	// Defaults to the streams that take the subjects in use.
	Streams []string

	// AcceptRisks lists the stream risks that you accept. With any other risk, the relay does not
	// start if no relay has published events of the log before. Later it starts, and reports the
	// risk.
	//
	// Defaults to none.
	AcceptRisks []broker.Risk

	// CheckEvery is how often Run examines the streams again. If Run finds faults, it
	// logs them, reports them in [Relay.Health], and goes on.
	//
	// Defaults to 1 minute.
	CheckEvery time.Duration

	// Logger receives the log messages of Run: see docs/reference/log-messages.md.
	//
	// Defaults to slog.Default.
	Logger *slog.Logger

	// MeterProvider receives metrics.
	//
	// Defaults to the global provider of OpenTelemetry.
	MeterProvider metric.MeterProvider

	// TracerProvider receives a span for each batch that has an event with a sampled
	// trace. Each event is sent with its own trace context in any case.
	//
	// Defaults to the global provider of OpenTelemetry.
	TracerProvider trace.TracerProvider
}

func (c Config) defaults() Config {
	if c.Atomic {
		c.Window = cmp.Or(c.Window, 3*broker.MaxBatch)
	}
	c.Window = cmp.Or(c.Window, 4096)
	c.MaxUnpublished = cmp.Or(c.MaxUnpublished, 10_000)
	c.Lease = cmp.Or(c.Lease, eventlog.DefaultLease)
	c.IdlePoll = cmp.Or(c.IdlePoll, 250*time.Millisecond)
	c.Retention = cmp.Or(c.Retention, 72*time.Hour)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, 10*time.Second)
	c.CheckEvery = cmp.Or(c.CheckEvery, time.Minute)
	c.Logger = guard.Logger(cmp.Or(c.Logger, slog.Default()))
	return c
}

func (c Config) validate(able broker.Abilities) error {
	var faults []error
	add := func(format string, args ...any) { faults = append(faults, fmt.Errorf("config: "+format, args...)) }
	if c.Window < 1 || c.Window > 100_000 {
		add("Window is %d, want 1 to 100000", c.Window)
	}
	if c.MaxUnpublished < 2*pageSize {
		add("MaxUnpublished is %d, want at least %d", c.MaxUnpublished, 2*pageSize)
	}
	if c.Lease < time.Second {
		add("Lease is %s, want at least 1s", c.Lease)
	}
	if c.IdlePoll < time.Millisecond {
		add("IdlePoll is %s, want at least 1ms", c.IdlePoll)
	}
	if c.DrainTimeout < 0 {
		add("DrainTimeout is %s, want none or more", c.DrainTimeout)
	}
	c.validateChecks(able, add)
	return errors.Join(faults...)
}

// Relay publishes the events of one log. Any number of relays may run for a log, in one process or
// in many. One of them leads at a time. All methods may be called concurrently.
type Relay struct {
	log        eventlog.Source
	pub        broker.Publisher
	cfg        Config
	leaseFixed bool // the user set Config.Lease
	wake       chan struct{}
	preflight  preflight
	metrics    *metrics
	tracer     trace.Tracer
	running    atomic.Bool
	state      healthState
	lines      repeat.Lines
	operator   operatorPause

	timeouts struct{ page, keys, republish adaptiveTimeout }
}

// over returns a relay that moves events from a log to a broker.
func over(log eventlog.Source, pub broker.Publisher, cfg Config) *Relay {
	fixed := cfg.Lease != 0
	cfg = cfg.defaults()
	able := pub.Abilities()
	r := &Relay{
		log:        log,
		pub:        pub,
		cfg:        cfg,
		leaseFixed: fixed,
		wake:       make(chan struct{}, 1),
		metrics:    newMetrics(cfg.MeterProvider),
		tracer:     telemetry.Tracer(cfg.TracerProvider),
		preflight: preflight{
			log: log, pub: pub, abilities: able, cfg: cfg, err: cfg.validate(able), recheck: make(chan struct{}, 1),
		},
	}
	r.preflight.state = &r.state
	r.operator = operatorPause{log: log, lines: &r.lines, logger: cfg.Logger}
	return r
}

// Check reports whether the relay could start. It checks the Config, the log, the broker
// and its streams. A person must fix an error that matches postroom.ErrUnrecoverable. Any
// other error is an outage, and Run would wait until the outage ends. If a stream does
// not exist ([broker.ErrNoStream]) or has no room ([broker.ErrFull]), Run still publishes
// to the other streams. If a relay has published events of the log before, Run starts in spite of
// a stream that a person must fix: it logs the fault and reports it in [Relay.Health].
func (r *Relay) Check(ctx context.Context) error {
	if err := r.preflight.checkParts(ctx); err != nil {
		return err
	}
	faults, err := r.preflight.inspect(ctx)
	if err := errors.Join(append(faults, err)...); err != nil {
		return fmt.Errorf("relay: %w", err)
	}
	return nil
}

// Wake ends the wait between two reads of the log. Call it after a commit in the same
// process, if a few milliseconds matter. It never blocks, and may be called at any time.
func (r *Relay) Wake() {
	select {
	case r.wake <- struct{}{}:
	default: // the relay was woken already
	}
}

// Run publishes events until ctx ends. While another relay leads, it waits.
//
// If an operator pauses the relays of the log (package operator), Run waits for the acknowledgements
// of what it sent, gives up the lease, and waits for the end of the pause.
//
// When ctx ends, Run reads nothing more, waits up to Config.DrainTimeout for the acknowledgements
// of what it sent, records them, gives up the lease and returns nil. It returns an error only if
// [Relay.Check] would return an error that matches postroom.ErrUnrecoverable, if the connection to
// the broker was closed for good, or if another Run has not ended ([ErrRunning]). It logs any
// outage, waits and tries again.
func (r *Relay) Run(ctx context.Context) error {
	if !r.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer r.running.Store(false)
	defer r.watch(ctx)()
	defer r.registerGauges()()

	owner := uuid.NewString()
	for past := newAttempts(r.cfg.Lease, r.leaseFixed); ctx.Err() == nil; {
		r.state.setState(Starting)
		t := leadAttempt{lease: past.lease}
		err := r.preflight.start(ctx)
		if err == nil {
			err = r.serve(ctx, owner, &t)
		}
		if errors.Is(err, postroom.ErrUnrecoverable) {
			return err
		}
		wait := past.add(&t, err)
		switch {
		case ctx.Err() != nil:
			r.logEnd(ctx, err)
			return nil
		case errors.Is(err, broker.ErrReconnected), errors.Is(err, errLost):
			r.cfg.Logger.InfoContext(ctx, "relay starts a new term", "reason", err)
		case err != nil:
			r.state.setErr(err)
			r.lines.Warn(ctx, r.cfg.Logger, "relay interrupted", err, "failures", past.failures, "after", wait)
		}
		sleep.For(ctx, wait)
	}
	return nil
}

// logEnd logs the error that ended the last term, unless the error is only the context's end.
func (r *Relay) logEnd(ctx context.Context, err error) {
	if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		r.cfg.Logger.WarnContext(ctx, "relay stopped without recording its last results", "error", err)
	}
}

// serve waits until this relay leads, leads until the term ends, and sets fields of t.
func (r *Relay) serve(ctx context.Context, owner string, t *leadAttempt) error {
	for {
		switch paused, err := r.operator.ask(ctx); {
		case err != nil:
			return err
		//guard:relay-pause false
		case paused:
			t.stoodBy = true
			r.state.setState(Paused)
			if !sleep.For(ctx, pausesEvery) {
				return nil
			}
			continue
		}
		term, err := r.log.Lead(ctx, owner, t.lease)
		if err == nil {
			r.metrics.takeovers.Add(ctx, 1)
			r.beginTerm(ctx, term, owner, t)
			err := r.operator.interrupt(ctx, newLeader(r, healthTerm{term, &r.state}, t).serve)
			r.metrics.termEnded(ctx, err)
			return err
		}
		if !errors.Is(err, eventlog.ErrLeaseHeld) {
			return err
		}
		if errors.Is(err, eventlog.ErrLeaseShortened) {
			r.cfg.Logger.WarnContext(ctx, "lease of another relay shortened", "reason", eventlog.ErrLeaseShortened)
		}
		t.stoodBy = true
		r.state.setState(Standby)
		// A leader that stops normally gives up the lease at once. This relay then finds the lease
		// free within a second.
		if !sleep.For(ctx, min(r.cfg.Lease/4, 500*time.Millisecond)) {
			return nil
		}
	}
}

// beginTerm notes that a term began, and chooses the length of its lease.
func (r *Relay) beginTerm(ctx context.Context, term eventlog.Term, owner string, t *leadAttempt) {
	t.ledAt, t.roundTrip = term.LeaseStart()
	t.firstLease = t.lease
	needed := eventlog.LeaseFor(t.roundTrip)
	if !r.leaseFixed {
		t.lease = max(t.lease, min(needed, eventlog.LongestLease))
	}
	r.state.beginTerm(t.lease)
	r.cfg.Logger.InfoContext(ctx, "relay leads", "owner", owner)
	switch slow := []any{"lease", t.lease, "round_trip", rounded(t.roundTrip)}; {
	case t.lease < needed:
		r.cfg.Logger.WarnContext(ctx, "lease may be too short", append(slow, "advice", adviseLease(needed))...)
	case t.lease > r.cfg.Lease:
		r.cfg.Logger.WarnContext(ctx, "lease lengthened for a slow database", slow...)
	}
}
