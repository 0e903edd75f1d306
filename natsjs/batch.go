package natsjs

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom/internal/wire"
	"github.com/postroom/postroom/natsjs/internal/replies"
	"github.com/postroom/postroom/relay/broker"
)

// Headers of an atomic batch.
const (
	batchID       = "Nats-Batch-Id"
	batchSequence = "Nats-Batch-Sequence"
	batchCommit   = "Nats-Batch-Commit"
)

// batchSender sends batches to one stream. If the stream has one replica, batchSender sends the
// next batch while the broker stores the previous one. A stream with several replicas gets one
// batch at a time.
type batchSender struct {
	run       *atomicRun
	name      string
	encoder   *wire.Encoder
	fence     fence
	msg       nats.Msg // memory for reuse, like the fields id and seq
	id, seq   []string
	maxEvents int // the largest number of events in a batch

	mu       sync.Mutex
	queue    [][]*broker.Message // events to be sent in batches
	isolated []*broker.Message   // events to be sent one by one
	news     chan struct{}
}

func newBatchSender(run *atomicRun, name string) *batchSender {
	return &batchSender{
		run: run, name: name, encoder: wire.NewEncoder(), id: make([]string, 1), seq: make([]string, 1), maxEvents: broker.MaxBatch,
		fence: fence{run: run, stream: name}, news: make(chan struct{}, 1),
	}
}

// push queues events that came together. Events that the broker refused before are sent one by one,
// so that they do not make a batch fail again.
func (b *batchSender) push(messages []*broker.Message) {
	group := make([]*broker.Message, 0, len(messages))
	b.mu.Lock()
	for _, f := range messages {
		if f.Isolated {
			b.isolated = append(b.isolated, f)
		} else {
			group = append(group, f)
		}
	}
	if len(group) > 0 {
		b.queue = append(b.queue, group)
	}
	b.mu.Unlock()
	signal(b.news)
}

// pop removes the events of the next batch from the queue. If events that were pushed together fit
// into one batch, they stay in one batch: a second batch with later events of a key could be sent
// before the first batch is stored.
func (b *batchSender) pop() (messages []*broker.Message) {
	b.mu.Lock()
	var behind []*broker.Message
	if len(b.queue) > 0 && len(b.queue[0]) > b.maxEvents {
		messages, behind = b.splitFirst()
	}
	bytes := 0
	for len(b.queue) > 0 && behind == nil && len(messages)+len(b.queue[0]) <= b.maxEvents {
		for _, f := range b.queue[0] {
			bytes += f.Size()
		}
		if bytes > broker.MaxBatchBytes && len(messages) > 0 {
			break
		}
		messages = append(messages, b.queue[0]...)
		b.queue = b.queue[1:]
	}
	if len(b.queue) > 0 || len(b.isolated) > 0 {
		signal(b.news)
	}
	b.mu.Unlock()
	for i := len(behind) - 1; i >= 0; i-- {
		b.run.reportFn(behind[i], broker.Outcome{Class: broker.BlockedByKey, Err: broker.ErrBlockedByKey})
	}
	return messages
}

// splitFirst removes a batch from the first group of the queue, which has more events than fit into
// a batch. The result behind has the remaining events whose keys are in the batch.
func (b *batchSender) splitFirst() (messages, behind []*broker.Message) {
	group := b.queue[0]
	messages = group[:b.maxEvents:b.maxEvents]
	taken := make(map[string]struct{})
	for _, f := range messages {
		taken[f.OrderKey()] = struct{}{}
	}
	behind = []*broker.Message{}
	var rest []*broker.Message
	for _, f := range group[b.maxEvents:] {
		key := f.OrderKey()
		if _, ok := taken[key]; ok && key != "" {
			behind = append(behind, f)
		} else {
			rest = append(rest, f)
		}
	}
	if b.queue = b.queue[1:]; len(rest) > 0 {
		b.queue = append([][]*broker.Message{rest}, b.queue...)
	}
	return messages, behind
}

// hasIsolated reports whether there are events that must be sent one by one.
func (b *batchSender) hasIsolated() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.isolated) > 0
}

func (b *batchSender) popIsolated() []*broker.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	messages := b.isolated
	b.isolated = nil
	return messages
}

// batch is a batch in flight.
type batch struct {
	messages  []*broker.Message
	sent      []*broker.Message // the messages that are in the batch
	id        string
	fence     uint64 // the fence with which the batch was sent
	reply     *replies.Reply
	due       time.Time // when the answer is overdue
	duplicate bool      // the batch is one event, which the broker called a duplicate
	tries     int       // how often the broker refused the fence of the batch

	faults map[*broker.Message]broker.Outcome // events that the client library refuses
}

// maxPipelined is the largest number of batches in flight to a stream with one replica.
const maxPipelined = 2

// work sends the pushed events until ctx ends or the term ends.
func (b *batchSender) work(ctx context.Context) error {
	var open []*batch // the batches in flight, in the order in which they were sent
	for {
		waits := b.hasIsolated()
		if waits && len(open) == 0 {
			if err := b.sendOneByOne(ctx, b.popIsolated()); err != nil {
				return err
			}
			waits = false
		}
		var got <-chan replies.Answer
		var late <-chan time.Time
		news, stop := b.news, func() bool { return true }
		if len(open) > 0 {
			timer := time.NewTimer(time.Until(open[0].due))
			got, late, stop = open[0].reply.Got(), timer.C, timer.Stop
			if waits || len(open) >= b.maxOpen() {
				news = nil
			}
		}
		var err error
		select {
		case <-ctx.Done():
			stop()
			return nil
		case <-news:
			if next, failed := b.start(ctx, b.pop()); next != nil {
				open = append(open, next)
			} else {
				err = failed
			}
		case a := <-got:
			if b.run.isForeign(ctx, open[0].reply, a) {
				break
			}
			err = b.handleAnswer(ctx, open[0], a)
			open = open[1:]
		case <-late:
			signal(b.run.overdue)
			err = b.handleAnswer(ctx, open[0], replies.Answer{Err: fmt.Errorf("%w: %w", broker.ErrUnacknowledged, nats.ErrTimeout)})
			open = open[1:]
		}
		stop()
		if err != nil {
			return err
		}
	}
}

// maxOpen returns how many batches may be in flight.
func (b *batchSender) maxOpen() int {
	if b.fence.replicas > 1 {
		return 1
	}
	return maxPipelined
}

// start sends a batch. It returns nil if there are no events, or if all events have
// outcomes already.
func (b *batchSender) start(ctx context.Context, messages []*broker.Message) (*batch, error) {
	if len(messages) == 0 {
		return nil, nil //nolint:nilnil // there is no batch
	}
	next := &batch{messages: messages}
	if b.fence.seq == 0 {
		if done, err := b.refence(ctx, next); done || err != nil {
			return nil, err
		}
	}
	if b.sendAll(next) {
		return nil, nil //nolint:nilnil // the client refuses all events of the batch
	}
	return next, nil
}

// refence takes the fence, for the first time or again. If it fails, the result done is true, and
// refence reports the outcomes of the batch's events, or no outcome if the term or ctx has ended.
func (b *batchSender) refence(ctx context.Context, of *batch) (done bool, err error) {
	err = b.fence.take(ctx)
	switch {
	case err == nil:
		return false, nil
	case endsTerm(err), ctx.Err() != nil:
		return true, err
	}
	for _, f := range of.messages {
		b.run.forget(f.Subject)
	}
	if of.reply != nil {
		b.run.replies.Drop(of.reply)
	}
	b.reportNotStored(of, b.fence.outcomeOf(err))
	return true, nil
}

// sendAll sends a batch, for the first time or again. If the client library refuses an event,
// sendAll begins again without this event, because the messages of a batch must have consecutive
// numbers. To keep the order, it also leaves out later events of the same key. If no event is left,
// it reports the outcomes of all events, and the result done is true.
func (b *batchSender) sendAll(of *batch) (done bool) {
	for {
		if of.reply != nil {
			b.run.replies.Drop(of.reply)
		}
		of.sent = of.sendable()
		if len(of.sent) == 0 {
			b.reportStored(of, 0)
			return true
		}
		of.reply, of.fence, of.due = b.run.replies.Expect(of.sent, ""), b.fence.seq, time.Now().Add(ackTimeout)
		of.id = b.run.replies.Name(of.reply)
		err := error(nil)
		n := 0
		for ; n < len(of.sent) && err == nil; n++ {
			err = b.send(of, n)
		}
		switch {
		case err == nil:
			return false
		case !of.refused(of.sent[n-1], err): // the connection broke; if the client refused the event instead, the loop sends the batch again without it
			of.reply.Put(replies.Answer{Err: fmt.Errorf("%w: %w", broker.ErrUnacknowledged, err)})
			return false
		}
	}
}

// sendable returns the events of the batch, without those that the client library refused and
// without later events of the same keys.
func (of *batch) sendable() []*broker.Message {
	if len(of.faults) == 0 {
		return of.messages
	}
	missed := make(map[string]struct{})
	var sendable []*broker.Message
	for _, f := range of.messages {
		key := f.OrderKey()
		_, refused := of.faults[f]
		_, behind := missed[key]
		switch {
		case refused && key != "":
			missed[key] = struct{}{}
		case !refused && (key == "" || !behind):
			sendable = append(sendable, f)
		}
	}
	return sendable
}

// refused adds f to the field faults and returns true, if err says that the client library will
// always refuse f. For any other err, it returns false.
func (of *batch) refused(f *broker.Message, err error) bool {
	o := failure(fmt.Errorf("send: %w", err))
	if o.Class != broker.Permanent {
		return false // the connection broke, so there will be no answer
	}
	if of.faults == nil {
		of.faults = make(map[*broker.Message]broker.Outcome)
	}
	of.faults[f] = o
	return true
}

// send sends the n-th message of a batch. The first message has the fence: the broker stores the
// batch only if the lease message is still the last message of its subject. The last message
// commits the batch.
func (b *batchSender) send(of *batch, n int) error {
	f := of.sent[n]
	last := n == len(of.sent)-1
	header := b.encoder.Encode(&f.Event.Event, copyOf(f))
	if len(of.sent) > 1 {
		b.id[0], b.seq[0] = of.id, strconv.Itoa(n+1)
		header[batchID], header[batchSequence] = b.id, b.seq
	} else { // if a batch of one message had these headers, the server would create a file
		delete(header, batchID)
		delete(header, batchSequence)
	}
	b.msg = nats.Msg{Subject: f.Subject, Header: header, Data: f.Data}
	if n == 0 {
		b.fence.set(header)
		b.msg.Reply = b.run.replies.Subject(of.reply, true)
	}
	if last {
		if n > 0 {
			header[batchCommit] = []string{"1"}
		}
		b.msg.Reply = b.run.replies.Subject(of.reply, false)
	}
	err := b.run.p.nc.PublishMsg(&b.msg)
	if n == 0 || last { // the encoder reuses the map
		b.fence.clear(header)
		delete(header, batchCommit)
	}
	return err
}
