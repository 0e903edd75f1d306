package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postroom/postroom/inbox/internal/claims"
	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/ledger"
	"github.com/postroom/postroom/inbox/internal/share"
)

// retries runs held events of a handler when they are due.
type retries struct {
	*loop

	queue    *claims.Queue // due events; set while the inbox runs
	hung     hung
	settling chan struct{} // limits how many workers of an external handler settle at the same time
}

// open creates the queue of the claims of a run.
func (c *retries) open() {
	room, running := max(1, c.workers/4), 0
	switch {
	case c.isOrdered() || c.external != nil: // all workers run held events: held events of an ordered handler block other events, and an external handler runs only held events
		room = c.workers
	case c.reader == nil: // the handler has only held events; more are claimed than can run, so that one statement claims many
		running = c.workers * c.sub.Batch
		room = 4 * running
	}
	h := claims.Handler{
		Name: c.sub.Name, Attempts: c.sub.Attempts, Allowed: c.gate.Allowed, Lease: c.lease(c.inbox.cfg.AckWait), Renewed: c.external != nil, Spared: c.spared(),
		Running: running, Release: c.release,
		Run: func(life delivery.Lifetime, cl *claims.Claim) { c.retry(life, &claim{Claim: cl}) },
	}
	h.Types, h.Subjects = c.takes().Wished()
	_, bytes := share.Bytes(c.inbox.needs(), c.inbox.cfg.PullBytes)
	c.queue = claims.NewQueue(h, room, bytes)
	if c.external != nil {
		c.settling = make(chan struct{}, c.connections())
	}
}

// claim is a held event that this process runs, with the events of its key that run in
// the same transaction.
type claim struct {
	*claims.Claim

	began  string        // the id of its last transaction; empty if the inbox committed that transaction
	doubts []string      // the ids of transactions that may have settled it, because their commits were not answered
	ahead  *ledger.Ahead // the worker's next delivery, if this claim's commit may begin the transaction of that delivery; or nil

	reach int             // how many more events of its key may run in its transaction
	along []*claims.Claim // the events that run in its transaction; they have no claims of their own
	known bool            // another event with its dedupe key was decided: the event is settled without a run
	leads bool            // the statement that settles this event claims the next event of the key
	next  *claims.Claim   // the next event of the key, once it is claimed
	more  bool            // more events of the key are held
	probe bool            // it is a probe of a paused handler, and no other event runs in its transaction

	opened *ledger.Opened // its transaction, if the previous commit began it
	after  *claims.Claim  // the claim that the worker took before the commit, and will run next
	opens  *ledger.Opened // the transaction of the claim in the field after
}

// retry runs a held event and records the result.
func (c *retries) retry(life delivery.Lifetime, cl *claim) {
	defer func() {
		cl.opened.Drop(life.Work) // if the event did not run
		c.inbox.runner.Ended(cl.Claim)
		c.inbox.runner.Freed(c.queue)
	}()
	c.queue.Begin(cl.Claim)
	pass, ok := c.gate.Try(cl.Key)
	defer pass.Leave()
	cl.probe, cl.leads = pass.Probe, cl.leads && !pass.Probe
	switch {
	case cl.Fault != nil:
		c.fail(life, cl, c.held(cl, *cl.Fault, cl.Attempt, 0))
		return
	//guard:fewer-attempts-are-no-crash false
	case cl.IsSpent() && !cl.RanOut && cl.Class != "": // its handler has fewer attempts now than when it failed, or OnDead failed
		f := delivery.Failure{Class: cl.Class, Text: cl.Text, Permanent: true, Again: true}
		c.fail(life, cl, c.held(cl, f, cl.Attempt-1, 0))
		return
	case cl.IsSpent(): // the last allowed attempt began and never ended
		h := c.held(cl, delivery.Failure{Class: delivery.ClassCrash, Permanent: true, Text: fmt.Sprintf(
			"the process that made attempt %d, the last one, ended or stalled", cl.Attempts())}, cl.Attempts(), 0)
		//guard:an-on-dead-that-ends-the-process-is-not-called-for-ever remove
		h.Untold = cl.EndsProcesses()
		c.fail(life, cl, h)
		return
	//guard:a-handler-that-is-not-ordered-takes-events-out-of-their-key 2 remove
	case !ok, cl.Blocking != "" && !c.isOrdered() && c.persist(life, func() error { return c.ledger.LeaveKey(life.Work, &cl.HeldEvent, c.follower(false)) }) != nil,
		life.IsStopping() || c.external == nil && !cl.Solitary && !c.canRunUntil(cl.Ends): // the claim ends too soon for a run
		c.yield(life, cl)
		return
	}
	c.hung.remove(cl.ID)
	before := c.keys.Version(cl.Blocking)
	err := c.identify(life, cl)
	if err == nil {
		err = c.runClaim(life, cl)
	}
	if done := false; err != nil {
		// If the process stops before the server answers, done stays false, and the error counts.
		_ = c.persist(life, func() (err error) { done, err = c.settledBefore(life.Work, cl.Key, cl.doubts); return err })
		if done {
			err = nil
		}
	}
	var attempt *delivery.RecordedError
	switch {
	case errors.As(err, &attempt):
		c.signals.Report(life.Work, cl.Task, attempt.Err)
		switch {
		case !attempt.Stored && delivery.IsEnded(c.persist(life, func() error { return c.endedBefore(life.Work, cl.began) })):
			c.fail(life, cl, c.held(cl, delivery.FailureOf(&delivery.EndedError{Committed: true}), cl.Attempt, 0))
		case attempt.Stored:
			c.noted(life.Work, cl, attempt.Holding)
		default:
			c.fail(life, cl, attempt.Holding)
		}
	case err == nil:
		if cl.next == nil {
			c.freed(cl, before)
		}
		c.gate.Succeeded(cl.Key)
		c.signals.Ended(life.Work, cl.outcome(), cl.Task)
		for _, other := range cl.along {
			c.gate.Succeeded(other.Key)
			c.signals.Ended(life.Work, delivery.Done, other.Task)
		}
	case errors.Is(err, delivery.ErrSettled):
		c.signals.LeaseLost(life.Work)
		c.log.WarnContext(life.Work, "another process has the event, or it is settled", "event_id", cl.Event.ID, "dedupe_key", cl.Key, "attempt", cl.Attempt)
	case life.Ends(err) || delivery.IsUnsettled(err):
		c.yield(life, cl)
	default:
		c.signals.Report(life.Work, cl.Task, err)
		//guard:a-claim-asks-what-became-of-its-transaction 0 = error(nil)
		if ended := c.persist(life, func() error { return c.endedBefore(life.Work, cl.began) }); ended != nil {
			err = ended
		}
		c.fail(life, cl, c.failedAgain(cl, delivery.FailureOf(err)))
	}
}

// yield gives back an event that cannot run now. If its handler itself committed the transaction in which
// it ran last, it must not run again, and yield records that it is dead.
func (c *retries) yield(life delivery.Lifetime, cl *claim) {
	//guard:a-claim-that-is-given-back-knows-of-a-commit 1 false
	if cl.began != "" && delivery.IsEnded(c.persist(life, func() error { return c.endedBefore(life.Work, cl.began) })) {
		c.fail(life, cl, c.held(cl, delivery.FailureOf(&delivery.EndedError{Committed: true}), cl.Attempt, 0))
		return
	}
	c.release(life, cl.Claim)
}

// outcome returns the outcome of a claim that was settled.
func (cl *claim) outcome() delivery.Outcome {
	if cl.known {
		return delivery.Duplicate
	}
	return delivery.Done
}

// identify makes the dedupe key of an event that was held without it: the function that makes the key
// failed or might have ended the process, or the message could not be decoded then. Now the attempt is
// counted.
func (c *retries) identify(life delivery.Lifetime, cl *claim) error {
	//guard:a-replayed-event-has-its-key-made = @ || !cl.Solitary
	if !c.isNameless(cl.Claim) {
		return nil
	}
	key, digest := delivery.DefaultKey(cl.Event), delivery.Digest(cl.Event)
	if c.sub.DedupeKey != nil {
		own, fault := delivery.OwnKey(c.sub.DedupeKey, c.sub.Timeout, cl.Event)
		if fault != nil {
			return &delivery.RecordedError{Err: errors.New(fault.Text), Holding: c.held(cl, *fault, cl.Attempt, 0)}
		}
		key, digest = own, nil
	}
	if key == cl.Key {
		return nil
	}
	same := true
	err := c.persist(life, func() error {
		fresh, err := c.ledger.Identify(life.Work, &cl.HeldEvent, key)
		switch {
		case err != nil:
		case fresh:
			cl.Key = key
		default:
			same, err = c.inbox.db.Same(life.Work, c.sub.Name, delivery.Task{Key: key, Digest: digest})
			cl.known = same
		}
		return delivery.Written(err)
	})
	//guard:an-event-that-is-decoded-late-may-be-a-conflict false
	if err == nil && !same {
		f := *delivery.AsConflict.Failure
		return &delivery.RecordedError{Err: errors.New(f.Text), Holding: c.held(cl, f, cl.Attempt, 0)}
	}
	return err
}

// isNameless reports whether identify may have to make the dedupe key of an event. Such an event runs
// in no transaction with others.
func (c *retries) isNameless(cl *claims.Claim) bool {
	return (c.sub.DedupeKey != nil || cl.Raw != nil) && cl.IsBare()
}

// failedAgain tells the gate that another attempt failed, and returns how the event is held.
func (c *retries) failedAgain(cl *claim, f delivery.Failure) delivery.Holding {
	return c.held(cl, f, cl.Attempt, c.gate.Failed(cl.Key, f))
}

// held returns how an event is held after a failure; see delivery.Failure.Hold.
func (c *retries) held(cl *claim, f delivery.Failure, attempts, back int) delivery.Holding {
	return f.Hold(c.sub.Schedule, attempts, cl.Attempts(), cl.Snoozed, back)
}

// endedBefore returns an EndedError if a handler itself committed the last transaction of an event.
// Such an event must not run again. The parameter began is the id of that transaction.
func (c *retries) endedBefore(ctx context.Context, began string) error {
	committed, err := c.inbox.db.WasCommitted(ctx, began)
	if committed {
		return &delivery.EndedError{Committed: true}
	}
	return delivery.Written(err)
}

// forget clears the id of a transaction if no statement of the handler can have ended it. If the
// connection broke because the server crashed, the id says nothing: a server that lost a transaction
// gives its id to another one, which may commit.
func forget(began *string, tx *ledger.Tx) {
	//guard:an-id-that-a-crash-gave-to-another-transaction-blames-no-handler false
	if !tx.MayBeEnded() {
		*began = ""
	}
}

// settledBefore reports whether an event was settled by one of the given transactions, whose commits
// were not answered.
func (c *retries) settledBefore(ctx context.Context, key string, doubts []string) (bool, error) {
	if len(doubts) == 0 {
		return false, nil
	}
	writer, err := c.inbox.db.Writer(ctx, c.sub.Name, key, doubts)
	//guard:a-settled-event-knows-who-settled-it false
	own := writer != ""
	return own, delivery.Written(err)
}

// fail records a failed attempt, and when the next attempt is due.
func (c *retries) fail(life delivery.Lifetime, cl *claim, h delivery.Holding) {
	noted := false
	err := c.persist(life, func() (err error) {
		noted, err = deaths{c.loop}.note(life.Work, cl.Task, c.failure(cl, h))
		return err
	})
	var death *delivery.DeathError
	if errors.As(err, &death) {
		if undead, may := untold(life.Work, c.log, cl.Task, h, err); may {
			if h.Failure.Class == delivery.ClassCrash {
				undead.Attempts = cl.Attempt - 1 // all that it may have, so that it is dead the next time
			}
			c.fail(life, cl, undead)
			return
		}
		//guard:an-on-dead-that-fails-costs-no-attempt do return
		c.giveBack(life, cl.Claim, delivery.UntoldWait) // otherwise the attempts would soon say that OnDead ends processes
		return
	}
	switch {
	case err != nil:
		c.log.ErrorContext(life.Work, "failure not recorded, the claim will expire", "event_id", cl.Event.ID, "dedupe_key", cl.Key, "error", err)
	case !noted:
		c.signals.LeaseLost(life.Work)
	default:
		c.noted(life.Work, cl, h)
	}
}

// noted logs and counts a failed attempt that is recorded.
func (c *retries) noted(ctx context.Context, cl *claim, h delivery.Holding) {
	o := h.Outcome()
	if first, pace, waits := h.Failure.KeyWaits(); waits && cl.Event.Key != "" && !c.isOrdered() {
		//guard:a-key-that-waits-holds-up-no-other remove
		c.queue.Later(cl.Claim, first, pace)
	}
	c.holds.moved(ctx, cl.Task, "claimed", o, h)
	c.signals.Ended(ctx, o, cl.Task)
}

// release gives up a claim. If that fails, the claim expires.
func (c *retries) release(life delivery.Lifetime, cl *claims.Claim) { c.giveBack(life, cl, 0) }

// giveBack is release for an event that is due again after the given time.
func (c *retries) giveBack(life delivery.Lifetime, cl *claims.Claim, after time.Duration) {
	err := c.persist(life, func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(life.Work), ledger.RollbackPatience)
		defer cancel()
		return ledger.Claims{DB: c.inbox.db}.Release(ctx, cl.ID, cl.Epoch, after)
	})
	if err != nil {
		c.log.WarnContext(life.Work, "claim not given back, it will expire", "event_id", cl.Event.ID, "dedupe_key", cl.Key, "error", err)
	}
	c.signals.Ended(life.Work, delivery.Released, cl.Task)
}

// freed records that an event of a key was settled, and that this process did not claim the next
// event. A delivery of the key that waits in memory goes on. If events of the key may be held, the
// database checks whether the delivery must wait. before is the key's version before the run.
func (c *retries) freed(cl *claim, before uint64) {
	if cl.Blocking == "" || !c.isOrdered() {
		return
	}
	if cl.more || !c.keys.Free(cl.Blocking, before) {
		c.keys.Doubt(cl.Blocking)
	}
	c.holds.unpark(cl.Blocking)
}

// mostAlong is the largest number of events of a key that run in one transaction after the first
// event. mostRuns is the largest number of such transactions in a row for one key. Then other due
// events get their turn.
const (
	mostAlong = 99
	mostRuns  = 10
)

// run runs a held event, and then the events of its key that waited behind it. If the last commit
// began the transaction of the worker's next delivery, run processes that delivery too.
func (c *retries) run(life delivery.Lifetime, due *claims.Claim, lane <-chan *delivery.Delivery) {
	if c.reader == nil && c.sub.Batch > 1 {
		c.runBatch(life, due)
		return
	}
	var next *ledger.Ahead
	if c.external == nil && c.sub.Batch == 1 {
		next = ledger.NewAhead(lane, nil)
	}
	var opened *ledger.Opened
	for n := 1; due != nil; n++ {
		cl := &claim{Claim: due, leads: n < mostRuns && !due.Solitary, ahead: next, opened: opened}
		c.retry(life, cl)
		if due, opened = cl.next, nil; due == nil {
			due, opened, n = cl.after, cl.opens, 0
		}
	}
	if next != nil {
		c.deliverRun(life, next)
	}
}

// runClaim runs a held event. After an AlongError it repeats the transaction with fewer events.
func (c *retries) runClaim(life delivery.Lifetime, cl *claim) error {
	if c.external != nil {
		return c.serve(life, cl)
	}
	if cl.Followed && !cl.Solitary && !cl.probe {
		cl.reach = mostAlong
	}
	for {
		err := c.persistClaimed(life, cl.Ends, func() error { return c.rerun(life, cl) })
		if !errors.Is(err, delivery.ErrAlong) {
			return err
		}
	}
}

// rerun runs a held event that this process has claimed. In one transaction it runs the
// handler, settles the event and commits. Events of its key that wait behind it run in
// the same transaction. If the attempt fails, the round trip that rolls back also records
// the failure, and rerun returns a delivery.RecordedError.
func (c *retries) rerun(life delivery.Lifetime, cl *claim) error {
	if !cl.Solitary { // for a solitary event the runner has the lock
		if !c.inbox.alone.TryRLock() {
			cl.opened.Drop(life.Work) // a transaction must not stay open while it waits for an event that runs alone
			c.inbox.alone.RLock()
		}
		defer c.inbox.alone.RUnlock()
	}
	if done, err := c.settledBefore(life.Work, cl.Key, cl.doubts); done || err != nil {
		return err
	}
	//guard:a-claim-is-not-repeated-after-its-handler-committed 0 = error(nil)
	if err := c.endedBefore(life.Work, cl.began); err != nil { // in an earlier round, the handler may have committed the transaction itself
		return err
	}
	tx, err := c.beginRerun(life.Work, cl)
	if tx == nil {
		return err
	}
	cl.began = tx.ID
	defer forget(&cl.began, tx)
	if err == nil && !cl.known {
		if err = c.call(life.Work, tx, cl.Task); err != nil && ledger.IsAttempt(life.Take, tx, err) && !delivery.IsEnded(err) {
			return c.failRerun(life.Work, tx, cl, err)
		}
	}
	if err == nil {
		err = c.runAlong(life, tx, cl)
	}
	return c.endClaim(life, tx, cl, err)
}

// beginRerun begins the transaction of a held event, and reads the events that will run
// in the same transaction.
func (c *retries) beginRerun(ctx context.Context, cl *claim) (*ledger.Tx, error) {
	cl.along = nil
	if tx, err := cl.opened.Take(); tx != nil {
		return tx, err
	}
	if cl.reach == 0 {
		return c.ledger.Begin(ctx)
	}
	began := time.Now()
	tx, along, err := c.ledger.BeginAlong(ctx, &cl.HeldEvent, cl.reach, c.queue.Part()-cl.Size(), c.queue.Types, c.queue.Subjects)
	cl.along = c.queue.Claims(along, began)
	return tx, err
}

// failRerun rolls back an attempt, and records its failure unless Config.OnDead must be called.
func (c *retries) failRerun(ctx context.Context, tx *ledger.Tx, cl *claim, failed error) error {
	h := c.failedAgain(cl, delivery.FailureOf(failed))
	//guard:a-death-from-held-is-told false
	if c.inbox.tells(h) {
		c.ledger.Leave(ctx, tx, nil)
		return &delivery.RecordedError{Err: failed, Holding: h}
	}
	stored, encoding := c.ledger.FailIn(ctx, tx, c.failure(cl, h))
	if encoding != nil {
		return c.ledger.End(ctx, tx, errors.Join(failed, encoding))
	}
	return &delivery.RecordedError{Err: failed, Holding: h, Stored: stored}
}

// runAlong runs the events that wait behind the first event of their key. It stops if an event
// fails or changes the session, if the handler pauses, or before the claim could expire. A failure
// here is not counted: the event runs again as the first of its key, and that attempt counts.
func (c *retries) runAlong(life delivery.Lifetime, tx *ledger.Tx, cl *claim) error {
	until := cl.Ends.Add(-2 * c.grace())
	for i, other := range cl.along {
		//guard:what-runs-along-does-not-meet-another-session 4 false
		//guard:a-pause-ends-what-runs-along 2 false
		//guard:an-event-without-its-key-does-not-run-along 5 false
		if life.IsStopping() || !c.gate.IsOpen() || time.Until(until) < c.sub.Timeout*3/4 || tx.Differs() || c.isNameless(other) {
			cl.along = cl.along[:i]
			return nil
		}
		within, cancel := context.WithDeadlineCause(life.Work, until, delivery.ErrTimeout)
		other.Start = time.Now()
		err := c.call(within, tx, other.Task)
		cancel()
		if err != nil {
			cl.reach = i
			return &delivery.AlongError{Err: err}
		}
	}
	return nil
}

// finishClaim settles an event that blocks no other event, and commits. The same round trip begins
// the transaction of the event that this worker runs next.
func (c *retries) finishClaim(life delivery.Lifetime, tx *ledger.Tx, cl *claim) error {
	opened, err := c.ledger.SettleAndCommit(life.Work, tx, &cl.HeldEvent, c.beginning(life, cl))
	switch {
	case opened == nil:
	case cl.after != nil:
		cl.opens = opened
	default:
		cl.ahead.Opened = opened
	}
	return unlessEnded(&cl.began, &cl.doubts, err)
}

// beginning returns the statement that begins the transaction of the event that this worker runs
// next. It returns nil if no event waits, or if the next event cannot use that transaction.
func (c *retries) beginning(life delivery.Lifetime, cl *claim) *ledger.Statement {
	switch {
	case cl.ahead != nil && c.reader != nil:
		return c.peek(life.Take, cl.ahead)
	case c.reader != nil || c.external != nil || c.sub.Batch > 1 || cl.Solitary || life.IsStopping() || !c.gate.IsOpen():
		return nil
	}
	if cl.after == nil {
		cl.after = c.queue.Take()
	}
	if n := cl.after; n == nil || !n.IsPlain() || c.isNameless(n) || !c.canRunUntil(n.Ends) {
		return nil
	}
	return c.ledger.Beginning()
}

// settleKey settles an event for which other events of its key may wait, and the events that ran in
// the same transaction. It makes the next event of the key due. If cl.leads is set and this process
// can run the next event at once, settleKey claims that event for this process.
func (c *retries) settleKey(ctx context.Context, tx *ledger.Tx, cl *claim) error {
	cl.next = nil
	ids, last := make([]int64, len(cl.along)), cl.Pos
	for i, other := range cl.along {
		ids[i], last = other.ID, other.Pos
	}
	began := time.Now()
	s, err := c.ledger.SettleKey(ctx, tx, &cl.HeldEvent, ids, last, c.follower(cl.leads))
	switch {
	//guard:a-refused-settlement-is-blamed-on-its-cause false
	case delivery.IsRefused(err) && !delivery.IsOutage(err) && len(ids) > 0: // what one of the events set may be the cause, for instance a read-only transaction
		cl.reach = 0
		return &delivery.AlongError{Err: err}
	case err != nil:
		return err
	case !s.Whole: // an operator has acted on one of the events
		cl.reach = 0
		return &delivery.AlongError{Err: delivery.ErrSettled}
	}
	cl.more = s.More
	if len(s.Next) > 0 {
		cl.next = c.queue.Claims(s.Next, began)[0]
	}
	return nil
}

// follower says what happens to the next event of a key. If claims is true and this process can run
// the event at once, it claims the event. Otherwise the event becomes due for any process.
func (c *retries) follower(claims bool) ledger.Follower {
	f := ledger.Follower{Lease: c.queue.Lease, Bytes: c.queue.Part(), Types: c.queue.Types, Subjects: c.queue.Subjects}
	if claims {
		process := c.inbox.node.Name()
		f.Process = &process
	}
	return f
}

// endClaim ends the transaction of a held event. If err is nil, endClaim settles the event first.
// If the settling statement claimed the next event of the key, this process has the new claim from
// the commit on. Otherwise, the commit also begins the transaction of the event that the worker
// runs next, if one waits.
func (c *retries) endClaim(life delivery.Lifetime, tx *ledger.Tx, cl *claim, err error) error {
	switch {
	case err == nil && cl.Blocking == "":
		return c.finishClaim(life, tx, cl)
	case err == nil:
		err = c.settleKey(life.Work, tx, cl)
	}
	if cl.next == nil && err == nil {
		return c.alone(cl, unlessEnded(&cl.began, &cl.doubts, c.commit(life, tx, cl.ahead)))
	}
	if cl.next != nil {
		c.inbox.runner.Begun(cl.next)
	}
	failed := err != nil
	if err = c.ledger.End(life.Work, tx, err); !failed {
		err = c.alone(cl, unlessEnded(&cl.began, &cl.doubts, err))
	}
	if err != nil && cl.next != nil {
		c.inbox.runner.Ended(cl.next)
		cl.next = nil
		if commit := (*delivery.CommitError)(nil); errors.As(err, &commit) { // the next event of the key may have been claimed
			c.inbox.runner.Doubt() // after Ended: otherwise the runner could take that claim for a known one
		}
	}
	return err
}

// alone makes a claim run again without other events of its key if the handler ended their common
// transaction, or if the server refused its commit, for instance because of a deferred constraint or a
// serialization failure. The inbox does not know which of the events is the cause.
func (c *retries) alone(cl *claim, err error) error {
	var commit *delivery.CommitError
	//guard:a-refused-commit-is-blamed-on-its-cause false
	refused := errors.As(err, &commit) && delivery.IsRefused(err) && !delivery.IsOutage(err)
	//guard:the-event-that-ended-the-transaction-is-blamed false
	if (delivery.IsEnded(err) || refused) && len(cl.along) > 0 {
		cl.reach = 0
		return &delivery.AlongError{Err: err}
	}
	return err
}

// skips reports whether an event is dead or discarded, and later events of its key need not wait.
func (c *retries) skips(cl *claim, h delivery.Holding) bool {
	return cl.Blocking != "" && h.After == nil && (c.sub.Order == SkipKey || h.IsDiscarded())
}

// failure returns a failed attempt in the form that the ledger records. If later events of the key
// need not wait for this event, the ledger makes the next event of the key due.
func (c *retries) failure(cl *claim, h delivery.Holding) ledger.Failed {
	return ledger.Failed{Held: &cl.HeldEvent, Holding: h, Skipped: c.skips(cl, h), By: c.follower(false)}
}
