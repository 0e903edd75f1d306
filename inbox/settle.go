package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom/inbox/internal/delivery"
)

// settleClaim ends what is owed, in the transaction of the event's effects.
func (c *retries) settleClaim(ctx context.Context, tx *tx, cl *claim) error {
	if err := tx.asOwn(ctx); err != nil {
		return err
	}
	if cl.blocking != "" {
		return c.settleKey(ctx, tx, cl)
	}
	tag, err := tx.Tx.Exec(ctx, c.inbox.sql.settle, cl.id, cl.epoch)
	if err != nil {
		return fmt.Errorf("settle: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return delivery.ErrSettled
	}
	return nil
}

// settleKey ends what is owed of an event that others of its key may wait for, and
// lets the next of them go on: at once, here, where the claim leads to it. What ran
// along is settled with it.
func (c *retries) settleKey(ctx context.Context, tx *tx, cl *claim) error {
	cl.next = nil
	var head, along pgconn.CommandTag
	var next []*claim
	ids, last := make([]int64, len(cl.along)), cl.pos
	for i, other := range cl.along {
		ids[i], last = other.id, other.pos
	}
	batch := &pgx.Batch{}
	batch.Queue(c.inbox.sql.plan)
	batch.Queue(c.inbox.sql.lockKey, c.sub.Name, cl.blocking)
	batch.Queue(c.inbox.sql.settle, cl.id, cl.epoch).Exec(func(tag pgconn.CommandTag) error {
		head = tag
		return nil
	})
	if len(ids) > 0 {
		batch.Queue(c.inbox.sql.settleAlong, ids).Exec(func(tag pgconn.CommandTag) error {
			along = tag
			return nil
		})
	}
	follow := c.follow(cl, last, cl.leads)
	batch.Queue(follow.sql, follow.args...).Query(c.inbox.runner.collect(&next, time.Now()))
	batch.Queue(c.inbox.sql.more, c.sub.Name, cl.blocking, last).QueryRow(func(row pgx.Row) error { return row.Scan(&cl.more) })
	if err := tx.Tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("settle: %w", err)
	}
	switch {
	case head.RowsAffected() == 0:
		return delivery.ErrSettled
	case along.RowsAffected() != int64(len(ids)): // somebody decided one of them meanwhile
		cl.reach = 0
		return &shortError{delivery.ErrSettled}
	}
	if len(next) > 0 {
		cl.next = next[0]
	}
	return nil
}

// follow is the statement that lets the next of a key go on, behind a place, claimed
// or not.
func (c *retries) follow(cl *claim, behind int64, claimed bool) statement {
	var process *string
	if claimed {
		process = &c.inbox.node.name
	}
	types, subjects := c.wished()
	return statement{sql: c.inbox.sql.follow, args: []any{c.sub.Name, cl.blocking, behind, process, c.lease(c.inbox.cfg.AckWait), types, subjects}}
}

// endClaim ends the transaction of a held event. What was claimed in it is this
// process's from the commit on. Where nothing was, the commit begins the next delivery.
func (c *retries) endClaim(ctx, work context.Context, tx *tx, cl *claim, err error) error {
	if cl.next == nil && err == nil {
		return c.alone(cl, unlessEnded(&cl.began, c.commit(ctx, work, tx, cl.ahead)))
	}
	if cl.next != nil {
		c.inbox.runner.begun(cl.next)
	}
	failed := err != nil
	if err = c.end(work, tx, err); !failed {
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
	return cl.blocking != "" && h.After == nil && c.sub.Order == SkipKey
}

// noting are the statements that note a failed attempt, and which of them does so.
// Where the handler goes on without a dead event, the next of its key does.
func (c *retries) noting(cl *claim, h delivery.Holding, args []any) (all []statement, fail int) {
	noting := statement{sql: c.inbox.sql.fail, args: args}
	if !c.skips(cl, h) {
		return []statement{noting}, 0
	}
	return []statement{
		{sql: c.inbox.sql.plan},
		{sql: c.inbox.sql.lockKey, args: []any{c.sub.Name, cl.blocking}},
		noting,
		c.follow(cl, cl.pos, false),
	}, 2
}

// exec runs statements in one transaction and one round trip.
func (in *Inbox) exec(ctx context.Context, statements []statement) ([]pgconn.CommandTag, error) {
	batch := &pgx.Batch{}
	for _, s := range statements {
		batch.Queue(s.sql, s.args...)
	}
	results := in.pool.SendBatch(ctx, batch)
	tags := make([]pgconn.CommandTag, len(statements))
	var err error
	for i := range statements {
		if tags[i], err = results.Exec(); err != nil {
			break
		}
	}
	return tags, errors.Join(err, results.Close())
}
