package measure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom/internal/anylog"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/relay"
	port "github.com/postroom/postroom/relay/broker"
)

// A probe observes a relay. The relay's log and publisher call its functions, if they are not nil.
type probe struct {
	led      func()                    // called when the relay has taken the lease
	read     func(events []port.Event) // called when the relay has read events from the log
	acked    func(seq int64)           // called when the broker has acknowledged an event
	recorded func(n int)               // called after n more events are recorded as published
	logger   *slog.Logger              // the relay's logger; if nil, the logger of the Config
}

// probedLog is a log with a probe.
type probedLog struct {
	*pglog.Log

	probe probe
}

// Lead calls [pglog.Log.Lead] and the probe.
func (l probedLog) Lead(ctx context.Context, owner string, lease time.Duration) (eventlog.Term, error) {
	term, err := l.Log.Lead(ctx, owner, lease)
	if err == nil && l.probe.led != nil {
		l.probe.led()
	}
	return probedTerm{term, l.probe}, err
}

// probedTerm is a term with a probe.
type probedTerm struct {
	eventlog.Term

	probe probe
}

// Read calls [eventlog.Term.Read] and the probe.
func (t probedTerm) Read(ctx context.Context, limit int, into []port.Event) (eventlog.Page, error) {
	page, err := t.Term.Read(ctx, limit, into)
	if err == nil && t.probe.read != nil {
		t.probe.read(page.Events)
	}
	return page, err
}

// Record calls [eventlog.Term.Record] and the probe.
func (t probedTerm) Record(ctx context.Context, p eventlog.Progress) error {
	n := len(p.Published)
	err := t.Term.Record(ctx, p)
	if err == nil && t.probe.recorded != nil {
		t.probe.recorded(n)
	}
	return err
}

// probedPublisher is a publisher with a probe.
type probedPublisher struct {
	port.Publisher

	probe probe
}

// Run calls Run of the [port.Publisher], and the probe for each acknowledgement.
func (p probedPublisher) Run(ctx context.Context, batches <-chan []*port.Message, settle func(f *port.Message, o port.Outcome)) error {
	if p.probe.acked == nil {
		return p.Publisher.Run(ctx, batches, settle)
	}
	return p.Publisher.Run(ctx, batches, func(f *port.Message, o port.Outcome) {
		if o.Class == port.Stored {
			p.probe.acked(f.Seq)
		}
		settle(f, o)
	})
}

// errTwoTerms says that a relay lost its lease or a connection and began a second term. Such a
// measurement does not show the work of one term.
var errTwoTerms = errors.New("the relay was interrupted and began anew")

// relayRun is a running relay, with channels that show its progress.
type relayRun struct {
	*relay.Relay

	led       chan struct{} // closed when the relay has taken the lease
	ledAgain  chan struct{} // closed when the relay has taken the lease once more
	stopped   chan struct{} // closed when the relay has ended
	terminate func() error
}

// start starts a relay with a probe. The caller must stop the relay.
func start(ctx context.Context, b *bench, nc *nats.Conn, schemaName string, p probe) *relayRun {
	r := &relayRun{led: make(chan struct{}), ledAgain: make(chan struct{}), stopped: make(chan struct{})}
	terms, told := 0, p.led
	p.led = func() { // the goroutine of Run calls it
		switch terms++; terms {
		case 1:
			if told != nil {
				told()
			}
			close(r.led)
		case 2:
			close(r.ledAgain)
		}
	}
	r.Relay = anylog.Relay[*relay.Relay](probedLog{b.log(schemaName), p}, publisher(b, nc, p), relay.Config{Logger: cmp.Or(p.logger, b.cfg.Logger), Atomic: b.atomic})

	ctx, cancel := context.WithCancel(ctx)
	var err error
	go func() {
		defer close(r.stopped)
		err = r.Run(ctx)
	}()
	r.terminate = sync.OnceValue(func() error {
		cancel()
		<-r.stopped
		if err == nil && terms > 1 {
			err = errTwoTerms
		}
		if err != nil {
			return fmt.Errorf("relay: %w", err)
		}
		return nil
	})
	return r
}

// stop ends the relay and returns its error.
func (r *relayRun) stop() error { return r.terminate() }

// wait waits until c is closed. It fails if ctx or the relay ends, or a new term begins.
func (r *relayRun) wait(ctx context.Context, c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-r.ledAgain:
		return errTwoTerms
	case <-r.stopped:
		return errors.Join(errors.New("the relay ended"), r.stop())
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
