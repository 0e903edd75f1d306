package inbox

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/steps"
)

// The default number of workers of an external handler, and how many of its workers may settle
// events (record them as done) at the same time. A worker needs a connection only while it settles. If
// the pool has fewer than ten connections, fewer workers settle at the same time: a pool has four
// connections by default on a small machine.
const (
	externalWorkers = 32
	externalSettles = 4
)

// serve runs an external handler for a held event, and settles the event. The handler
// runs outside a transaction.
func (c *retries) serve(life delivery.Lifetime, cl *claim) error {
	if cl.known {
		return c.persist(life, func() error { return c.settleCall(life, cl, nil, "") })
	}
	running, cancel := context.WithCancelCause(life.Work)
	defer cancel(nil)
	cl.OnLoss(func() { cancel(delivery.ErrSettled) })
	run := steps.Begin(&cl.HeldEvent, steps.Config{
		Receipts: c.inbox.receipts, Instance: c.inbox.node.Instance(), Window: c.sub.VendorWindow, Timeout: c.sub.Timeout, Outage: outage, Lost: cl.Lose,
	})
	attempt := &Attempt{Event: cl.Event, Number: cl.Attempt, steps: run}
	said := ""
	err := c.signals.Observe(running, cl.Task, func(ctx context.Context) error {
		return c.invoker.RunNoting(ctx, nil, func(ctx context.Context, _ pgx.Tx) error { return c.external(ctx, attempt) },
			func(text string) error { said = text; return nil })
	})
	settles, outage := run.End(err)
	if err != nil && !cl.IsLost() {
		if undo := c.persist(life, func() error { return run.TakeBack(context.WithoutCancel(life.Work)) }); undo != nil {
			return &delivery.BeginError{Err: errors.Join(err, undo)}
		}
	}
	switch {
	case err == nil:
		return c.persist(life, func() error { return c.settleCall(life, cl, settles, said) })
	case cl.IsLost():
		return delivery.ErrSettled
	case outage:
		return &delivery.BeginError{Err: err} // the event did not cause the failure
	}
	return err
}

// settleCall runs the functions of OnSuccess after the handler returned nil, and settles the event.
func (c *retries) settleCall(life delivery.Lifetime, cl *claim, settles []func(ctx context.Context, tx pgx.Tx) error, said string) error {
	ctx := life.Work
	if done, err := c.settledBefore(ctx, cl.Key, cl.doubts); done || err != nil {
		return err
	}
	if len(settles) == 0 && cl.Blocking == "" && said == "" {
		return c.inbox.receipts.Settle(cl.ID, cl.Epoch, &cl.doubts)
	}
	select {
	case c.settling <- struct{}{}:
		defer func() { <-c.settling }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := c.endedBefore(ctx, cl.began); err != nil { // in an earlier round, a function of OnSuccess may have committed the transaction itself
		return err
	}
	tx, err := c.ledger.Begin(ctx)
	if tx == nil {
		return err
	}
	cl.began = tx.ID
	defer forget(&cl.began, tx)
	if err == nil {
		err = c.invoker.Run(ctx, tx, func(ctx context.Context, tx pgx.Tx) error {
			for _, settle := range settles {
				if err := settle(ctx, tx); err != nil {
					return &delivery.WhileError{What: "settle", Err: err}
				}
			}
			return nil
		})
	}
	if err == nil && said != "" {
		err = c.ledger.NoteResult(ctx, tx, cl.Key, said)
	}
	return c.endClaim(life, tx, cl, err) // last, because it locks the held row, and from then on the claim is not renewed
}
