package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/share"
	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/schema"
)

// Config tunes an [Inbox]. The zero value is ready to use.
type Config struct {
	// Schema is the database schema that holds Postroom's tables.
	//
	// Defaults to "postroom".
	Schema string

	// AckWait is how long the broker waits for a sign of life from a process that has an event.
	// After that time the broker delivers the event again, to any process. The claims of external
	// handlers, and the lease of the process that reads for an ordered handler, last one AckWait. A
	// process sends signs, and renews its claims and leases, three times in each AckWait.
	//
	// Defaults to 30 seconds.
	AckWait time.Duration

	// DrainTimeout is how long Run waits for running handlers after its context ended. After that
	// time Run cancels the handlers' contexts, and their events run again later.
	//
	// Defaults to 10 seconds.
	DrainTimeout time.Duration

	// DedupeWindow is how long a handler remembers a decided event, so that it recognises the event
	// when it comes again. After that time the inbox removes the event's row. If the event is held
	// or in the archive, its row stays. [Subscription.DedupeWindow] sets the time for one handler.
	// If two processes give a handler different times, the longer one counts.
	//
	// An event that is older than 29 thirtieths of the window (29 days of 30) when it is delivered
	// does not run, because its row may be gone: it is held as dead, of class too_old. Events that
	// were in the stream before the handler existed are exempt, until rows of the handler have
	// expired and its reader begins again. So if a handler cannot handle these events within
	// DedupeWindow, set a longer one. If DedupeWindow was shorter in the past, rows of younger
	// events may be gone too. Such events do not run.
	//
	// Defaults to 30 days.
	DedupeWindow time.Duration

	// PullBytes limits, approximately, the bytes of events that all handlers together request from
	// the broker and keep in memory. Each handler gets at least 2 MiB. PullBytes must be well below
	// the server's max_pending (64 MB), because the server disconnects a client for which more
	// bytes wait. Over a slow link a handler requests less: what arrives in an eighth of AckWait.
	//
	// PullBytes also limits the bytes of the held events that all handlers together have claimed.
	// Later events of the same key may run in the transaction of a claimed event. For the bytes of
	// these later events, there is a second limit of the same size. No limit stops a handler from
	// claiming 2 MiB, or one event of any size. An event that does not fit beside running ones is
	// claimed when they end, or after a minute. Because of the limits, a handler of large events
	// may run fewer events than it has workers.
	//
	// Defaults to 32 MiB.
	PullBytes int

	// IdlePoll is how often the inbox looks for held events while none is due. If this process
	// itself held an event, it runs the event as soon as the event is due.
	//
	// Defaults to 250 milliseconds.
	IdlePoll time.Duration

	// OnDead is called when an event of one of this inbox's handlers becomes dead, in the
	// transaction that records this. It can write an event with outbox.Write, for instance. OnDead
	// must return within 10 seconds and must not end the transaction. If the transaction does not
	// commit, the inbox may call OnDead again. So use it only for work in that transaction.
	//
	// If OnDead returns an error, the event does not become dead: after a minute, the inbox repeats
	// the event's last attempt. If there is no attempt to repeat, for instance because the event is
	// too old, it stays in the stream or in the table held, and OnDead is called again later. If a
	// handler itself committed its transaction, the event must not run again, so it becomes dead
	// anyway. If processes end again and again while they record an event's death, the event becomes
	// dead without OnDead. OnDead is not called if an operator makes an event dead or a relay cannot
	// publish it.
	//
	// Defaults to nil, which does nothing.
	OnDead func(ctx context.Context, tx pgx.Tx, l Letter) error

	// Logger receives the errors that do not end Run. The log lines say what Run does about them.
	//
	// Defaults to slog.Default.
	Logger *slog.Logger

	// LogOutcomes is the level at which the inbox logs the outcome of each delivery: one line with
	// the outcome, the event's id, the attempt and its duration. A slog.Level is a Leveler.
	//
	// Defaults to nil: only failures are logged.
	LogOutcomes slog.Leveler

	// MeterProvider receives metrics.
	//
	// Defaults to the global provider of OpenTelemetry.
	MeterProvider metric.MeterProvider

	// TracerProvider receives a span for each run of a handler.
	//
	// Defaults to the global provider of OpenTelemetry.
	TracerProvider trace.TracerProvider
}

func (c Config) defaults() Config {
	c.AckWait = cmp.Or(c.AckWait, 30*time.Second)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, 10*time.Second)
	c.DedupeWindow = cmp.Or(c.DedupeWindow, 30*24*time.Hour)
	c.PullBytes = cmp.Or(c.PullBytes, 32<<20)
	c.IdlePoll = cmp.Or(c.IdlePoll, 250*time.Millisecond)
	c.Logger, c.LogOutcomes = guard.Logger(cmp.Or(c.Logger, slog.Default())), guard.Leveler(c.LogOutcomes)
	return c
}

// window returns how long a handler needs its inbox rows, and how old its events may be.
func (c Config) window(s Subscription) delivery.Window {
	keep := cmp.Or(s.DedupeWindow, c.DedupeWindow)
	return delivery.Window{Handler: s.Name, Keep: keep, Age: keep / 30 * 29}
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
		faults = append(faults, fmt.Errorf("config: DrainTimeout is %s, want 0 or more", c.DrainTimeout))
	}
	if c.DedupeWindow < time.Second {
		faults = append(faults, fmt.Errorf("config: DedupeWindow is %s, want at least 1s", c.DedupeWindow))
	}
	if c.PullBytes < share.Least {
		faults = append(faults, fmt.Errorf("config: PullBytes is %d, want at least %d", c.PullBytes, share.Least))
	}
	if c.IdlePoll < time.Millisecond {
		faults = append(faults, fmt.Errorf("config: IdlePoll is %s, want at least 1ms", c.IdlePoll))
	}
	return errors.Join(faults...)
}
