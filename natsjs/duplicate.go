package natsjs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/wire"
	"github.com/postroom/postroom/relay/broker"
)

const (
	// The largest number of lookups at the same time.
	maxLookups = 32

	// After this many lookups without an answer, an event is published again with another message
	// id. Two copies in the stream do no harm, but the loss of the event would.
	maxFailedLookups = 2

	codeNoStream = 10059 // this account has no stream of that name
)

// errLostCopy means that the broker dropped an event as a duplicate of a message that it no
// longer has. The broker remembers message ids, but not whether it still has the messages.
var errLostCopy = errors.New("the broker calls it a duplicate of a message that it no longer has")

// duplicateVerifier handles events that the broker called duplicates of a first message. It looks
// up whether the stream still has this message, which may have been deleted or lost within the
// duplicate window. The message may also be that of another event with the same source and id, which
// another log wrote. A relay that repeats its own publish, or that of an earlier term, always finds
// the same content. So other content shows that the event was never published.
type duplicateVerifier struct {
	p          *publisher
	unanswered atomic.Bool // maxFailedLookups lookups for one event had no answer, so there are no more lookups for any event
}

// verify looks up the first message of an event that the broker called a duplicate. If the stream
// lost that message, or maxFailedLookups lookups failed, verify gives the event another message id.
// The first time, the result again is true, and the caller must send the event again. Otherwise
// verify returns the event's outcome, with a sequence if the message is there. If the message has other
// content, the outcome is Permanent: the broker will never store the event under its message id.
func (v *duplicateVerifier) verify(ctx context.Context, f *broker.Message, o broker.Outcome) (proven broker.Outcome, again bool) {
	has, err := v.lookUp(ctx, f, o)
	switch {
	case err != nil && f.FailedLookups < maxFailedLookups-1 && !v.unanswered.Load():
		f.FailedLookups++
		return broker.Outcome{Class: broker.Unknown, Stream: o.Stream, Err: fmt.Errorf("find out whether it is stored: %w", err), Reason: reasonOf(err)}, false
	case err == nil && has == copyOther:
		err = fmt.Errorf("%w: message %d of stream %s has its source and id, and other content. Do two logs with the same source publish to the stream?",
			postroom.ErrEventConflict, o.Sequence, o.Stream)
		return broker.Outcome{Class: broker.Permanent, Stream: o.Stream, Err: err, Reason: reasonOf(err)}, false
	case err == nil && has != copyLost:
		if has == copyExpired {
			o.Sequence = 0
		}
		return o, false
	}
	if err != nil && ctx.Err() == nil {
		v.unanswered.Store(true)
	}
	was := f.LostSeq
	f.LostSeq = o.Sequence
	if was == 0 {
		return o, true
	}
	// The message with the other id is lost too. The class Unknown makes the relay wait before
	// it tries again.
	return broker.Outcome{Class: broker.Unknown, Stream: o.Stream, Err: errLostCopy, Reason: reasonOf(errLostCopy)}, false
}

// copyState says whether a stream still has a message that it stored.
type copyState int

const (
	copyStored  copyState = iota // the stream has the message
	copyExpired                  // the stream removed the message because of the stream's configuration
	copyLost                     // the stream lost the message
	copyOther                    // the stream has the message, and it has the content of another event
)

// lookUp returns whether the stream still has the first message of an event that the
// broker called a duplicate, and whether this message has the content of the event.
func (v *duplicateVerifier) lookUp(ctx context.Context, f *broker.Message, o broker.Outcome) (copyState, error) {
	if v.unanswered.Load() {
		return copyLost, nil
	}
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	first, err := v.p.messageAt(ctx, o.Stream, o.Sequence)
	if refused := (*BrokerError)(nil); errors.As(err, &refused) && refused.Code == codeNoStream {
		return copyLost, nil // the stream belongs to another account, and cannot be read
	}
	if err != nil {
		return copyLost, err
	}
	id := first.id()
	if id == wire.MessageID(f.Event.Event, copyOf(f)) {
		ev := f.Event.Event
		ev.NotBefore = time.Time{} // a message does not have it
		//guard:a-duplicate-with-other-content-is-told false
		if !bytes.Equal(first.digest(ev.Subject), wire.Digest(ev)) {
			return copyOther, nil
		}
		return copyStored, nil
	}
	js, err := jetstream.New(v.p.nc)
	if err != nil {
		return copyLost, fmt.Errorf("jetstream: %w", err)
	}
	stream, err := js.Stream(ctx, o.Stream)
	if err != nil {
		return copyLost, explain("look at stream "+o.Stream, err)
	}
	if first.header == nil && mayDrop(stream.CachedInfo().Config) {
		return copyExpired, nil
	}
	return copyLost, nil
}

// mayDrop reports whether a stream removes messages that are younger than its duplicate window:
// messages that were consumed, the oldest messages at a limit, or the messages before a rollup. A
// maximum age does not matter, because a message leaves the window before it reaches that age.
func mayDrop(cfg jetstream.StreamConfig) bool {
	//guard:replaced-messages-are-not-sent-again 2 = cfg.Discard == jetstream.DiscardOld && @
	return cfg.Retention != jetstream.LimitsPolicy || dropsOld(cfg) != "" || cfg.AllowRollup
}

// duplicateAnswer is an event that the broker called a duplicate.
type duplicateAnswer struct {
	message *broker.Message
	outcome broker.Outcome
}

// reportOrVerify reports the outcome of an event. If the broker called the event a duplicate,
// reportOrVerify queues a lookup instead.
func (w *window) reportOrVerify(f *broker.Message, o broker.Outcome) {
	if !o.Duplicate || w.verify == nil {
		w.report(f, o)
		return
	}
	w.unverified = append(w.unverified, duplicateAnswer{f, o})
	signal(w.verifyDue)
}

// verifyAll looks up queued duplicates until ctx ends.
func (w *window) verifyAll(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.verifyDue:
		}
		w.mu.Lock()
		all := w.unverified
		w.unverified = nil
		w.mu.Unlock()
		var looking sync.WaitGroup
		room := make(chan struct{}, maxLookups)
		for _, d := range all {
			room <- struct{}{}
			looking.Go(func() {
				defer func() { <-room }()
				w.verifyOne(ctx, d)
			})
		}
		looking.Wait()
	}
}

func (w *window) verifyOne(ctx context.Context, d duplicateAnswer) {
	o, again := w.verify(ctx, d.message, d.outcome)
	if ctx.Err() != nil {
		return // the event gets no outcome, like all events that are in flight when Run returns
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if again {
		w.sendAgain([]*broker.Message{d.message})
		return
	}
	w.report(d.message, o)
}
