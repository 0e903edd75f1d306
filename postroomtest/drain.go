package postroomtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/relay"
)

// drainPatience limits the time of a Drain. If go test has an earlier deadline, the Drain ends
// lastWords before that deadline.
const (
	drainPatience = time.Minute
	lastWords     = 10 * time.Second // the time to report what is left
)

// Drain runs relays and inboxes until they have nothing left to do, and then stops them. They have
// nothing left to do when each committed event is published, the inboxes' handlers have decided
// each published event, and no event waits for another attempt or behind an earlier event of its
// key. Events that handlers write meanwhile count too. If Drain takes longer than a minute, or if
// one of the parts fails, Drain ends the test and reports what is left.
//
// Drain does not wait for dead events, but logs how many there are. It does not wait for scheduled
// events.
//
// While Drain runs, only the parts may write to the log or handle events. A part may be any other
// [postroom.Runner] too: Drain runs it beside the relays and inboxes.
func Drain(t testing.TB, parts ...postroom.Runner) {
	t.Helper()
	patience := drainPatience
	if test, ok := t.(interface{ Deadline() (time.Time, bool) }); ok {
		if at, ok := test.Deadline(); ok {
			patience = min(patience, max(time.Until(at)-lastWords, time.Second))
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, p := range parts { // Run would return this error too, but Drain may stop Run before that
		if c, ok := p.(interface {
			Check(ctx context.Context) error
		}); ok {
			if err := c.Check(ctx); errors.Is(err, postroom.ErrUnrecoverable) {
				t.Fatalf("postroomtest: Drain: %v", err)
			}
		}
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- postroom.Run(running, parts...) }()
	left, err := await(ctx, parts, ended)
	stop()
	if stopping := <-ended; err == nil {
		err = stopping
	}
	if err != nil {
		t.Fatalf("postroomtest: Drain: %v", err)
	}
	for _, dead := range left.dead {
		t.Logf("postroomtest: Drain: %s", dead)
	}
}

// remains is the work that parts have left.
type remains struct {
	open     []string // the work for which Drain waits
	dead     []string
	appended int64 // how many seqs the logs have assigned
}

// await waits until the parts have nothing left to do. If it fails, it returns the work that is
// left.
func await(ctx context.Context, parts []postroom.Runner, ended chan error) (remains, error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var left remains
	var fault error
	for {
		now, err := remain(ctx, parts)
		switch {
		case err == nil && len(now.open) == 0:
			return now, nil
		case err == nil || ctx.Err() == nil:
			left, fault = now, err
		}
		select {
		case err := <-ended:
			ended <- nil
			return left, fmt.Errorf("the parts ended before they were done: %w", errors.Join(err, ctx.Err()))
		case <-ctx.Done():
			return left, fmt.Errorf("the parts were not done in time: %w", errors.Join(append([]error{fault}, texts(left.open)...)...))
		case <-tick.C:
		}
	}
}

func texts(open []string) []error {
	all := make([]error, len(open))
	for i, text := range open {
		all[i] = errors.New(text)
	}
	return all
}

// remain asks all parts what they have left to do. Events go from a relay to an inbox, and the
// events of a handler from an inbox to a relay. So nothing is left if first the relays had no work,
// then the inboxes had no work, and no handler wrote an event to the logs meanwhile.
func remain(ctx context.Context, parts []postroom.Runner) (remains, error) {
	before, err := unpublished(ctx, parts)
	if err != nil || len(before.open) > 0 {
		return before, err
	}
	handlers, err := undecided(ctx, parts)
	if err != nil || len(handlers.open) > 0 {
		return handlers, err
	}
	after, err := unpublished(ctx, parts)
	if err == nil && len(after.open) == 0 && after.appended != before.appended {
		after.open = []string{"handlers wrote events"}
	}
	after.dead = append(after.dead, handlers.dead...)
	return after, err
}

// unpublished returns the work that the relays have left.
func unpublished(ctx context.Context, parts []postroom.Runner) (left remains, err error) {
	for _, p := range parts {
		r, ok := p.(*relay.Relay)
		if !ok {
			continue
		}
		lag, err := r.Lag(ctx)
		if err != nil {
			return left, err
		}
		left.appended += lag.Appended
		if lag.Events > 0 {
			left.open = append(left.open, fmt.Sprintf("%d events are not published", lag.Events))
		}
		for _, held := range []struct {
			n   int64
			why string
		}{{lag.Retrying, "retry"}, {lag.Waiting, "key"}} {
			if held.n > 0 {
				left.open = append(left.open, fmt.Sprintf("%d outgoing events are held (%s)", held.n, held.why))
			}
		}
		if lag.Dead > 0 {
			left.dead = append(left.dead, fmt.Sprintf("%d outgoing events are dead: the broker refuses them", lag.Dead))
		}
	}
	return left, nil
}

// undecided returns the work that the inboxes have left.
func undecided(ctx context.Context, parts []postroom.Runner) (left remains, err error) {
	for _, p := range parts {
		in, ok := p.(*inbox.Inbox)
		if !ok {
			continue
		}
		lags, err := in.Lag(ctx)
		if err != nil {
			return left, err
		}
		for _, lag := range lags {
			var open []string
			for _, of := range []struct {
				n    int64
				what string
			}{{lag.Pending, "in the stream"}, {lag.Retrying, "held for another attempt"}, {lag.Waiting, "behind an earlier event of their key"}} {
				if of.n > 0 {
					open = append(open, fmt.Sprintf("%d %s", of.n, of.what))
				}
			}
			if len(open) > 0 {
				left.open = append(left.open, fmt.Sprintf("handler %s has events: %s", lag.Handler, strings.Join(open, ", ")))
			}
			if lag.Dead > 0 {
				left.dead = append(left.dead, fmt.Sprintf("handler %s: %d events are dead", lag.Handler, lag.Dead))
			}
		}
	}
	return left, nil
}
