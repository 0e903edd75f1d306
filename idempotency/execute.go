package idempotency

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/postroom/postroom/idempotency/internal/fingerprint"
	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/lent"
	"github.com/postroom/postroom/internal/sleep"
)

// Outcome says whether a call with a key ran.
type Outcome int

// Outcomes.
const (
	// Fresh is a call that ran.
	Fresh Outcome = iota

	// Replayed is a call that did not run, because the answer of an earlier call was kept.
	Replayed
)

func (o Outcome) String() string {
	if o == Replayed {
		return "replayed"
	}
	return "fresh"
}

// operation is one call, with or without a key.
type operation struct {
	key     Key    // in its stored form
	other   string // the principal in its other form: see Key.stored
	keyed   bool   // there is a key, so the answer gets a row
	lock    int64
	rules   *Route
	timeout time.Duration // the time limit of run; 0 means no limit

	print   fingerprint.Sum
	reprint func(kind fingerprint.Kind) (fingerprint.Sum, error)

	// run does the work. The guard calls it once for each attempt, with its context.
	run func(ctx context.Context, a *attempt) (result, error)
}

// attempt is one run of an operation.
type attempt struct {
	op     *operation
	number int
	tx     *tx         // in transaction mode
	asked  atomic.Bool // the handler asked for the transaction, perhaps in several goroutines
	lease  *lease      // in lease mode
	ref    string      // the reference that the handler gave to KeepRef
}

// result is the result of one run of an operation.
type result struct {
	response Response
	kept     Response // the part of the answer that is kept
	verdict  verdict
	dropped  bool // the answer is too large to be kept
}

// verdict says whether a run's effects and its answer are kept.
type verdict int

const (
	undo       verdict = iota // effects and answer are dropped
	keepAll                   // effects and answer are kept
	keepAnswer                // only the answer is kept
)

// callResult is the result of a call.
type callResult struct {
	key      Key
	outcome  Outcome
	response Response // the answer of a call that ran
	record   Record   // the record of a call that was replayed
	kept     bool
	number   int
	from, to State
	takeover bool
	err      error
}

const (
	twinRounds = 3 // the most tries of a call, if another attempt changes the row during each try
	pollFirst  = 10 * time.Millisecond
	pollMost   = 250 * time.Millisecond
)

// execute runs an operation, or returns the answer of an earlier run.
func (g *Guard) execute(ctx context.Context, op *operation) callResult {
	began := time.Now()
	deadline := began.Add(op.rules.Wait)
	rest := pollFirst
	for round, retries := 1, 0; ; round++ {
		e := g.attempt(ctx, op)
		switch {
		case errors.Is(e.err, errTwin):
			if round < twinRounds {
				continue
			}
			e.err = ErrInProgress
		case errors.Is(e.err, ErrContention) && retries < op.rules.TxRetries:
			retries++
			continue
		case errors.Is(e.err, ErrInProgress) && ctx.Err() == nil && time.Until(deadline) > 0:
			sleep.For(ctx, min(rest, time.Until(deadline)))
			rest = min(2*rest, pollMost)
			round = 0
			continue
		}
		e.key = op.key
		if op.keyed && e.err == nil && (e.kept || e.outcome == Replayed) {
			g.recent.add(op.lock)
		}
		g.metrics.tell(ctx, &g.cfg, op, e, time.Since(began))
		g.store.renew(ctx, guard.Seal(e.err)) // the error of Do can be the user's
		return e
	}
}

// attempt makes one attempt at an operation, in its mode.
func (g *Guard) attempt(ctx context.Context, op *operation) callResult {
	if op.rules.Mode == LeaseMode {
		return g.inLease(ctx, op)
	}
	return g.inTx(ctx, op)
}

// inTx makes an attempt in transaction mode.
func (g *Guard) inTx(ctx context.Context, op *operation) (e callResult) {
	if op.keyed && g.recent.has(op.lock) {
		if found, err := g.store.look(ctx, op.key, op.other); err == nil {
			if what, err := op.decide(found); err == nil && what == replay {
				//guard:a-recent-row-keeps-the-form-of-its-principal remove
				op.is(found)
				return g.replay(ctx, op, found)
			}
		}
	}
	t, found, held, err := g.store.open(ctx, op)
	if err != nil {
		return callResult{err: fmt.Errorf("%w: %w", ErrUnavailable, g.store.advise(err))}
	}
	defer func() {
		if t.owner != nil { // even if the function run panics
			t.rollback(ctx)
		}
		g.store.renew(ctx, t.fate.Last())
	}()

	op.is(found)
	what, err := op.decide(found)
	switch {
	case err != nil:
		return callResult{err: err}
	case what == replay:
		t.rollback(ctx)
		return g.replay(ctx, op, found)
	//guard:twins-do-not-run-at-once false
	case !held:
		return callResult{err: ErrInProgress}
	//guard:steps-of-lease-mode-are-not-done-again false
	case what == resume && found.begun:
		return callResult{err: fmt.Errorf("%w: an attempt in lease mode has done or begun steps, which a transaction would do again: let lease mode finish it, or forget the key with Guard.Delete",
			ErrOutcomeUnknown)}
	}
	t.lent = true
	a := &attempt{op: op, number: 1, tx: t}
	e = callResult{number: 1}
	if what == resume {
		a.number, e.from = found.Attempts+1, found.State
		e.number, e.takeover = a.number, found.State == StatePending
	}
	res, err := a.runTx(ctx)
	e.response = res.response
	if err == nil && res.verdict != undo {
		if err = t.finish(ctx, a, found, res); err == nil {
			e.kept, e.to = op.keyed, StateComplete
		}
	}
	e.err = err
	return e
}

// runTx runs the operation, and then checks the state of its transaction.
func (a *attempt) runTx(ctx context.Context) (result, error) {
	inner, _, cancel := a.op.context(ctx, a)
	defer cancel()
	res, err := a.op.run(inner, a)
	if !a.tx.back(lent.Grace(a.op.timeout)) {
		if err == nil && res.verdict == undo {
			return res, nil // the server rolls back
		}
		return res, errors.Join(errStillUsed, err)
	}
	lost := a.tx.fate.Lost()
	switch {
	//guard:a-lost-transaction-is-told false
	case lost && (err != nil || res.verdict != keepAll):
		return res, errors.Join(ErrContention, err)
	case err != nil:
		return res, err
	case res.verdict == undo:
		return res, nil
	//guard:a-client-that-has-gone-is-rolled-back false
	case a.op.rules.CancelOnDisconnect && ctx.Err() != nil:
		return res, fmt.Errorf("%w: %w", ErrInterrupted, errors.Join(ctx.Err(), causeOf(ctx)))
	}
	err = a.tx.healthy(res.verdict)
	if err != nil && inner.Err() != nil && a.tx.owner.Conn().IsClosed() { // pgx closes the connection if a context ends during a statement
		err = fmt.Errorf("%w: %w", ErrInterrupted, errors.Join(inner.Err(), causeOf(inner)))
	}
	return res, err
}

// inLease makes an attempt in lease mode.
func (g *Guard) inLease(ctx context.Context, op *operation) (e callResult) {
	l := g.store.lease(op)
	if op.keyed {
		found, what, err := g.claim(ctx, l)
		switch {
		case err != nil:
			return callResult{err: err}
		case what == replay:
			return g.replay(ctx, op, found)
		case what == resume:
			e.from, e.takeover = found.State, found.State == StatePending
		}
	}
	a := &attempt{op: op, number: l.Number(), lease: l}
	e.number = a.number

	inner, lose, cancel := op.context(ctx, a)
	letGo := l.Hold(inner, lose)
	returned := false
	defer func() {
		cancel()
		letGo()
		//guard:a-panic-gives-the-claim-back false
		if !returned { // the function run panicked
			l.Fail(ctx)
		}
	}()
	res, err := op.run(inner, a)
	returned = true
	e.response, e.err = res.response, err
	switch {
	case !op.keyed:
	case err != nil || res.verdict == undo:
		l.Fail(ctx)
		e.to = StateFailed
		//guard:a-lost-claim-is-told false
		if errors.Is(causeOf(inner), ErrLeaseLost) { // even if the handler returned another error
			e.err, e.to = errors.Join(ErrLeaseLost, err), StatePending
		}
	default:
		if e.err = l.complete(ctx, a, res); e.err == nil {
			e.kept, e.to = true, StateComplete
		}
	}
	return e
}

// claim tries to take the key. It returns the row that the key had, and what the row means.
func (g *Guard) claim(ctx context.Context, l *lease) (*row, decision, error) {
	bounded, cancel := g.store.bounded(ctx)
	defer cancel()
	if mine, err := l.took(l.Take(bounded)); mine || err != nil {
		return nil, free, err
	}
	for range twinRounds {
		found, err := g.store.look(ctx, l.op.key, l.op.other)
		if err != nil {
			return nil, free, fmt.Errorf("%w: look up key: %w", ErrUnavailable, err)
		}
		l.is(found)
		if found == nil { // a transaction has the key's lock, or the row was just removed
			mine, err := l.took(l.Take(bounded))
			if mine || err != nil {
				return nil, free, err
			}
			continue
		}
		what, err := l.op.decide(found)
		if err != nil || what == replay {
			return found, what, err
		}
		if mine, err := l.took(l.TakeOver(bounded, found.fence, found.Fingerprint[:])); mine || err != nil {
			return found, what, err
		}
	}
	return nil, free, ErrInProgress
}

// replay returns the kept answer.
func (g *Guard) replay(ctx context.Context, op *operation, f *row) callResult {
	e := callResult{outcome: Replayed, from: StateComplete, to: StateComplete, number: f.Attempts}
	var err error
	if e.record, err = f.record(ctx, g.cfg.Codec); err != nil {
		//guard:what-was-done-is-not-called-undone 2 = ErrUnavailable
		e.err = fmt.Errorf("%w: %w", ErrUnreadable, err)
		return e
	}
	//guard:a-dropped-answer-is-not-repeated false
	if f.Dropped {
		e.err = ErrDropped
		return e
	}
	if op.rules.From == FromLastUse {
		g.store.touch(ctx, op)
	}
	return e
}

// decision says what a row means for a call.
type decision int

const (
	free   decision = iota // there is no valid row
	replay                 // the row has an answer
	resume                 // an attempt failed, or its claim expired
)

// decide returns what a row means for a call, or why the call cannot continue.
func (op *operation) decide(f *row) (decision, error) {
	if f == nil || !f.counts() {
		return free, nil
	}
	//guard:another-request-is-refused false
	if seen := fingerprint.Sum(f.Fingerprint); seen != op.print {
		if seen[0] == op.print[0] {
			return free, ErrMismatch
		}
		other, err := op.reprint(fingerprint.Kind(seen[0]))
		switch {
		//guard:what-cannot-be-compared-is-not-answered false
		case err != nil: // for instance, a newer version of this service wrote the row
			return free, fmt.Errorf("%w: compare with the first request: %w", ErrOutcomeUnknown, err)
		//guard:another-request-of-another-version-is-refused false
		case other != seen:
			return free, ErrMismatch
		}
	}
	switch {
	case f.State == StateComplete:
		return replay, nil
	//guard:what-is-held-is-not-run false
	case f.leased:
		return free, ErrInProgress
	}
	return resume, nil
}

// is lets the operation have the key of its row. If HashPrincipal changed since the row was stored,
// the row's principal has the other form, and the operation continues with this form.
func (op *operation) is(f *row) {
	//guard:a-row-keeps-the-form-of-its-principal false
	if f != nil && f.Principal != op.key.Principal {
		op.key, op.other = f.Key, op.key.Principal
	}
}

// context returns the context of a run.
func (op *operation) context(ctx context.Context, a *attempt) (context.Context, context.CancelCauseFunc, context.CancelFunc) {
	//guard:a-handler-outlives-its-client false
	if !op.rules.CancelOnDisconnect {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, lose := context.WithCancelCause(context.WithValue(ctx, attemptOf{}, a))
	if op.timeout == 0 {
		return ctx, lose, func() { lose(nil) }
	}
	ctx, cancel := context.WithTimeout(ctx, op.timeout)
	return ctx, lose, func() { cancel(); lose(nil) }
}

// causeOf returns why a context ended. The code of a user may have made the cause, so it is sealed.
func causeOf(ctx context.Context) error {
	//guard:a-cause-of-any-type-ends-no-attempt = @1
	return guard.Seal(context.Cause(ctx))
}

type attemptOf struct{}

func attemptFrom(ctx context.Context) *attempt {
	a, _ := ctx.Value(attemptOf{}).(*attempt)
	return a
}

// Info identifies the operation and the attempt in which a handler runs.
type Info struct {
	Key     Key
	Mode    Mode
	Attempt int    // counted from 1; in lease mode, failed attempts count too
	Point   string // the last phase or call that an earlier attempt completed
}

// FromContext returns the [Info] of the attempt that runs with ctx: a run of a handler, or of a
// function that [Do] calls. It returns false if ctx is not the context of an attempt.
func FromContext(ctx context.Context) (Info, bool) {
	a := attemptFrom(ctx)
	if a == nil {
		return Info{}, false
	}
	info := Info{Key: a.op.key, Mode: a.op.rules.Mode, Attempt: a.number}
	if a.lease != nil {
		info.Point = a.lease.Began()
	}
	return info, true
}

// KeepRef stores a reference in place of the answer. For a repeated request [Route.Render] makes
// the answer from this reference. The guard ignores the reference of an answer that is an error.
// [Do] ignores all references. KeepRef panics outside a handler.
func KeepRef(ctx context.Context, ref string) {
	a := attemptFrom(ctx)
	if a == nil {
		panic("idempotency: KeepRef was called outside a handler")
	}
	a.ref = ref
}

// refOf returns the reference to store for a result. A stored error has no reference: the effects
// are rolled back, and the reference may refer to them.
func (a *attempt) refOf(res result) string {
	//guard:an-error-has-no-reference false
	if res.verdict != keepAll {
		return ""
	}
	return a.ref
}

// recent has the lock numbers of operations that were answered recently. For these the guard first
// tries one statement without a transaction, which probably finds the answer. For other operations
// it would probably find nothing. Correctness does not depend on this memory.
type recent [4096]atomic.Int64

func (r *recent) add(lock int64)      { r[uint64(lock)%uint64(len(r))].Store(lock) }
func (r *recent) has(lock int64) bool { return r[uint64(lock)%uint64(len(r))].Load() == lock }
