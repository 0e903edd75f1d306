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
	maxHolding = 5000

	// Where the broker takes longer than this for as many acknowledgements as conduct
	// waits for, what there is is taken in.
	maxLull = 5 * time.Millisecond
)

// leader is a relay in one term. Five goroutines work for it: the reader reads pages, the
// conductor decides what is sent, the publisher sends, the recorder records, the attester
// sees to it that the broker has what it had. The first to fail ends the term.
type leader struct {
	relay *Relay
	term  eventlog.Term
	notes *unrecorded

	outcomes *outcomes              // publisher to conductor
	batches  chan []*broker.Message // conductor to publisher

	reader    reader
	conductor conductor
	recorder  recorder
	attester  attester
}

// newLeader returns the leader of a term. It notes in now what comes of it.
func newLeader(r *Relay, term eventlog.Term, now *tenure) *leader {
	arrived, between := newOutcomes(), &intake{pages: make(chan page)}
	notes := newUnrecorded(arrived.news)
	batches, suspicion := make(chan []*broker.Message), make(chan struct{}, 1)
	return &leader{
		relay: r, term: term, notes: notes, outcomes: arrived, batches: batches,
		reader: reader{intake: between, relay: r, term: term, notes: notes},
		conductor: conductor{
			intake: between, relay: r, scheduler: schedule.New(r.cfg.MaxUnpublished, r.cfg.Atomic), batches: batches,
			outcomes: arrived, notes: notes, suspicion: suspicion, ends: ends{streams: make(map[string]*end)},
		},
		recorder: recorder{relay: r, term: term, now: now, notes: notes},
		attester: attester{relay: r, term: term, notes: notes, suspicion: suspicion},
	}
}

// serve leads until ctx ends, and then drains, or until something fails.
func (l *leader) serve(ctx context.Context) error {
	now := l.recorder.now
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
		defer func() { l.end(fail, publishing, err) }() // also when the publisher ends this goroutine
		err = l.publish(publishing)
	})

	recording, stopRecording := context.WithCancel(work)
	defer stopRecording()
	others.Go(func() { l.end(fail, recording, l.recorder.keep(recording)) })

	if err := l.attester.verify(readCtx); err != nil {
		l.end(fail, readCtx, err)
	} else {
		readers.Go(func() { l.end(fail, readCtx, l.reader.read(readCtx)) })
		readers.Go(func() { l.end(fail, readCtx, l.attester.attest(readCtx)) })
		l.conductor.conduct(ctx, work)
	}
	stopReading()
	readers.Wait()
	stopPublishing()
	stopRecording()
	others.Wait()

	l.conductor.absorb(ctx) // nothing is sent any more: what was acknowledged meanwhile is published
	leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(now.lease, DefaultLease))
	defer cancel()
	progress, counted, _ := l.notes.take()
	l.relay.metrics.published(leave, counted)
	err := l.term.Release(leave, progress)
	now.recorded = now.recorded || err == nil && !progress.Empty()
	return errors.Join(context.Cause(work), err)
}

// publish sends what conduct hands it, by the strategy of the Config.
func (l *leader) publish(ctx context.Context) error {
	if !l.relay.cfg.Atomic {
		return called(func() error { return l.relay.pub.Run(ctx, l.batches, l.outcomes.settle) })
	}
	instance, epoch := l.term.Claim()
	claim := broker.LeaderToken{Instance: instance, Epoch: epoch, Confirm: l.term.Confirm}
	return called(func() error { return l.relay.pub.RunAtomic(ctx, claim, l.batches, l.outcomes.settle) })
}

// called calls a method of the source or the publisher, which a user may have written: a
// panic is an error, and the methods of an error are safe to call.
func called(f func() error) error { return guard.Seal(guard.Call(f)) }

// end notes why a goroutine of the term ended. The end of its context is no
// failure.
func (l *leader) end(fail context.CancelCauseFunc, ctx context.Context, err error) {
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
