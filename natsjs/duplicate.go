package natsjs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/broker"
	"github.com/postroom/postroom/internal/wire"
)

const (
	// So many duplicates are looked up at the same time.
	maxLookups = 32

	// After so many looks without an answer an event is published once more, under
	// another message id: that it is stored twice does no harm, that it is not would.
	maxFailedLookups = 2

	codeNoStream = 10059 // there is no stream of that name, for this account
)

// errLostCopy says that the broker drops an event as a duplicate of a message that it does
// not have any more. It remembers message ids, and not what became of the messages.
var errLostCopy = errors.New("the broker calls it a duplicate of a message that it does not have any more")

// duplicateVerifier finds out whether the broker still has the messages that it takes events for
// duplicates of: they may have been deleted, or lost, within the duplicate window.
type duplicateVerifier struct {
	p          *Publisher
	unanswered atomic.Bool // nobody answers to the question
}

// verify looks at the message that an event was called a duplicate of. again says that the
// stream does not have it: the event is to be sent again, under another message id, which
// it has by then. Otherwise it returns the event's outcome, with a sequence if the message is
// there.
func (v *duplicateVerifier) verify(ctx context.Context, f *broker.Message, o broker.Outcome) (proven broker.Outcome, again bool) {
	has, err := v.lookUp(ctx, f, o)
	switch {
	case err != nil && f.FailedLookups < maxFailedLookups-1 && !v.unanswered.Load():
		f.FailedLookups++
		return broker.Outcome{Class: broker.Unknown, Stream: o.Stream, Err: fmt.Errorf("find out whether it is stored: %w", err), Reason: reasonOf(err)}, false
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
	// Its other message is lost as well: not too fast.
	return broker.Outcome{Class: broker.Unknown, Stream: o.Stream, Err: errLostCopy, Reason: reasonOf(errLostCopy)}, false
}

// copyState is what became of a message.
type copyState int

const (
	copyStored  copyState = iota // the stream has it
	copyExpired                  // the stream had it, and its configuration had it removed
	copyLost                     // the stream had it
)

// lookUp returns what became of the message that an event is called a duplicate of.
func (v *duplicateVerifier) lookUp(ctx context.Context, f *broker.Message, o broker.Outcome) (copyState, error) {
	if v.unanswered.Load() {
		return copyLost, nil
	}
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	id, err := v.p.messageAt(ctx, o.Stream, o.Sequence)
	if refused := (*BrokerError)(nil); errors.As(err, &refused) && refused.Code == codeNoStream {
		return copyLost, nil // another account's, of which nothing can be found out
	}
	if err != nil {
		return copyLost, err
	}
	if id == wire.MessageID(f.Event, copyOf(f)) {
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
	if id == "" && mayDrop(stream.CachedInfo().Config) {
		return copyExpired, nil
	}
	return copyLost, nil
}

// mayDrop reports whether a stream removes messages by itself, which may be as young as
// its duplicate window is long: those that were consumed, or older ones at a limit.
// Messages that reach their age have left that window before.
func mayDrop(cfg jetstream.StreamConfig) bool {
	limited := cfg.MaxMsgs > 0 || cfg.MaxBytes > 0 || cfg.MaxMsgsPerSubject > 0
	return cfg.Retention != jetstream.LimitsPolicy || cfg.Discard == jetstream.DiscardOld && limited || cfg.AllowRollup
}

// duplicateAnswer is an event that the broker called a duplicate.
type duplicateAnswer struct {
	message *broker.Message
	outcome broker.Outcome
}

// reportOrVerify reports the outcome of an event. If the broker called it a duplicate, it is
// first found out whether the broker has what it is a duplicate of.
func (w *window) reportOrVerify(f *broker.Message, o broker.Outcome) {
	if !o.Duplicate || w.verify == nil {
		w.report(f, o)
		return
	}
	w.unverified = append(w.unverified, duplicateAnswer{f, o})
	signal(w.verifyDue)
}

// verifyAll looks up what the broker called duplicates, until ctx ends.
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
		return // it has no outcome, as what is on its way when Run returns
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if again {
		w.sendAgain([]*broker.Message{d.message})
		return
	}
	w.report(d.message, o)
}
