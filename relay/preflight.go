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
	"github.com/postroom/postroom/internal/wildcard"
)

// Risk names a setting of a stream under which events are acknowledged and lost
// all the same, or not taken at all. [Relay.Check] refuses such a stream, unless
// Config.Accept holds the risk. A Risk is an error, for errors.Is.
type Risk string

// The risks that Config.Accept can hold.
const (
	// InterestRetention: the stream keeps an event for the consumers that exist,
	// and without one acknowledges it and stores nothing.
	InterestRetention Risk = "interest-retention"

	// WorkQueueRetention: the first consumer that acknowledges an event removes
	// it for all.
	WorkQueueRetention Risk = "work-queue-retention"

	// DiscardOld: at a limit of messages or bytes the stream takes a new event
	// and drops an old one, whether it was consumed or not.
	DiscardOld Risk = "discard-old"

	// Rollup: one message with a rollup header replaces all others.
	Rollup Risk = "rollup"

	// AsyncPersistence: an event is acknowledged before it is written.
	AsyncPersistence Risk = "async-persistence"

	// MemoryStorage: a restart of the broker forgets the stream.
	MemoryStorage Risk = "memory-storage"

	// ShortDuplicateWindow: an event that is published again within a second is
	// stored again. None is lost; consumers have more repetitions to sort out.
	ShortDuplicateWindow Risk = "short-duplicate-window"

	// SmallMessages: the stream refuses events that the log takes.
	SmallMessages Risk = "small-messages"
)

// The risks that cannot be accepted: no event gets through such a stream.
const (
	// NoAcks: the stream does not acknowledge.
	NoAcks Risk = "no-acks"

	// Sealed: the stream takes nothing any more.
	Sealed Risk = "sealed"

	// Mirror: the stream takes its messages from another one.
	Mirror Risk = "mirror"
)

func (r Risk) Error() string { return string(r) }

// Risks returns the risks that Config.Accept can hold.
func Risks() []Risk {
	var all []Risk
	for _, c := range streamChecks {
		if c.constant != "" {
			all = append(all, c.risk)
		}
	}
	return all
}

// maxMessage is the largest message that an event can make: 960 KiB of data and
// 64 KiB of headers.
const maxMessage = postroom.MaxData + 64<<10

// minDuplicates is the shortest duplicate window in which an event that failed
// once can be published again.
const minDuplicates = time.Second

// streamChecks is what a stream is examined for. found returns what is wrong,
// or nothing.
var streamChecks = []struct {
	risk     Risk
	constant string // its name in Go, where it can be accepted
	found    func(cfg jetstream.StreamConfig) string
	remedy   string
}{
	{InterestRetention, "InterestRetention", func(cfg jetstream.StreamConfig) string {
		return when(cfg.Retention == jetstream.InterestPolicy, "it has interest retention: without a consumer it acknowledges events and stores none")
	}, "give it limits retention"},
	{WorkQueueRetention, "WorkQueueRetention", func(cfg jetstream.StreamConfig) string {
		return when(cfg.Retention == jetstream.WorkQueuePolicy, "it has work-queue retention: one consumer takes events away from all others, and from repair")
	}, "give it limits retention"},
	{DiscardOld, "DiscardOld", dropsOld, "set its discard policy to new (and discard new per subject, for a limit per subject), or lift the limit"},
	{Rollup, "Rollup", func(cfg jetstream.StreamConfig) string {
		return when(cfg.AllowRollup, "it allows rollups: one message can replace all others")
	}, "disallow them (a stream that allows message schedules cannot; use another stream for those)"},
	{AsyncPersistence, "AsyncPersistence", func(cfg jetstream.StreamConfig) string {
		return when(cfg.PersistMode == jetstream.AsyncPersistMode, "it acknowledges events before they are written (persist mode async)")
	}, "use the default persist mode"},
	{MemoryStorage, "MemoryStorage", func(cfg jetstream.StreamConfig) string {
		return when(cfg.Storage == jetstream.MemoryStorage, "it is stored in memory: a restart of the broker forgets its events")
	}, "store it in files"},
	{ShortDuplicateWindow, "ShortDuplicateWindow", func(cfg jetstream.StreamConfig) string {
		return when(cfg.Mirror == nil && cfg.Duplicates < minDuplicates,
			fmt.Sprintf("its duplicate window is %s: an event that is published again is stored again", cfg.Duplicates))
	}, "give it a duplicate window of 2m"},
	{SmallMessages, "SmallMessages", func(cfg jetstream.StreamConfig) string {
		return when(cfg.MaxMsgSize > 0 && cfg.MaxMsgSize < maxMessage,
			fmt.Sprintf("it refuses messages above %d bytes, and an event can have %d", cfg.MaxMsgSize, maxMessage))
	}, fmt.Sprintf("set its maximum message size to %d, or to none", maxMessage)},
	{NoAcks, "", func(cfg jetstream.StreamConfig) string {
		return when(cfg.NoAck, "it acknowledges nothing: no event would ever count as published")
	}, "make it acknowledge"},
	{Sealed, "", func(cfg jetstream.StreamConfig) string {
		return when(cfg.Sealed, "it is sealed, and takes no events")
	}, "create another stream; sealing cannot be undone"},
	{Mirror, "", func(cfg jetstream.StreamConfig) string {
		return when(cfg.Mirror != nil, "it is a mirror, and takes no events")
	}, "publish to the stream that it mirrors"},
}

func when(holds bool, problem string) string {
	if holds {
		return problem
	}
	return ""
}

// dropsOld says which limit of a stream drops old events. A limit per subject
// does so even where the stream as a whole refuses new ones.
func dropsOld(cfg jetstream.StreamConfig) string {
	var limits []string
	if cfg.Discard == jetstream.DiscardOld && cfg.MaxMsgs > 0 {
		limits = append(limits, fmt.Sprintf("%d messages", cfg.MaxMsgs))
	}
	if cfg.Discard == jetstream.DiscardOld && cfg.MaxBytes > 0 {
		limits = append(limits, fmt.Sprintf("%d bytes", cfg.MaxBytes))
	}
	if cfg.MaxMsgsPerSubject > 0 && (cfg.Discard == jetstream.DiscardOld || !cfg.DiscardNewPerSubject) {
		limits = append(limits, fmt.Sprintf("%d messages of a subject", cfg.MaxMsgsPerSubject))
	}
	if len(limits) == 0 {
		return ""
	}
	return "it drops old events to take new ones, at " + strings.Join(limits, " and ")
}

// StreamError is a fault of a stream. errors.Is holds for its Risk and for
// postroom.ErrRefused.
type StreamError struct {
	Stream  string // its name
	Risk    Risk   // what is wrong with it
	Problem string // the same in words
	Remedy  string // what to change
}

func (e *StreamError) Error() string {
	text := fmt.Sprintf("stream %s: %s: %s", e.Stream, e.Problem, e.Remedy)
	for _, c := range streamChecks {
		if c.risk == e.Risk && c.constant != "" {
			text += fmt.Sprintf(", or accept it: relay.%s in relay.Config.Accept, --accept %s for 'postroom relay'", c.constant, c.risk)
		}
	}
	return text
}

// Unwrap returns the Risk.
func (e *StreamError) Unwrap() error { return e.Risk }

// Is reports whether target is postroom.ErrRefused.
func (e *StreamError) Is(target error) bool { return target == postroom.ErrRefused }

// streamFaults examines a stream.
func streamFaults(cfg jetstream.StreamConfig) []error {
	var faults []error
	for _, c := range streamChecks {
		if problem := c.found(cfg); problem != "" {
			faults = append(faults, &StreamError{Stream: cfg.Name, Risk: c.risk, Problem: problem, Remedy: c.remedy})
		}
	}
	return faults
}

// Inspector is a [Publisher] that can look at where events are stored. A
// publisher need not be one.
//
// It is an interface so that the relay knows no broker.
type Inspector interface {
	// Inspect examines the streams of the given names or, without names, those
	// that take the given subjects. Each fault is an error of its own: a
	// [*StreamError], or one that matches [ErrNoStream] for what does not exist.
	// err is an outage, after which the faults are not all.
	Inspect(ctx context.Context, streams, subjects []string) (faults []error, err error)

	// Connected reports whether there is a connection to the broker. It does no
	// I/O.
	Connected() bool
}

// Connected reports whether the connection is up.
func (p *JetStreamPublisher) Connected() bool { return p.nc.IsConnected() }

// Inspect examines streams as [Inspector] describes. With names it asks for
// nothing but these streams, so that the user of the connection needs no right
// to ask for others.
func (p *JetStreamPublisher) Inspect(ctx context.Context, streams, subjects []string) (faults []error, err error) {
	js, err := jetstream.New(p.nc)
	if err != nil {
		return nil, fmt.Errorf("jetstream: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*ackTimeout)
	defer cancel()
	look := inspection{js: js}
	if len(streams) > 0 {
		err = look.named(ctx, streams, subjects)
	} else {
		err = look.having(ctx, subjects)
	}
	return look.faults, err
}

// inspection is one look at the streams.
type inspection struct {
	js      jetstream.JetStream
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
	i.faults = append(i.faults, streamFaults(cfg)...)
	return nil
}

// explain says of an answer that did not come what may have kept it: the broker
// does not answer who is not allowed to ask.
func explain(what string, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s: %w (may this user publish to $JS.API.STREAM.INFO.* and, unless Config.Streams is set, $JS.API.STREAM.NAMES?)", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
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

// Catalog is a [Source] that knows which subjects its events have. A source
// need not be one; then the streams are those of Config.Streams.
//
// It is an interface so that this package holds no SQL.
type Catalog interface {
	// Subjects returns subjects that are in use, each once. It may leave out
	// those that were not used lately.
	Subjects(ctx context.Context) ([]string, error)
}

// inspect returns what is wrong with the streams and not accepted. err is an
// outage.
func (r *Relay) inspect(ctx context.Context) (faults []error, err error) {
	inspector, ok := r.pub.(Inspector)
	if !ok {
		return nil, nil
	}
	var subjects []string
	if r.catalog != nil {
		if subjects, err = r.catalog.Subjects(ctx); err != nil {
			return nil, err
		}
	}
	faults, err = inspector.Inspect(ctx, r.cfg.Streams, subjects)
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
	for sleep(ctx, min(r.cfg.CheckEvery, faultyCheckEvery)) {
		due := time.Since(looked) >= r.cfg.CheckEvery || r.vitals.hasFaults()
		if due && r.vitals.wasAdmitted() && r.connected() {
			faults, err := r.inspect(ctx)
			r.note(ctx, faults, err)
			looked = time.Now()
		}
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
