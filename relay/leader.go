package relay

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/postroom/postroom/broker"
	"github.com/postroom/postroom/eventlog"
	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/relay/internal/schedule"
)

const (
	// Events asked for in one pass: so many, or what fills a page at the size of the last
	// ones. The first pass does not know their size.
	pageSize  = 1000
	firstPage = 100

	// Events that wait to be written to held are kept below this, or a page above:
	// a recording of so many takes a tenth of a second.
	maxHeldEvents = 5000

	// Where the broker takes longer than this for as many acknowledgements as the dispatcher
	// waits for, what there is is taken in.
	maxResultWait = 5 * time.Millisecond
)

// lifetime is how long a term works. It ends in two steps, so that the results of what was
// sent can still be recorded.
type lifetime struct {
	send context.Context // when it ends, nothing more is read or sent
	work context.Context // when it ends, nothing is waited for any longer: the term has failed
}

// leader is a relay in one term. Five goroutines work for it: the reader reads pages, the
// dispatcher decides what is sent, the publisher sends, the recorder records, the verifier
// sees to it that the broker has what it had. The first to fail ends the term.
type leader struct {
	relay  *Relay
	term   eventlog.Term
	buffer *recordBuffer

	results *results               // publisher to dispatcher
	batches chan []*broker.Message // dispatcher to publisher

	reader     reader
	dispatcher dispatcher
	recorder   recorder
	verifier   verifier
}

// newLeader returns the leader of a term. It notes in now what comes of it.
func newLeader(r *Relay, term eventlog.Term, now *leadAttempt) *leader {
	arrived, between := newResults(), &intake{pages: make(chan page)}
	notes := newRecordBuffer(arrived.news)
	batches, suspicion := make(chan []*broker.Message), make(chan struct{}, 1)
	return &leader{
		relay: r, term: term, buffer: notes, results: arrived, batches: batches,
		reader: reader{intake: between, relay: r, term: term, buffer: notes},
		dispatcher: dispatcher{
			intake: between, relay: r, scheduler: schedule.New(r.cfg.MaxUnpublished, r.cfg.Atomic), batches: batches,
			results: arrived, buffer: notes, recheck: suspicion, ackRanges: ackRanges{streams: make(map[string]*ackRange)},
		},
		recorder: recorder{relay: r, term: term, attempt: now, buffer: notes},
		verifier: verifier{relay: r, term: term, buffer: notes, recheck: suspicion},
	}
}

// serve leads until ctx ends, and then drains, or until something fails.
func (l *leader) serve(ctx context.Context) error {
	now := l.recorder.attempt
	// What is in hand outlives ctx by the drain; only a failure cuts it short.
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
		defer func() { l.goroutineEnded(fail, publishing, err) }() // also when the publisher ends this goroutine
		err = l.publish(publishing)
	})

	recording, stopRecording := context.WithCancel(work)
	defer stopRecording()
	others.Go(func() { l.goroutineEnded(fail, recording, l.recorder.run(recording)) })

	if err := l.verifier.verifyFirst(readCtx); err != nil {
		l.goroutineEnded(fail, readCtx, err)
	} else {
		readers.Go(func() { l.goroutineEnded(fail, readCtx, l.reader.read(readCtx)) })
		readers.Go(func() { l.goroutineEnded(fail, readCtx, l.verifier.verifyLoop(readCtx)) })
		l.dispatcher.run(lifetime{send: ctx, work: work})
	}
	stopReading()
	readers.Wait()
	stopPublishing()
	stopRecording()
	others.Wait()

	l.dispatcher.applyResults(ctx) // nothing is sent any more: what was acknowledged meanwhile is published
	leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(now.lease, DefaultLease))
	defer cancel()
	progress, counted, _ := l.buffer.take()
	l.relay.metrics.published(leave, counted)
	err := l.term.Release(leave, progress)
	now.recorded = now.recorded || err == nil && !progress.Empty()
	return errors.Join(context.Cause(work), err)
}

// publish sends what the dispatcher hands it, by the strategy of the Config.
func (l *leader) publish(ctx context.Context) error {
	if !l.relay.cfg.Atomic {
		return guardedCall(func() error { return l.relay.pub.Run(ctx, l.batches, l.results.report) })
	}
	instance, epoch := l.term.Claim()
	claim := broker.LeaderToken{Instance: instance, Epoch: epoch, Confirm: l.term.Confirm}
	return guardedCall(func() error { return l.relay.pub.RunAtomic(ctx, claim, l.batches, l.results.report) })
}

// guardedCall calls a method of the source or the publisher, which a user may have written: a
// panic is an error, and the methods of an error are safe to call.
func guardedCall(f func() error) error { return guard.Seal(guard.Call(f)) }

// goroutineEnded notes why a goroutine of the term ended. The end of its context is no
// failure.
func (l *leader) goroutineEnded(fail context.CancelCauseFunc, ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		fail(err)
	}
}

// signal notes that there is news; one note is enough.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
