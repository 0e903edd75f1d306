package inbox

import (
	"context"
	"errors"
	"time"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/ledger"
)

// settleClaim ends what is owed, in the transaction of the event's effects.
func (c *retries) settleClaim(ctx context.Context, tx *ledger.Tx, cl *claim) error {
	if cl.Blocking != "" {
		return c.settleKey(ctx, tx, cl)
	}
	return c.ledger.Settle(ctx, tx, &cl.Held)
}

// settleKey ends what is owed of an event that others of its key may wait for, and
// lets the next of them go on: at once, here, where the claim leads to it. What ran
// along is settled with it.
func (c *retries) settleKey(ctx context.Context, tx *ledger.Tx, cl *claim) error {
	cl.next = nil
	ids, last := make([]int64, len(cl.along)), cl.Pos
	for i, other := range cl.along {
		ids[i], last = other.ID, other.Pos
	}
	began := time.Now()
	s, err := c.ledger.SettleKey(ctx, tx, &cl.Held, ids, last, c.follower(cl.leads))
	switch {
	case err != nil:
		return err
	case !s.Whole: // somebody decided one of them meanwhile
		cl.reach = 0
		return &shortError{delivery.ErrSettled}
	}
	cl.more = s.More
	if len(s.Next) > 0 {
		cl.next = c.inbox.runner.claims(s.Next, began)[0]
	}
	return nil
}

// follower lets the next of a key go on, claimed or not.
func (c *retries) follower(claims bool) ledger.Follower {
	f := ledger.Follower{Lease: c.lease(c.inbox.cfg.AckWait)}
	if claims {
		f.Process = &c.inbox.node.name
	}
	f.Types, f.Subjects = c.wished()
	return f
}

// endClaim ends the transaction of a held event. What was claimed in it is this
// process's from the commit on. Where nothing was, the commit begins the next delivery.
func (c *retries) endClaim(ctx, work context.Context, tx *ledger.Tx, cl *claim, err error) error {
	if cl.next == nil && err == nil {
		return c.alone(cl, unlessEnded(&cl.began, c.commit(ctx, work, tx, cl.ahead)))
	}
	if cl.next != nil {
		c.inbox.runner.begun(cl.next)
	}
	failed := err != nil
	if err = c.ledger.End(work, tx, err); !failed {
		err = c.alone(cl, unlessEnded(&cl.began, err))
	}
	if err != nil && cl.next != nil {
		var commit *delivery.CommitError
		if errors.As(err, &commit) { // it may have been claimed
			c.inbox.runner.unknown.Store(true)
		}
		c.inbox.runner.ended(cl.next)
		cl.next = nil
	}
	return err
}

// alone has a claim run without those behind it in its key if a handler ended their
// transaction: that may have been any of them.
func (c *retries) alone(cl *claim, err error) error {
	if delivery.IsEnded(err) && len(cl.along) > 0 {
		cl.reach = 0
		return &shortError{err}
	}
	return err
}

// skips reports whether an event dies of which later ones of its key do not wait.
func (c *retries) skips(cl *claim, h delivery.Holding) bool {
	return cl.Blocking != "" && h.After == nil && c.sub.Order == SkipKey
}

// failure is a failed attempt, as the ledger notes it. If the handler goes on without a dead
// event, the next of its key does.
func (c *retries) failure(cl *claim, h delivery.Holding) ledger.Failed {
	return ledger.Failed{Held: &cl.Held, Holding: h, Skipped: c.skips(cl, h), By: c.follower(false)}
}
