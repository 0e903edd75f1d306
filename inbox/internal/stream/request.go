package stream

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

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
