package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/broker"
	"github.com/postroom/postroom/eventlog"
	"github.com/postroom/postroom/internal/pause"
)

// preflight looks whether log, broker and streams are as a relay needs them, at its start
// and while it runs.
type preflight struct {
	log       eventlog.Source
	pub       broker.Publisher
	abilities broker.Abilities
	cfg       Config
	err       error // what is wrong with the Config
	state     *healthState

	recheck chan struct{} // the streams may not be as they were found
	covered atomic.Bool   // a stream was found for some of the subjects in use
}

// checkParts looks at everything but the streams.
func (p *preflight) checkParts(ctx context.Context) error {
	if p.err != nil {
		return fmt.Errorf("relay: %w", postroom.Unrecoverable(p.err))
	}
	if err := errors.Join(guardedCall(func() error { return p.log.Check(ctx) }), guardedCall(func() error { return p.pub.Check(ctx) })); err != nil {
		return fmt.Errorf("relay: %w", err)
	}
	return nil
}

// inspect returns what is wrong with the streams and not accepted. err is an
// outage.
func (p *preflight) inspect(ctx context.Context) (faults []error, err error) {
	lacking := slices.DeleteFunc(p.missingAbilities(), p.accepted)
	if !p.abilities.Inspects {
		return lacking, nil
	}
	subjects, err := p.log.Subjects(ctx)
	if err != nil {
		return nil, err
	}
	// One that is none would make the whole look fail.
	subjects = slices.DeleteFunc(subjects, func(s string) bool { return s == "" || postroom.Event{Type: s}.Validate() != nil })
	look := p.pub.Inspect
	if p.cfg.Atomic {
		look = p.pub.InspectAtomic
	}
	covered, faults, err := look(ctx, p.cfg.Streams, subjects)
	if err == nil {
		p.covered.Store(covered)
	}
	return append(lacking, slices.DeleteFunc(faults, p.accepted)...), err
}

// missingAbilities returns what the publisher cannot do and what that costs, as faults.
func (p *preflight) missingAbilities() (faults []error) {
	lack := func(able bool, risk broker.Risk, cost string) {
		if !able {
			faults = append(faults, postroom.Unrecoverable(fmt.Errorf("%w: %s; use another publisher, or accept it: %q in relay.Config.Accept", risk, cost, string(risk))))
		}
	}
	lack(p.abilities.Inspects, broker.NotInspected, "the publisher cannot look at its streams, and nobody notices that one of them loses what it acknowledges")
	lack(p.abilities.Verifies, broker.NotVerified, "the publisher cannot tell what its streams have, and what the broker loses is not noticed and not published again")
	return faults
}

func (p *preflight) accepted(fault error) bool {
	var risk broker.Risk
	return errors.As(fault, &risk) && slices.Contains(p.cfg.Accept, risk)
}

// validateChecks adds the faults of the fields that this file reads.
func (c Config) validateChecks(able broker.Abilities, add func(format string, args ...any)) {
	if c.Atomic && !able.Batches {
		add("Atomic is set, and the publisher publishes no atomic batches; use that of natsjs, or leave Atomic unset")
	}
	for _, name := range c.Streams {
		if name == "" || strings.ContainsAny(name, " .*>/\\\t\r\n") {
			add("Streams holds %q, which is no name of a stream", name)
		}
	}
	known := append(slices.Clone(able.Risks), broker.NotInspected, broker.NotVerified)
	for _, risk := range c.Accept {
		if !slices.Contains(known, risk) {
			add("Accept holds %q, want one of %q", risk, known)
		}
	}
	if c.CheckEvery < time.Second {
		add("CheckEvery is %s, want at least 1s", c.CheckEvery)
	}
}

// start is Check as Run needs it. What is refused keeps a relay from its first
// term; afterwards it is drift, of which Health and the log tell, and which
// does not stop the relay: the log has the events that the broker may lose, and
// to stop would hold up the others. A stream that does not exist is waited for.
func (p *preflight) start(ctx context.Context) error {
	if err := p.checkParts(ctx); err != nil {
		return err
	}
	faults, err := p.inspect(ctx)
	if !p.state.passedCheck() {
		refused := slices.DeleteFunc(slices.Clone(faults), func(f error) bool { return !errors.Is(f, postroom.ErrUnrecoverable) })
		if err := errors.Join(append(refused, err)...); err != nil {
			return fmt.Errorf("relay: %w", err)
		}
	}
	p.report(ctx, faults, err)
	return nil
}

// faultyCheckEvery is Config.CheckEvery while something is wrong, at the most:
// who mends it wants to see that.
const faultyCheckEvery = 5 * time.Second

// watch looks at the streams again and again until ctx ends.
func (p *preflight) watch(ctx context.Context) {
	looked := time.Now()
	for {
		doubt, alive := p.waitForCheck(ctx, min(p.cfg.CheckEvery, faultyCheckEvery))
		if !alive {
			return
		}
		due := doubt || time.Since(looked) >= p.cfg.CheckEvery || p.state.hasFaults()
		if due && p.state.passedCheck() && p.pub.Connected() {
			faults, err := p.inspect(ctx)
			p.report(ctx, faults, err)
			looked = time.Now()
		}
	}
}

// waitForCheck waits for d, or for a second where there is reason to doubt that
// the streams are as they were found. It reports whether there is, and whether
// ctx still lives.
func (p *preflight) waitForCheck(ctx context.Context, d time.Duration) (doubt, alive bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false, false
	case <-timer.C:
		return false, true
	case <-p.recheck:
		return true, pause.For(ctx, min(d, time.Second))
	}
}

// report keeps what inspect found, and logs what is new in it.
func (p *preflight) report(ctx context.Context, faults []error, err error) {
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		p.state.setErr(fmt.Errorf("relay: %w", err))
		p.cfg.Logger.DebugContext(ctx, "streams could not be checked", "error", err)
		return
	}
	changed := p.state.setFaults(faults)
	switch {
	case changed && len(faults) > 0:
		p.cfg.Logger.WarnContext(ctx, "streams are not as they should be; the relay goes on", "faults", errors.Join(faults...))
	case changed:
		p.cfg.Logger.InfoContext(ctx, "streams are as they should be again")
	}
}
