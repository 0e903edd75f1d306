package inbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// pullWait is how long a request for messages stays with the broker.
const pullWait = 2 * time.Second

// receive takes messages from the durable consumer and hands them to the
// workers until ctx ends or reading fails. It returns after every message that
// it took is acknowledged, handed back, or left to the broker's AckWait.
func (c *consumer) receive(ctx context.Context, durable jetstream.Consumer) error {
	// Handlers that run when ctx ends may finish, within the drain timeout.
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(c.inbox.cfg.DrainTimeout, cancel) })()

	inHand := newHand(4 * c.workers)
	queue := make(chan jetstream.Msg, inHand.most) // has room for whatever is in hand
	var workers, beats sync.WaitGroup
	beating, stopBeating := context.WithCancel(context.WithoutCancel(ctx))
	defer stopBeating()
	beats.Go(func() { c.beat(beating, inHand) })
	for range c.workers {
		workers.Go(func() {
			for msg := range queue {
				if ctx.Err() == nil {
					c.deliver(ctx, work, msg)
				} else {
					c.handBack(work, msg)
				}
				inHand.drop(msg)
			}
		})
	}

	err := c.pull(ctx, durable, inHand, queue)
	close(queue)
	if ctx.Err() != nil { // what was not begun does not wait for what was
		for msg := range queue {
			c.handBack(work, msg)
			inHand.drop(msg)
		}
	}
	workers.Wait()
	stopBeating()
	beats.Wait()
	if flushErr := c.inbox.nc.FlushTimeout(time.Second); flushErr != nil {
		c.log.DebugContext(ctx, "acknowledgements not flushed; the ledger absorbs what comes again", "error", flushErr)
	}
	return err
}

// pull asks for as many messages as there is room for, and queues them as they
// come, until ctx ends. It asks by single requests, so that no message waits in
// the client, where it would give no sign of life.
func (c *consumer) pull(ctx context.Context, durable jetstream.Consumer, inHand *hand, queue chan<- jetstream.Msg) error {
	for inHand.wait(ctx) {
		request, cancel := context.WithTimeout(ctx, pullWait)
		batch, err := durable.Fetch(inHand.room(), jetstream.FetchContext(request))
		if err == nil {
			for msg := range batch.Messages() {
				inHand.take(msg)
				queue <- msg
			}
			err = batch.Error()
		}
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			return c.refuseClosed(fmt.Errorf("pull: %w", err))
		}
	}
	return nil
}

// handBack returns a message that was not begun, so that another process gets
// it at once.
func (c *consumer) handBack(ctx context.Context, msg jetstream.Msg) {
	c.settle(ctx, msg.Nak(), "hand back")
	c.metrics.ended(ctx, released, time.Time{})
}

// settle reports an answer to the broker that could not be sent. No harm comes
// of it: the message is delivered again.
func (c *consumer) settle(ctx context.Context, err error, what string) {
	if err != nil {
		c.log.DebugContext(ctx, "answer to the broker not sent, the event will be delivered again", "answer", what, "error", err)
	}
}

// beat gives a sign of life for each message in hand until ctx ends.
func (c *consumer) beat(ctx context.Context, inHand *hand) {
	tick := time.NewTicker(c.inbox.cfg.AckWait / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, msg := range inHand.messages() {
			// A message that was answered meanwhile says so; that is no fault.
			if err := msg.InProgress(); err != nil && !errors.Is(err, jetstream.ErrMsgAlreadyAckd) {
				c.settle(ctx, err, "in progress")
			}
		}
	}
}

// hand is what a process holds of one handler: messages that were taken and
// not answered. All of them are kept from being delivered elsewhere, from the
// moment they are taken and not only while a handler runs.
type hand struct {
	most  int
	freed chan struct{} // something was dropped

	mu   sync.Mutex
	held map[jetstream.Msg]struct{}
}

func newHand(most int) *hand {
	return &hand{most: most, freed: make(chan struct{}, 1), held: make(map[jetstream.Msg]struct{})}
}

func (h *hand) take(msg jetstream.Msg) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held[msg] = struct{}{}
}

func (h *hand) drop(msg jetstream.Msg) {
	h.mu.Lock()
	delete(h.held, msg)
	h.mu.Unlock()
	select {
	case h.freed <- struct{}{}:
	default: // one note is enough
	}
}

// room returns how many more messages may be taken.
func (h *hand) room() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.most - len(h.held)
}

// wait waits until the hand is at least half empty, so that messages are not
// asked for one by one. It reports whether ctx still lives.
func (h *hand) wait(ctx context.Context) bool {
	for h.room() < h.most/2 {
		select {
		case <-ctx.Done():
			return false
		case <-h.freed:
		}
	}
	return ctx.Err() == nil
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
