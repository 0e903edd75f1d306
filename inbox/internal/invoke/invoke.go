// Package invoke calls users' handlers: within their time, with their panics caught, in
// goroutines of their own. What it returns holds no value of a user's.
package invoke

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/internal/guard"
)

// Invoker runs the functions of a user's handler: each in another goroutine, within its
// time, and with its panics caught. One that ends with runtime.Goexit takes no worker
// with it, and one that does not return holds none for ever.
type Invoker struct {
	timeout time.Duration
	grace   time.Duration // from the end of a handler's context until it is left behind
	idle    pool
	running atomic.Int32
}

// Transaction is what a handler is given, as far as this package minds it.
type Transaction interface {
	// Abandon takes the transaction from a handler that does not return.
	Abandon()

	// Healthy reports whether it could commit, as far as the client can tell.
	Healthy() error
}

// New returns what runs a handler that has so much time, for so many workers.
func New(timeout time.Duration, workers int) *Invoker {
	return &Invoker{timeout: timeout, grace: Grace(timeout), idle: make(pool, workers)}
}

// Grace is how long a handler with a timeout is waited for after its context ended.
func Grace(timeout time.Duration) time.Duration {
	return min(max(timeout/2, 100*time.Millisecond), 5*time.Second)
}

// AtWork is how many functions run.
func (i *Invoker) AtWork() int { return int(i.running.Load()) }

// Close ends the goroutines that run nothing.
func (i *Invoker) Close() { i.idle.close() }

// Run runs a handler's function, within its time. tx is nil if it has no transaction.
func (i *Invoker) Run(ctx context.Context, tx Transaction, f func(ctx context.Context) error) error {
	i.running.Add(1)
	defer i.running.Add(-1)
	ctx, cancel := context.WithTimeoutCause(ctx, i.timeout, delivery.ErrTimeout)
	defer cancel()
	hand := i.idle.get()
	hand.calls <- func() error { return f(ctx) }
	err := i.await(ctx, tx, hand.done)
	if delivery.IsAbandoned(err) || errors.Is(err, delivery.ErrGoexit) {
		close(hand.calls)
	} else {
		i.idle.put(hand)
	}
	return err
}

// await waits for the handler, and for a while after its context ended.
func (i *Invoker) await(ctx context.Context, tx Transaction, done <-chan error) error {
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		grace := time.NewTimer(i.grace)
		defer grace.Stop()
		select {
		case err = <-done:
		case <-grace.C:
			if tx != nil {
				tx.Abandon()
			}
			return &delivery.AbandonedError{Err: context.Cause(ctx)}
		}
	}
	if err == nil && tx != nil {
		err = tx.Healthy()
	}
	return timedOut(ctx, err)
}

// timedOut tells a handler that ran into its own deadline from one whose process
// stops.
func timedOut(attempt context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(attempt), delivery.ErrTimeout) {
		return fmt.Errorf("%w: %w", delivery.ErrTimeout, err)
	}
	return err
}

// caller is a goroutine that runs handlers, one after the other: a new one for
// each event would grow its stack anew each time. One that a handler ended, or
// does not return to, is not used again.
type caller struct {
	calls chan func() error
	done  chan error // has room for one, so that a caller that was left behind ends
}

// pool has the idle ones of a handler.
type pool chan *caller

func (cs pool) get() *caller {
	select {
	case c := <-cs:
		return c
	default:
	}
	c := &caller{calls: make(chan func() error), done: make(chan error, 1)}
	go c.run()
	return c
}

func (cs pool) put(c *caller) {
	select {
	case cs <- c:
	default:
		close(c.calls)
	}
}

// close ends the idle ones.
func (cs pool) close() {
	for {
		select {
		case c := <-cs:
			close(c.calls)
		default:
			return
		}
	}
}

func (c *caller) run() {
	for call := range c.calls {
		c.one(call)
	}
}

// one runs a call, and describes the error that it returned: both with the guard up and
// within the time that the caller of this one waits. Its deferred function runs also
// where the call, or a method of its error, ends the goroutine.
func (c *caller) one(call func() error) {
	err := delivery.ErrGoexit
	defer func() { c.done <- err }()
	err = guarded(call)
}

// guarded calls a user's function. The error that it returns holds no value of the user's.
func guarded(call func() error) error {
	err := guard.Call(call)
	if err == nil {
		return nil
	}
	var described error
	if failed := guard.Call(func() error { described = returned(err); return nil }); failed != nil {
		return fmt.Errorf("a method of the returned error, of type %T: %w", err, failed)
	}
	return described
}
