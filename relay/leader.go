package relay

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/relay/broker"
	"github.com/postroom/postroom/relay/internal/schedule"
)

const (
	// One read asks for at most pageSize events. If the last events were large, the read asks for
	// fewer. The first read does not know the size of events, and asks for firstPage.
	pageSize  = 1000
	firstPage = 100

	// While this many events wait to be written to the table held, the dispatcher takes no further
	// page. One recording writes a part of them: see eventlog.Term.
	maxHeldEvents = 5000

	// If there is no room for a chunk, the dispatcher applies results after at most this time.
	maxResultWait = 5 * time.Millisecond
)

// lifetime says how long a term works. A term ends in two steps, so that the results of what was
// sent can still be recorded.
type lifetime struct {
	send context.Context // when this context ends, nothing more is read or sent
	work context.Context // when this context ends, the term has failed, and nothing waits any longer
}

// leader is a relay in one term. Five goroutines work for it: the reader reads pages, the
// dispatcher decides what is sent, the publisher sends, the recorder records, and the verifier
// checks that the broker lost nothing. If a goroutine fails, the term ends.
type leader struct {
	relay  *Relay
	term   eventlog.Term
	buffer *recordBuffer

	results *results               // the publisher passes them to the dispatcher
	batches chan []*broker.Message // the dispatcher passes them to the publisher

	reader     reader
	dispatcher dispatcher
	recorder   recorder
	verifier   verifier
}

// newLeader returns a term's leader, which sets the fields renewed and recorded of the attempt now.
func newLeader(r *Relay, term eventlog.Term, now *leadAttempt) *leader {
	arrived, between := newResults(), &intake{pages: make(chan page), again: make(chan []int64, 1)}
	notes := newRecordBuffer(arrived.news)
	batches, suspicion := make(chan []*broker.Message), make(chan struct{}, 1)
	return &leader{
		relay: r, term: term, buffer: notes, results: arrived, batches: batches,
		reader: reader{intake: between, relay: r, term: term, buffer: notes},
		dispatcher: dispatcher{
			intake: between, relay: r, term: term, scheduler: schedule.New(r.cfg.MaxUnpublished, r.cfg.Atomic), batches: batches,
			results: arrived, buffer: notes, recheck: suspicion,
		},
		recorder: recorder{relay: r, term: term, attempt: now, buffer: notes},
		verifier: newVerifier(r, term, notes, suspicion),
	}
}

// serve leads until ctx ends, and then drains. If a goroutine fails, it returns earlier.
func (l *leader) serve(ctx context.Context) error {
	now := l.recorder.attempt
	// The context work outlives ctx while the relay drains. Only a failure ends it earlier.
	work, fail := context.WithCancelCause(context.WithoutCancel(ctx))
	defer fail(nil)

	var readers, others sync.WaitGroup
	readCtx, stopReading := context.WithCancel(ctx)
	defer stopReading()
	defer context.AfterFunc(work, stopReading)()

	publishing, stopPublishing := context.WithCancel(work)
	defer stopPublishing()
	others.Go(func() {
		err := guard.ErrGoexit
		defer func() { l.goroutineEnded(fail, publishing, err) }() // even if the publisher calls runtime.Goexit
		err = l.publish(publishing)
	})

	recording, stopRecording := context.WithCancel(work)
	defer stopRecording()
	others.Go(func() { l.goroutineEnded(fail, recording, l.recorder.run(recording)) })

	if err := l.verifier.verifyFirst(readCtx); err != nil {
		l.goroutineEnded(fail, readCtx, err)
	} else {
		l.verifier.noteCompared()
		readers.Go(func() { l.goroutineEnded(fail, readCtx, l.reader.read(readCtx)) })
		readers.Go(func() { l.goroutineEnded(fail, readCtx, l.verifier.verifyLoop(readCtx)) })
		l.dispatcher.run(lifetime{send: ctx, work: work})
	}
	stopReading()
	readers.Wait()
	l.verifier.searches.Wait()
	stopPublishing()
	stopRecording()
	others.Wait()

	l.dispatcher.applyResults(ctx) // nothing more is sent, so apply the last acknowledgements
	leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(now.lease, eventlog.DefaultLease))
	defer cancel()
	last := l.buffer.take()
	l.relay.metrics.published(leave, last.counted)
	err := l.term.Release(leave, last.progress)
	now.recorded = now.recorded || err == nil && !last.progress.Empty()
	return errors.Join(context.Cause(work), err)
}

// publish runs the publisher for the batches of the dispatcher, with or without atomic batches.
func (l *leader) publish(ctx context.Context) error {
	if !l.relay.cfg.Atomic {
		return guardedCall(func() error { return l.relay.pub.Run(ctx, l.batches, l.results.report) })
	}
	instance, epoch := l.term.Token()
	claim := broker.LeaderToken{Instance: instance, Epoch: epoch, Confirm: l.term.Confirm}
	return guardedCall(func() error { return l.relay.pub.RunAtomic(ctx, claim, l.batches, l.results.report) })
}

// guardedCall calls a method of the log or the publisher, which a user may have written. It turns a
// panic into an error, and makes the methods of the error safe to call.
func guardedCall(f func() error) error { return guard.Seal(guard.Call(f)) }

// goroutineEnded ends the term if one of its goroutines failed. If the goroutine's
// context has ended, its error is not a failure.
func (l *leader) goroutineEnded(fail context.CancelCauseFunc, ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		fail(err)
	}
}

// signal sends to a channel with room for one signal. If a signal waits in the channel already, the
// function does nothing.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
