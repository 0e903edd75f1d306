// Package measure measures Postroom on given servers. Most figures have a reference: another
// measurement, with which the report compares the figure.
//
// A run measures every chosen figure and every reference once. The next run measures them in
// reverse order. Within a run, the producers' transactions and their references take short turns. A
// ratio compares two measurements of one run, so it is meaningful even if the machine is busy or
// its disk is slow. On such a machine, a figure alone is not meaningful.
//
// All objects that the package creates on the servers (schemas, a stream) have "postroom_bench" in
// their names. The package removes them at the end.
package measure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Limits of a [Config].
const (
	maxEvents = 50_000_000
	maxRuns   = 1000
	maxSpan   = time.Hour
)

// Broker says how to connect to NATS.
type Broker struct {
	// URL is the broker's address.
	URL string

	// SyncedURL is the address of a broker that syncs every message to its disk before it
	// acknowledges the message (sync_interval: always). If SyncedURL is empty, the report leaves
	// out the figures that need this broker.
	SyncedURL string

	// Creds is the path of the file with the user's credentials for both brokers. It may be empty.
	Creds string

	// Where names the place where the broker runs. It is a text for the report.
	Where string
}

// Config says which figures to measure, and on which servers.
type Config struct {
	// Database is the configuration of the connections to PostgreSQL. The role needs CREATE on the
	// database. Required.
	Database *pgxpool.Config

	// Broker says how to connect to NATS. Its URL is required.
	Broker Broker

	// Groups has the names of the groups to measure: see [Groups].
	//
	// Defaults to all.
	Groups []string

	// Only has the names of the figures to measure: see [Names].
	//
	// Defaults to all figures of the groups.
	Only []string

	// Events is the size of the backlog that a relay drains. The backlog of an inbox is a part of
	// this size.
	//
	// Defaults to 200,000.
	Events int

	// Runs is how many times to measure each figure.
	//
	// Defaults to 5.
	Runs int

	// Span is the time of a measurement that would not end by itself.
	//
	// Defaults to 5 seconds.
	Span time.Duration

	// Self is a command line that calls [ServeRelay] with its standard input and output. If Self is
	// empty, Run leaves out the figures that need a relay in a separate process.
	Self []string

	// Progress may be nil. [Run] calls it, in the goroutine of Run's caller, with the number of
	// finished measurements, the total, and the name of the next measurement.
	Progress func(done, total int, next string)

	// Profile, if it is not nil, receives a CPU profile of this process from the measured part of
	// the last run. If Profile is not nil, exactly one figure must be chosen.
	Profile io.Writer

	// Logger is the logger of the relays and inboxes.
	//
	// Defaults to slog.Default.
	Logger *slog.Logger
}

func (c Config) defaults() Config {
	c.Events = cmp.Or(c.Events, 200_000)
	c.Runs = cmp.Or(c.Runs, 5)
	c.Span = cmp.Or(c.Span, 5*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.Progress == nil {
		c.Progress = func(int, int, string) {}
	}
	return c
}

// Validate reports all faults of c. It does no I/O.
func (c Config) Validate() error {
	c = c.defaults()
	var faults []error
	add := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if c.Events < 100 || c.Events > maxEvents {
		add("events: %d, want 100 to %d", c.Events, maxEvents)
	}
	if c.Runs < 1 || c.Runs > maxRuns {
		add("runs: %d, want 1 to %d", c.Runs, maxRuns)
	}
	if c.Span < 100*time.Millisecond || c.Span > maxSpan {
		add("seconds: %s, want 100ms to %s", c.Span, maxSpan)
	}
	for _, group := range c.Groups {
		if !slices.Contains(Groups(), group) {
			add("no such group: %.40q", group)
		}
	}
	for _, name := range c.Only {
		if !slices.Contains(Names(), name) {
			add("no such figure: %.40q", name)
		}
	}
	if len(faults) == 0 {
		if err := c.validateChoice(); err != nil {
			add("%w", err)
		}
	}
	return errors.Join(faults...)
}

func (c Config) validateChoice() error {
	chosen := c.chosen()
	if left := c.leftOut(); len(chosen) == 0 && len(left) > 0 {
		return fmt.Errorf("%s needs a broker that syncs every message (sync_interval: always): give --nats-fsync-url or --dev", strings.Join(left, ", "))
	}
	if len(chosen) == 0 {
		return errors.New("nothing to measure: none of the figures is in these groups")
	}
	if c.Profile == nil {
		return nil
	}
	if len(chosen) != 1 || chosen[0].apart {
		return errors.New("a profile needs exactly one figure, which is measured in this process: name it")
	}
	return nil
}

// ErrLeftBehind says that [Run] could not remove all objects that it had created. The error of Run
// names the objects that are left: remove them by hand.
var ErrLeftBehind = errors.New("some objects that were created could not be removed")

// Run measures the figures that cfg chooses, and removes the objects that it created. It also
// removes them if ctx ends early, and then returns an error that wraps the cause of ctx's end.
func Run(ctx context.Context, cfg Config) (_ *Report, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	cfg = cfg.defaults()
	servers, err := connectTo(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	b := &bench{servers: servers}
	defer func() {
		if closing := b.close(); closing != nil {
			err = errors.Join(err, fmt.Errorf("bench: %w: %w", ErrLeftBehind, closing))
		}
	}()
	report, err := b.run(ctx)
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("bench: %w", context.Cause(ctx))
	}
	if err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	return report, nil
}

// A bench measures figures on servers.
type bench struct {
	*servers

	profiled bool // Config.Profile receives a profile of the next measurement
}

// run measures the chosen figures.
func (b *bench) run(ctx context.Context) (*Report, error) {
	machine, err := b.describe(ctx)
	if err != nil {
		return nil, err
	}
	figures := b.cfg.chosen()
	steps := b.steps(trialsOf(figures))
	samples := make(map[string][]sample)
	total := b.cfg.Runs * len(steps)
	for run := range b.cfg.Runs {
		for i, names := range steps {
			b.cfg.Progress(run*len(steps)+i, total, titleOf(names))
			b.profiled = b.cfg.Profile != nil && run == b.cfg.Runs-1 && names[0] == figures[0].measure()
			found, err := b.measure(ctx, names)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", strings.Join(names, ", "), err)
			}
			for n, name := range names {
				samples[name] = append(samples[name], found[n])
			}
		}
		slices.Reverse(steps) // so that the servers are not always warmer for the same figure
	}
	b.cfg.Progress(total, total, "")

	report := &Report{
		Machine: machine, Events: b.cfg.Events, Runs: b.cfg.Runs, Seconds: b.cfg.Span.Seconds(), LeftOut: b.cfg.leftOut(),
	}
	for _, f := range figures {
		report.Figures = append(report.Figures, f.report(b.cfg, samples[f.measure()], samples[f.against]))
	}
	return report, nil
}

// trialPatience is how long a measurement may take in addition to its span. If it takes longer, a
// broker or a relay makes no progress: that is a failure, and not a slow figure.
const trialPatience = 10 * time.Minute

var errStuck = fmt.Errorf("not done within %s", trialPatience)

// measure runs a trial, or several trials that take turns, and returns a sample of each trial. If a
// relay was interrupted and began a second term, for example because of a slow disk, the method
// measure repeats the trial, and the report says so.
func (b *bench) measure(ctx context.Context, names []string) ([]sample, error) {
	for attempt := 1; ; attempt++ {
		found, err := b.attempt(ctx, names)
		if err == nil && attempt > 1 {
			found[0].addNote("A MEASUREMENT WAS REPEATED, because its relay was interrupted")
		}
		if !errors.Is(err, errTwoTerms) || ctx.Err() != nil || attempt == 3 || b.profiled {
			return found, err
		}
	}
}

func (b *bench) attempt(ctx context.Context, names []string) (found []sample, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(len(names))*b.cfg.Span+trialPatience, errStuck)
	defer cancel()
	if len(names) > 1 {
		found, err = b.takeTurns(ctx, names)
	} else {
		found = make([]sample, 1)
		found[0], err = trials[names[0]](ctx, b)
	}
	if err != nil && ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	return found, err
}

// timed runs the measured part of a trial, with a profile if one is wanted.
func (b *bench) timed(do func() error) error {
	collect()
	if !b.profiled {
		return do()
	}
	if err := pprof.StartCPUProfile(b.cfg.Profile); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	return do()
}
