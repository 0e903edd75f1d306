package inbox

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/internal/wire"
)

// pull asks for as many messages as there is room for, and hands them to the
// workers as they come, until ctx ends. It asks by single requests, so that no
// message waits in the client, where it would give no sign of life.
func (c *consumer) pull(ctx context.Context, durable jetstream.Consumer) error {
	r, stop := c.requests(durable)
	defer stop()
	for r.wait(ctx) {
		err := r.next(ctx, func(msg jetstream.Msg) error {
			c.take(ctx, msg)
			return nil
		})
		if err != nil && ctx.Err() == nil {
			return c.refuseClosed(fmt.Errorf("pull: %w", err))
		}
	}
	return nil
}

// take takes a message in hand, and queues it unless another of its identity is
// on its way.
func (c *consumer) take(ctx context.Context, msg jetstream.Msg) {
	if wire.IsLease(msg.Subject()) { // a relay's, and no event
		c.settle(ctx, msg.Ack(), "ack")
		return
	}
	d, err := delivery.Decode(msg, c.origin)
	if err != nil { // it is no message of a stream: there is nothing to answer
		c.log.ErrorContext(ctx, "message without a place in a stream", "error", err, "subject", msg.Subject())
		return
	}
	d.Source = fromBroker{c}
	d.Identify(c.sub.DedupeKey, c.sub.Timeout)
	c.taken.note(markOf(d.Place.Seq, msg.Headers(), d.Place.Stored))
	c.metrics.consumed.Add(ctx, 1, c.metrics.stream)
	c.hand.take(msg)
	if c.flights.Begin(d) {
		c.lanes.Put(d)
	}
}

// beat gives a sign of life for each message in hand until ctx ends.
func (c *consumer) beat(ctx context.Context) {
	tick := time.NewTicker(c.inbox.cfg.AckWait / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, msg := range c.hand.messages() {
			// A message that was answered meanwhile says so; that is no fault.
			c.settle(ctx, msg.InProgress(), "in progress")
		}
	}
}

// hand is what a process holds of one handler: messages that were taken and
// not answered. All of them are kept from being delivered elsewhere, from the
// moment they are taken and not only while a handler runs.
type hand struct {
	most, bytes int
	freed       chan struct{} // something was dropped

	mu   sync.Mutex
	held map[jetstream.Msg]int // its size
	size int                   // of all
}

func newHand(most, bytes int) *hand {
	return &hand{most: most, bytes: bytes, freed: make(chan struct{}, 1), held: make(map[jetstream.Msg]int)}
}

func (h *hand) take(msg jetstream.Msg) {
	n := sizeOf(msg)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held[msg] = n
	h.size += n
}

func (h *hand) drop(msg jetstream.Msg) {
	h.mu.Lock()
	h.size -= h.held[msg]
	delete(h.held, msg)
	h.mu.Unlock()
	select {
	case h.freed <- struct{}{}:
	default: // one note is enough
	}
}

// room returns how many more messages may be taken, and of how many bytes.
func (h *hand) room() (messages, bytes int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.most - len(h.held), h.bytes - h.size
}

// wait waits until the hand is at least half empty, so that messages are not
// asked for one by one. It reports whether ctx still lives.
func (h *hand) wait(ctx context.Context) bool {
	for {
		messages, bytes := h.room()
		if messages >= h.most/2 && bytes >= h.bytes/2 {
			return ctx.Err() == nil
		}
		select {
		case <-ctx.Done():
			return false
		case <-h.freed:
		}
	}
}

func (h *hand) messages() []jetstream.Msg {
	h.mu.Lock()
	defer h.mu.Unlock()
	held := make([]jetstream.Msg, 0, len(h.held))
	for msg := range h.held {
		held = append(held, msg)
	}
	return held
}

// fromBroker is the source of what a durable consumer delivers.
type fromBroker struct{ c *consumer }

func (b fromBroker) Ack(ctx context.Context, d *delivery.Delivery) {
	b.c.settle(ctx, d.Msg.Ack(), "ack")
}

func (b fromBroker) HandBack(ctx context.Context, d *delivery.Delivery) {
	b.c.settle(ctx, d.Msg.Nak(), "hand back")
}

func (b fromBroker) Delay(ctx context.Context, d *delivery.Delivery, _ error) {
	b.c.settle(ctx, d.Msg.NakWithDelay(laterWait), "nak")
}

func (fromBroker) IsOver() bool          { return false }
func (fromBroker) Suspects() bool        { return false }
func (fromBroker) Held(delivery.Holding) {}
func (fromBroker) Epoch() int64          { return 0 }
