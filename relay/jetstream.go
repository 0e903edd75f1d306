package relay

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
)

// ackTimeout is how long an acknowledgement is waited for. After it the outcome
// is unknown, and the event is published again with the same message id.
const ackTimeout = 5 * time.Second

var (
	// ErrUnacknowledged says that no acknowledgement came, because time ran out
	// or the connection broke. The event may be stored or not.
	ErrUnacknowledged = errors.New("no acknowledgement from the broker")

	// ErrNoStream says that no stream takes the event's subject.
	ErrNoStream = errors.New("no stream takes the event's subject; create it with 'postroom stream ensure' or relay.EnsureStream")

	// ErrNoLeader says that nobody answered on the subject, though a stream takes
	// it: the stream has no leader at the moment.
	ErrNoLeader = errors.New("the stream of the event's subject does not answer")

	// errReconnected ends a term when the connection is back after it broke: what the
	// broker had may not be there any more.
	errReconnected = errors.New("connected to the broker again")

	// ErrNotAllowed says that the user of the connection may not publish to the
	// event's subject. Grant it, or connect as another user.
	ErrNotAllowed = errors.New("not allowed to publish to the event's subject")
)

// BrokerError is a refusal by JetStream.
type BrokerError struct {
	Code        int    // the API error code, for instance 10077
	Status      int    // its kind, in the manner of HTTP, for instance 503
	Description string // the server's words
}

func (e *BrokerError) Error() string { return fmt.Sprintf("broker: %s (%d)", e.Description, e.Code) }

// JetStreamPublisher publishes to NATS JetStream. It is made by [JetStream].
type JetStreamPublisher struct {
	nc *nats.Conn

	listens sync.Once
	mu      sync.Mutex
	windows map[deniable]struct{} // of each Run that is under way
}

// deniable has publishes under way of which the server may say that they are not
// allowed.
type deniable interface{ deny(err error) }

// JetStream returns a publisher on the given connection, which has to be made
// with [ConnectOptions] and stays the caller's. It does no I/O.
//
// Events go to the stream that has their subject, in CloudEvents binary mode,
// with a message id by which the stream drops repetitions within its duplicate
// window. When it does, the publisher looks whether the stream still has the message
// that it means, and publishes the event under another id if not.
//
// It adds to the connection's error handler, which goes on to be called.
func JetStream(nc *nats.Conn) *JetStreamPublisher {
	return &JetStreamPublisher{nc: nc, windows: make(map[deniable]struct{})}
}

// Check reports whether the connection is fit for publishing, and whether
// JetStream answers on it.
func (p *JetStreamPublisher) Check(ctx context.Context) error {
	if err := checkConnection(p.nc); err != nil {
		return err
	}
	js, err := jetstream.New(p.nc)
	if err != nil {
		return fmt.Errorf("jetstream: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	_, err = js.AccountInfo(ctx)
	switch {
	case jsremedy.IsOfAccount(err):
		return postroom.Refuse(fmt.Errorf("jetstream: %w", jsremedy.Explain(err)))
	case err != nil:
		return fmt.Errorf("jetstream: %w", jsremedy.Explain(err))
	}
	return nil
}

// Run publishes batches as [Publisher] describes. Acknowledgements come on a
// reply subject of its own, which names the event: one subscription serves any
// number of publishes. It returns an error when the connection broke and is back.
func (p *JetStreamPublisher) Run(ctx context.Context, batches <-chan []*Flight, settle func(f *Flight, o Outcome)) error {
	ctx, cancel := context.WithCancel(ctx)
	reconnects := p.nc.Stats().Reconnects
	w := newWindow(p.nc.NewInbox()+".", settle)
	defer w.close()
	defer p.startLookups(ctx, w)()
	defer cancel()
	defer p.listen(w)()
	acks, err := p.nc.Subscribe(w.prefix+"*", w.onAck)
	if err != nil {
		return p.refuseClosed(fmt.Errorf("subscribe to acknowledgements: %w", err))
	}
	defer func() { _ = acks.Unsubscribe() }() // fails on a closed connection only, which has no subscriptions

	status := p.nc.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.CLOSED)
	defer p.nc.RemoveStatusListener(status)
	tick := time.NewTimer(ackTimeout)
	tick.Stop() // until something is in flight: an idle relay sleeps
	defer tick.Stop()
	denied := p.nc.LastError() // looked at too: another error handler may have taken the place of ours
	for {
		incoming := batches
		if !p.nc.IsConnected() {
			w.failAll(nats.ErrDisconnected) // their acknowledgements went to the connection that broke
			incoming = nil
		}
		if p.nc.Stats().Reconnects != reconnects {
			w.failAll(nats.ErrDisconnected)
			return errReconnected // nothing is sent before the streams are compared
		}
		var batch []*Flight
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
			denied = p.review(w, now, denied)
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
			return p.refuseClosed(nats.ErrConnectionClosed)
		}
	}
}

// startLookups asks the broker, beside the publishing, which streams take the subjects in use and
// whether it has what it calls duplicates, until ctx ends. It returns a function that
// waits for the end.
func (p *JetStreamPublisher) startLookups(ctx context.Context, w *window) (wait func()) {
	var asking sync.WaitGroup
	asking.Go(func() { w.lookUp(ctx, p.nc) })
	w.prove = (&prover{p: p}).prove
	asking.Go(func() { w.proveAll(ctx) })
	return asking.Wait
}

// review reports what ran out of time, and what the server has denied since the
// connection's last error was looked at, which it returns.
func (p *JetStreamPublisher) review(w *window, now time.Time, last error) error {
	w.expire(now.Add(-ackTimeout))
	err := p.nc.LastError()
	if err != last { //nolint:errorlint // each denial is another error
		w.deny(err)
	}
	return err
}

// listen tells a window of publishes that are not allowed, until the returned
// function is called. The server says so to the connection, and of many the
// connection remembers only the last: each has to be taken as it comes.
func (p *JetStreamPublisher) listen(w deniable) (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.windows[w] = struct{}{}
	p.listens.Do(func() {
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
		delete(p.windows, w)
	}
}

func (p *JetStreamPublisher) deny(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.windows {
		w.deny(err)
	}
}

func settleAll(batch []*Flight, o Outcome, settle func(f *Flight, o Outcome)) {
	for _, f := range batch {
		settle(f, o)
	}
}

// refuseClosed marks an error on a closed connection: nobody opens it again.
func (p *JetStreamPublisher) refuseClosed(err error) error {
	if p.nc.IsClosed() {
		return postroom.Refuse(err)
	}
	return err
}

// send writes a batch to the connection, unless that broke and is back since. An event
// that is acknowledged is no longer its own, so it touches none after its group was sent.
func (p *JetStreamPublisher) send(batch []*Flight, w *window, reconnects uint64) {
	if p.nc.Stats().Reconnects != reconnects {
		settleAll(batch, failure(nats.ErrDisconnected), w.settle)
		return
	}
	w.expect(batch, time.Now())
	for _, group := range w.opened {
		var failed map[*Flight]Outcome
		for _, f := range group.flights {
			w.msg.Subject, w.msg.Reply = f.Subject, group.reply
			w.msg.Header = w.encoder.Encode(&f.Event, f.copy())
			w.msg.Data = f.Data
			if err := p.nc.PublishMsg(&w.msg); err != nil { // else it was copied into the connection's buffer
				if failed == nil {
					failed = make(map[*Flight]Outcome)
				}
				failed[f] = failure(fmt.Errorf("send: %w", err))
			}
		}
		w.sentAll(group, failed)
	}
}
