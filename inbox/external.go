package inbox

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/ledger"
)

// HandleExternal registers a handler that calls other systems, which no transaction
// of this database can undo. Its events are stored first, acknowledged, and run from
// held, with no transaction open: a call may take long. A handler is run by one
// process at a time, which renews its claim while it runs; where that process dies or
// stands still, another takes over after Config.AckWait, and finds in the receipts
// which steps are done.
//
// What a step did outside is done at least once, and not twice at a vendor that
// recognises keys; see [Call.Step]. What is done by [Call.OnSettle] is committed once.
// It is called before Run, and panics as [Inbox.Handle] does.
func (in *Inbox) HandleExternal(sub Subscription, h ExternalHandler) {
	if h == nil {
		panic(fmt.Sprintf("inbox: HandleExternal: no handler for %q", sub.Name))
	}
	in.register(sub, nil, h)
}

// How many events an external handler has in hand unless it says so, and how many of
// them are settled in a transaction of their own at a time: only these need a
// connection.
const (
	externalWorkers = 32
	externalSettles = 4
)

// serve runs an external handler for a held event, and settles it. Each waits for no
// other: the handler has no transaction.
func (c *retries) serve(ctx, work context.Context, cl *claim) error {
	if !cl.Solitary { // otherwise the runner holds it for writing
		c.inbox.alone.RLock()
		defer c.inbox.alone.RUnlock()
	}
	running, cancel := context.WithCancelCause(work)
	defer cancel(nil)
	cl.onLost(func() { cancel(delivery.ErrSettled) })
	call := &Call{Event: cl.Event, Attempt: cl.Attempt, claim: cl, instance: *c.inbox.node.instance.Load(), busy: make(map[string]struct{})}
	err := c.observe(running, cl.Task, func(ctx context.Context) error {
		return c.invoker.Run(ctx, nil, func(ctx context.Context) error { return c.external(ctx, call) })
	})
	settles, outage := call.end(err)
	switch {
	case err == nil:
		return c.persist(ctx, work, func() error { return c.settleCall(work, cl, settles) })
	case cl.isLost():
		return delivery.ErrSettled
	case outage:
		return &delivery.BeginError{Err: err} // it says nothing about the event
	}
	return err
}

// settleCall settles an event whose handler is done, with what is to be committed
// with it.
func (c *retries) settleCall(ctx context.Context, cl *claim, settles []func(ctx context.Context, tx pgx.Tx) error) error {
	if len(settles) == 0 && cl.Blocking == "" {
		s := &ledger.Settlement{ID: cl.ID, Epoch: cl.Epoch}
		if err := c.inbox.settler.Do(s); err != nil {
			return fmt.Errorf("settle: %w", err)
		}
		if !s.Settled {
			return delivery.ErrSettled
		}
		return nil
	}
	select {
	case c.settling <- struct{}{}:
		defer func() { <-c.settling }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := c.endedBefore(ctx, cl); err != nil { // in the round before
		return err
	}
	tx, err := c.ledger.Begin(ctx)
	if tx == nil {
		return err
	}
	cl.began = tx.ID
	if err == nil {
		err = c.invoker.Run(ctx, tx, func(ctx context.Context) error {
			for _, settle := range settles {
				if err := settle(ctx, tx); err != nil {
					return &delivery.WhileError{What: "settle", Err: err}
				}
			}
			return nil
		})
	}
	if err == nil { // last: until here the claim can be renewed, and no key is locked
		err = c.settleClaim(ctx, tx, cl)
	}
	return c.endClaim(ctx, ctx, tx, cl, err)
}
