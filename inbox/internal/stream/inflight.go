package stream

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// InFlight has the messages that a process has taken for one handler and has not answered yet. A
// durable reader sends signs of life for all of them, even for messages that still wait for a
// worker. So the broker does not deliver them to another process.
type InFlight struct {
	most, bytes int
	linger      time.Duration // after this time, room for one message is enough; 0: never
	allowed     func() int    // returns how many messages may be in flight now; nil: always the field most
	freed       chan struct{} // gets a value when a message is dropped, or when more messages are allowed

	mu   sync.Mutex
	held map[jetstream.Msg]int // the size of each message
	size int                   // the size of all messages
}

// NewInFlight returns an InFlight with room for the given numbers of messages and bytes. See the
// method wait for the parameter linger. If the function allowed is not nil, it returns how many
// messages may be in flight at the moment: fewer while the handler is paused. Call Wake when allowed
// returns more than before.
func NewInFlight(most, bytes int, linger time.Duration, allowed func() int) *InFlight {
	return &InFlight{most: most, bytes: bytes, linger: linger, allowed: allowed, freed: make(chan struct{}, 1), held: make(map[jetstream.Msg]int)}
}

func (h *InFlight) take(msg jetstream.Msg) {
	n := SizeOf(msg)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held[msg] = n
	h.size += n
}

func (h *InFlight) drop(msg jetstream.Msg) {
	h.mu.Lock()
	h.size -= h.held[msg]
	delete(h.held, msg)
	h.mu.Unlock()
	h.Wake()
}

// Wake makes a waiting reader check again whether there is room.
func (h *InFlight) Wake() {
	select {
	case h.freed <- struct{}{}:
	default: // the channel freed has a value already
	}
}

// Most returns the largest number of messages that may be in flight.
func (h *InFlight) Most() int { return h.most }

// Spare returns the part of the room that messages may occupy for long. The reader goes on beside
// them: see the method wait.
func (h *InFlight) Spare() (messages, bytes int) {
	//guard:many-messages-that-cannot-be-held-stop-no-others 1 = 128
	return h.most - h.most/4, h.bytes / 4
}

// Len returns the number of messages in flight.
func (h *InFlight) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.held)
}

// room returns how many more messages, and how many more bytes, may be in flight.
func (h *InFlight) room() (messages, bytes int) {
	most := h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	return max(most-len(h.held), 0), h.bytes - h.size
}

// now returns how many messages may be in flight at the moment.
func (h *InFlight) now() int {
	if h.allowed == nil {
		return h.most
	}
	//guard:a-paused-handler-does-not-pull = @1
	return min(h.most, h.allowed())
}

// wait waits until there is room for half of the allowed messages, but at least for one, and for
// half of the bytes. So the reader does not request messages one by one. If linger is set, room for
// one message is enough after that time: otherwise a slow key that fills half of the room would
// hold up all other keys. It returns false if ctx ended.
func (h *InFlight) wait(ctx context.Context) bool {
	var patience <-chan time.Time
	for lingered := false; ; {
		least := max(h.now()/2, 1)
		//guard:a-slow-key-does-not-hold-up-the-reader false
		if lingered {
			least = 1
		}
		messages, bytes := h.room()
		if messages >= least && bytes >= h.bytes/2 {
			return ctx.Err() == nil
		}
		if messages > 0 && h.linger > 0 && patience == nil {
			patience = time.After(h.linger)
		}
		select {
		case <-ctx.Done():
			return false
		case <-patience:
			lingered = true
		case <-h.freed:
		}
	}
}

func (h *InFlight) messages() []jetstream.Msg {
	h.mu.Lock()
	defer h.mu.Unlock()
	held := make([]jetstream.Msg, 0, len(h.held))
	for msg := range h.held {
		held = append(held, msg)
	}
	return held
}

// SizeOf returns about how many bytes of memory a message needs.
func SizeOf(msg jetstream.Msg) int {
	n := len(msg.Subject()) + len(msg.Data())
	for name, values := range msg.Headers() {
		for _, value := range values {
			n += len(name) + len(value)
		}
	}
	return n
}
