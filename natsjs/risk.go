package natsjs

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/broker"
	"github.com/postroom/postroom/internal/wildcard"
)

// What can be wrong with a stream, and what relay.Config.Accept can hold of it.
const (
	// InterestRetention: the stream keeps an event for the consumers that exist,
	// and without one acknowledges it and stores nothing.
	InterestRetention broker.Risk = "interest-retention"

	// WorkQueueRetention: the first consumer that acknowledges an event removes
	// it for all.
	WorkQueueRetention broker.Risk = "work-queue-retention"

	// DiscardOld: at a limit of messages or bytes the stream takes a new event
	// and drops an old one, whether it was consumed or not.
	DiscardOld broker.Risk = "discard-old"

	// Rollup: one message with a rollup header replaces all others.
	Rollup broker.Risk = "rollup"

	// AsyncPersistence: an event is acknowledged before it is written.
	AsyncPersistence broker.Risk = "async-persistence"

	// MemoryStorage: a restart of the broker forgets the stream.
	MemoryStorage broker.Risk = "memory-storage"

	// ShortDuplicateWindow: an event that is published again within a second is
	// stored again. None is lost; consumers have more repetitions to sort out.
	ShortDuplicateWindow broker.Risk = "short-duplicate-window"

	// SmallMessages: the stream refuses events that the log takes.
	SmallMessages broker.Risk = "small-messages"
	// SubjectTransform: the stream stores events under another subject than their own.
	// Handlers that ask for the event's do not get them.
	SubjectTransform broker.Risk = "subject-transform"
)

// The risks that cannot be accepted: no event gets through such a stream.
const (
	// NoAcks: the stream does not acknowledge.
	NoAcks broker.Risk = "no-acks"

	// Sealed: the stream takes nothing any more.
	Sealed broker.Risk = "sealed"

	// Mirror: the stream takes its messages from another one.
	Mirror broker.Risk = "mirror"

	// NoAtomicBatches: the stream does not take atomic batches, and Config.Atomic
	// asks for them.
	NoAtomicBatches broker.Risk = "no-atomic-batches"

	// NoLeaseSubject: the stream does not have the subject by which atomic batches are
	// fenced; see [LeaseSubjects].
	NoLeaseSubject broker.Risk = "no-lease-subject"

	// LeaseNotKept: the stream does not keep what is published to that subject.
	LeaseNotKept broker.Risk = "lease-not-kept"
)

// Risks returns the risks that Config.Accept can hold.
func Risks() []broker.Risk {
	var all []broker.Risk
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

// check is a thing that a stream is examined for. found returns what is wrong, or
// nothing.
type check struct {
	risk     broker.Risk
	constant string // its name in Go, where it can be accepted
	found    func(cfg jetstream.StreamConfig) string
	remedy   string
}

// streamChecks is what every stream is examined for.
var streamChecks = []check{
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
	{SubjectTransform, "SubjectTransform", transforms, "remove the transform, or publish to another stream and have this one take its messages from there"},
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

// atomicChecks is what a stream for atomic batches is examined for beside that. An
// age at which messages go, and a limit at which old ones go, are none of it: a
// lease's message that is gone is put there again.
var atomicChecks = []check{
	{NoAtomicBatches, "", func(cfg jetstream.StreamConfig) string {
		return when(!cfg.AllowAtomicPublish, "it does not allow atomic batches")
	}, "allow them with 'postroom stream ensure --atomic' or natsjs.EnsureStream, on a server of version " + minAtomic + " or later, or publish without relay.Config.Atomic"},
	{NoLeaseSubject, "", noLeaseSubject, "add it with 'postroom stream ensure --atomic' or natsjs.EnsureStream"},
	{LeaseNotKept, "", func(cfg jetstream.StreamConfig) string {
		return when(cfg.Retention != jetstream.LimitsPolicy, "its retention does not keep the message by which atomic batches are fenced")
	}, "give it limits retention, or publish without relay.Config.Atomic"},
	{LeaseNotKept, "", func(cfg jetstream.StreamConfig) string {
		return when(cfg.MaxMsgsPerSubject > 0 && cfg.DiscardNewPerSubject && cfg.Discard == jetstream.DiscardNew,
			fmt.Sprintf("it refuses new messages at %d of a subject, and each term adds one to its own", cfg.MaxMsgsPerSubject))
	}, "lift the limit for each subject, or publish without relay.Config.Atomic"},
}

// noLeaseSubject says why the lease's message would not come to where it is looked
// for.
func noLeaseSubject(cfg jetstream.StreamConfig) string {
	subject := LeaseSubjects(cfg.Name)
	if len(wildcard.Uncovered([]string{subject}, cfg.Subjects)) > 0 {
		return "it does not have the subject " + subject + ", by which atomic batches are fenced"
	}
	t := cfg.SubjectTransform
	return when(t != nil && (t.Source == "" || wildcard.Covers(t.Source, subject)), "it stores "+subject+", by which atomic batches are fenced, under another subject")
}

func when(holds bool, problem string) string {
	if holds {
		return problem
	}
	return ""
}

// isTransformed reports whether messages get other subjects in a stream.
func isTransformed(cfg jetstream.StreamConfig) bool {
	t := cfg.SubjectTransform
	return t != nil && t.Destination != cmp.Or(t.Source, ">")
}

func transforms(cfg jetstream.StreamConfig) string {
	if !isTransformed(cfg) {
		return ""
	}
	return fmt.Sprintf("it stores what is published to %s under %s: handlers that ask for an event's own subject do not get it",
		cmp.Or(cfg.SubjectTransform.Source, ">"), cfg.SubjectTransform.Destination)
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
// postroom.ErrUnrecoverable.
type StreamError struct {
	Stream  string      // its name
	Risk    broker.Risk // what is wrong with it
	Problem string      // the same in words
	Remedy  string      // what to change
}

func (e *StreamError) Error() string {
	text := fmt.Sprintf("stream %s: %s: %s", e.Stream, e.Problem, e.Remedy)
	for _, c := range streamChecks {
		if c.risk == e.Risk && c.constant != "" {
			text += fmt.Sprintf(", or accept it: natsjs.%s in relay.Config.Accept, --accept %s for 'postroom relay'", c.constant, c.risk)
		}
	}
	return text
}

// Unwrap returns the Risk.
func (e *StreamError) Unwrap() error { return e.Risk }

// Is reports whether target is postroom.ErrUnrecoverable.
func (e *StreamError) Is(target error) bool { return target == postroom.ErrUnrecoverable }

// ExamineStream returns what is wrong with a stream: what [Relay.Check] refuses,
// unless Config.Accept holds the Risk. It does no I/O.
func ExamineStream(cfg jetstream.StreamConfig) []*StreamError {
	return findFaults(cfg, streamChecks)
}

// ExamineAtomicStream returns what is wrong with a stream for atomic batches: beside
// what [ExamineStream] returns, what Config.Atomic asks for. It does no I/O.
func ExamineAtomicStream(cfg jetstream.StreamConfig) []*StreamError {
	return append(findFaults(cfg, streamChecks), findFaults(cfg, atomicChecks)...)
}

func findFaults(cfg jetstream.StreamConfig, checks []check) []*StreamError {
	var faults []*StreamError
	for _, c := range checks {
		if problem := c.found(cfg); problem != "" {
			faults = append(faults, &StreamError{Stream: cfg.Name, Risk: c.risk, Problem: problem, Remedy: c.remedy})
		}
	}
	return faults
}
