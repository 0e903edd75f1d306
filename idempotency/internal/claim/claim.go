// Package claim takes, renews and gives back an attempt's claim on a key, in lease mode. While the
// attempt has the claim, the package records the steps that the attempt has done.
//
// Every write carries the claim's owner and its fence, a number that rises with each takeover. So
// an attempt that lost its claim can write nothing.
package claim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/idempotency/internal/failure"
	"github.com/postroom/postroom/internal/clock"
)

// ErrLost says that the claim expired. Another attempt may have the key now.
var ErrLost = errors.New("the claim was lost")

// Table is the table with the claims.
type Table struct {
	Pool *pgxpool.Pool
	SQL  Statements
	Log  *slog.Logger

	// Timeout limits each use of the database.
	Timeout time.Duration
}

// bounded returns a context for a use of the database. This context does not end when the caller's
// context ends, because pgx would then close the connection.
func (t *Table) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), t.Timeout)
}

// Key is the key to claim.
type Key struct{ Scope, Principal, Value string }

// Terms says what to claim, and for how long.
type Terms struct {
	Key   Key
	Other string // the principal in its other form: see Key.stored of package idempotency
	Keyed bool   // if false, nothing is claimed and nothing is recorded
	Lock  int64  // the number of the advisory lock that transactions on the key hold
	Print []byte // the fingerprint of the request

	Length time.Duration // how long the claim lasts
	TTL    time.Duration // how long the row is kept after the claim or the attempt has ended
}

// Claim is an attempt's claim on a key.
type Claim struct {
	Terms

	table *Table
	owner string
	fence int64
	at    string // the id of this Postroom database

	number int       // number of the attempt, from 1
	began  string    // the last step that an earlier attempt completed
	asked  time.Time // when the claim was requested: the claim's length counts from then
	lose   context.CancelCauseFunc

	steps steps
}

// New returns the claim of an attempt that has not claimed its key yet.
func (t *Table) New(terms Terms) *Claim {
	return &Claim{Terms: terms, table: t, owner: uuid.NewString(), number: 1, steps: newSteps()}
}

// Owner names the attempt.
func (c *Claim) Owner() string { return c.owner }

// Instance returns the id of the Postroom database that has the table, or "" if no key was claimed.
func (c *Claim) Instance() string { return c.at }

// Number returns the number of the attempt, from 1.
func (c *Claim) Number() int { return c.number }

// Began returns the last step that an earlier attempt completed.
func (c *Claim) Began() string { return c.began }

// Execer is a pool or a transaction.
type Execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// write runs a statement that checks owner and fence. If no row changed, it calls lose.
func (c *Claim) write(ctx context.Context, db Execer, what, sql string, args ...any) error {
	k := c.Key
	tag, err := db.Exec(ctx, sql, append([]any{k.Scope, k.Principal, k.Value, c.owner, c.fence}, args...)...)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	//guard:a-lost-claim-writes-nothing false
	if tag.RowsAffected() == 0 {
		c.lose(ErrLost)
		return fmt.Errorf("%s: %w", what, ErrLost)
	}
	return nil
}

// renew renews the claim until ctx ends. If renew cannot do so before the claim expires, the claim
// counts as lost, even if the server still has it.
func (c *Claim) renew(ctx context.Context) {
	length := c.Length
	until := c.asked.Add(length)
	next := time.NewTimer(time.Until(c.asked.Add(length / 3)))
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		begun := time.Now()
		bounded, cancel := c.table.bounded(ctx)
		before, stop := context.WithDeadline(bounded, until)
		err := c.write(before, c.table.Pool, "renew claim", c.table.SQL.Renew, length, c.TTL)
		stop()
		cancel()
		switch {
		case err == nil:
			until = begun.Add(length)
			next.Reset(time.Until(begun.Add(length / 3)))
		case errors.Is(err, ErrLost):
			return
		//guard:a-claim-that-cannot-be-renewed-is-lost false
		case !time.Now().Before(until):
			c.lose(ErrLost)
			return
		default:
			c.table.Log.WarnContext(ctx, "the claim of an idempotency key was not renewed", "error", err)
			next.Reset(min(length/6, time.Until(until)))
		}
	}
}

// Take takes the key if the key has no row, and reports whether it did.
func (c *Claim) Take(ctx context.Context) (bool, error) {
	return c.take(ctx, c.table.SQL.Claim, c.Other, clock.Latest())
}

// TakeOver takes the key, and reports whether it did. It takes the key only if no other attempt
// holds the key, and the row still has this fence, this fingerprint, and no answer. An expired row
// counts as a row without an answer.
func (c *Claim) TakeOver(ctx context.Context, fence int64, print []byte) (bool, error) {
	return c.take(ctx, c.table.SQL.Take, fence, print, clock.Latest(), c.Other)
}

func (c *Claim) take(ctx context.Context, sql string, more ...any) (bool, error) {
	k := c.Key
	args := append([]any{k.Scope, k.Principal, k.Value, c.Print, c.owner, c.Length, c.Lock, c.TTL}, more...)
	c.asked = time.Now()
	mine, err := c.locked(ctx, sql, args...)
	//guard:a-claim-in-doubt-is-looked-up true
	if err == nil || failure.IsRefusal(err) {
		return mine, err
	}
	// The key may be claimed, and the answer was lost. If no process looked, the key would be in progress
	// until the claim ends.
	mine, again := c.read(ctx, c.table.SQL.Mine, k.Scope, k.Principal, k.Value, c.owner)
	if again != nil {
		return false, errors.Join(err, again)
	}
	if mine {
		return true, nil
	}
	return c.locked(ctx, sql, args...)
}

// locked runs a statement as read does, after another one that takes the key's lock, in one
// transaction and one round trip. So the statement sees what the last holder of the lock has
// committed.
func (c *Claim) locked(ctx context.Context, sql string, args ...any) (mine bool, err error) {
	batch := &pgx.Batch{}
	batch.Queue(c.table.SQL.Hold, c.Lock)
	batch.Queue(sql, args...)
	results := c.table.Pool.SendBatch(ctx, batch)
	_, err = results.Exec()
	if err == nil {
		mine, err = c.scan(results.QueryRow())
	}
	if closed := results.Close(); err == nil && closed != nil {
		return false, closed // the transaction may not have been committed
	}
	return mine, err
}

// read runs a statement that returns the row of the claim, if there is one.
func (c *Claim) read(ctx context.Context, sql string, args ...any) (mine bool, err error) {
	return c.scan(c.table.Pool.QueryRow(ctx, sql, args...))
}

func (c *Claim) scan(from pgx.Row) (mine bool, err error) {
	var point *string
	var done []byte
	err = from.Scan(&c.fence, &c.number, &point, &done, &c.at)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, c.resume(point, done)
}

// resume reads the steps that earlier attempts have done. It reads the steps from the row as it was
// when the claim was taken, because an earlier attempt may have recorded more steps after the row
// was first read.
func (c *Claim) resume(point *string, done []byte) error {
	if c.began = ""; point != nil {
		c.began = *point
	}
	if len(done) == 0 {
		return nil
	}
	if err := json.Unmarshal(done, &c.steps.done); err != nil {
		return fmt.Errorf("read what is done: %w", err)
	}
	return nil
}

// Hold renews the claim until ctx ends, and calls the function lose if the claim is lost. The
// result letGo waits until the last renewal has ended. End ctx before the call of letGo.
func (c *Claim) Hold(ctx context.Context, lose context.CancelCauseFunc) (letGo func()) {
	c.lose = lose
	var renewing sync.WaitGroup
	if c.Keyed {
		renewing.Go(func() { c.renew(ctx) })
	}
	return renewing.Wait
}

// Columns has the columns of an answer.
type Columns struct {
	Status  int
	Headers any // JSON as a string, or nil
	Body    []byte
	Ref     any // a string, or nil
	Dropped bool
}

// Complete stores the answer. Its TTL begins now or, with fromCreation, at the first claim.
func (c *Claim) Complete(ctx context.Context, answer Columns, fromCreation bool) error {
	ctx, cancel := c.table.bounded(ctx)
	defer cancel()
	return c.write(ctx, c.table.Pool, "keep answer", c.table.SQL.Complete, answer.Status, answer.Headers, answer.Body, answer.Ref,
		answer.Dropped, c.TTL, fromCreation)
}

// Fail gives the claim back. If Fail cannot do so, it logs a warning, and the claim expires later.
func (c *Claim) Fail(ctx context.Context) {
	if !c.Keyed {
		return
	}
	ctx, cancel := c.table.bounded(ctx)
	defer cancel()
	if err := c.write(ctx, c.table.Pool, "give claim back", c.table.SQL.Fail, c.TTL); err != nil {
		c.table.Log.WarnContext(ctx, "the claim of an idempotency key was not given back", "error", err)
	}
}
