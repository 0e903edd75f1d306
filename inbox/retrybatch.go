package inbox

import (
	"context"
	"time"

	"github.com/postroom/postroom/inbox/internal/claims"
	"github.com/postroom/postroom/inbox/internal/delivery"
)

// runBatch runs a held event of a handler that reads no stream, together with other events that are
// due. If an event of the batch fails, nothing of the batch is committed, and each event runs in
// its own transaction.
func (c *retries) runBatch(life delivery.Lifetime, first *claims.Claim) {
	for all := c.queue.Collect(first, c.sub.Batch); len(all) > 0; {
		members, ended := c.runTogether(life, all)
		if members == nil {
			for _, cl := range all {
				c.retry(life, &claim{Claim: cl, began: ended})
			}
			return
		}
		for _, cl := range members {
			c.gate.Succeeded(cl.Key)
			c.signals.Ended(life.Work, delivery.Done, cl.Task)
			c.inbox.runner.Ended(cl)
		}
		c.inbox.runner.Freed(c.queue)
		all = all[len(members):]
	}
}

// runTogether runs the handler for the events in one transaction and settles them. It stops early
// if the rest would take too long, or if an event changed the session. It returns the events that
// it settled. If each event must run in its own transaction, members is nil. If the handler may
// have committed the last transaction, began is that transaction's id. Otherwise began is empty.
func (c *retries) runTogether(life delivery.Lifetime, all []*claims.Claim) (members []*claims.Claim, began string) {
	until, can := claims.Together(all)
	if !can || len(all) == 1 || !c.gate.IsOpen() || life.IsStopping() || time.Until(until) < c.sub.Timeout+c.grace() {
		return nil, ""
	}
	err := c.persist(life, func() (err error) {
		if err := c.endedBefore(life.Work, began); err != nil { // in an earlier round, the handler may have committed the transaction itself
			return err
		}
		members, began, err = c.applyTogether(life, all, until.Add(-2*c.grace()))
		return err
	})
	if err != nil {
		//guard:a-batch-that-its-handler-committed-is-not-run-again 2 = ""
		return nil, began
	}
	return members, ""
}

// applyTogether is one transaction: it runs the handler for events, settles them and commits.
func (c *retries) applyTogether(life delivery.Lifetime, all []*claims.Claim, until time.Time) (members []*claims.Claim, began string, err error) {
	c.inbox.alone.RLock()
	defer c.inbox.alone.RUnlock()
	tx, err := c.ledger.Begin(life.Work)
	if tx == nil {
		return nil, "", err
	}
	began = tx.ID
	for i, cl := range all {
		if err != nil || i > 0 && (life.IsStopping() || !c.gate.IsOpen() || time.Until(until) < c.sub.Timeout*3/4 || tx.Differs()) {
			break
		}
		within, cancel := context.WithDeadlineCause(life.Work, until, delivery.ErrTimeout)
		c.queue.Begin(cl)
		err = c.call(within, tx, cl.Task)
		cancel()
		members = all[:i+1]
	}
	if err == nil {
		err = c.ledger.SettleAll(life.Work, tx, claims.Held(members))
	}
	failed := err != nil
	if err = c.ledger.End(life.Work, tx, err); !failed {
		err = unlessEnded(&began, err)
	}
	return members, began, err
}
