package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Outcome is what a call with a key came to.
type Outcome int

// Outcomes.
const (
	// Fresh is a call that ran.
	Fresh Outcome = iota

	// Replayed is a call that did not run: its answer was kept by an earlier one.
	Replayed
)

func (o Outcome) String() string {
	if o == Replayed {
		return "replayed"
	}
	return "fresh"
}

// operation is one call with a key, or, where that is empty, without.
type operation struct {
	key     Key // as the database has it
	lock    int64
	rules   *Route
	timeout time.Duration // of what runs; 0: none

	print   Fingerprint
	reprint func(kind Print) (Fingerprint, error)

	// run does the work. It is called once for each attempt, in its context.
	run func(ctx context.Context, a *attempt) (result, error)
}

// keyed reports whether there is a key, and so a row.
func (op *operation) keyed() bool { return op.key != (Key{}) }

// attempt is one run of an operation.
type attempt struct {
	op     *operation
	number int
	tx     *tx    // transaction mode
	asked  bool   // for the transaction
	lease  *lease // lease mode
	ref    string // given by KeepRef
}

// result is what a run of an operation came to.
type result struct {
	response Response
	kept     Response // what of it is kept
	verdict  verdict
	dropped  bool // it is too large to be kept
}

// verdict is what becomes of a run's effects and of its answer.
type verdict int

const (
	undo       verdict = iota // neither is kept
	keepAll                   // both are
	keepAnswer                // the answer alone is
)

// ended is what a call came to.
type ended struct {
	key      Key
	outcome  Outcome
	response Response // of a run
	record   Record   // of a replay
	kept     bool
	number   int
	from, to State
	takeover bool
	err      error
}

const (
	twinRounds = 3 // of one that met the answer of a twin, and looks again
	pollFirst  = 10 * time.Millisecond
	pollMost   = 250 * time.Millisecond
)

// execute runs an operation, or returns what an earlier run of it answered.
func (g *Guard) execute(ctx context.Context, op *operation) ended {
	deadline := time.Now().Add(op.rules.Wait)
	pause := pollFirst
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
			sleep(ctx, min(pause, time.Until(deadline)))
			pause = min(2*pause, pollMost)
			round = 0
			continue
		}
		e.key = op.key
		if op.keyed() && e.err == nil && (e.kept || e.outcome == Replayed) {
			g.recent.add(op.lock)
		}
		g.tell(ctx, op, e)
		return e
	}
}

func (g *Guard) attempt(ctx context.Context, op *operation) ended {
	if op.rules.Mode == LeaseMode {
		return g.leased(ctx, op)
	}
	return g.inTx(ctx, op)
}

// decision is what a row means for a call.
type decision int

const (
	free   decision = iota // there is none that counts
	replay                 // it is answered
	resume                 // an attempt failed, or its claim ran out
)

// decide returns what a row means for a call, or why it cannot go on.
func (op *operation) decide(f *row) (decision, error) {
	if f == nil || !f.counts() {
		return free, nil
	}
	if f.Fingerprint != op.print {
		if f.Fingerprint[0] == op.print[0] {
			return free, ErrMismatch
		}
		other, err := op.reprint(Print(f.Fingerprint[0]))
		switch {
		case err != nil: // a newer version of this service will know
			return free, fmt.Errorf("%w: compare with the first request: %w", ErrUnavailable, err)
		case other != f.Fingerprint:
			return free, ErrMismatch
		}
	}
	switch {
	case f.State == StateComplete:
		return replay, nil
	case f.leased:
		return free, ErrInProgress
	}
	return resume, nil
}

// replay returns what was answered.
func (g *Guard) replay(ctx context.Context, op *operation, f *row) ended {
	e := ended{outcome: Replayed, from: StateComplete, to: StateComplete, number: f.Attempts}
	var err error
	if e.record, err = g.record(ctx, f); err != nil {
		e.err = fmt.Errorf("%w: %w", ErrUnavailable, err)
		return e
	}
	if f.Dropped {
		e.err = ErrDropped
		return e
	}
	if op.rules.From == FromLastUse {
		ctx, cancel := g.bounded(ctx)
		defer cancel()
		if _, err := g.pool.Exec(ctx, g.sql.touch, op.key.Scope, op.key.Principal, op.key.Value, op.rules.TTL); err != nil {
			g.cfg.Logger.WarnContext(ctx, "the time of an idempotency key was not extended", "error", err)
		}
	}
	return e
}

// context returns the context of a run.
func (op *operation) context(ctx context.Context, a *attempt) (context.Context, context.CancelCauseFunc, context.CancelFunc) {
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

type attemptOf struct{}

func attemptFrom(ctx context.Context) *attempt {
	a, _ := ctx.Value(attemptOf{}).(*attempt)
	return a
}

// Info says which attempt at which operation a handler runs in.
type Info struct {
	Key     Key
	Mode    Mode
	Attempt int    // from 1; of lease mode, with those that failed
	Point   string // the last phase that was done before this attempt
}

// FromContext returns the attempt that a handler, or a function given to [Do], runs in, and
// whether there is one.
func FromContext(ctx context.Context) (Info, bool) {
	a := attemptFrom(ctx)
	if a == nil {
		return Info{}, false
	}
	info := Info{Key: a.op.key, Mode: a.op.rules.Mode, Attempt: a.number}
	if a.lease != nil {
		info.Point = a.lease.began
	}
	return info, true
}

// KeepRef has a reference kept in place of the answer: [Route.Render] makes the answer of
// it when it is asked for again. It panics outside a handler.
func KeepRef(ctx context.Context, ref string) {
	a := attemptFrom(ctx)
	if a == nil {
		panic("idempotency: KeepRef was called outside a handler")
	}
	a.ref = ref
}
