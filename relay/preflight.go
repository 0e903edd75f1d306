package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/jsremedy"
	"github.com/postroom/postroom/internal/wildcard"
)

// Inspector is a [Publisher] that can look at where events are stored. A
// publisher need not be one.
//
// It is an interface so that the relay knows no broker.
type Inspector interface {
	// Inspect examines the streams of the given names or, without names, those
	// that take the given subjects. Each fault is an error of its own: a
	// [*StreamError], or one that matches [ErrNoStream] for what does not exist.
	// covered reports whether any of the subjects has a stream. err is an outage,
	// after which the faults are not all.
	Inspect(ctx context.Context, streams, subjects []string) (covered bool, faults []error, err error)

	// Connected reports whether there is a connection to the broker. It does no
	// I/O.
	Connected() bool
}

// Connected reports whether the connection is up.
func (p *JetStreamPublisher) Connected() bool { return p.nc.IsConnected() }

// Inspect examines streams as [Inspector] describes. With names it asks for
// nothing but these streams, so that the user of the connection needs no right
// to ask for others.
func (p *JetStreamPublisher) Inspect(ctx context.Context, streams, subjects []string) (covered bool, faults []error, err error) {
	return p.inspect(ctx, streams, subjects, ExamineStream)
}

// inspect examines streams with the given function.
func (p *JetStreamPublisher) inspect(ctx context.Context, streams, subjects []string, examine func(jetstream.StreamConfig) []*StreamError,
) (covered bool, faults []error, err error) {
	js, err := jetstream.New(p.nc)
	if err != nil {
		return false, nil, fmt.Errorf("jetstream: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*ackTimeout)
	defer cancel()
	look := inspection{js: js, examine: examine}
	if len(streams) > 0 {
		err = look.named(ctx, streams, subjects)
	} else {
		err = look.having(ctx, subjects)
	}
	covered = len(wildcard.Uncovered(subjects, look.covered)) < len(subjects)
	return covered, look.faults, err
}

// inspection is one look at the streams.
type inspection struct {
	js      jetstream.JetStream
	examine func(jetstream.StreamConfig) []*StreamError
	covered []string // by the streams looked at
	faults  []error
}

// named examines the streams of the given names.
func (i *inspection) named(ctx context.Context, streams, subjects []string) error {
	for _, name := range streams {
		if err := i.stream(ctx, name); err != nil {
			return err
		}
	}
	if missing := wildcard.Uncovered(subjects, i.covered); len(missing) > 0 {
		i.faults = append(i.faults, fmt.Errorf("%s: not in %s, to which Config.Streams restricts the check: %w",
			someOf(missing), strings.Join(streams, ", "), ErrNoStream))
	}
	return nil
}

// maxMissing is how many subjects without a stream are looked for.
const maxMissing = 10

// having examines the streams that take the given subjects.
func (i *inspection) having(ctx context.Context, subjects []string) error {
	var missing []string
	for _, subject := range subjects {
		if len(wildcard.Uncovered([]string{subject}, i.covered)) == 0 {
			continue
		}
		name, err := i.js.StreamNameBySubject(ctx, subject)
		if err == nil {
			err = i.stream(ctx, name)
		}
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound):
			missing = append(missing, subject)
		case err != nil:
			return explain("look for the stream of "+subject, err)
		}
		if len(missing) == maxMissing {
			break
		}
	}
	if len(missing) > 0 {
		i.faults = append(i.faults, fmt.Errorf("%s: %w", someOf(missing), ErrNoStream))
	}
	return nil
}

// stream examines one stream.
func (i *inspection) stream(ctx context.Context, name string) error {
	s, err := i.js.Stream(ctx, name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		i.faults = append(i.faults, fmt.Errorf("stream %s does not exist: %w", name, ErrNoStream))
		return nil
	case err != nil:
		return explain("look at stream "+name, err)
	}
	cfg := s.CachedInfo().Config
	i.covered = append(i.covered, cfg.Subjects...)
	for _, fault := range i.examine(cfg) {
		i.faults = append(i.faults, fault)
	}
	return nil
}

// explain says of an answer that did not come what may have kept it: the broker
// does not answer who is not allowed to ask.
func explain(what string, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s: %w (may this user publish to $JS.API.STREAM.INFO.* and, unless Config.Streams is set, $JS.API.STREAM.NAMES?)", what, err)
	}
	return fmt.Errorf("%s: %w", what, jsremedy.Explain(err))
}

// someOf lists the first of some subjects.
func someOf(subjects []string) string {
	const most = 5
	text := "subjects " + strings.Join(subjects[:min(most, len(subjects))], ", ")
	if len(subjects) > most {
		text += " and others"
	}
	return text
}

// inspect returns what is wrong with the streams and not accepted. err is an
// outage.
func (r *Relay) inspect(ctx context.Context) (faults []error, err error) {
	inspector, ok := r.pub.(Inspector)
	if !ok {
		return nil, nil
	}
	subjects, err := r.log.Subjects(ctx)
	if err != nil {
		return nil, err
	}
	// One that is none would make the whole look fail.
	subjects = slices.DeleteFunc(subjects, func(s string) bool { return s == "" || postroom.Event{Type: s}.Validate() != nil })
	look := inspector.Inspect
	if batcher, ok := r.pub.(Batcher); ok && r.cfg.Atomic {
		look = batcher.InspectAtomic
	}
	covered, faults, err := look(ctx, r.cfg.Streams, subjects)
	if err == nil {
		r.covered.Store(covered)
	}
	return slices.DeleteFunc(faults, r.accepted), err
}

func (r *Relay) accepted(fault error) bool {
	var risk Risk
	return errors.As(fault, &risk) && slices.Contains(r.cfg.Accept, risk)
}

// validateChecks adds the faults of the fields that this file reads.
func (c Config) validateChecks(add func(format string, args ...any)) {
	for _, name := range c.Streams {
		if name == "" || strings.ContainsAny(name, " .*>/\\\t\r\n") {
			add("Streams holds %q, which is no name of a stream", name)
		}
	}
	for _, risk := range c.Accept {
		if !slices.Contains(Risks(), risk) {
			add("Accept holds %q, want one of %q", risk, Risks())
		}
	}
	if c.CheckEvery < time.Second {
		add("CheckEvery is %s, want at least 1s", c.CheckEvery)
	}
}

// begin is Check as Run needs it. What is refused keeps a relay from its first
// term; afterwards it is drift, of which Health and the log tell, and which
// does not stop the relay: the log has the events that the broker may lose, and
// to stop would hold up the others. A stream that does not exist is waited for.
func (r *Relay) begin(ctx context.Context) error {
	if err := r.checkParts(ctx); err != nil {
		return err
	}
	faults, err := r.inspect(ctx)
	if !r.vitals.wasAdmitted() {
		refused := slices.DeleteFunc(slices.Clone(faults), func(f error) bool { return !errors.Is(f, postroom.ErrRefused) })
		if err := errors.Join(append(refused, err)...); err != nil {
			return fmt.Errorf("relay: %w", err)
		}
	}
	r.note(ctx, faults, err)
	return nil
}

// faultyCheckEvery is Config.CheckEvery while something is wrong, at the most:
// who mends it wants to see that.
const faultyCheckEvery = 5 * time.Second

// watch looks at the streams again and again until ctx ends.
func (r *Relay) watch(ctx context.Context) {
	looked := time.Now()
	for {
		doubt, alive := r.restOrDoubt(ctx, min(r.cfg.CheckEvery, faultyCheckEvery))
		if !alive {
			return
		}
		due := doubt || time.Since(looked) >= r.cfg.CheckEvery || r.vitals.hasFaults()
		if due && r.vitals.wasAdmitted() && r.connected() {
			faults, err := r.inspect(ctx)
			r.note(ctx, faults, err)
			looked = time.Now()
		}
	}
}

// restOrDoubt waits for d, or for a second where there is reason to doubt that
// the streams are as they were found. It reports whether there is, and whether
// ctx still lives.
func (r *Relay) restOrDoubt(ctx context.Context, d time.Duration) (doubt, alive bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false, false
	case <-timer.C:
		return false, true
	case <-r.doubt:
		return true, sleep(ctx, min(d, time.Second))
	}
}

// note keeps what inspect found, and logs what is new in it.
func (r *Relay) note(ctx context.Context, faults []error, err error) {
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		r.vitals.failed(fmt.Errorf("relay: %w", err))
		r.cfg.Logger.DebugContext(ctx, "streams could not be checked", "error", err)
		return
	}
	changed := r.vitals.found(faults)
	switch {
	case changed && len(faults) > 0:
		r.cfg.Logger.WarnContext(ctx, "streams are not as they should be; the relay goes on", "faults", errors.Join(faults...))
	case changed:
		r.cfg.Logger.InfoContext(ctx, "streams are as they should be again")
	}
}
