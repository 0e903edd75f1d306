package inbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// receive takes messages from the durable consumer and hands them to the
// workers until ctx ends or reading fails. It returns after every message that
// it took is acknowledged, handed back, or left to the broker's AckWait.
func (c *consumer) receive(ctx context.Context, durable jetstream.Consumer) error {
	messages, err := durable.Messages(jetstream.PullMaxMessages(4 * c.workers))
	if err != nil {
		return c.refuseClosed(fmt.Errorf("pull: %w", err))
	}

	// Handlers that run when ctx ends may finish, within the drain timeout.
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(c.inbox.cfg.DrainTimeout, cancel) })()

	inHand := newHand(c.inbox.cfg.AckWait / 3)
	queue := make(chan jetstream.Msg)
	var workers, beats sync.WaitGroup
	beating, stopBeating := context.WithCancel(context.WithoutCancel(ctx))
	defer stopBeating()
	beats.Go(func() { inHand.beat(beating, c.log) })
	for range c.workers {
		workers.Go(func() {
			for msg := range queue {
				c.deliver(ctx, work, msg)
				inHand.drop(msg)
			}
		})
	}

	err = c.pull(ctx, messages, inHand, queue)
	close(queue)
	workers.Wait()
	stopBeating()
	beats.Wait()
	if flushErr := c.inbox.nc.FlushTimeout(time.Second); flushErr != nil {
		c.log.DebugContext(ctx, "acknowledgements not flushed; the ledger absorbs what comes again", "error", flushErr)
	}
	return err
}

// pull moves messages to the queue until ctx ends, then hands back what was
// pulled and not begun.
func (c *consumer) pull(ctx context.Context, messages jetstream.MessagesContext, inHand *hand, queue chan<- jetstream.Msg) error {
	var fault error
	for {
		msg, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			if ctx.Err() == nil {
				fault = c.refuseClosed(fmt.Errorf("next message: %w", err))
			}
			break
		}
		inHand.take(msg)
		select {
		case queue <- msg:
			continue
		case <-ctx.Done():
		}
		c.handBack(ctx, msg)
		inHand.drop(msg)
		break
	}

	messages.Drain()
	for {
		msg, err := messages.Next()
		if errors.Is(err, jetstream.ErrMsgIteratorClosed) {
			return fault
		}
		if err == nil {
			c.handBack(ctx, msg)
		}
	}
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

// hand is what a process holds: messages that were taken and not answered. It
// keeps them from being delivered elsewhere, from the moment they are taken and
// not only while a handler runs.
type hand struct {
	every time.Duration

	mu   sync.Mutex
	held map[jetstream.Msg]struct{}
}

func newHand(every time.Duration) *hand {
	return &hand{every: every, held: make(map[jetstream.Msg]struct{})}
}

func (h *hand) take(msg jetstream.Msg) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held[msg] = struct{}{}
}

func (h *hand) drop(msg jetstream.Msg) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.held, msg)
}

// beat gives a sign of life for each message in hand until ctx ends.
func (h *hand) beat(ctx context.Context, log interface {
	DebugContext(ctx context.Context, msg string, args ...any)
}) {
	tick := time.NewTicker(h.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, msg := range h.messages() {
			// A message that was answered meanwhile says so; that is no fault.
			if err := msg.InProgress(); err != nil && !errors.Is(err, jetstream.ErrMsgAlreadyAckd) {
				log.DebugContext(ctx, "sign of life not sent", "error", err)
			}
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
