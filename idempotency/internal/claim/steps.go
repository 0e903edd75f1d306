package claim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// steps are what is known of the steps of an operation, in this attempt.
type steps struct {
	mu   sync.Mutex
	done map[string]json.RawMessage // with what they returned
	busy map[string]struct{}        // calls that are under way
	dark map[string]struct{}        // phases of which it is not known whether they were committed
}

func newSteps() steps {
	return steps{done: make(map[string]json.RawMessage), busy: make(map[string]struct{}), dark: make(map[string]struct{})}
}

// Done returns what a step returned that is done, and whether it is.
func (c *Claim) Done(name string) (text []byte, ok bool) {
	c.steps.mu.Lock()
	defer c.steps.mu.Unlock()
	text, ok = c.steps.done[name]
	return text, ok
}

// Remember notes that a step is done, which was recorded.
func (c *Claim) Remember(name string, text []byte) {
	c.steps.mu.Lock()
	defer c.steps.mu.Unlock()
	c.steps.done[name] = text
}

// Darken notes that it is not known whether a phase was committed: run again in this
// attempt, it could have two effects.
func (c *Claim) Darken(name string) {
	c.steps.mu.Lock()
	defer c.steps.mu.Unlock()
	c.steps.dark[name] = struct{}{}
}

// IsDark reports whether it is not known whether a phase was committed.
func (c *Claim) IsDark(name string) bool {
	c.steps.mu.Lock()
	defer c.steps.mu.Unlock()
	_, dark := c.steps.dark[name]
	return dark
}

// Enter reports whether no other call of the name is under way, and makes it so.
func (c *Claim) Enter(name string) bool {
	c.steps.mu.Lock()
	defer c.steps.mu.Unlock()
	_, busy := c.steps.busy[name]
	c.steps.busy[name] = struct{}{}
	return !busy
}

// Leave says that a call is not under way any more.
func (c *Claim) Leave(name string) {
	c.steps.mu.Lock()
	defer c.steps.mu.Unlock()
	delete(c.steps.busy, name)
}

// Receipt is what is kept of calls of a step that were begun and of which nobody knows
// what came of them. It is in the row's checkpoints, by the step's name, under "", which
// is no step's name.
type Receipt struct {
	Since time.Time // by the database's clock
	Key   string
	Calls int
}

// Begin notes that a call begins, under the claim, and reports whether it may be made:
// it was not begun before, or its key is recognised still.
func (c *Claim) Begin(ctx context.Context, name, key string, window time.Duration) (noted Receipt, free bool, err error) {
	noted.Key = key
	if !c.Keyed {
		noted.Since = time.Now()
		return noted, true, nil
	}
	ctx, cancel := c.table.bounded(ctx)
	defer cancel()
	k := c.Key
	err = c.table.Pool.QueryRow(ctx, c.table.SQL.Begin, k.Scope, k.Principal, k.Value, c.owner, c.fence, name, noted.Key, window).
		Scan(&free, &noted.Since, &noted.Key, &noted.Calls)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		c.lose(ErrLost)
		return noted, false, fmt.Errorf("note that it begins: %w", ErrLost)
	case err != nil:
		return noted, false, fmt.Errorf("note that it begins: %w", err)
	}
	return noted, free, nil
}

// Undo notes that calls that were begun did not happen.
func (c *Claim) Undo(ctx context.Context, name string, calls int) error {
	if !c.Keyed {
		return nil
	}
	ctx, cancel := c.table.bounded(ctx)
	defer cancel()
	return c.write(ctx, c.table.Pool, "note that it did not happen", c.table.SQL.Undo, name, calls)
}

// Finish notes that a call is done, with what it returned.
func (c *Claim) Finish(ctx context.Context, name string, text []byte) error {
	ctx, cancel := c.table.bounded(ctx)
	defer cancel()
	if err := c.Record(ctx, c.table.Pool, name, text); err != nil {
		return err
	}
	c.Remember(name, text)
	return nil
}

// Record writes that a step is done, under the claim.
func (c *Claim) Record(ctx context.Context, db Execer, name string, text []byte) error {
	if !c.Keyed {
		return nil
	}
	return c.write(ctx, db, "record "+name, c.table.SQL.Advance, name, string(text))
}
