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
