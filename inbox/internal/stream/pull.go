package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A pull is one request for messages of a consumer. It is not the client's Fetch, because
// that takes any status for the end of the messages. A consumer with replicas sends a
// message once its replicas know of it, and a status at once: "409 Batch Completed" of a
// request that is bounded in bytes comes before the messages do. Those would come to
// nobody then, and be delivered again after AckWait. The protocol is that of ADR-37 of
// nats-architecture-and-design.
type pull struct {
	sub    *nats.Subscription
	came   chan *nats.Msg
	asked  int // messages
	taken  int
	wanted int // how many messages come, as far as is known: fewer than asked after the end
	ended  bool
}

// pullRequest is the body of a request. Times are in nanoseconds.
type pullRequest struct {
	Batch     int           `json:"batch"`
	MaxBytes  int           `json:"max_bytes,omitempty"`
	Expires   time.Duration `json:"expires"`
	Heartbeat time.Duration `json:"idle_heartbeat"`
}

const (
	// requestExpires is how long a request stays with the broker.
	requestExpires = 30 * time.Second

	// requestBeat is how often the broker gives a sign of life during a request. After
	// twice that without one the next request is made: it may have forgotten this one.
	requestBeat = 2 * time.Second

	pullSubject = "$JS.API.CONSUMER.MSG.NEXT."
	statuses    = 64 // room for what is no message; more than come in the time of a request
)

// newPull asks a consumer for so many messages, of so many bytes together at the most.
// 0 bytes are no bound. The caller stops it.
func newPull(nc *nats.Conn, from jetstream.Consumer, messages, bytes int) (*pull, error) {
	body, err := json.Marshal(pullRequest{Batch: messages, MaxBytes: bytes, Expires: requestExpires, Heartbeat: requestBeat})
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	p := &pull{came: make(chan *nats.Msg, messages+statuses), asked: messages, wanted: messages}
	reply := nc.NewInbox()
	if p.sub, err = nc.ChanSubscribe(reply, p.came); err != nil {
		return nil, fmt.Errorf("subscribe to answer: %w", err)
	}
	info := from.CachedInfo()
	if err := nc.PublishRequest(pullSubject+info.Stream+"."+info.Name, reply, body); err != nil {
		p.stop()
		return nil, fmt.Errorf("send request: %w", err)
	}
	return p, nil
}

// stop ends the request. What has come by then can still be read.
func (p *pull) stop() { _ = p.sub.Unsubscribe() } // fails on a closed connection only, which has no subscriptions

// messages hands over messages as they come, until all have come, the broker is silent,
// lost has something, or ctx ends. It returns what take returns, or why the broker
// ended the request before its time.
func (p *pull) messages(ctx context.Context, lost <-chan nats.Status, take func(jetstream.Msg) error) error {
	defer p.stop()
	quiet := time.NewTimer(2 * requestBeat)
	defer quiet.Stop()
	for p.taken < p.wanted {
		select {
		case msg := <-p.came:
			quiet.Reset(2 * requestBeat)
			if err := p.receive(msg, take); err != nil {
				return err
			}
			continue
		case <-quiet.C:
		case <-lost:
		case <-ctx.Done():
		}
		return p.rest(take)
	}
	return nil
}

// rest hands over what has come and was not read: left alone it would be delivered again
// after AckWait.
func (p *pull) rest(take func(jetstream.Msg) error) error {
	p.stop()
	for {
		select {
		case msg := <-p.came:
			if err := p.receive(msg, take); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

// receive takes in what the broker sent: a message, a sign of life, or the end.
func (p *pull) receive(msg *nats.Msg, take func(jetstream.Msg) error) error {
	status := msg.Header.Get("Status")
	if status == "" || len(msg.Data) > 0 {
		p.taken++
		return take(&message{msg})
	}
	if status == "100" {
		return nil
	}
	p.ended = true
	said := msg.Header.Get("Description")
	switch text := strings.ToLower(said); {
	case status == "503":
		return nats.ErrNoResponders
	case status == "404", status == "408", strings.Contains(text, "batch completed"), strings.Contains(text, "message size exceeds maxbytes"):
		if left, err := strconv.Atoi(msg.Header.Get("Nats-Pending-Messages")); err == nil {
			p.wanted = p.asked - left // some of them may still be on their way
		} else {
			p.wanted = p.taken
		}
		return nil
	case strings.Contains(text, "consumer deleted"):
		return jetstream.ErrConsumerDeleted
	case strings.Contains(text, "leadership change"):
		return jetstream.ErrConsumerLeadershipChanged
	case strings.Contains(text, "server shutdown"):
		return jetstream.ErrServerShutdown
	case status == "400":
		return fmt.Errorf("%w: %s", jetstream.ErrBadRequest, said)
	default:
		return errors.New("broker: " + status + " " + said)
	}
}

// requests asks the broker for messages, one request at a time. A server sends what it
// was asked for as fast as it can, keeps what the link does not take yet, and
// disconnects a client for which it keeps more than its max_pending (64 MB): so what is
// asked for is bounded in bytes. Of a slow link it is less still: what is on the way
// gives no sign of life, and would be sent again after AckWait.
type requests struct {
	s      *subscriber
	from   jetstream.Consumer
	lost   <-chan nats.Status // the connection was lost: the broker has forgotten the request
	window int                // bytes that are asked for at a time
	one    bool               // the next request is for one message of whatever size
}

const (
	// firstWindow is what is asked for while nothing is known of the link, and
	// leastWindow what is asked for of one that is very slow.
	firstWindow = 4 << 20
	leastWindow = 1 << 20

	// leastMeasured is how many bytes tell something of a link.
	leastMeasured = 256 << 10

	// windowPart is the part of AckWait that the messages of a request may be on their
	// way for.
	windowPart = 8
)

// requests returns what asks for messages from a consumer, until stop is called.
func (s *subscriber) requests(from jetstream.Consumer) (r *requests, stop func()) {
	lost := s.Conn.StatusChanged(nats.RECONNECTING)
	r = &requests{s: s, from: from, lost: lost, window: min(firstWindow, s.InFlight.bytes)}
	return r, func() { s.Conn.RemoveStatusListener(lost) }
}

// wait waits until there is room for what a request brings, and reports whether ctx
// still lives. Meanwhile it has the broker keep the consumer, which it removes when
// nothing is asked of it for longer than its threshold.
func (r *requests) wait(ctx context.Context) bool {
	threshold := r.from.CachedInfo().Config.InactiveThreshold
	if threshold <= 0 {
		return r.s.InFlight.wait(ctx)
	}
	for ctx.Err() == nil {
		within, cancel := context.WithTimeout(ctx, threshold/3)
		room := r.s.InFlight.wait(within)
		cancel()
		if room {
			return true
		}
		r.touch(ctx)
	}
	return false
}

// touch asks for a message of one byte at the most, which none has.
func (r *requests) touch(ctx context.Context) {
	batch, err := r.from.Fetch(1, jetstream.FetchMaxBytes(1), jetstream.FetchMaxWait(touchWait))
	if err == nil {
		for range batch.Messages() { // the end of the request
			continue
		}
		err = batch.Error()
	}
	if err != nil { // the next request fails as well
		r.s.Log.DebugContext(ctx, "the broker could not be told that the consumer is in use", "error", err)
	}
}

// touchWait is how long a request stays with the broker that brings nothing.
const touchWait = 10 * time.Millisecond

// next makes one request and hands over its messages as they come, until it is
// answered, the connection is lost, ctx ends or take returns an error.
func (r *requests) next(ctx context.Context, take func(jetstream.Msg) error) error {
	n, bytes := r.s.InFlight.room()
	if bytes = min(bytes, r.window); r.one {
		n, bytes = 1, 0
	}
	p, err := newPull(r.s.Conn, r.from, n, bytes)
	if err != nil {
		return err
	}
	var m measure
	err = p.messages(ctx, r.lost, func(msg jetstream.Msg) error {
		m.add(msg)
		return take(msg)
	})
	// A message that is larger than what was asked for ends a request, and would end each.
	r.one = m.messages == 0 && !r.one && p.ended
	r.resize(m)
	return err
}

// measure is what came in answer to a request, and how fast.
type measure struct {
	messages, bytes int // without the first: when that was sent is not known
	first, last     time.Time
}

func (m *measure) add(msg jetstream.Msg) {
	m.last = time.Now()
	if m.messages++; m.messages == 1 {
		m.first = m.last
		return
	}
	m.bytes += sizeOf(msg)
}

// resize has the next request be for what the link takes in a part of AckWait. Where
// messages are made more slowly than that, it is less than it might be, and enough.
func (r *requests) resize(m measure) {
	if m.bytes < leastMeasured {
		return
	}
	took := max(m.last.Sub(m.first), time.Millisecond)
	fits := float64(m.bytes) * float64(r.s.AckWait/windowPart) / float64(took)
	r.window = max(int(min(fits, float64(r.s.InFlight.bytes))), leastWindow)
}
