package inbox

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/postroom/postroom/inbox/internal/claims"
	"github.com/postroom/postroom/inbox/internal/delivery"
)

// runBatch runs a held event of a handler that reads no stream, together with other events that are
// due. If an event of the batch fails, nothing of the batch is committed, and each event runs in
// its own transaction.
func (c *retries) runBatch(life delivery.Lifetime, first *claims.Claim) {
	for all := c.queue.Collect(first, c.sub.Batch); len(all) > 0; {
		var doubts []string
		ran, began, done := c.runTogether(life, all, &doubts)
		if !done {
			if n := len(ran); n > 0 && !c.canRunUntil(all[0].Ends) {
				c.hung.add(ran[n-1].ID)
			}
			for i, cl := range all {
				one := &claim{Claim: cl, doubts: doubts}
				//guard:an-event-that-did-not-run-is-not-blamed true
				if i < len(ran) {
					one.began = began
				}
				c.retry(life, one)
			}
			return
		}
		for _, cl := range ran {
			c.gate.Succeeded(cl.Key)
			c.signals.Ended(life.Work, delivery.Done, cl.Task)
			c.inbox.runner.Ended(cl)
		}
		c.inbox.runner.Freed(c.queue)
		all = all[len(ran):]
	}
}

// hung are the events that ran last in a batch which took all its time. No time was left to run the
// events of the batch one by one, so all were given back. In another batch that would happen again, and
// no attempt would ever count.
type hung struct {
	mu  sync.Mutex
	ids map[int64]struct{}
}

// mostHung limits how many events are remembered. If there are more, all are forgotten.
const mostHung = 10_000

func (h *hung) add(id int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ids == nil || len(h.ids) >= mostHung {
		h.ids = make(map[int64]struct{})
	}
	h.ids[id] = struct{}{}
}

func (h *hung) remove(id int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.ids, id)
}

func (h *hung) has(cl *claims.Claim) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, is := h.ids[cl.ID]
	return is
}

// runTogether runs the handler for the events in one transaction and settles them. It stops early
// if the rest would take too long, or if an event changed the session. If done is true, the
// events ran are settled. Otherwise each event must run in its own transaction, and ran are the
// events that ran in the last transaction. If the handler may have committed that transaction,
// began is its id. Otherwise began is empty. If a commit is not answered, runTogether adds the
// transaction to *doubts.
func (c *retries) runTogether(life delivery.Lifetime, all []*claims.Claim, doubts *[]string) (ran []*claims.Claim, began string, done bool) {
	until, can := claims.Together(all)
	//guard:an-event-without-its-key-runs-in-no-batch 3 false
	//guard:an-event-that-hung-in-a-batch-runs-alone 4 false
	if !can || len(all) == 1 || slices.ContainsFunc(all, c.isNameless) || slices.ContainsFunc(all, c.hung.has) || !c.gate.IsOpen() || life.IsStopping() || !c.canRunUntil(until) {
		return nil, "", false
	}
	err := c.persistClaimed(life, until, func() (err error) {
		if done, err := c.settledBefore(life.Work, all[0].Key, *doubts); done || err != nil {
			return err
		}
		if err := c.endedBefore(life.Work, began); err != nil { // in an earlier round, the handler may have committed the transaction itself
			return err
		}
		ran, began, err = c.applyTogether(life, all, until.Add(-2*c.grace()), doubts)
		return err
	})
	if err != nil {
		//guard:a-batch-that-its-handler-committed-is-not-run-again 2 = ""
		return ran, began, false
	}
	return ran, "", true
}

// applyTogether is one transaction: it runs the handler for events, settles them and commits. It
// returns the events that ran. If the commit is not answered, it adds the transaction to *doubts.
func (c *retries) applyTogether(life delivery.Lifetime, all []*claims.Claim, until time.Time, doubts *[]string) (ran []*claims.Claim, began string, err error) {
	c.inbox.alone.RLock()
	defer c.inbox.alone.RUnlock()
	tx, err := c.ledger.Begin(life.Work)
	if tx == nil {
		return nil, "", err
	}
	began = tx.ID
	defer forget(&began, tx)
	for i, cl := range all {
		if err != nil || i > 0 && (life.IsStopping() || !c.gate.IsOpen() || time.Until(until) < c.sub.Timeout*3/4 || tx.Differs()) {
			break
		}
		within, cancel := context.WithDeadlineCause(life.Work, until, delivery.ErrTimeout)
		c.queue.Begin(cl)
		err = c.call(within, tx, cl.Task)
		cancel()
		ran = all[:i+1]
	}
	if err == nil {
		err = c.ledger.SettleAll(life.Work, tx, claims.Held(ran))
	}
	failed := err != nil
	if err = c.ledger.End(life.Work, tx, err); !failed {
		err = unlessEnded(&began, doubts, err)
	}
	return ran, began, err
}
