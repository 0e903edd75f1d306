package inbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/postroom/postroom/internal/wire"
)

// claim is a held event that this process may run until its lease ends.
type claim struct {
	task

	c         *consumer
	id, epoch int64
	solitary  bool
	revision  int32
	last      int // the attempt after which it is dead, where an operator said so

	blocking string   // the key that waits for it, or nothing
	pos      int64    // in that key
	followed bool     // others waited behind it when it was claimed
	reach    int      // how many of that key may run along
	along    []*claim // those that did; none is claimed by itself
	leads    bool     // the next of the key is claimed when this one is settled
	next     *claim   // which then was claimed
	more     bool     // others of the key are held

	ahead *ahead // what its commit is to begin, or nil

	began string // the id of its last transaction, if the inbox did not commit that

	ends  time.Time // by this process's clock, no later than by the database's
	fault *failure  // it is still no event

	mu     sync.Mutex
	lost   bool // another process has claimed the event since
	onLoss func()
}

// lose notes that the claim is another's now, and tells whoever runs the event.
func (cl *claim) lose() {
	cl.mu.Lock()
	cl.lost = true
	tell := cl.onLoss
	cl.mu.Unlock()
	if tell != nil {
		tell()
	}
}

// onLost has f called when the claim is lost, or at once where it is.
func (cl *claim) onLost(f func()) {
	cl.mu.Lock()
	cl.onLoss = f
	lost := cl.lost
	cl.mu.Unlock()
	if lost {
		f()
	}
}

func (cl *claim) isLost() bool {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.lost
}

// attempts is how many attempts the event has in all.
func (cl *claim) attempts() int {
	if cl.last > 0 {
		return cl.last
	}
	return cl.c.sub.Attempts
}

// isSpent reports whether the attempt before was the last, and never came to its end.
// One that an operator released has another then: it was not the handler that failed.
func (cl *claim) isSpent() bool {
	if cl.last > 0 {
		return cl.attempt > cl.last+1
	}
	return cl.attempt > cl.c.sub.Attempts
}

// collect reads what was claimed. The lease is counted from before the statement
// was sent.
func (r *runner) collect(claims *[]*claim, began time.Time) func(pgx.Rows) error {
	read := func(row pgx.CollectableRow) (*claim, error) {
		cl := &claim{task: task{retried: true}}
		ev := &cl.ev
		var handler string
		var key, correlation, causation, parent, state, blocking *string
		var pos *int64
		var last *int
		var headers, raw []byte
		err := row.Scan(&handler, &cl.id, &cl.epoch, &cl.attempt, &cl.solitary, &cl.key, (*instant)(&ev.LoggedAt), &ev.Source, &ev.ID,
			&ev.Type, &ev.Subject, &key, &ev.ContentType, &correlation, &causation, (*instant)(&ev.Time), &parent, &state, &headers, &ev.Data, &raw, &cl.revision, &last, &blocking, &pos, &cl.followed)
		if err != nil {
			return nil, err
		}
		if headers != nil {
			cl.readHeaders(headers)
		}
		ev.Key, ev.CorrelationID, ev.CausationID = value(key), value(correlation), value(causation)
		ev.TraceParent, ev.TraceState = value(parent), value(state)
		cl.blocking, cl.pos, cl.last = value(blocking), value(pos), value(last)
		cl.c = r.inbox.byName(handler)
		cl.ends = began.Add(cl.c.lease())
		if raw != nil {
			cl.decode(raw)
		}
		return cl, nil
	}
	return func(rows pgx.Rows) (err error) {
		*claims, err = pgx.CollectRows(rows, read)
		return err
	}
}

// instant scans a time. NULL and infinity stay zero: a row in which somebody wrote that
// must not keep others from being claimed.
type instant time.Time

// ScanTimestamptz implements pgtype.TimestamptzScanner.
func (i *instant) ScanTimestamptz(v pgtype.Timestamptz) error {
	*i = instant{}
	if v.Valid && v.InfinityModifier == pgtype.Finite {
		*i = instant(v.Time)
	}
	return nil
}

// readHeaders reads the event's headers. What somebody else wrote there, and is no object
// of texts, is the event's fault, and no other's that is claimed with it.
func (cl *claim) readHeaders(object []byte) {
	if err := json.Unmarshal(object, &cl.ev.Headers); err != nil {
		cl.fault = &failure{class: classUndecodable, text: clean("headers: "+err.Error(), maxFailureText), permanent: true}
	}
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// decode reads an event that was undecodable when it came: this version may be
// able to.
func (cl *claim) decode(raw []byte) {
	ev, err := wire.Decode(cl.ev.Subject, parseHeaders(raw), cl.ev.Data)
	if err != nil {
		cl.fault = &failure{class: classUndecodable, text: clean(err.Error(), maxFailureText), permanent: true}
		return
	}
	if ev.ID == "" {
		ev.ID = cl.ev.ID
	}
	if ev.LoggedAt.IsZero() {
		ev.LoggedAt = cl.ev.LoggedAt
	}
	cl.ev = ev
}

// retry runs a held event and notes what became of it.
func (c *consumer) retry(ctx, work context.Context, cl *claim) {
	defer func() {
		c.inbox.runner.ended(cl)
		c.inbox.runner.wake(0) // there is room
	}()
	switch {
	case cl.fault != nil:
		c.fail(ctx, work, cl, *cl.fault, cl.attempt)
		return
	case cl.isSpent(): // its last attempt has no end
		c.fail(ctx, work, cl, failure{class: classCrash, permanent: true, text: fmt.Sprintf(
			"the process that made attempt %d ended or stood still, and it was the last", cl.attempts())}, cl.attempts())
		return
	case ctx.Err() != nil || c.external == nil && !cl.solitary && time.Until(cl.ends) < c.sub.Timeout+c.grace: // it waited for too long
		c.release(ctx, work, cl)
		return
	}
	before := c.blocked.version(cl.blocking)
	err := c.runClaim(ctx, work, cl)
	var attempt *notedError
	switch {
	case errors.As(err, &attempt):
		c.report(work, cl.task, attempt.err)
		switch {
		case attempt.committed:
			c.fail(ctx, work, cl, failureOf(&endedError{committed: true}), cl.attempt)
		case attempt.stored:
			c.noted(work, cl, attempt.holding)
		default:
			c.fail(ctx, work, cl, *attempt.holding.failure, cl.attempt)
		}
	case err == nil:
		if cl.next == nil {
			c.freed(cl, before)
		}
		c.metrics.ended(work, done, cl.ev.LoggedAt)
		for _, other := range cl.along {
			c.metrics.ended(work, done, other.ev.LoggedAt)
		}
	case errors.Is(err, errSettled):
		c.metrics.leaseLost.Add(work, 1, c.metrics.handler)
		c.log.WarnContext(work, "another process has the event, or it is settled", "event_id", cl.ev.ID, "dedupe_key", cl.key, "attempt", cl.attempt)
	case work.Err() != nil || ctx.Err() != nil && isOutage(err) || isUnsettled(err):
		c.release(ctx, work, cl)
	default:
		c.report(work, cl.task, err)
		if ended := c.persist(ctx, work, func() error { return c.endedBefore(work, cl) }); ended != nil {
			err = ended
		}
		c.fail(ctx, work, cl, failureOf(err), cl.attempt)
	}
}

// endedBefore returns an endedError if a handler committed the claim's last transaction: what
// it did must not be done again.
func (c *consumer) endedBefore(ctx context.Context, cl *claim) error {
	committed, err := c.inbox.wasCommitted(ctx, cl.began)
	if committed {
		return &endedError{committed: true}
	}
	return written(err)
}

// fail notes a failed attempt, and when the next is due.
func (c *consumer) fail(ctx, work context.Context, cl *claim, f failure, attempts int) {
	h := c.failed(attempts, cl.attempts(), f)
	args, err := c.failArguments(cl, h)
	lost := false
	if err == nil {
		noting, fail := c.noting(cl, h, args)
		err = c.persist(ctx, work, func() error {
			tags, err := c.inbox.exec(work, noting)
			lost = err == nil && tags[fail].RowsAffected() == 0
			return written(err)
		})
	}
	switch {
	case err != nil:
		c.log.ErrorContext(work, "failure could not be noted; its claim will run out", "event_id", cl.ev.ID, "dedupe_key", cl.key, "error", err)
	case lost:
		c.metrics.leaseLost.Add(work, 1, c.metrics.handler)
	default:
		c.noted(work, cl, h)
	}
}

// failArguments are the parameters of fail.sql.
func (c *consumer) failArguments(cl *claim, h holding) ([]any, error) {
	text, err := h.failure.document()
	if err != nil {
		return nil, fmt.Errorf("encode failure: %w", err)
	}
	return []any{cl.id, cl.epoch, h.after, h.attempts, h.failure.class, h.failure.fingerprint(cl.c.sub.Name, cl.ev), text, c.skips(cl, h)}, nil
}

// noted tells of a failed attempt that is written down.
func (c *consumer) noted(ctx context.Context, cl *claim, h holding) {
	o := held
	if h.after == nil {
		o = dead
	}
	c.moved(ctx, cl.task, "claimed", o, h)
	c.metrics.ended(ctx, o, cl.ev.LoggedAt)
}

// release gives a claim back. Where that does not succeed it runs out.
func (c *consumer) release(ctx, work context.Context, cl *claim) {
	err := c.persist(ctx, work, func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(work), rollbackPatience)
		defer cancel()
		_, err := c.inbox.pool.Exec(ctx, c.inbox.sql.release, cl.id, cl.epoch)
		return written(err)
	})
	if err != nil {
		c.log.WarnContext(work, "claim could not be given back and will run out", "event_id", cl.ev.ID, "dedupe_key", cl.key, "error", err)
	}
	c.metrics.ended(work, released, cl.ev.LoggedAt)
}
