package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/childproc"
)

// Ledger records which events the producers committed.
type Ledger struct {
	mu     sync.Mutex
	ids    []map[int]string // the ids of the events, by key and number
	undone map[string]bool
	total  int
}

// NewLedger returns a ledger for the given number of keys.
func NewLedger(keys int) *Ledger {
	l := &Ledger{ids: make([]map[int]string, keys), undone: make(map[string]bool)}
	for key := range l.ids {
		l.ids[key] = make(map[int]string)
	}
	return l
}

// Commit records that an event was committed: the nth event of its key.
func (l *Ledger) Commit(key, n int, id string, _ time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ids[key][n] = id
	l.total++
}

// Undo records that an event was rolled back.
func (l *Ledger) Undo(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.undone[id] = true
}

// Size returns how many events were committed.
func (l *Ledger) Size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// Undone returns how many events were rolled back.
func (l *Ledger) Undone() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.undone)
}

// Findings are the differences between a stream and a ledger.
type Findings struct {
	Messages, Distinct, Lost           int
	Ghosts, Disordered                 int
	GhostExample, LostExample, Example string
}

// Audit reads the complete stream, and compares it with the ledger. Call it when all producers have
// ended.
func (l *Ledger) Audit(ctx context.Context, c *Client, stream string) (*Findings, error) {
	s, err := c.JS.Stream(ctx, stream)
	if err != nil {
		return nil, fmt.Errorf("read stream: %w", err)
	}
	reader, err := s.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return nil, fmt.Errorf("read stream: %w", err)
	}
	a := &audit{ledger: l, seen: make([]map[int]bool, len(l.ids)), last: make([]int, len(l.ids))}
	for key := range a.seen {
		a.seen[key] = make(map[int]bool)
	}
	messages := int(s.CachedInfo().State.Msgs) //nolint:gosec // the number is far below the limit
	for a.Messages < messages {
		batch, err := reader.Fetch(min(1000, messages-a.Messages), jetstream.FetchMaxWait(10*time.Second))
		if err != nil {
			return nil, fmt.Errorf("read stream: %w", err)
		}
		before := a.Messages
		for m := range batch.Messages() {
			if err := a.take(m); err != nil {
				return nil, err
			}
		}
		if err := batch.Error(); err != nil {
			return nil, fmt.Errorf("read stream: %w", err)
		}
		if a.Messages == before {
			return nil, fmt.Errorf("read stream: %w: message %d of %d", childproc.ErrLate, before+1, messages)
		}
	}
	a.missing()
	return &a.Findings, nil
}

// audit is the state of one call of [Ledger.Audit].
type audit struct {
	Findings

	ledger *Ledger
	seen   []map[int]bool // by key and number
	last   []int          // by key
}

// take checks a message: the first copy of an event must come after the first copy of the previous
// event of the same key.
func (a *audit) take(m jetstream.Msg) error {
	a.Messages++
	var data struct{ Key, N int }
	if err := json.Unmarshal(m.Data(), &data); err != nil {
		return fmt.Errorf("a message cannot be read: %w", err)
	}
	id := m.Headers().Get("ce-id")
	if data.Key < 0 || data.Key >= len(a.ledger.ids) || a.ledger.ids[data.Key][data.N] != id {
		if a.Ghosts++; a.Ghosts == 1 {
			a.GhostExample = fmt.Sprintf("%s, rolled back: %t", id, a.ledger.undone[id])
		}
		return nil
	}
	if a.seen[data.Key][data.N] {
		return nil
	}
	a.seen[data.Key][data.N] = true
	a.Distinct++
	if data.N != a.last[data.Key]+1 {
		if a.Disordered++; a.Disordered == 1 {
			a.Example = fmt.Sprintf("event %d of key %d comes after %d", data.N, data.Key, a.last[data.Key])
		}
	}
	a.last[data.Key] = data.N
	return nil
}

// missing counts the events that are not in the stream.
func (a *audit) missing() {
	for key, ids := range a.ledger.ids {
		for n, id := range ids {
			if a.seen[key][n] {
				continue
			}
			if a.Lost++; a.Lost == 1 {
				a.LostExample = fmt.Sprintf("%s, event %d of key %d", id, n, key)
			}
		}
	}
}
