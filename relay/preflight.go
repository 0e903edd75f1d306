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
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/sleep"
	"github.com/postroom/postroom/relay/broker"
)

// preflight checks log, broker and streams when a relay starts and while it runs.
type preflight struct {
	log       eventlog.Source
	pub       broker.Publisher
	abilities broker.Abilities
	cfg       Config
	err       error // what is wrong with the Config
	state     *healthState

	recheck chan struct{} // a value in this channel is a request to check the streams again soon
	covered atomic.Bool   // at least one subject in use, or subject of an earlier event, has a stream
}

// checkParts checks everything except the streams.
func (p *preflight) checkParts(ctx context.Context) error {
	if p.err != nil {
		return fmt.Errorf("relay: %w", postroom.Unrecoverable(p.err))
	}
	if err := errors.Join(guardedCall(func() error { return p.log.Check(ctx) }), guardedCall(func() error { return p.pub.Check(ctx) })); err != nil {
		return fmt.Errorf("relay: %w", err)
	}
	return nil
}

// inspect returns the streams' faults, without accepted risks. The error is an outage.
func (p *preflight) inspect(ctx context.Context) (faults []error, err error) {
	lacking := slices.DeleteFunc(p.missingAbilities(), p.accepted)
	if !p.abilities.Inspects {
		return lacking, nil
	}
	subjects, err := p.log.Subjects(ctx)
	if err != nil {
		return nil, err
	}
	// A subject that is not valid would make the whole check fail.
	subjects = slices.DeleteFunc(subjects, func(s string) bool { return s == "" || postroom.Event{Type: s}.Validate() != nil })
	look := p.pub.Inspect
	if p.cfg.Atomic {
		look = p.pub.InspectAtomic
	}
	covered, faults, err := look(ctx, p.cfg.Streams, subjects)
	//guard:a-stream-that-a-relay-knows-counts false
	if err == nil && !covered {
		covered, err = p.knowsStream(ctx, look)
	}
	if err == nil {
		p.covered.Store(covered)
	}
	return append(lacking, slices.DeleteFunc(faults, p.accepted)...), err
}

// knowsStream reports whether one of the streams exists to which a relay has published events of the log.
// The subjects in use are those of the newest events and of the next ones. All of these may be events of
// one producer that have no stream.
func (p *preflight) knowsStream(ctx context.Context, look func(context.Context, []string, []string) (bool, []error, error)) (bool, error) {
	positions, err := p.log.Positions(ctx)
	if err != nil || len(positions) == 0 {
		return false, err
	}
	names := make([]string, len(positions))
	for i := range positions {
		names[i] = positions[i].Stream
	}
	_, faults, err := look(ctx, names, nil)
	missing := 0
	for _, fault := range faults {
		if errors.Is(fault, broker.ErrNoStream) {
			missing++
		}
	}
	return missing < len(names), err
}

// missingAbilities returns a fault for each way to check streams that the publisher lacks.
func (p *preflight) missingAbilities() (faults []error) {
	lack := func(able bool, risk broker.Risk, cost string) {
		if !able {
			faults = append(faults, postroom.Unrecoverable(fmt.Errorf("%w: %s; use another publisher, or accept the risk: %q in relay.Config.AcceptRisks", risk, cost, string(risk))))
		}
	}
	lack(p.abilities.Inspects, broker.NotInspected, "the publisher cannot examine its streams: if a stream loses what it acknowledged, the relay does not notice")
	lack(p.abilities.Verifies, broker.NotVerified, "the publisher cannot read its streams: if the broker loses events, the relay does not notice and does not publish them again")
	return faults
}

func (p *preflight) accepted(fault error) bool {
	var risk broker.Risk
	return errors.As(fault, &risk) && slices.Contains(p.cfg.AcceptRisks, risk)
}

// validateChecks validates the fields that this file uses.
func (c Config) validateChecks(able broker.Abilities, add func(format string, args ...any)) {
	if c.Atomic && !able.Batches {
		add("Atomic is set, but the publisher cannot publish atomic batches; use the publisher of natsjs, or do not set Atomic")
	}
	for _, name := range c.Streams {
		if name == "" || strings.ContainsAny(name, " .*>/\\\t\r\n") {
			add("Streams holds %q, which is not a stream name", name)
		}
	}
	known := append(slices.Clone(able.Risks), broker.NotInspected, broker.NotVerified)
	for _, risk := range c.AcceptRisks {
		if !slices.Contains(known, risk) {
			add("AcceptRisks holds %q, want one of %q", risk, known)
		}
	}
	if c.CheckEvery < time.Second {
		add("CheckEvery is %s, want at least 1s", c.CheckEvery)
	}
}

// start checks everything before a term. An ErrUnrecoverable of Config, log or broker ends Run. An
// ErrUnrecoverable of a stream ends Run only if no relay has published events of the log yet. Later
// the relay logs the error, reports it in Health, and goes on: the log still has the events that the
// broker may lose, and to stop would delay the events of all other streams. A missing stream never
// ends Run.
func (p *preflight) start(ctx context.Context) error {
	if err := p.checkParts(ctx); err != nil {
		return err
	}
	faults, err := p.inspect(ctx)
	if !p.state.passedCheck() {
		if err := errors.Join(append(p.refused(ctx, faults), err)...); err != nil {
			return fmt.Errorf("relay: %w", err)
		}
	}
	p.report(ctx, faults, err)
	return nil
}

// refused returns those of the faults with which a relay must not start. If it cannot find out
// whether events of the log were published before, the result contains an outage.
func (p *preflight) refused(ctx context.Context, faults []error) []error {
	refused := slices.DeleteFunc(slices.Clone(faults), func(f error) bool { return !errors.Is(f, postroom.ErrUnrecoverable) })
	//guard:a-restart-goes-on-like-a-running-relay true
	if len(refused) == 0 || !p.abilities.Inspects || !p.abilities.Verifies { // a lacking ability is a fault of the program
		return refused
	}
	positions, err := p.log.Positions(ctx)
	switch {
	case err != nil:
		return []error{err}
	case len(positions) > 0:
		return nil
	}
	return refused
}

// faultyCheckEvery is the longest time between two checks while there is a fault. So a person who
// corrects the fault soon sees the result.
const faultyCheckEvery = 5 * time.Second

// watch checks the streams again and again until ctx ends.
func (p *preflight) watch(ctx context.Context) {
	looked := time.Now()
	for {
		asked, alive := p.waitForCheck(ctx, min(p.cfg.CheckEvery, faultyCheckEvery))
		if !alive {
			return
		}
		due := asked || time.Since(looked) >= p.cfg.CheckEvery || p.state.hasFaults()
		if due && p.state.passedCheck() && p.pub.Connected() {
			faults, err := p.inspect(ctx)
			p.report(ctx, faults, err)
			looked = time.Now()
		}
	}
}

// waitForCheck waits for d. If a recheck is requested meanwhile, it waits for at most another
// second, and the result asked is true. The result alive is false if ctx ended.
func (p *preflight) waitForCheck(ctx context.Context, d time.Duration) (asked, alive bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false, false
	case <-timer.C:
		return false, true
	case <-p.recheck:
		return true, sleep.For(ctx, min(d, time.Second))
	}
}

// report stores the faults that inspect found, and logs them if they are new.
func (p *preflight) report(ctx context.Context, faults []error, err error) {
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		p.state.setErr(fmt.Errorf("relay: %w", err))
		p.cfg.Logger.DebugContext(ctx, "streams not checked", "error", err)
		return
	}
	changed := p.state.setFaults(faults)
	switch {
	case changed && len(faults) > 0:
		p.cfg.Logger.WarnContext(ctx, "stream check failed", "faults", errors.Join(faults...))
	case changed:
		p.cfg.Logger.InfoContext(ctx, "stream check passed again")
	}
}
