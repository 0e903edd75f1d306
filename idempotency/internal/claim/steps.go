package claim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/idempotency/internal/failure"
	"github.com/postroom/postroom/internal/sleep"
)

// steps has what this attempt knows about the steps of the operation.
type steps struct {
	mu   sync.Mutex
	done map[string]json.RawMessage // completed steps with their results
	busy map[string]struct{}        // steps that are running
	dark map[string]struct{}        // phases whose commit was not answered, so they may be committed or not
}

func newSteps() steps {
	return steps{done: make(map[string]json.RawMessage), busy: make(map[string]struct{}), dark: make(map[string]struct{})}
}

// Done returns the result of a completed step. The result ok is false if the step is not done.
func (c *Claim) Done(name string) (text []byte, ok bool) {
	c.steps.mu.Lock()
	defer c.steps.mu.Unlock()
	text, ok = c.steps.done[name]
	return text, ok
}

// Remember notes that a step is done and recorded.
func (c *Claim) Remember(name string, text []byte) {
	c.steps.mu.Lock()
	defer c.steps.mu.Unlock()
	c.steps.done[name] = text
}

// Darken notes that it is not known whether a phase was committed. If this attempt ran the phase
// again, the phase could have two effects.
func (c *Claim) Darken(name string) {
	c.steps.mu.Lock()
	defer c.steps.mu.Unlock()
	c.steps.dark[name] = struct{}{}
}

// IsDark reports whether Darken was called for a phase.
func (c *Claim) IsDark(name string) bool {
	c.steps.mu.Lock()
	defer c.steps.mu.Unlock()
	_, dark := c.steps.dark[name]
	return dark
}

// Enter marks a step as running. It returns false if the step already runs.
func (c *Claim) Enter(name string) bool {
	c.steps.mu.Lock()
	defer c.steps.mu.Unlock()
	_, busy := c.steps.busy[name]
	c.steps.busy[name] = struct{}{}
	return !busy
}

// Leave marks a step as no longer running.
func (c *Claim) Leave(name string) {
	c.steps.mu.Lock()
	defer c.steps.mu.Unlock()
	delete(c.steps.busy, name)
}

// Receipt is stored for a step if calls of the step began and their outcome is unknown. The object
// under "" in the row's checkpoints has the receipts, by the names of the steps. No step has the
// name "".
type Receipt struct {
	Since time.Time // when the first call began, by the database's clock
	Key   string
	Calls int
	Call  string // the id of the call that this attempt begins
}

// Begin records, under the claim, that a call begins. The result free says whether the call may be
// made: true if the call did not begin earlier, or if the vendor still recognises the call's key.
// If it is false, Begin records nothing. If Begin fails, the caller makes no call, and Begin takes
// back what it may have recorded.
func (c *Claim) Begin(ctx context.Context, name, key string, window time.Duration) (noted Receipt, free bool, err error) {
	noted.Key, noted.Call = key, uuid.NewString()
	if !c.Keyed {
		noted.Since = time.Now()
		return noted, true, nil
	}
	k, call, doubt := c.Key, noted.Call, false
	err = c.persist(ctx, "the beginning of a call is not recorded yet", name, func(ctx context.Context) error {
		err := c.table.Pool.QueryRow(ctx, c.table.SQL.Begin, k.Scope, k.Principal, k.Value, c.owner, c.fence, name, key, window, call).
			Scan(&free, &noted.Since, &noted.Key, &noted.Calls)
		if errors.Is(err, pgx.ErrNoRows) {
			c.lose(ErrLost)
			return ErrLost
		}
		doubt = doubt || err != nil && !failure.IsRefusal(err)
		return err
	})
	if err == nil {
		return noted, free, nil
	}
	err = fmt.Errorf("record that it begins: %w", err)
	//guard:a-begin-in-doubt-is-taken-back false
	if doubt && !errors.Is(err, ErrLost) {
		err = errors.Join(err, c.Undo(ctx, name, call))
	}
	return noted, false, err
}

// Undo records that a call of a step began but did not happen. If call is "", no call of the step
// happened. A second Undo changes nothing.
func (c *Claim) Undo(ctx context.Context, name, call string) error {
	if !c.Keyed {
		return nil
	}
	var which *string
	if call != "" {
		which = &call
	}
	return c.outcome(ctx, name, func(ctx context.Context) error {
		return c.write(ctx, c.table.Pool, "record that it did not happen", c.table.SQL.Undo, name, which)
	})
}

// Finish records that a call is done, with its result. A second Finish changes nothing.
func (c *Claim) Finish(ctx context.Context, name string, text []byte) error {
	err := c.outcome(ctx, name, func(ctx context.Context) error { return c.Record(ctx, c.table.Pool, name, text, false) })
	if err == nil {
		c.Remember(name, text)
	}
	return err
}

// Record records, under the claim, that a step is done. If the parameter once is set and a step of
// this name is already recorded, Record fails.
func (c *Claim) Record(ctx context.Context, db Execer, name string, text []byte, once bool) error {
	if !c.Keyed {
		return nil
	}
	return c.write(ctx, db, "record "+name, c.table.SQL.Advance, name, string(text), once)
}

// The first and the longest pause between tries to record the outcome of a call.
const (
	firstPause = 50 * time.Millisecond
	mostPause  = time.Second
)

// outcome records the outcome of a call, which only this attempt knows.
func (c *Claim) outcome(ctx context.Context, name string, write func(ctx context.Context) error) error {
	return c.persist(ctx, "the outcome of a call is not recorded yet", name, write)
}

// persist writes a record. If the database may accept the record later, persist tries again until
// ctx ends. The parameter delayed is a message for the log.
func (c *Claim) persist(ctx context.Context, delayed, name string, write func(ctx context.Context) error) error {
	for rest := firstPause; ; rest = min(2*rest, mostPause) {
		bounded, cancel := c.table.bounded(ctx)
		err := write(bounded)
		cancel()
		if err == nil || errors.Is(err, ErrLost) || failure.IsAboutTheRow(err) {
			return err
		}
		if rest == firstPause {
			c.table.Log.WarnContext(ctx, delayed, "call", name, "error", err)
		}
		//guard:a-known-outcome-is-recorded-later true
		if !sleep.For(ctx, rest) {
			return err
		}
	}
}
