//go:build linux || darwin

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/fleet"
)

// ledger is what producers committed, as they know it themselves.
type ledger struct {
	mu     sync.Mutex
	ids    []map[int]string // by key and number
	undone map[string]bool
	total  int
}

func newLedger(keys int) *ledger {
	l := &ledger{ids: make([]map[int]string, keys), undone: make(map[string]bool)}
	for key := range l.ids {
		l.ids[key] = make(map[int]string)
	}
	return l
}

func (l *ledger) commit(key, n int, id string, _ time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ids[key][n] = id
	l.total++
}

func (l *ledger) undo(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.undone[id] = true
}

func (l *ledger) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// findings are what a stream has of a ledger.
type findings struct {
	messages, distinct, lost           int
	ghosts, disordered                 int
	ghostExample, lostExample, example string
}

// audit reads the whole stream. Nobody produces any more.
func (l *ledger) audit(ctx context.Context, c *client) (*findings, error) {
	s, err := c.js.Stream(ctx, stream)
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
	messages := int(s.CachedInfo().State.Msgs) //nolint:gosec // far below
	for a.messages < messages {
		batch, err := reader.Fetch(min(1000, messages-a.messages), jetstream.FetchMaxWait(10*time.Second))
		if err != nil {
			return nil, fmt.Errorf("read stream: %w", err)
		}
		before := a.messages
		for m := range batch.Messages() {
			if err := a.take(m); err != nil {
				return nil, err
			}
		}
		if err := batch.Error(); err != nil {
			return nil, fmt.Errorf("read stream: %w", err)
		}
		if a.messages == before {
			return nil, fmt.Errorf("read stream: %w: message %d of %d", fleet.ErrLate, before+1, messages)
		}
	}
	a.missing()
	return &a.findings, nil
}

// audit is a stream that is being read.
type audit struct {
	findings

	ledger *ledger
	seen   []map[int]bool // by key and number
	last   []int          // by key
}

// take looks at a message: the first of an event has to follow the first of the
// event before it of the same key.
func (a *audit) take(m jetstream.Msg) error {
	a.messages++
	var data struct{ Key, N int }
	if err := json.Unmarshal(m.Data(), &data); err != nil {
		return fmt.Errorf("a message cannot be read: %w", err)
	}
	id := m.Headers().Get("ce-id")
	if data.Key < 0 || data.Key >= len(a.ledger.ids) || a.ledger.ids[data.Key][data.N] != id {
		if a.ghosts++; a.ghosts == 1 {
			a.ghostExample = fmt.Sprintf("%s, rolled back: %t", id, a.ledger.undone[id])
		}
		return nil
	}
	if a.seen[data.Key][data.N] {
		return nil
	}
	a.seen[data.Key][data.N] = true
	a.distinct++
	if data.N != a.last[data.Key]+1 {
		if a.disordered++; a.disordered == 1 {
			a.example = fmt.Sprintf("event %d of key %d comes after %d", data.N, data.Key, a.last[data.Key])
		}
	}
	a.last[data.Key] = data.N
	return nil
}

// missing counts what is not in the stream.
func (a *audit) missing() {
	for key, ids := range a.ledger.ids {
		for n, id := range ids {
			if a.seen[key][n] {
				continue
			}
			if a.lost++; a.lost == 1 {
				a.lostExample = fmt.Sprintf("%s, event %d of key %d", id, n, key)
			}
		}
	}
}

// judge reports what an audit found.
func (r *rig) judge(where string, l *ledger, f *findings) {
	r.check(where+": events committed", grouped(l.total), "some", l.total > 0)
	r.check(where+": events rolled back", grouped(len(l.undone)), "some", len(l.undone) > 0)
	r.count(where+": events lost", f.lost, f.lostExample)
	r.count(where+": rolled back and published", f.ghosts, f.ghostExample)
	r.count(where+": out of the order of their key", f.disordered, f.example)
	r.note(where+": duplicates in the stream", "%s", grouped(f.messages-f.distinct-f.ghosts))
}

// conclude waits until all is published, by the relays' own record, and looks
// whether it is.
func (r *rig) conclude(ctx context.Context, where string, d *database, c *client, l *ledger) error {
	began := time.Now()
	patience := pick(r, 15*time.Minute, 5*time.Minute)
	err := fleet.Eventually(ctx, patience, "all to be published", d.settled)
	r.note(where+": published after the last commit", "%s", time.Since(began).Round(time.Millisecond))
	if ctx.Err() != nil || errors.Is(err, fleet.ErrLate) { // what is not published yet is not lost
		return err
	}
	var found *findings
	err = errors.New("not read")
	// A server may have just come back, and a consumer be put on it that does not answer yet.
	for until := time.Now().Add(patience); err != nil && time.Now().Before(until) && fleet.Sleep(ctx, time.Second); {
		found, err = l.audit(ctx, c)
	}
	if err != nil {
		return err
	}
	r.judge(where, l, found)
	return nil
}
