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
	// Then it delivers the event to another process. A process sends a sign three times in each
	// AckWait. The claims of external handlers, and the lease of the process that reads for an
	// ordered handler, last as long and are renewed as often.
	//
	// Defaults to 30 seconds.
	AckWait time.Duration

	// DrainTimeout is how long Run waits for running handlers after its context ended.
	// Then it cancels their contexts, and their events are delivered again.
	//
	// Defaults to 10 seconds.
	DrainTimeout time.Duration

	// DedupeWindow is how long a handler remembers a decided event, and so recognises it
	// when it comes again. Then the event's inbox row is removed, unless the event is
	// still held. [Subscription.DedupeWindow] gives a handler a time of its own. If two
	// processes give a handler different times, the longer one counts.
	//
	// Defaults to 30 days.
	DedupeWindow time.Duration

	// MaxEventAge is how old an event may be when it is delivered. The inbox row of an
	// older one may be gone, so the event is not run: it is held as dead, of class
	// too_old. Events that were in the stream before the handler existed are exempt.
	// MaxEventAge must be at least one percent shorter than DedupeWindow. If DedupeWindow was
	// shorter before, events from a time whose rows were removed are too old as well. For a
	// handler with a DedupeWindow of its own it is 29 thirtieths of that.
	//
	// Defaults to 29 thirtieths of DedupeWindow, which is 29 days.
	MaxEventAge time.Duration

	// PullBytes is about how many bytes of events all handlers together request from the broker
	// and have in memory, and at least 2 MiB for each handler. It must be well below the
	// server's max_pending (64 MB): the server disconnects a client that has more than that to
	// receive. Over a slow link a handler requests less: what arrives in an eighth of AckWait.
	//
	// PullBytes also limits the held events that all handlers together have claimed, and
	// again the events that run in one transaction with these because they have the same
	// key. Each handler may claim at least 2 MiB, and at least one event of any size. A
	// handler of large events therefore runs fewer at a time than it has workers.
	//
	// Defaults to 32 MiB.
	PullBytes int

	// IdlePoll is how often the inbox looks for held events while none is due. Events
	// that this process holds are run when they are due, without a poll.
	//
	// Defaults to 250 milliseconds.
	IdlePoll time.Duration

	// OnDead is called when an event of one of this inbox's handlers becomes dead, in the
	// transaction in which it does, for instance to write an event about it with
	// outbox.Write. It has 10 seconds, must not end the transaction, and may be called again
	// if the transaction does not commit. Do in it only what belongs to that transaction.
	//
	// If OnDead returns an error, the event does not become dead: its last attempt is made
	// again after a minute. An event that no handler can run, for instance one that is too
	// old, stays in the stream instead and is delivered again. A handler that committed its
	// transaction itself must not run again, so its event becomes dead all the same.
	// OnDead is not called for what an operator does, nor for events that a relay cannot
	// publish.
	//
	// Defaults to nil, which does nothing.
	OnDead func(ctx context.Context, tx pgx.Tx, l Letter) error

	// Logger receives the errors that Run survives, and what it does about them.
	//
	// Defaults to slog.Default.
	Logger *slog.Logger

	// LogOutcomes is the level at which the inbox logs how each delivery ended: one line with
	// the outcome, the event's id, the attempt and how long it took. A slog.Level is a
	// Leveler.
	//
	// Defaults to nil, which logs only what fails.
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
	c.MaxEventAge = cmp.Or(c.MaxEventAge, ageWithin(c.DedupeWindow))
	c.PullBytes = cmp.Or(c.PullBytes, 32<<20)
	c.IdlePoll = cmp.Or(c.IdlePoll, 250*time.Millisecond)
	c.Logger = guard.Logger(cmp.Or(c.Logger, slog.Default()))
	return c
}

// ageWithin returns the greatest age of an event that a DedupeWindow allows by default.
func ageWithin(dedupeWindow time.Duration) time.Duration { return dedupeWindow / 30 * 29 }

// window returns for how long a handler needs its inbox rows.
func (c Config) window(s Subscription) delivery.Window {
	if s.DedupeWindow != 0 {
		return delivery.Window{Handler: s.Name, Keep: s.DedupeWindow, Age: ageWithin(s.DedupeWindow)}
	}
	return delivery.Window{Handler: s.Name, Keep: c.DedupeWindow, Age: c.MaxEventAge}
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
	if c.MaxEventAge <= 0 || c.MaxEventAge > c.DedupeWindow-c.DedupeWindow/100 {
		faults = append(faults, fmt.Errorf("config: MaxEventAge is %s, want at least one percent less than DedupeWindow (%s): an event whose inbox row is gone would be applied again",
			c.MaxEventAge, c.DedupeWindow))
	}
	if c.PullBytes < share.Least {
		faults = append(faults, fmt.Errorf("config: PullBytes is %d, want at least %d", c.PullBytes, share.Least))
	}
	if c.IdlePoll < time.Millisecond {
		faults = append(faults, fmt.Errorf("config: IdlePoll is %s, want at least 1ms", c.IdlePoll))
	}
	return errors.Join(faults...)
}
