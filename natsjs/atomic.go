package natsjs

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/natsjs/internal/replies"
	"github.com/postroom/postroom/relay/broker"
)

// maxRoutes is the largest number of subjects whose streams an atomicRun remembers.
const maxRoutes = 10_000

// atomicRun is one call of RunAtomic. The main goroutine splits batches by stream, some goroutines
// look up the streams of subjects, and one goroutine for each stream sends its batches.
type atomicRun struct {
	p          *publisher
	js         jetstream.JetStream
	token      broker.LeaderToken
	replies    *replies.Set
	duplicates duplicateVerifier
	reportFn   func(f *broker.Message, o broker.Outcome)
	fail       context.CancelCauseFunc
	working    sync.WaitGroup
	overdue    chan struct{} // signals that an acknowledgement did not come in time

	mu       sync.Mutex
	routes   map[string]string       // the stream of each subject that was looked up
	origins  map[string]origin       // the streams that answered, by name
	unproven map[string][]lateAnswer // the answers that wait for a lookup of their stream, by its name
	streams  map[string]*batchSender
}

// lateAnswer is an answer that comes again after its stream was looked up.
type lateAnswer struct {
	to     *replies.Reply
	answer replies.Answer
}

// serve passes batches to the senders of the streams. It returns when ctx ends, the channel batches
// is closed, a sender fails, or the connection was restored or is closed.
func (r *atomicRun) serve(ctx context.Context, batches <-chan []*broker.Message, reconnects uint64) error {
	nc := r.p.nc
	status := nc.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.CLOSED)
	defer nc.RemoveStatusListener(status)
	tick := time.NewTicker(ackTimeout / 10)
	defer tick.Stop()
	denied := nc.LastError() // as in Run, the loop looks for a newer error
	for {
		incoming := batches
		if !nc.IsConnected() {
			r.replies.FailAll(nats.ErrDisconnected)
			incoming = nil
		}
		if nc.Stats().Reconnects != reconnects {
			return broker.ErrReconnected
		}
		select {
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) && !errors.Is(cause, context.DeadlineExceeded) {
				return cause
			}
			return nil
		case batch, ok := <-incoming:
			if !ok {
				return nil
			}
			r.split(ctx, batch)
		case <-status:
		case <-tick.C:
			if err := nc.LastError(); err != denied { //nolint:errorlint // each denial is a new error value
				r.replies.Deny(err)
				denied = err
			}
		}
		if nc.IsClosed() {
			return r.p.refuseClosed(nil)
		}
	}
}

// split passes the events of a batch to their streams. An atomic batch goes to one stream. If the
// events of a key go to several streams, split passes on only the events before the first change of
// stream. The later events of the key get BlockedByKey.
func (r *atomicRun) split(ctx context.Context, batch []*broker.Message) {
	if name, one := r.oneStream(batch); one {
		r.stream(ctx, name).push(batch)
		return
	}
	type group struct {
		name, subject string // subject is set if the stream is not known
		messages      []*broker.Message
	}
	var groups []*group
	byName := make(map[[2]string]*group)
	ofKey := make(map[string]*group)
	var behind []*broker.Message
	for _, f := range batch {
		to := [2]string{r.route(f.Subject)}
		if to[0] == "" {
			to[1] = f.Subject
		}
		g, ok := byName[to]
		if !ok {
			g = &group{name: to[0], subject: to[1]}
			byName[to] = g
			groups = append(groups, g)
		}
		if key := f.OrderKey(); key != "" {
			if first, ok := ofKey[key]; ok && first != g {
				ofKey[key] = nil // later events of the key must wait
				behind = append(behind, f)
				continue
			}
			ofKey[key] = g
		}
		g.messages = append(g.messages, f)
	}
	for i := len(behind) - 1; i >= 0; i-- {
		r.reportFn(behind[i], broker.Outcome{Class: broker.BlockedByKey, Err: broker.ErrBlockedByKey})
	}
	for _, g := range groups {
		if g.name != "" {
			r.stream(ctx, g.name).push(g.messages)
			continue
		}
		r.working.Go(func() { r.lookUp(ctx, g.subject, g.messages) })
	}
}

// oneStream returns the stream of a batch if all its events go to one known stream.
func (r *atomicRun) oneStream(batch []*broker.Message) (name string, one bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	subject := ""
	for i, f := range batch {
		if i > 0 && f.Subject == subject {
			continue
		}
		subject = f.Subject
		next := r.routes[subject]
		if next == "" || i > 0 && next != name {
			return "", false
		}
		name = next
	}
	return name, len(batch) > 0
}

func (r *atomicRun) route(subject string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.routes[subject]
}

// lookUp finds the stream of a subject, and passes the waiting events to that stream.
func (r *atomicRun) lookUp(ctx context.Context, subject string, messages []*broker.Message) {
	o := streamOf(ctx, r.js, subject)
	if o.Stream == "" {
		if ctx.Err() == nil {
			r.reportAll(messages, o)
		}
		return
	}
	r.mu.Lock()
	if len(r.routes) >= maxRoutes { // subjects that contain ids do not come again: forget all subjects
		clear(r.routes)
	}
	r.routes[subject] = o.Stream
	r.mu.Unlock()
	r.stream(ctx, o.Stream).push(messages)
}

// forget forgets the stream of a subject, because another stream may take it now.
func (r *atomicRun) forget(subject string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.routes, subject)
}

// stream returns the sender for a stream. If there is no sender, it starts one.
func (r *atomicRun) stream(ctx context.Context, name string) *batchSender {
	r.mu.Lock()
	defer r.mu.Unlock()
	b, ok := r.streams[name]
	if !ok {
		b = newBatchSender(r, name)
		r.streams[name] = b
		r.working.Go(func() {
			if err := b.work(ctx); err != nil && ctx.Err() == nil {
				r.fail(err)
			}
		})
	}
	return b
}

// reportAll reports the same outcome, which is not Stored, for all events that were sent together.
func (r *atomicRun) reportAll(messages []*broker.Message, o broker.Outcome) {
	outcomes := make([]broker.Outcome, len(messages))
	for i := range outcomes {
		outcomes[i] = o
	}
	r.reportBatch(messages, outcomes)
}

// reportBatch reports the outcomes of events that were sent together. If an event is not stored,
// later events of its key get BlockedByKey. reportBatch reports these later events first.
func (r *atomicRun) reportBatch(messages []*broker.Message, outcomes []broker.Outcome) {
	var missed map[string]struct{}
	for i, f := range messages {
		key := f.OrderKey()
		if key == "" || outcomes[i].Class == broker.Stored {
			continue
		}
		if _, ok := missed[key]; ok {
			outcomes[i] = broker.Outcome{Class: broker.BlockedByKey, Err: broker.ErrBlockedByKey}
			continue
		}
		if missed == nil {
			missed = make(map[string]struct{})
		}
		missed[key] = struct{}{}
	}
	if missed != nil {
		for i := len(messages) - 1; i >= 0; i-- {
			if outcomes[i].Class == broker.BlockedByKey {
				r.reportFn(messages[i], outcomes[i])
				messages[i] = nil // the relay uses the message again
			}
		}
	}
	for i, f := range messages {
		if f != nil {
			r.reportFn(f, outcomes[i])
		}
	}
}
