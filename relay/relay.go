// Package relay moves committed events from a log to a broker.
//
// One relay of a log leads and publishes; the others stand by. The leader reads
// ahead, keeps a bounded window of publishes in flight, at most one for each
// key, and records what the broker acknowledged. An event that is not
// acknowledged is published again, with the same message id, until it is.
//
// This package knows no database and no broker: the log is an [eventlog.Source], the
// broker a [broker.Publisher]. Package outbox has the one, package natsjs the other.
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
	"github.com/postroom/postroom/broker"
	"github.com/postroom/postroom/eventlog"
	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/pause"
	"github.com/postroom/postroom/internal/repeat"
	"github.com/postroom/postroom/internal/telemetry"
)

// ErrRunning is returned by [Relay.Run] while another Run of the same relay is
// under way.
var ErrRunning = errors.New("relay: already running")

// KeepForever is a Config.Retention with which the relay removes nothing from the log.
const KeepForever time.Duration = -1

// Config tunes a [Relay]. The zero value is ready to use.
//
// Wide because each setting stands by itself.
type Config struct {
	// Atomic has events published in atomic batches: up to 1,000 events of one
	// stream under one acknowledgement, any number of them of one key. It is faster
	// where the broker writes each acknowledged message through to the disk, or where
	// many events have one key, and the broker itself refuses a leader that was
	// replaced. The streams have to be made for it: natsjs.EnsureStream does. The
	// publisher has to be able to, as that of natsjs is: see [broker.Abilities].
	//
	// Defaults to single publishes, in a window.
	Atomic bool

	// Window is the most events in flight: sent and not acknowledged. A larger
	// one raises throughput until the broker is busy, and the number of
	// duplicates after a crash. With Atomic a stream is sent two batches at a time, or
	// one where it has several replicas, and the next waits: three at the default.
	//
	// Defaults to 4,096, and with Atomic to 3,000.
	Window int

	// MaxUnpublished is the most events that are read from the log and not
	// published, and so bounds the relay's memory.
	//
	// Defaults to 10,000.
	MaxUnpublished int

	// Lease is for how long a relay that has stopped without a word keeps the
	// others from taking over. The leader renews it three times as often. It has to
	// be long enough for that: ten round trips to the database, or more.
	//
	// Defaults to 5 seconds. If ten round trips to the database take longer, it defaults to
	// that, up to 30 seconds ([LongestLease]). After a term in which the leader could not
	// renew the lease in time, it doubles, and the log says so. The leader stores its lease
	// in the database, and the other relays wait for that one.
	Lease time.Duration

	// IdlePoll is the longest wait between two looks at a log without news. After
	// news the relay looks again within a millisecond, or within 25 where more than
	// 1,500 events come in a second. [Relay.Wake] ends the wait of an idle relay, but not the 25 milliseconds of a busy one.
	//
	// Defaults to 250 milliseconds.
	IdlePoll time.Duration

	// Retention is how long published events stay in the log. For that time an
	// event is known by its id to whoever writes it again, and can be published
	// anew when the broker has lost it. [KeepForever] keeps all.
	//
	// Defaults to 72 hours.
	Retention time.Duration

	// DrainTimeout is how long Run waits for acknowledgements after its context
	// ended. What is not acknowledged by then is published again by whoever leads
	// next.
	//
	// Defaults to 10 seconds.
	DrainTimeout time.Duration

	// Streams are the names of the streams that Check examines. Every subject in
	// use has to be in one of them.
	//
	// Defaults to those that take the subjects in use.
	Streams []string

	// Accept are risks of these streams that are taken knowingly.
	Accept []broker.Risk

	// CheckEvery is how often the streams are examined again while Run is under
	// way. What is found then shows in [Relay.Health] and in the log.
	//
	// Defaults to 1 minute.
	CheckEvery time.Duration

	// Logger receives what Run survives.
	//
	// Defaults to slog.Default.
	Logger *slog.Logger

	// MeterProvider receives metrics.
	//
	// Defaults to the global provider of OpenTelemetry.
	MeterProvider metric.MeterProvider

	// TracerProvider receives a span for each batch that has events of sampled
	// traces in it. The events' own trace contexts travel with them in any case.
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
	c.Lease = cmp.Or(c.Lease, DefaultLease)
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

// Relay publishes the events of one log. Any number may run for a log, in one
// process or in many: one leads at a time.
type Relay struct {
	log        eventlog.Source
	pub        broker.Publisher
	cfg        Config
	leaseFixed bool // Config.Lease was chosen
	wake       chan struct{}
	preflight  preflight
	metrics    *metrics
	tracer     trace.Tracer
	running    atomic.Bool
	state      healthState
	lines      repeat.Lines

	timeouts struct{ page, keys, rewind adaptiveTimeout }
}

// New returns a relay that moves events from a log to a broker. It does no I/O and
// cannot fail: faults of the Config are returned by [Relay.Check] and
// [Relay.Run].
func New(log eventlog.Source, pub broker.Publisher, cfg Config) *Relay {
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
	return r
}

// Check reports whether the relay could start: the Config, the log, the broker
// and its streams. An error that matches postroom.ErrUnrecoverable has to be mended by
// a person; any other is an outage, which Run would wait out. A stream that does
// not exist ([broker.ErrNoStream]) or has no room ([broker.ErrFull]) is such an outage too:
// Run goes on with the others.
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

// Wake ends the wait between two looks at the log. Producers in the same
// process call it after a commit, where a few milliseconds matter. It never
// blocks and may be called at any time, by anyone.
func (r *Relay) Wake() {
	select {
	case r.wake <- struct{}{}:
	default: // a wake-up is waiting already
	}
}

// Run publishes events, or stands by while another relay leads, until ctx ends.
//
// When ctx ends, Run reads nothing more, waits up to Config.DrainTimeout for the
// acknowledgements of what it sent, records them, gives the lease back and
// returns nil. It returns an error only for what [Relay.Check] refuses and for a
// closed connection to the broker; outages it logs and waits out.
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
			r.cfg.Logger.InfoContext(ctx, "relay leads anew, and looks first whether the broker has what it had", "because", err)
		case err != nil:
			r.state.setErr(err)
			r.lines.Warn(ctx, r.cfg.Logger, "relay interrupted, will lead anew", err, "failures", past.failures, "after", wait)
		}
		pause.For(ctx, wait)
	}
	return nil
}

// logEnd reports what went wrong while Run was ending, if anything did. The
// end of the context is no news.
func (r *Relay) logEnd(ctx context.Context, err error) {
	if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		r.cfg.Logger.WarnContext(ctx, "relay left in haste, the next leader may publish some events again", "error", err)
	}
}

// serve stands by until it leads, and leads until the term ends. It notes in t what
// came of it.
func (r *Relay) serve(ctx context.Context, owner string, t *leadAttempt) error {
	for {
		term, err := r.log.Lead(ctx, owner, t.lease)
		if err == nil {
			r.metrics.takeovers.Add(ctx, 1)
			r.beginTerm(ctx, term, owner, t)
			err := newLeader(r, healthTerm{term, &r.state}, t).serve(ctx)
			r.metrics.termEnded(ctx, err)
			return err
		}
		if !errors.Is(err, eventlog.ErrLeaseHeld) {
			return err
		}
		t.stoodBy = true
		r.state.setState(Standby)
		// A clean leave frees the lease at once, and is noticed within a second.
		if !pause.For(ctx, min(r.cfg.Lease/4, 500*time.Millisecond)) {
			return nil
		}
	}
}

// beginTerm notes that a term began, and how long its lease has to be.
func (r *Relay) beginTerm(ctx context.Context, term eventlog.Term, owner string, t *leadAttempt) {
	t.ledAt, t.roundTrip = term.Taken()
	t.firstLease = t.lease
	needed := LeaseFor(t.roundTrip)
	if !r.leaseFixed {
		t.lease = max(t.lease, min(needed, LongestLease))
	}
	r.state.beginTerm(t.lease)
	r.cfg.Logger.InfoContext(ctx, "relay leads", "owner", owner)
	switch slow := []any{"lease", t.lease, "round_trip", rounded(t.roundTrip)}; {
	case t.lease < needed:
		r.cfg.Logger.WarnContext(ctx, "the lease may be too short for this database", append(slow, "advice", adviseLease(needed))...)
	case t.lease > r.cfg.Lease:
		r.cfg.Logger.WarnContext(ctx, "the database is slow: the lease is longer than usual, and so is the take-over after a crash", slow...)
	}
}
