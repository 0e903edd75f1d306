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

	"github.com/postroom/postroom/internal/wire"
)

// A pull is one request for messages of a consumer. It replaces Fetch of the client library, which
// stops at the first status of the broker. A consumer with replicas sends a status at once, but
// sends a message only when its replicas know of the message. So if a request has a byte limit, its
// status "409 Batch Completed" arrives before the messages. Fetch would not return these messages,
// and the broker would deliver them again after AckWait. ADR-37 of nats-architecture-and-design
// describes the protocol.
type pull struct {
	sub    *nats.Subscription
	came   chan *nats.Msg
	asked  int // the number of requested messages
	taken  int
	wanted int // how many messages will come; fewer than asked if the broker ends the request early
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
	// requestExpires is how long the broker keeps a request.
	requestExpires = 30 * time.Second

	// requestBeat is how often the broker sends a sign of life during a request. If no sign comes
	// for twice that time, the reader makes the next request, because the broker may have forgotten
	// this one.
	requestBeat = 2 * time.Second

	pullSubject = "$JS.API.CONSUMER.MSG.NEXT."
	statuses    = 64 // room for statuses of the broker, which sends fewer during a request
)

// newPull requests messages from a consumer: at most the given number of messages, and at most the
// given bytes in all. If bytes is 0, the size has no limit. The caller must call messages or stop.
func newPull(nc *nats.Conn, from jetstream.Consumer, messages, bytes int) (*pull, error) {
	info := from.CachedInfo()
	//guard:a-request-obeys-the-limit-of-the-server false
	if most := info.Config.MaxRequestBatch; most > 0 { // a server may set that limit for all consumers
		messages = min(messages, most)
	}
	body, err := json.Marshal(pullRequest{Batch: messages, MaxBytes: bytes, Expires: requestExpires, Heartbeat: requestBeat})
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	p := &pull{came: make(chan *nats.Msg, messages+statuses), asked: messages, wanted: messages}
	reply := nc.NewInbox()
	if p.sub, err = nc.ChanSubscribe(reply, p.came); err != nil {
		return nil, fmt.Errorf("subscribe to answer: %w", err)
	}
	if err := nc.PublishRequest(pullSubject+info.Stream+"."+info.Name, reply, body); err != nil {
		p.stop()
		return nil, fmt.Errorf("send request: %w", err)
	}
	return p, nil
}

// stop ends the request. Messages that have come can still be read.
func (p *pull) stop() { _ = p.sub.Unsubscribe() } // fails only on a closed connection, which has no subscriptions

// denial returns the text of an error that says that the user may not subscribe to a subject like that
// of the answer. The connection has only the last such error, which may be of another request.
func (p *pull) denial() string {
	return `Subscription to "` + p.sub.Subject[:strings.LastIndex(p.sub.Subject, ".")+1]
}

// messages calls the function take for each message when it comes. It stops when all messages have
// come, the broker has been silent for too long, the connection is lost, or ctx ends. It returns an
// error of take, or the reason why the broker ended the request early.
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

// rest ends the request, and calls the function take for the messages that have come already. If
// these were dropped, the broker would deliver them again only after AckWait.
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

// receive handles one message: an event, a sign of life, or the end of the request.
func (p *pull) receive(msg *nats.Msg, take func(jetstream.Msg) error) error {
	status := msg.Header.Get("Status")
	//guard:a-message-is-no-status 3 false
	if status == "" || len(msg.Data) > 0 || msg.Reply != "" { // another program may have published a message with this header; but only a status has no reply subject
		p.taken++
		//guard:headers-that-cannot-be-read-are-noticed false
		if lostHeaders(msg) {
			msg.Header = nats.Header{wire.Unreadable: {"true"}}
		}
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
			//guard:messages-behind-the-end-of-a-request = p.taken + 0*@2
			p.wanted = p.asked - left // some of the wanted messages may still be on their way
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

// lostHeaders reports whether a message has headers that the client could not read: it delivers such a
// message without headers. Without its headers, an event would have another identity and type.
func lostHeaders(msg *nats.Msg) bool {
	return msg.Header == nil && msg.Size() > len(msg.Subject)+len(msg.Reply)+len(msg.Data)
}

// requests asks the broker for messages, one request at a time. A server sends the requested
// messages as fast as it can, and buffers the messages that the link cannot transport yet. It
// disconnects a client for which it buffers more than max_pending (64 MB), so each request has a
// byte limit. The process sends no signs of life for messages that are on their way, and the broker
// sends a message again after AckWait. So over a slow link the limit is lower.
type requests struct {
	s      *subscriber
	from   jetstream.Consumer
	lost   <-chan nats.Status // has a value if the connection was lost: the broker has forgotten the request
	window int                // bytes per request
	one    bool               // the next request is for one message of any size
}

const (
	// firstWindow is the byte limit while the speed of the link is not known. leastWindow is the
	// lowest limit, for a very slow link.
	firstWindow = 4 << 20
	leastWindow = 1 << 20

	// leastMeasured is the smallest size of a request's messages, in bytes, with which the method
	// resize measures the link.
	leastMeasured = 256 << 10

	// windowPart says how long the messages of a request may take to arrive: AckWait
	// divided by windowPart.
	windowPart = 8
)

// requests returns a value that makes requests to a consumer. Call stop at the end.
func (s *subscriber) requests(from jetstream.Consumer) (r *requests, stop func()) {
	lost := s.Conn.StatusChanged(nats.RECONNECTING)
	r = &requests{s: s, from: from, lost: lost, window: min(firstWindow, s.InFlight.bytes)}
	return r, func() { s.Conn.RemoveStatusListener(lost) }
}

// wait waits until there is room for the messages of a request. It returns false if ctx ended.
// While it waits it sends small requests, because the broker removes a consumer that gets no
// request for longer than its inactive threshold.
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
		//guard:a-busy-reader-keeps-its-consumer remove
		r.touch(ctx)
	}
	return false
}

// touch requests a message of at most one byte. There is no such message, so the request only keeps
// the consumer alive.
func (r *requests) touch(ctx context.Context) {
	batch, err := r.from.Fetch(1, jetstream.FetchMaxBytes(1), jetstream.FetchMaxWait(touchWait))
	if err == nil {
		for range batch.Messages() { // wait for the end of the request
			continue
		}
		err = batch.Error()
	}
	if err != nil { // only logged, because the next request will fail too
		r.s.Log.DebugContext(ctx, "consumer not kept alive", "error", err)
	}
}

// touchWait is how long the broker keeps the request of the method touch.
const touchWait = 10 * time.Millisecond

// next makes one request and calls the function take for its messages as they come. It returns when
// the request is answered, the connection is lost, ctx ends or take returns an error.
func (r *requests) next(ctx context.Context, take func(jetstream.Msg) error) error {
	n, bytes := r.s.InFlight.room()
	n = max(n, 1) // there was room a moment ago
	//guard:pulls-are-bounded-by-bytes 0 = 0
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
	if err == nil && m.messages == 0 && !p.ended && r.s.mayNot(p.denial()) {
		err = fmt.Errorf("receive the answer: %w", r.s.Conn.LastError())
	}
	// If a message is larger than the byte limit, it ends this request, and would end each later
	// request. So the next request is for one message of any size.
	//guard:a-message-larger-than-a-request-is-asked-for-alone remove
	r.one = m.messages == 0 && !r.one && p.ended
	r.resize(m)
	return err
}

// A measure has the number and the size of the messages that came in answer to a request, and when
// the first and the last came.
type measure struct {
	messages, bytes int // bytes does not count the first message, because it is not known when the broker sent it
	first, last     time.Time
}

func (m *measure) add(msg jetstream.Msg) {
	m.last = time.Now()
	if m.messages++; m.messages == 1 {
		m.first = m.last
		return
	}
	m.bytes += SizeOf(msg)
}

// resize sets the byte limit of the next request to the number of bytes that the link can transport
// in AckWait divided by windowPart. If messages are published at a lower rate than the link can
// transport, the limit is lower than necessary, but high enough for that rate.
func (r *requests) resize(m measure) {
	if m.bytes < leastMeasured {
		return
	}
	took := max(m.last.Sub(m.first), time.Millisecond)
	fits := float64(m.bytes) * float64(r.s.AckWait/windowPart) / float64(took)
	r.window = max(int(min(fits, float64(r.s.InFlight.bytes))), leastWindow)
}
