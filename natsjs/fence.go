package natsjs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/broker"
	"github.com/postroom/postroom/eventlog"
	"github.com/postroom/postroom/internal/pause"
	"github.com/postroom/postroom/internal/wire"
	"github.com/postroom/postroom/natsjs/internal/replies"
)

// Headers by which the broker checks a message against the last one of a subject.
const (
	expectedSequence = "Nats-Expected-Last-Subject-Sequence"
	expectedSubject  = "Nats-Expected-Last-Subject-Sequence-Subject"
	expectedStream   = "Nats-Expected-Stream"
)

const (
	codeFenced    = 10071 // the last message of the subject is another
	codeInProcess = 10164 // a message with the same fence is being stored
	codeRepeated  = 10201 // a batch has an id that is stored
	codeTooMany   = 10199 // a batch is longer than the server allows
	codeNoRoom    = 10077 // the stream is full, or the subject is
)

var (
	// ErrStreamReplaced says that a stream is not the one that it was when the term
	// began: somebody deleted it and made it again. The term ends.
	ErrStreamReplaced = errors.New("the stream was deleted and made again")

	// ErrNotAtomic says that a stream is not made for atomic batches. 'postroom stream
	// ensure --atomic' or [EnsureStream] changes that.
	ErrNotAtomic = errors.New("the stream is not made for atomic batches; change that with 'postroom stream ensure --atomic' or natsjs.EnsureStream")
)

// LeaseSubjects returns the subjects that a stream needs to take atomic batches.
// The leaders of each log that publishes to it write a message to one of them when
// their term begins; consumers have no use for these.
func LeaseSubjects(stream string) string { return wire.LeasePrefix + "*." + stream }

// fence keeps a leader that was replaced from storing anything in a stream. There
// is one message for each term on a subject of the log's, and whatever a term sends
// asks that its own is still the last there: the broker checks that when it stores.
type fence struct {
	run     *atomicRun
	stream  string
	created time.Time // of the stream, when the term first looked
	subject string
	seq     uint64 // of the term's message; 0: there is none

	replicas int // of the stream
}

// take puts the term's message in place. In this order: what is the last message
// of the subject, does the term still lead, and then the message, if that is still
// the last one. A leader that stands still anywhere in between, for however long,
// and was replaced meanwhile, is refused.
func (f *fence) take(ctx context.Context) error {
	f.seq = 0
	ctx, cancel := context.WithTimeout(ctx, 2*ackTimeout)
	defer cancel()
	for races := 0; ; races++ {
		err := f.try(ctx)
		var refused *BrokerError
		if !errors.As(err, &refused) || refused.Code != codeFenced && refused.Code != codeInProcess || races == maxRaces || !pause.For(ctx, processWait) {
			return err
		}
	}
}

// maxRaces is how often somebody may come in between before that is an outage.
const maxRaces = 10

func (f *fence) try(ctx context.Context) error {
	last, err := f.look(ctx)
	if err != nil {
		return err
	}
	if last == 0 {
		// Without a message that must not have been followed by another, one who stood
		// still could not be told from one who did not: the last may have aged out.
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
	if err := f.run.token.Confirm(ctx); err != nil {
		return err
	}
	f.seq, err = f.put(ctx, last)
	return err
}

// look returns the sequence of the last message of the subject, 0 where there is
// none. It makes sure that the stream is the one that it was.
func (f *fence) look(ctx context.Context) (last uint64, err error) {
	stream, err := f.run.js.Stream(ctx, f.stream)
	if err != nil {
		return 0, fmt.Errorf("look at stream %s: %w", f.stream, err)
	}
	info := stream.CachedInfo()
	switch {
	case f.created.IsZero():
		f.created = info.Created
	case !f.created.Equal(info.Created):
		return 0, fmt.Errorf("stream %s: %w", f.stream, ErrStreamReplaced)
	}
	if faults := findFaults(info.Config, atomicChecks); len(faults) > 0 {
		return 0, fmt.Errorf("%w: %w", ErrNotAtomic, faults[0])
	}
	f.replicas = info.Config.Replicas
	// Sequences begin anew in a stream that was made again, and are soon the same:
	// so its time is part of the subject.
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

// put publishes a message on the lease subject, if the last one there has the
// given sequence.
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
	a := f.run.await(ctx, reply)
	if a.Err != nil {
		return 0, fmt.Errorf("take the lease in stream %s: %w", f.stream, a.Err)
	}
	name, seq, _, err := parseAck(a.Data)
	switch {
	case err != nil:
		return 0, fmt.Errorf("take the lease in stream %s: %w", f.stream, err)
	case string(name) != f.stream:
		return 0, fmt.Errorf("stream %s: %w: stream %s has its lease subject", f.stream, ErrNotAtomic, name)
	}
	return seq, nil
}

// set has a message asked for the fence. Without one it is not to be sent: a
// fence of 0 would let it pass where nobody has one.
func (f *fence) set(header map[string][]string) {
	header[expectedSequence] = []string{strconv.FormatUint(f.seq, 10)}
	header[expectedSubject] = []string{f.subject}
	header[expectedStream] = []string{f.stream}
}

// clear takes back what set did.
func (f *fence) clear(header map[string][]string) {
	for _, name := range []string{expectedSequence, expectedSubject, expectedStream} {
		delete(header, name)
	}
}

// endsTerm reports whether an error of take ends the term.
func endsTerm(err error) bool {
	return errors.Is(err, eventlog.ErrLeaseLost) || errors.Is(err, ErrStreamReplaced)
}

// outcomeOf returns what an error of take that does not end the term is for the
// events that wait for the fence.
func (f *fence) outcomeOf(err error) broker.Outcome {
	o := failure(err)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return failure(fmt.Errorf("%w: %w", broker.ErrNoStream, err))
	case errors.Is(err, replies.ErrUnanswered):
		o = failure(fmt.Errorf("%w: %w", broker.ErrNoLeader, err))
	case errors.Is(err, ErrNotAtomic), o.Class >= broker.Unroutable:
		o.Class = broker.Unavailable // the fault is the stream's
	}
	o.Stream = f.stream
	return o
}

// minAtomic is the first version of the server that has atomic batches.
const minAtomic = "2.12"

// tooOld reports whether a server of the given version has no atomic batches. One
// whose version cannot be read is taken for a newer one.
func tooOld(version string) bool {
	majorText, rest, _ := strings.Cut(version, ".")
	minorText, _, _ := strings.Cut(rest, ".")
	major, err1 := strconv.Atoi(majorText)
	minor, err2 := strconv.Atoi(minorText)
	return err1 == nil && err2 == nil && (major < 2 || major == 2 && minor < 12)
}
