// Package invoke calls users' handlers, each in another goroutine and within a time limit, and
// catches their panics. An error that it returns describes the user's error, or the value of a
// panic, in text, and contains neither of them.
package invoke

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/lent"
	"github.com/postroom/postroom/internal/result"
)

// Invoker runs the functions of a user's handler, each in another goroutine and within a
// time limit, and catches their panics. So a function that calls runtime.Goexit does not
// end the worker, and a function that never returns does not block the worker.
type Invoker struct {
	timeout  time.Duration
	grace    time.Duration // how long the invoker waits for a handler after the end of the handler's context
	classify Classify
	idle     pool
	running  atomic.Int32
}

// Classify is a user's function that says what an error means. If it is nil or returns
// nil, the error is not changed.
type Classify func(error) error

// Transaction is a transaction that a handler gets.
type Transaction interface {
	// Lend lends the transaction for one call.
	Lend() *lent.Tx

	// Abandon gives up a transaction that a handler still uses.
	Abandon()

	// Healthy returns an error if the client knows that the transaction cannot commit.
	Healthy() error
}

// New returns an invoker for a handler with the given time limit and number of workers. The
// parameter classify may be nil.
func New(timeout time.Duration, workers int, classify Classify) *Invoker {
	return &Invoker{timeout: timeout, grace: Grace(timeout), classify: classify, idle: make(pool, workers)}
}

// Grace returns how long the inbox waits for a handler after the handler's context ended. The
// parameter timeout is the handler's time limit.
func Grace(timeout time.Duration) time.Duration { return lent.Grace(timeout) }

// AtWork returns the number of functions that are running.
func (i *Invoker) AtWork() int { return int(i.running.Load()) }

// Close ends the idle goroutines.
func (i *Invoker) Close() { i.idle.close() }

// Run runs a handler's function within its time limit. The parameter tx is nil if the function has
// no transaction. Otherwise the function gets a loan of it, which ends when the function returns.
func (i *Invoker) Run(ctx context.Context, tx Transaction, f func(ctx context.Context, tx pgx.Tx) error) error {
	i.running.Add(1)
	defer i.running.Add(-1)
	ctx, cancel := context.WithTimeoutCause(ctx, i.timeout, delivery.ErrTimeout)
	defer cancel()
	var loan *lent.Tx
	if tx != nil {
		loan = tx.Lend()
	}
	hand := i.idle.get()
	hand.calls <- func() error { return i.guarded(func() error { return f(ctx, loan) }) }
	err, returned := i.await(ctx, tx, loan, hand.done)
	if !returned || errors.Is(err, delivery.ErrGoexit) {
		close(hand.calls)
	} else {
		i.idle.put(hand)
	}
	return err
}

// RunNoting is Run for a handler that may call postroom.SetResult. If the handler succeeds and has
// called postroom.SetResult, RunNoting calls the function note with the text of the result.
func (i *Invoker) RunNoting(ctx context.Context, tx Transaction, f func(ctx context.Context, tx pgx.Tx) error, note func(text string) error) error {
	noting, said := result.With(ctx)
	err := i.Run(noting, tx, f)
	if err != nil {
		return err
	}
	if text := said.String(); text != "" {
		return note(text)
	}
	return nil
}

// await waits until the handler returns, and takes its transaction back. When ctx has ended, or a
// goroutine of the handler still uses the transaction, await waits only for the grace time, and then
// abandons the handler. The result returned reports whether the handler itself returned.
func (i *Invoker) await(ctx context.Context, tx Transaction, loan *lent.Tx, done <-chan error) (err error, returned bool) {
	select {
	case err = <-done:
		return i.takeBack(ctx, tx, loan, time.Now(), err), true
	case <-ctx.Done():
	}
	since := time.Now()
	grace := time.NewTimer(i.grace)
	defer grace.Stop()
	select {
	case err = <-done:
		return i.takeBack(ctx, tx, loan, since, err), true
	case <-grace.C:
		if tx != nil {
			loan.Back(0)
			tx.Abandon()
		}
		return &delivery.AbandonedError{Err: fmt.Errorf("%w, and it ignores its context; it was abandoned", context.Cause(ctx))}, false
	}
}

// takeBack takes the transaction back from a handler that returned err. The grace time began at the
// given time.
func (i *Invoker) takeBack(ctx context.Context, tx Transaction, loan *lent.Tx, since time.Time, err error) error {
	switch {
	case tx == nil:
	//guard:a-transaction-in-use-is-abandoned = @ && false
	case !loan.Back(i.grace - time.Since(since)):
		tx.Abandon()
		err = &delivery.AbandonedError{Err: errors.Join(lent.ErrStillUsed, err)}
	case err == nil:
		err = tx.Healthy()
	}
	return timedOut(ctx, err)
}

// timedOut adds ErrTimeout to the error if the handler reached its own time limit. If the context
// ended because the process stops, timedOut adds nothing.
func timedOut(attempt context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(attempt), delivery.ErrTimeout) {
		return fmt.Errorf("%w: %w", delivery.ErrTimeout, err)
	}
	return err
}

// A caller is a goroutine that calls the handler for one event after the other. A new goroutine for
// each event would have to grow its stack each time. If the handler ends the goroutine or does not
// return, the invoker does not use that goroutine again.
type caller struct {
	calls chan func() error
	done  chan error // has room for one result, so that an abandoned caller is not blocked
}

// A pool has the idle callers of a handler.
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

// close ends the idle callers.
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

// one makes a call, and sends the call's result to the method await. If the call ends the
// goroutine, the deferred function still runs, and sends ErrGoexit.
func (c *caller) one(call func() error) {
	err := delivery.ErrGoexit
	defer func() { c.done <- err }()
	err = call()
}

// guarded calls a user's function, and classifies and describes the error that it returned. All of
// that happens inside the guard. The result does not contain the user's error, so later code calls
// no method of it.
func (i *Invoker) guarded(call func() error) error {
	err := guard.Call(call)
	if err == nil {
		return nil
	}
	if _, panicked := err.(*guard.PanicError); panicked { //nolint:errorlint // the function panicked: it did not return this error
		return returned(err)
	}
	var described error
	if failed := guard.Call(func() error { described = i.described(err); return nil }); failed != nil {
		return fmt.Errorf("a method of the returned error, of type %T, or Classify: %w", err, failed)
	}
	return described
}

// described describes an error that a user's function returned, or the result of the user's
// Classify for that error. Classify is not called for errors that the event did not cause.
func (i *Invoker) described(err error) error {
	described := returned(err)
	//guard:classify-and-outages = @1
	if i.classify == nil || delivery.IsOutage(described) || delivery.IsContention(described) || errors.Is(described, delivery.ErrSettled) {
		return described
	}
	if classified := i.classify(err); classified != nil {
		return returned(classified)
	}
	return described
}
