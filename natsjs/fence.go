package natsjs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/sleep"
	"github.com/postroom/postroom/internal/wire"
	"github.com/postroom/postroom/natsjs/internal/replies"
	"github.com/postroom/postroom/relay/broker"
)

// With these headers, the broker checks the last message of a subject before it stores a message.
const (
	expectedSequence = "Nats-Expected-Last-Subject-Sequence"
	expectedSubject  = "Nats-Expected-Last-Subject-Sequence-Subject"
	expectedStream   = "Nats-Expected-Stream"
)

const (
	codeFenced    = 10071 // the last message of the subject is a different one
	codeInProcess = 10164 // a message with the same fence is being stored
	codeRepeated  = 10201 // a message of the batch has an id that is stored already
	codeTooMany   = 10199 // a batch is longer than the server allows
	codeNoRoom    = 10077 // the stream or the subject is full
)

var (
	// ErrStreamReplaced means that a stream was deleted and created again after the term
	// began. The term ends.
	ErrStreamReplaced = errors.New("the stream was deleted and created again")

	// ErrNotAtomic means that a stream is not set up for atomic batches. 'postroom stream
	// ensure --atomic' or [EnsureStream] changes that.
	ErrNotAtomic = errors.New("the stream is not set up for atomic batches; change that with 'postroom stream ensure --atomic' or natsjs.EnsureStream")
)

// LeaseSubjects returns the subject filter that a stream needs for atomic batches. In each term,
// the leader publishes a message to a subject that matches the filter. Consumers can ignore this
// message.
func LeaseSubjects(stream string) string { return wire.LeasePrefix + "*." + stream }

// A fence prevents a leader that was replaced from storing anything in a stream. In each term, the
// leader publishes the lease message on a subject that only its log uses. With each batch or single
// event, the leader asks the broker to store this batch or event only if the lease message is still
// the last message on that subject.
type fence struct {
	run     *atomicRun
	stream  string
	created time.Time // the stream's time of creation, as the term read it first
	subject string
	seq     uint64 // the sequence of the term's lease message; 0 if there is none

	replicas int // the stream's number of replicas
}

// take publishes the lease message, in three steps: it reads the last message of the subject,
// confirms that the term still leads, and publishes on the condition that the last message has not
// changed. If the process stalls between two steps and another leader replaces it, the broker
// refuses the third step.
func (f *fence) take(ctx context.Context) error {
	f.seq = 0
	ctx, cancel := context.WithTimeout(ctx, 2*ackTimeout)
	defer cancel()
	for races := 0; ; races++ {
		err := f.try(ctx)
		var refused *BrokerError
		if !errors.As(err, &refused) || refused.Code != codeFenced && refused.Code != codeInProcess || races == maxRaces || !sleep.For(ctx, processWait) {
			return err
		}
	}
}

// maxRaces is how often the method take tries again because another message was published first.
const maxRaces = 10

func (f *fence) try(ctx context.Context) error {
	last, err := f.look(ctx)
	if err != nil {
		return err
	}
	if last == 0 {
		// The publish at the end names the last message of the subject as its condition. Without a
		// last message (it may have become too old), the broker could not refuse a leader that
		// stalled. So the method put publishes a message first.
		if _, err := f.put(ctx, 0); err != nil {
			return err
		}
		if last, err = f.look(ctx); err != nil {
			return err
		}
	}
	if last == 0 {
		return fmt.Errorf("stream %s: %w: it does not keep its lease message", f.stream, ErrNotAtomic)
	}
	//guard:the-lease-is-confirmed-inside-the-fence remove
	if err := f.run.token.Confirm(ctx); err != nil {
		return err
	}
	f.seq, err = f.put(ctx, last)
	return err
}

// look returns the sequence of the last message of the subject, or 0 if there is none. If the
// stream was created again, look returns an error.
func (f *fence) look(ctx context.Context) (last uint64, err error) {
	stream, err := f.run.js.Stream(ctx, f.stream)
	if err != nil {
		return 0, fmt.Errorf("look at stream %s: %w", f.stream, err)
	}
	info := stream.CachedInfo()
	switch {
	case f.created.IsZero():
		f.created = info.Created
	//guard:a-stream-that-was-replaced-ends-the-term false
	case !f.created.Equal(info.Created):
		return 0, fmt.Errorf("stream %s: %w", f.stream, ErrStreamReplaced)
	}
	if faults := findFaults(info.Config, atomicChecks); len(faults) > 0 {
		return 0, fmt.Errorf("%w: %w", ErrNotAtomic, faults[0])
	}
	f.replicas = info.Config.Replicas
	// If a stream is created again, it soon reaches the sequences that it had before. So the
	// subject contains the stream's time of creation.
	f.subject = wire.LeasePrefix + f.run.token.Instance + "-" + strconv.FormatInt(info.Created.UnixNano(), 36) + "." + f.stream
	msg, err := stream.GetLastMsgForSubject(ctx, f.subject)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("look at the lease in stream %s: %w", f.stream, err)
	}
	return msg.Sequence, nil
}

// put publishes on the lease subject if the last message there has the given sequence.
func (f *fence) put(ctx context.Context, last uint64) (seq uint64, err error) {
	reply := f.run.replies.Expect(nil, f.subject)
	defer f.run.replies.Drop(reply)
	err = f.run.p.nc.PublishMsg(&nats.Msg{
		Subject: f.subject, Reply: f.run.replies.Subject(reply, false),
		Header: nats.Header{expectedSequence: {strconv.FormatUint(last, 10)}, expectedStream: {f.stream}},
		Data:   fmt.Appendf(nil, `{"instance":%q,"epoch":%d}`, f.run.token.Instance, f.run.token.Epoch),
	})
	if err != nil {
		return 0, fmt.Errorf("take the lease in stream %s: %w", f.stream, err)
	}
	a := f.run.receive(ctx, reply)
	if a.Err != nil {
		return 0, fmt.Errorf("take the lease in stream %s: %w", f.stream, a.Err)
	}
	got, err := parseAck(a.Data)
	switch {
	case err != nil:
		return 0, fmt.Errorf("take the lease in stream %s: %w", f.stream, err)
	case string(got.stream) != f.stream:
		return 0, fmt.Errorf("stream %s: %w: stream %s has its lease subject", f.stream, ErrNotAtomic, got.stream)
	}
	return got.seq, nil
}

// set adds the fence to the headers of a message. Send no message while seq is 0: the broker would
// store it if the lease subject had no message.
func (f *fence) set(header map[string][]string) {
	header[expectedSequence] = []string{strconv.FormatUint(f.seq, 10)}
	header[expectedSubject] = []string{f.subject}
	header[expectedStream] = []string{f.stream}
}

// clear removes the headers that the method set added.
func (f *fence) clear(header map[string][]string) {
	for _, name := range []string{expectedSequence, expectedSubject, expectedStream} {
		delete(header, name)
	}
}

// endsTerm reports whether an error of the method take ends the term.
func endsTerm(err error) bool {
	return errors.Is(err, eventlog.ErrLeaseLost) || errors.Is(err, ErrStreamReplaced)
}

// outcomeOf returns the outcome of the events that wait for the fence, for an error of the method
// take that does not end the term.
func (f *fence) outcomeOf(err error) broker.Outcome {
	o := failure(err)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return failure(fmt.Errorf("%w: %w", broker.ErrNoStream, err))
	case errors.Is(err, replies.ErrUnanswered):
		o = failure(fmt.Errorf("%w: %w", broker.ErrNoLeader, err))
	case errors.Is(err, ErrNotAtomic), o.Class >= broker.Unroutable:
		o.Class = broker.Unavailable // the stream is at fault, not the event
	}
	o.Stream = f.stream
	return o
}

// The first server version with atomic batches, as a number and as a text.
const (
	atomicMinor = 12
	minAtomic   = "2.12"
)
