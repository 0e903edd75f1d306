// Package natsjs supports NATS JetStream: it has a publisher for relays, options for
// connections, and checks of streams, for relays and inboxes.
package natsjs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/jsremedy"
	"github.com/postroom/postroom/natsjs/internal/replies"
	"github.com/postroom/postroom/relay/broker"
)

// ackTimeout is how long to wait for an acknowledgement. After that time the outcome is
// unknown, and the relay publishes the event again with the same message id.
const ackTimeout = 5 * time.Second

var _ broker.Publisher = (*publisher)(nil)

// publisher publishes to NATS JetStream.
type publisher struct {
	broker.PublishOnly

	nc *nats.Conn

	listenOnce sync.Once
	mu         sync.Mutex
	watchers   map[permissionWatcher]struct{} // one for each running call of Run or RunAtomic
}

// permissionWatcher has messages in flight. Deny gets each error of the connection. If the error
// says that a permission is missing, Deny treats the messages that need this permission as refused.
type permissionWatcher interface{ Deny(err error) }

// NewPublisher returns a publisher on the given connection, which can do all that [broker.Publisher]
// describes. Connect with [ConnectOptions].
// The caller closes the connection. NewPublisher does no I/O.
//
// Each event goes to the stream that takes its subject, in CloudEvents binary mode, with a message
// id. Within its duplicate window, the stream drops a second message with the same id. In that case
// the publisher looks up whether the stream still has the first message. If the stream lost the
// first message, the publisher publishes the event with another id.
//
// The publisher replaces the connection's error handler. The new handler also calls the
// previous one. If the client no longer gets answers, because its user lost the right to receive
// them and has it again, the publisher makes the client connect again.
func NewPublisher(nc *nats.Conn) broker.Publisher {
	return &publisher{nc: nc, watchers: make(map[permissionWatcher]struct{})}
}

// Abilities returns all abilities: the publisher can do everything that [broker.Publisher]
// describes.
func (p *publisher) Abilities() broker.Abilities {
	return broker.Abilities{Inspects: true, Verifies: true, Batches: true, Risks: Risks()}
}

// Connected reports whether the connection is up.
func (p *publisher) Connected() bool { return p.nc.IsConnected() }

// Check reports whether the connection is up and has no unsafe options (see [ErrUnsafeConnection]),
// and whether JetStream answers on it.
func (p *publisher) Check(ctx context.Context) error {
	if err := checkConnection(p.nc); err != nil {
		return err
	}
	js, err := jetstream.New(p.nc)
	if err != nil {
		return fmt.Errorf("jetstream: %w", err)
	}
	asking, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	_, err = js.AccountInfo(asking)
	switch {
	case jsremedy.IsOfAccount(err):
		return postroom.Unrecoverable(fmt.Errorf("jetstream: %w", jsremedy.Explain(err)))
	case err != nil:
		return fmt.Errorf("jetstream: %w", p.unanswered(ctx, jsremedy.Explain(err)))
	}
	return nil
}

// aRequest is the subject of a request that the user of each publisher may send: Check sends it.
const aRequest = "$JS.API.INFO"

// unanswered returns the error err of a request. If the request got no answer although the connection
// is up, unanswered adds the connection's last error, because the user may lack a permission. If the
// connection is deaf, it makes the client connect again.
func (p *publisher) unanswered(ctx context.Context, err error) error {
	if !errors.Is(err, context.DeadlineExceeded) || !p.nc.IsConnected() || ctx.Err() != nil {
		return err
	}
	if denied := p.nc.LastError(); errors.Is(denied, nats.ErrPermissionViolation) {
		err = withCause(err, denied)
	}
	//guard:a-deaf-connection-connects-again false
	if jsremedy.Revive(ctx, p.nc, aRequest) {
		return fmt.Errorf("%w: the client no longer got answers, so it connects again", err)
	}
	return err
}

// Run publishes batches as [broker.Publisher] describes. One subscription receives all
// acknowledgements. The subject of an acknowledgement says for which group of events it is.
func (p *publisher) Run(ctx context.Context, batches <-chan []*broker.Message, report func(f *broker.Message, o broker.Outcome)) error {
	ctx, cancel := context.WithCancel(ctx)
	reconnects := p.nc.Stats().Reconnects
	w := newWindow(p.nc.NewInbox()+".", report)
	defer w.close()
	defer p.startLookups(ctx, w)()
	defer cancel()
	defer p.listen(w)()
	acks, err := p.nc.Subscribe(w.prefix+"*", w.onAck)
	if err != nil {
		return p.refuseClosed(fmt.Errorf("subscribe to acknowledgements: %w", err))
	}
	defer func() { _ = acks.Unsubscribe() }() // Unsubscribe fails only on a closed connection, which has no subscriptions

	status := p.nc.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.CLOSED)
	defer p.nc.RemoveStatusListener(status)
	tick := time.NewTimer(ackTimeout)
	tick.Stop() // so that an idle relay does not wake up
	defer tick.Stop()
	denied := p.nc.LastError() // the loop looks for a newer error, because the program may have replaced our error handler
	for {
		incoming := batches
		if !p.nc.IsConnected() {
			w.failAll(nats.ErrDisconnected) // the acknowledgements of these events were sent to the broken connection
			incoming = nil
		}
		if p.nc.Stats().Reconnects != reconnects {
			w.failAll(nats.ErrDisconnected)
			return broker.ErrReconnected // the relay compares the streams before it sends anything
		}
		var batch []*broker.Message
		select {
		case <-ctx.Done():
			return nil
		case b, open := <-incoming:
			if !open {
				return nil
			}
			batch = b
		case <-w.resend:
			batch = w.takeAgain()
		case <-status:
			w.failAll(nats.ErrDisconnected)
		case now := <-tick.C:
			denied = p.checkTimeouts(w, now, denied)
			if w.isWaiting() {
				tick.Reset(ackTimeout / 10)
			}
		}
		if len(batch) > 0 {
			if !w.isWaiting() {
				tick.Reset(ackTimeout / 10)
			}
			p.send(batch, w, reconnects)
		}
		if p.nc.IsClosed() {
			return p.refuseClosed(nil)
		}
	}
}

// RunAtomic publishes as [broker.Publisher] describes. A fence stops an old relay: the broker
// stores a batch only if the last message on the log's lease subject in the same stream is from
// this term. See [LeaseSubjects].
func (p *publisher) RunAtomic(ctx context.Context, token broker.LeaderToken, batches <-chan []*broker.Message, report func(f *broker.Message, o broker.Outcome)) error {
	js, err := jetstream.New(p.nc)
	if err != nil {
		return fmt.Errorf("jetstream: %w", err)
	}
	ctx, fail := context.WithCancelCause(ctx)
	run := &atomicRun{
		p: p, js: js, token: token, replies: replies.New(p.nc.NewInbox() + "."), duplicates: duplicateVerifier{p: p}, reportFn: report, fail: fail,
		routes: make(map[string]string), origins: make(map[string]origin), unproven: make(map[string][]lateAnswer), streams: make(map[string]*batchSender), overdue: make(chan struct{}, 1),
	}
	defer run.working.Wait()
	defer fail(nil)
	run.working.Go(func() { p.reviveIfOverdue(ctx, run.overdue) })
	defer p.listen(run.replies)()
	reconnects := p.nc.Stats().Reconnects
	sub, err := p.nc.Subscribe(run.replies.Subjects(), run.replies.Take)
	if err != nil {
		return p.refuseClosed(fmt.Errorf("subscribe to acknowledgements: %w", err))
	}
	defer func() { _ = sub.Unsubscribe() }() // Unsubscribe fails only on a closed connection, which has no subscriptions
	return run.serve(ctx, batches, reconnects)
}

// startLookups starts goroutines that work until ctx ends. They look up which stream takes a
// subject, whether a stream that answered is one of ours, whether the broker still has the first
// message of a duplicate, and whether the connection is deaf. The function wait waits until these goroutines have ended.
func (p *publisher) startLookups(ctx context.Context, w *window) (wait func()) {
	var asking sync.WaitGroup
	asking.Go(func() { w.lookUp(ctx, p.nc) })
	asking.Go(func() { w.lookUpDoubted(ctx, p.nc) })
	asking.Go(func() { w.lookUpOrigins(ctx, p.nc) })
	w.verify = (&duplicateVerifier{p: p}).verify
	asking.Go(func() { w.verifyAll(ctx) })
	asking.Go(func() { p.reviveIfOverdue(ctx, w.overdue) })
	return asking.Wait
}

// reviveIfOverdue makes a deaf connection connect again, until ctx ends. The channel overdue has a
// value if an acknowledgement did not come in time.
func (p *publisher) reviveIfOverdue(ctx context.Context, overdue <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-overdue:
			//guard:a-deaf-term-connects-again remove
			jsremedy.Revive(ctx, p.nc, aRequest)
		}
	}
}

// checkTimeouts reports events whose acknowledgement did not come in time. If an acknowledgement is half as
// late, it has the stream of the event's subject looked up. If the connection's last error is
// not the given one, checkTimeouts calls Deny with the newer error. It returns the connection's
// last error.
func (p *publisher) checkTimeouts(w *window, now time.Time, last error) error {
	w.expire(now.Add(-ackTimeout))
	w.doubtOverdue(now.Add(-ackTimeout / 2))
	err := p.nc.LastError()
	if err != last { //nolint:errorlint // each denial is another error
		w.Deny(err)
	}
	return err
}

// listen tells w about publishes that are not allowed, until the returned function is called. The
// server sends a denial as an error of the connection. The connection remembers only the last
// error, so the error handler must see each error.
func (p *publisher) listen(w permissionWatcher) (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watchers[w] = struct{}{}
	p.listenOnce.Do(func() {
		callers := p.nc.ErrorHandler()
		p.nc.SetErrorHandler(func(nc *nats.Conn, sub *nats.Subscription, err error) {
			p.deny(err)
			if callers != nil {
				callers(nc, sub, err)
			}
		})
	})
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.watchers, w)
	}
}

func (p *publisher) deny(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.watchers {
		w.Deny(err)
	}
}

func reportAll(batch []*broker.Message, o broker.Outcome, report func(f *broker.Message, o broker.Outcome)) {
	for _, f := range batch {
		report(f, o)
	}
}

// refuseClosed returns an unrecoverable error with the cause if the connection is closed, because it
// stays closed. Otherwise it returns err.
func (p *publisher) refuseClosed(err error) error {
	if p.nc.IsClosed() {
		return postroom.Unrecoverable(jsremedy.Closed(p.nc))
	}
	return err
}

// send writes a batch to the connection, unless the connection broke and was restored since Run
// began. It does not use a message after it sent the message's group: as soon as an event is
// acknowledged, the relay may use its Message for another event.
func (p *publisher) send(batch []*broker.Message, w *window, reconnects uint64) {
	if p.nc.Stats().Reconnects != reconnects {
		reportAll(batch, failure(nats.ErrDisconnected), w.reportFn)
		return
	}
	w.expect(batch, time.Now())
	for _, group := range w.refs {
		var failed map[*broker.Message]broker.Outcome
		for _, f := range group.messages {
			w.msg.Subject, w.msg.Reply = f.Subject, group.reply
			w.msg.Header = w.encoder.Encode(&f.Event.Event, copyOf(f))
			w.msg.Data = f.Data
			if err := p.nc.PublishMsg(&w.msg); err != nil { // if err is nil, the message was copied into the connection's buffer
				if failed == nil {
					failed = make(map[*broker.Message]broker.Outcome)
				}
				failed[f] = failure(fmt.Errorf("send: %w", err))
			}
		}
		w.sentAll(group, failed)
	}
}
