package inbox

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/postroom/postroom/internal/guard"
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
	// has to be shorter than Ledger by a hundredth at the least. If Ledger was shorter
	// before, the ledger is not trusted for a time from which rows were removed, either.
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
