package natsjs

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/wildcard"
	"github.com/postroom/postroom/relay/broker"
)

// The risks of a stream that relay.Config.AcceptRisks can list.
const (
	// InterestRetention means that the stream keeps an event only for existing consumers. If
	// there is no consumer, the stream acknowledges the event and does not store it.
	InterestRetention broker.Risk = "interest-retention"

	// WorkQueueRetention means that the first consumer that acknowledges an event removes
	// it for all other consumers.
	WorkQueueRetention broker.Risk = "work-queue-retention"

	// DiscardOld means that at a limit of messages or bytes the stream drops an old event
	// to store a new one, even if no consumer has read the old event.
	DiscardOld broker.Risk = "discard-old"

	// Rollup means that one message with a rollup header can remove all other messages.
	Rollup broker.Risk = "rollup"

	// AsyncPersistence means that the stream acknowledges an event before it writes the event.
	AsyncPersistence broker.Risk = "async-persistence"

	// MemoryStorage means that the events are gone after a restart of the broker.
	MemoryStorage broker.Risk = "memory-storage"

	// ShortDuplicateWindow means that the duplicate window is shorter than a second. If an event is
	// published again after this window, the stream stores it twice. No event is lost.
	ShortDuplicateWindow broker.Risk = "short-duplicate-window"

	// SmallMessages means that the stream, or the server, refuses large events that the log accepts.
	SmallMessages broker.Risk = "small-messages"

	// SubjectTransform means that the stream stores events under a different subject.
	// Handlers that subscribe to an event's own subject do not get it.
	SubjectTransform broker.Risk = "subject-transform"
)

// The risks that cannot be accepted, because a relay cannot work with such a stream.
const (
	// NoAcks means that the stream does not acknowledge.
	NoAcks broker.Risk = "no-acks"

	// Sealed means that the stream takes no more messages.
	Sealed broker.Risk = "sealed"

	// Mirror means that the stream takes its messages from another stream.
	Mirror broker.Risk = "mirror"

	// NoAtomicBatches means that the stream does not allow atomic batches, which
	// Config.Atomic needs.
	NoAtomicBatches broker.Risk = "no-atomic-batches"

	// NoLeaseSubject means that the stream does not take the lease subject, which atomic
	// batches need; see [LeaseSubjects].
	NoLeaseSubject broker.Risk = "no-lease-subject"

	// LeaseNotKept means that the stream does not keep the messages on the lease subject.
	LeaseNotKept broker.Risk = "lease-not-kept"
)

// Risks returns the risks that relay.Config.AcceptRisks can list.
func Risks() []broker.Risk {
	var all []broker.Risk
	for _, c := range streamChecks {
		if c.constant != "" {
			all = append(all, c.risk)
		}
	}
	return all
}

// maxMessage is the size of the largest message of an event: 960 KiB of data and 64 KiB of headers.
const maxMessage = postroom.MaxData + 64<<10

// minDuplicates is the shortest duplicate window that covers the first retry of an event.
const minDuplicates = time.Second

// A check examines a stream for one risk. Its function found returns the problem, or "" for none.
type check struct {
	risk     broker.Risk
	constant string // the risk's name in Go, if the risk can be accepted
	found    func(cfg jetstream.StreamConfig) string
	remedy   string
}

// streamChecks are the checks of every stream.
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
	}, "sealing cannot be undone: when the handlers have read the stream ('postroom handlers'), delete it and create it again with 'postroom stream ensure'; the relay then publishes the events of the log to it"},
	{Mirror, "", func(cfg jetstream.StreamConfig) string {
		return when(cfg.Mirror != nil, "it is a mirror, and takes no events")
	}, "publish to the stream that it mirrors"},
}

// atomicChecks are the additional checks for atomic batches. They allow a stream that removes old
// messages: if the message on the lease subject is gone, the leader publishes it again.
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

// noLeaseSubject says why the stream would not store the lease message under its subject.
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

// isTransformed reports whether a stream changes the subjects of messages.
func isTransformed(cfg jetstream.StreamConfig) bool {
	t := cfg.SubjectTransform
	return t != nil && t.Destination != cmp.Or(t.Source, ">")
}

func transforms(cfg jetstream.StreamConfig) string {
	//guard:the-check-finds-transforms true
	if !isTransformed(cfg) {
		return ""
	}
	return fmt.Sprintf("it stores what is published to %s under %s: handlers that ask for an event's own subject do not get it",
		cmp.Or(cfg.SubjectTransform.Source, ">"), cfg.SubjectTransform.Destination)
}

// dropsPerSubject reports whether a stream drops the oldest messages of a subject at a limit.
func dropsPerSubject(cfg jetstream.StreamConfig) bool {
	return cfg.MaxMsgsPerSubject > 0 && (cfg.Discard == jetstream.DiscardOld || !cfg.DiscardNewPerSubject)
}

// replaces reports whether a message can replace earlier ones of its subject.
func replaces(cfg jetstream.StreamConfig) bool { return dropsPerSubject(cfg) || cfg.AllowRollup }

// dropsOld says at which limits a stream drops old events. At a limit per subject, a stream
// can drop old events even if it refuses new events at its other limits.
func dropsOld(cfg jetstream.StreamConfig) string {
	var limits []string
	if cfg.Discard == jetstream.DiscardOld && cfg.MaxMsgs > 0 {
		limits = append(limits, fmt.Sprintf("%d messages", cfg.MaxMsgs))
	}
	if cfg.Discard == jetstream.DiscardOld && cfg.MaxBytes > 0 {
		limits = append(limits, fmt.Sprintf("%d bytes", cfg.MaxBytes))
	}
	if dropsPerSubject(cfg) {
		limits = append(limits, fmt.Sprintf("%d messages of a subject", cfg.MaxMsgsPerSubject))
	}
	if len(limits) == 0 {
		return ""
	}
	return "it drops old events to take new ones, at " + strings.Join(limits, " and ")
}

// StreamError is a fault of a stream. It matches its Risk and postroom.ErrUnrecoverable with
// errors.Is.
type StreamError struct {
	Stream  string      // the stream's name
	Risk    broker.Risk // what is wrong with the stream
	Problem string      // what is wrong, in words
	Remedy  string      // what to change
}

func (e *StreamError) Error() string {
	text := fmt.Sprintf("stream %s: %s: %s", e.Stream, e.Problem, e.Remedy)
	for _, c := range streamChecks {
		if c.risk == e.Risk && c.constant != "" {
			text += fmt.Sprintf(", or accept it: natsjs.%s in relay.Config.AcceptRisks, --accept %s for 'postroom relay'", c.constant, c.risk)
		}
	}
	return text
}

// Unwrap returns the Risk.
func (e *StreamError) Unwrap() error { return e.Risk }

// Is reports whether target is postroom.ErrUnrecoverable.
func (e *StreamError) Is(target error) bool { return target == postroom.ErrUnrecoverable }

// ExamineStream returns the faults of a stream. relay.Relay.Check returns each fault as
// an error, unless relay.Config.AcceptRisks lists its Risk. ExamineStream does no I/O.
func ExamineStream(cfg jetstream.StreamConfig) []*StreamError {
	return findFaults(cfg, streamChecks)
}

// examineAtomicStream returns the faults of a stream for relay.Config.Atomic: the faults that
// [ExamineStream] returns, and those that matter only for atomic batches.
func examineAtomicStream(cfg jetstream.StreamConfig) []*StreamError {
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
