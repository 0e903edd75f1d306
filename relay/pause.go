package relay

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/repeat"
	"github.com/postroom/postroom/internal/sleep"
)

// pausesEvery is how often a relay asks whether an operator has paused it. All relays must
// obey within two seconds.
const pausesEvery = time.Second

// operatorPause stops a relay while an operator pauses the relays of the log. A paused
// relay gives up the lease. So nothing is sent, and after the pause any relay can lead.
type operatorPause struct {
	log    eventlog.Source
	lines  *repeat.Lines
	logger *slog.Logger
	was    bool // the last answer of the log
}

// ask reports whether an operator has paused the relay, and logs each change.
func (o *operatorPause) ask(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	p, paused, err := o.log.Paused(ctx)
	if err != nil {
		return false, fmt.Errorf("ask whether the relay is paused: %w", err)
	}
	switch {
	case paused == o.was:
	case !paused:
		o.logger.InfoContext(ctx, "relay resumed by an operator")
	case p.Until.IsZero():
		o.logger.WarnContext(ctx, "relay paused by an operator", "actor", p.Actor, "reason", p.Reason)
	default:
		o.logger.WarnContext(ctx, "relay paused by an operator", "actor", p.Actor, "reason", p.Reason, "until", p.Until.UTC())
	}
	o.was = paused
	return paused, nil
}

// interrupt calls the function lead with a context that ends when an operator pauses the relay. If
// the log does not answer, it does not end the context, because a relay that cannot reach the log
// soon loses its lease, and then the term ends.
func (o *operatorPause) interrupt(ctx context.Context, lead func(ctx context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		for ; ctx.Err() == nil; sleep.For(ctx, pausesEvery) {
			paused, err := o.ask(ctx)
			if err != nil && ctx.Err() == nil {
				o.lines.Warn(ctx, o.logger, "cannot ask whether the relay is paused", err)
			}
			if paused {
				//guard:relay-pause-term remove
				stop()
			}
		}
	})
	err := lead(ctx)
	stop()
	watching.Wait()
	return err
}
