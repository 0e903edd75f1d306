package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/wire"
)

// ackTimeout is how long an acknowledgement is waited for. After it the outcome
// is unknown, and the event is published again with the same message id.
const ackTimeout = 5 * time.Second

var (
	// ErrUnacknowledged says that no acknowledgement came, because time ran out
	// or the connection broke. The event may be stored or not.
	ErrUnacknowledged = errors.New("no acknowledgement from the broker")

	// ErrNoStream says that nobody answered on the subject: no stream has it, or
	// the stream has no leader at the moment.
	ErrNoStream = errors.New("no stream answers on the event's subject; create it with 'postroom stream ensure' or relay.EnsureStream")
)

// BrokerError is a refusal by JetStream.
type BrokerError struct {
	Code        int    // the API error code, for instance 10077
	Description string // the server's words
}

func (e *BrokerError) Error() string { return fmt.Sprintf("broker: %s (%d)", e.Description, e.Code) }

// JetStreamPublisher publishes to NATS JetStream. It is made by [JetStream].
type JetStreamPublisher struct {
	nc *nats.Conn
}

// JetStream returns a publisher on the given connection, which has to be made
// with [ConnectOptions] and stays the caller's. It does no I/O.
//
// Events go to the stream that has their subject, in CloudEvents binary mode,
// with a message id by which the stream drops repetitions within its duplicate
// window.
func JetStream(nc *nats.Conn) *JetStreamPublisher { return &JetStreamPublisher{nc: nc} }

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
	case errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return postroom.Refuse(fmt.Errorf("jetstream: %w", err))
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled): // also where the servers that have it are away
		return fmt.Errorf("jetstream: %w, or its servers are away", err)
	case err != nil:
		return fmt.Errorf("jetstream: %w", err)
	}
	return nil
}

// Run publishes batches as [Publisher] describes. Acknowledgements come on a
// reply subject of its own, which names the event: one subscription serves any
// number of publishes.
func (p *JetStreamPublisher) Run(ctx context.Context, batches <-chan []postroom.Logged, outcome func(seq int64, duplicate bool, err error)) error {
	w := &window{prefix: p.nc.NewInbox() + ".", encoder: wire.NewEncoder(), open: make(map[int64]time.Time), outcome: outcome}
	defer w.close()
	acks, err := p.nc.Subscribe(w.prefix+"*", w.onAck)
	if err != nil {
		return p.refuseClosed(fmt.Errorf("subscribe to acknowledgements: %w", err))
	}
	defer func() { _ = acks.Unsubscribe() }() // fails on a closed connection only, which has no subscriptions

	status := p.nc.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.CLOSED)
	defer p.nc.RemoveStatusListener(status)
	tick := time.NewTicker(ackTimeout / 10)
	defer tick.Stop()
	for {
		incoming := batches
		if !p.nc.IsConnected() {
			w.failAll(nats.ErrDisconnected) // their acknowledgements went to the connection that broke
			incoming = nil
		}
		select {
		case <-ctx.Done():
			return nil
		case batch, ok := <-incoming:
			if !ok {
				return nil
			}
			p.send(batch, w)
		case <-status:
			w.failAll(nats.ErrDisconnected)
		case now := <-tick.C:
			w.expire(now.Add(-ackTimeout))
		}
		if p.nc.IsClosed() {
			return p.refuseClosed(nats.ErrConnectionClosed)
		}
	}
}

// refuseClosed marks an error on a closed connection: nobody opens it again.
func (p *JetStreamPublisher) refuseClosed(err error) error {
	if p.nc.IsClosed() {
		return postroom.Refuse(err)
	}
	return err
}

// send writes a batch to the connection.
func (p *JetStreamPublisher) send(batch []postroom.Logged, w *window) {
	now := time.Now()
	w.expect(batch, now)
	for i := range batch {
		ev := &batch[i]
		err := p.nc.PublishMsg(&nats.Msg{
			Subject: ev.Subject,
			Reply:   w.prefix + strconv.FormatInt(ev.Seq, 36),
			Header:  w.encoder.Encode(ev.Event), // copied into the connection's buffer at once
			Data:    ev.Data,
		})
		if err != nil {
			w.settle(ev.Seq, false, fmt.Errorf("send: %w", err))
		}
	}
}

// window is what was sent and not acknowledged.
type window struct {
	prefix  string
	encoder *wire.Encoder // used by Run's goroutine alone
	outcome func(seq int64, duplicate bool, err error)

	mu     sync.Mutex
	open   map[int64]time.Time // when each was sent, by seq
	closed bool
}

// expect notes events before they are sent.
func (w *window) expect(batch []postroom.Logged, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range batch {
		w.open[batch[i].Seq] = now
	}
}

// settle reports an outcome, unless the event has one already: an answer that
// comes after its time is no news.
func (w *window) settle(seq int64, duplicate bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.open[seq]; !ok || w.closed {
		return
	}
	delete(w.open, seq)
	w.outcome(seq, duplicate, err)
}

// failAll reports every open event as unacknowledged.
func (w *window) failAll(cause error) { w.fail(cause, func(time.Time) bool { return true }) }

// expire reports events that were sent before the given time.
func (w *window) expire(before time.Time) {
	w.fail(nats.ErrTimeout, func(sent time.Time) bool { return sent.Before(before) })
}

func (w *window) fail(cause error, which func(sent time.Time) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for seq, sent := range w.open {
		if which(sent) {
			delete(w.open, seq)
			w.outcome(seq, false, fmt.Errorf("%w: %w", ErrUnacknowledged, cause))
		}
	}
}

// close ends reporting: Run has returned.
func (w *window) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
}

// onAck takes an answer from the broker.
func (w *window) onAck(m *nats.Msg) {
	seq, err := strconv.ParseInt(strings.TrimPrefix(m.Subject, w.prefix), 36, 64)
	if err != nil {
		return // not an answer to anything that was sent
	}
	duplicate, err := parseAck(m)
	w.settle(seq, duplicate, err)
}

// parseAck reads a publish acknowledgement. A message without a body and with
// status 503 is the server's word that nobody listens on the subject.
func parseAck(m *nats.Msg) (duplicate bool, err error) {
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return false, ErrNoStream
	}
	// The usual answer names stream and sequence and nothing else.
	named := bytes.HasPrefix(m.Data, []byte(`{"stream":"`)) && !bytes.HasPrefix(m.Data, []byte(`{"stream":""`))
	if named && bytes.Contains(m.Data, []byte(`"seq":`)) && !bytes.Contains(m.Data, []byte(`"error"`)) && !bytes.Contains(m.Data, []byte(`"duplicate"`)) {
		return false, nil
	}
	var answer struct {
		Stream    string `json:"stream"`
		Sequence  uint64 `json:"seq"`
		Duplicate bool   `json:"duplicate"`
		Error     *struct {
			Code        int    `json:"err_code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	switch err := json.Unmarshal(m.Data, &answer); {
	case err == nil && answer.Error != nil:
		return false, &BrokerError{Code: answer.Error.Code, Description: answer.Error.Description}
	case err == nil && answer.Stream != "" && answer.Sequence > 0: // anybody may answer on a subject
		return answer.Duplicate, nil
	}
	return false, fmt.Errorf("%w: the answer cannot be read", ErrUnacknowledged)
}
