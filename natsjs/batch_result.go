package natsjs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom/internal/sleep"
	"github.com/postroom/postroom/natsjs/internal/replies"
	"github.com/postroom/postroom/relay/broker"
)

const (
	// If the broker refuses a fence although this process still leads, the sender takes a new
	// fence, at most maxFences times.
	maxFences = 2

	// While the broker stores a message, it may refuse others with its fence. The sender repeats
	// these after processWait: a batch at most maxFences times, an event maxInProcess times.
	processWait  = 2 * time.Millisecond
	maxInProcess = 20

	// If sendOneByOne found the stream unavailable for maxProbes events, and the stream stored no
	// event, sendOneByOne does not send the rest.
	maxProbes = 16
)

// handleAnswer handles the broker's answer to a batch.
func (b *batchSender) handleAnswer(ctx context.Context, of *batch, a replies.Answer) error {
	b.run.replies.Drop(of.reply)
	last, err := uint64(0), a.Err
	if err == nil {
		last, err = b.parseCommit(of, a.Data)
	}
	if err == nil {
		return b.handleStored(ctx, of, last)
	}
	var refused *BrokerError
	if !errors.As(err, &refused) {
		return b.handleUnanswered(ctx, of, err)
	}
	switch {
	case refused.Code == codeFenced, refused.Code == codeInProcess:
		return b.retry(ctx, of, err)
	case refused.Code == codeTooMany && len(of.sent) > 1:
		b.maxEvents = len(of.sent) / 2
		b.mu.Lock()
		b.queue = append([][]*broker.Message{of.messages}, b.queue...)
		b.mu.Unlock()
		signal(b.news)
		return nil
	case refused.Code == codeRepeated, refused.Code == codeNoRoom, classify(err) >= broker.Refused:
		return b.sendOneByOne(ctx, of.messages)
	}
	b.reportNotStored(of, failure(err)) // the stream takes no events now
	return nil
}

// handleStored reports a batch that is stored. If the batch is one event that the broker called a
// duplicate, sendOneByOne checks whether the stream still has the first copy.
func (b *batchSender) handleStored(ctx context.Context, of *batch, last uint64) error {
	if of.duplicate {
		return b.sendOneByOne(ctx, of.messages)
	}
	b.reportStored(of, last)
	return nil
}

// parseCommit returns the sequence of a batch's last message. The other messages have the sequences
// directly before it, because the broker stores a batch under one lock, in one Raft proposal.
func (b *batchSender) parseCommit(of *batch, data []byte) (last uint64, err error) {
	a, err := parseAck(data)
	if err != nil {
		return 0, err
	}
	if len(of.sent) == 1 && string(a.stream) == b.name {
		of.duplicate = a.duplicate
		return a.seq, nil
	}
	var count struct {
		Batch string `json:"batch"`
		Count int    `json:"count"`
	}
	if err := json.Unmarshal(data, &count); err != nil || count.Batch != of.id || count.Count != len(of.sent) || string(a.stream) != b.name {
		return 0, fmt.Errorf("%w: the answer is not to this batch", broker.ErrUnacknowledged)
	}
	return a.seq, nil
}

// handleUnanswered handles a batch without an answer.
func (b *batchSender) handleUnanswered(ctx context.Context, of *batch, err error) error {
	switch {
	case errors.Is(err, replies.ErrUnanswered):
		b.reportNotStored(of, b.lookUp(ctx, of.sent[0].Subject))
	case errors.Is(err, broker.ErrNotAllowed):
		return b.sendOneByOne(ctx, of.messages) // the user may not publish to a subject of the batch
	default:
		b.reportNotStored(of, failure(err))
	}
	return nil
}

// lookUp returns the outcome of an event without an answer.
func (b *batchSender) lookUp(ctx context.Context, subject string) broker.Outcome {
	b.run.forget(subject)
	return streamOf(ctx, b.run.js, subject)
}

// retry handles a batch whose fence the broker refused: another term has begun, the lease message
// was removed, or the broker is storing another message with the same fence.
func (b *batchSender) retry(ctx context.Context, of *batch, cause error) error {
	var refused *BrokerError
	for of.tries++; of.tries <= maxFences && errors.As(cause, &refused); of.tries++ {
		if refused.Code == codeInProcess && !sleep.For(ctx, processWait) {
			return nil
		}
		if refused.Code == codeFenced && of.fence == b.fence.seq || b.fence.seq == 0 { // the fence was not taken again since the batch was sent
			if done, err := b.refence(ctx, of); done || err != nil {
				return err
			}
		}
		if b.sendAll(of) {
			return nil
		}
		a := b.run.receive(ctx, of.reply)
		if ctx.Err() != nil {
			return nil
		}
		b.run.replies.Drop(of.reply)
		last, err := uint64(0), a.Err
		if err == nil {
			last, err = b.parseCommit(of, a.Data)
		}
		if err == nil {
			return b.handleStored(ctx, of, last)
		}
		if !errors.As(err, &refused) || refused.Code != codeFenced && refused.Code != codeInProcess {
			return b.handleAnswer(ctx, of, a)
		}
		cause = err
	}
	for _, f := range of.messages {
		b.run.forget(f.Subject)
	}
	b.reportNotStored(of, failure(cause))
	return nil
}

// receive waits for an answer, up to ackTimeout. It ignores answers that are not of our JetStream.
func (r *atomicRun) receive(ctx context.Context, w *replies.Reply) replies.Answer {
	timer := time.NewTimer(ackTimeout)
	defer timer.Stop()
	for {
		select {
		case a := <-w.Got():
			if !r.isForeign(ctx, w, a) {
				return a
			}
		case <-timer.C:
			signal(r.overdue)
			return replies.Answer{Err: fmt.Errorf("%w: %w", broker.ErrUnacknowledged, nats.ErrTimeout)}
		case <-ctx.Done():
			return replies.Answer{Err: context.Cause(ctx)}
		}
	}
}

// isForeign reports whether an answer to a message is not of a stream of the JetStream that the publisher
// asks. If the stream was not looked up yet, the answer does not count now, and comes again after the lookup.
func (r *atomicRun) isForeign(ctx context.Context, to *replies.Reply, answer replies.Answer) bool {
	if answer.Err != nil {
		return false
	}
	a, err := parseAck(answer.Data)
	if len(a.stream) == 0 { // no stream answers so
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	from, known := r.origins[string(a.stream)]
	//guard:an-answer-that-is-not-looked-up-is-no-outcome 1 false
	if !known || !from.sent(a, err) && time.Now().After(from.until) {
		r.await(ctx, string(a.stream), lateAnswer{to, answer})
		return true
	}
	//guard:an-atomic-batch-is-acknowledged-by-our-jetstream 1 true
	return !from.sent(a, err)
}

// await keeps an answer until its stream was looked up. The caller has locked r.mu.
func (r *atomicRun) await(ctx context.Context, name string, late lateAnswer) {
	waiting, asked := r.unproven[name]
	if !asked {
		if len(r.unproven) >= maxRoutes { // another program made up names
			return
		}
		r.working.Go(func() { r.prove(ctx, name) })
	}
	r.unproven[name] = append(waiting, late)
}

// prove looks up a stream, and then lets the answers come again that waited for that. If the lookup fails,
// they do not come: an answer counts only if it is certainly ours. The lookup of our stream does not fail
// for long, because a fence needs it too.
func (r *atomicRun) prove(ctx context.Context, name string) {
	found, err := originOf(ctx, r.p.nc, name)
	r.mu.Lock()
	defer r.mu.Unlock()
	waiting := r.unproven[name]
	delete(r.unproven, name)
	if err != nil {
		return
	}
	if len(r.origins) >= maxRoutes { // another program made up names: forget all
		clear(r.origins)
	}
	r.origins[name] = found
	for _, late := range waiting {
		late.to.Put(late.answer)
	}
}

// reportStored reports a batch whose last message is stored at the given sequence. Events
// that the client library refused, and later events of their keys, were not in the batch.
func (b *batchSender) reportStored(of *batch, last uint64) {
	seq := last - uint64(len(of.sent))
	if len(of.sent) == len(of.messages) {
		for _, f := range of.messages {
			seq++
			b.run.reportFn(f, broker.Outcome{Class: broker.Stored, Stream: b.name, Sequence: seq})
		}
		return
	}
	outcomes := make([]broker.Outcome, len(of.messages))
	sent := of.sent
	for i, f := range of.messages {
		o, refused := of.faults[f]
		switch {
		case refused:
			outcomes[i] = o
		case len(sent) > 0 && sent[0] == f:
			seq++
			outcomes[i], sent = broker.Outcome{Class: broker.Stored, Stream: b.name, Sequence: seq}, sent[1:]
		default:
			outcomes[i] = broker.Outcome{Class: broker.BlockedByKey, Err: broker.ErrBlockedByKey}
		}
	}
	b.run.reportBatch(of.messages, outcomes)
}

// reportNotStored reports a batch that the broker did not store, or may not have stored.
func (b *batchSender) reportNotStored(of *batch, o broker.Outcome) {
	if o.Stream == "" && o.Class != broker.Unroutable {
		o.Stream = b.name
	}
	outcomes := make([]broker.Outcome, len(of.messages))
	for i, f := range of.messages {
		outcomes[i] = o
		if fault, refused := of.faults[f]; refused {
			outcomes[i] = fault
		}
	}
	b.run.reportBatch(of.messages, outcomes)
}

// sendOneByOne sends events one by one, with the fence, and waits for each answer, so that each
// event gets its own outcome. If an event is stored already, the broker calls it a duplicate.
// sendOneByOne stops after an event without an answer, or if maxProbes events found the stream
// unavailable and none is stored. The remaining events get the outcome of the last event sent.
func (b *batchSender) sendOneByOne(ctx context.Context, messages []*broker.Message) error {
	outcomes := make([]broker.Outcome, len(messages))
	missed := make(map[string]struct{})
	stored, missing := 0, 0
	for i, f := range messages {
		key := f.OrderKey()
		if _, ok := missed[key]; ok && key != "" {
			outcomes[i] = broker.Outcome{Class: broker.BlockedByKey, Err: broker.ErrBlockedByKey}
			continue
		}
		o, err := b.sendOne(ctx, f)
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		outcomes[i] = o
		if o.Class == broker.Stored {
			stored++
			continue
		}
		missed[key] = struct{}{}
		f.Isolated = true
		b.run.forget(f.Subject)
		if o.Class == broker.Unavailable {
			missing++
		}
		if o.Class == broker.Unknown && errors.Is(o.Err, broker.ErrUnacknowledged) || stored == 0 && missing >= maxProbes {
			for j := i + 1; j < len(messages); j++ {
				outcomes[j] = o
			}
			break
		}
	}
	b.run.reportBatch(messages, outcomes)
	return nil
}

// sendOne sends a single event, with the fence. If the fence was refused, or the stream lost the
// first copy of a duplicate, sendOne sends the event again. An error of sendOne ends the term.
func (b *batchSender) sendOne(ctx context.Context, f *broker.Message) (broker.Outcome, error) {
	fences := 0
	for waits := 0; ; {
		if b.fence.seq == 0 {
			if err := b.fence.take(ctx); endsTerm(err) {
				return broker.Outcome{}, err
			} else if err != nil {
				return b.fence.outcomeOf(err), nil
			}
		}
		o := b.sendSingle(ctx, f)
		again := false
		if o.Duplicate {
			o, again = b.run.duplicates.verify(ctx, f, o)
		}
		var refused *BrokerError
		switch {
		case again:
		case !errors.As(o.Err, &refused):
			return o, nil
		case refused.Code == codeFenced && fences < maxFences:
			fences++
			b.fence.seq = 0
		case refused.Code == codeInProcess && waits < maxInProcess && sleep.For(ctx, processWait):
			waits++
		default:
			return o, nil
		}
	}
}

func (b *batchSender) sendSingle(ctx context.Context, f *broker.Message) broker.Outcome {
	reply := b.run.replies.Expect([]*broker.Message{f}, "")
	defer b.run.replies.Drop(reply)
	header := b.encoder.Encode(&f.Event.Event, copyOf(f))
	delete(header, batchID)
	delete(header, batchSequence)
	b.fence.set(header)
	b.msg = nats.Msg{Subject: f.Subject, Reply: b.run.replies.Subject(reply, false), Header: header, Data: f.Data}
	err := b.run.p.nc.PublishMsg(&b.msg)
	b.fence.clear(header)
	if err != nil {
		return failure(fmt.Errorf("send: %w", err))
	}
	a := b.run.receive(ctx, reply)
	switch {
	case errors.Is(a.Err, replies.ErrUnanswered):
		return b.lookUp(ctx, f.Subject)
	case a.Err != nil:
		return failure(a.Err)
	}
	got, err := parseAck(a.Data)
	if err != nil {
		o := failure(err)
		o.Stream = string(got.stream)
		return o
	}
	return broker.Outcome{Class: broker.Stored, Stream: string(got.stream), Sequence: got.seq, Duplicate: got.duplicate}
}
