package idempotency

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/idempotency/internal/fingerprint"
	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/jsonfit"
)

// Operation is an operation that [Do] or [DoLease] runs once. Scope, Principal and Key identify it.
// Principal may be empty if no caller asked for the operation, as for a job.
type Operation struct {
	Scope, Principal, Key string

	// Input is the input of the operation. Inputs are compared as JSON. If a key was used with
	// another input, the error matches [ErrMismatch]. The input is not stored.
	Input any

	// TTL is how long the result is kept.
	//
	// Defaults to 24 hours.
	TTL time.Duration

	// Wait is how long a call waits while another call runs the same operation.
	Wait time.Duration

	// Timeout limits the time of the function, through its context.
	//
	// Defaults to 5 minutes.
	Timeout time.Duration

	// Lease is how long a claim remains after its process has died. It is for DoLease only.
	//
	// Defaults to a minute.
	Lease time.Duration

	// Isolation is the isolation level of Do's transaction, or of the transaction of each Phase of
	// DoLease. TxRetries is how many times Do runs the function again if its transaction conflicts
	// with another one. TxRetries is for Do only.
	Isolation pgx.TxIsoLevel
	TxRetries int
}

// noCaller is the principal of operations without a caller.
const noCaller = "(none)"

const doTimeout = 5 * time.Minute

// Do runs fn once for an operation, in a transaction, and stores the result in this transaction.
// Each later call for the operation returns the stored result and does not run fn. Values of T must
// survive encoding as JSON.
//
// If fn returns an error, Do stores nothing, and the next call runs fn again. Do returns the error
// unchanged, or joined with [ErrContention] if the transaction conflicted with another one. Other
// errors match [ErrInProgress], [ErrMismatch], [ErrUnavailable], [ErrOutcomeUnknown],
// [ErrContention], [ErrInterrupted], [ErrNotCommitted] or [ErrUnreadable], or say what is wrong with
// op, g or the stored result. If ctx ends, fn's context also ends, and Do rolls the transaction back.
func Do[T any](ctx context.Context, g *Guard, op Operation, fn func(ctx context.Context, tx pgx.Tx) (T, error)) (T, Outcome, error) {
	return do(ctx, g, op, TxMode, func(ctx context.Context) (T, error) { return fn(ctx, Tx(ctx)) })
}

// DoLease is [Do] in lease mode: fn uses [Phase] and [Call]. After a crash or an error the next
// call of DoLease continues after the last recorded step. If fn returns the [ErrOutcomeUnknown] of
// a Call, DoLease returns it unchanged.
func DoLease[T any](ctx context.Context, g *Guard, op Operation, fn func(ctx context.Context) (T, error)) (T, Outcome, error) {
	return do(ctx, g, op, LeaseMode, fn)
}

// Job runs fn once for each run of a scheduled job, in a transaction. The parameter scheduled is
// the time at which the run was due. If an earlier attempt at the run has succeeded, Job does not
// run fn. Job calls Do, and keeps the result for a week. The key has the time at which the run was
// due, not the time at which it began, so all attempts at a run have the same key.
func Job(ctx context.Context, g *Guard, job string, scheduled time.Time, fn func(ctx context.Context, tx pgx.Tx) error) (Outcome, error) {
	op := Operation{Scope: "job " + job, Key: job + "@" + scheduled.UTC().Format(time.RFC3339Nano), TTL: TTLJobs}
	_, outcome, err := Do(ctx, g, op, func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
		return struct{}{}, fn(ctx, tx)
	})
	return outcome, err
}

func do[T any](ctx context.Context, g *Guard, op Operation, mode Mode, fn func(ctx context.Context) (T, error)) (T, Outcome, error) {
	var out T
	o, err := op.resolve(g, mode)
	if err != nil {
		return out, Fresh, fmt.Errorf("idempotency: %w", err)
	}
	var failure error
	o.run = func(ctx context.Context, a *attempt) (result, error) {
		if out, failure = fn(ctx); failure != nil {
			return result{}, nil // the verdict is undo
		}
		//guard:do-stores-its-result remove
		a.ref = "" // Do has no Render that could make the result from the reference
		text, err := json.Marshal(out)
		if err != nil {
			return result{}, fmt.Errorf("%w: write the result: %w", ErrNotCommitted, guard.Seal(err))
		}
		return result{kept: Response{Status: 200, Body: text}, verdict: keepAll}, nil
	}
	e := g.execute(ctx, o)
	switch {
	case e.err != nil:
		return out, Fresh, fmt.Errorf("idempotency: %w", errors.Join(e.err, failure))
	case e.outcome == Replayed:
		var kept T // not the result of a run that was rolled back
		if err := json.Unmarshal(e.record.Response.Body, &kept); err != nil {
			return kept, Replayed, fmt.Errorf("idempotency: read the result: %w", err)
		}
		//guard:a-kept-result-of-another-shape-is-told false
		if problem := jsonfit.Problem(e.record.Response.Body, reflect.ValueOf(&kept).Elem()); problem != "" {
			return kept, Replayed, fmt.Errorf("idempotency: read the result%s", problem)
		}
		return kept, Replayed, nil
	}
	return out, Fresh, failure
}

// resolve returns the operation in the form that a guard executes.
func (op Operation) resolve(g *Guard, mode Mode) (*operation, error) {
	rules := Route{
		Mode: mode, TTL: op.TTL, Wait: op.Wait, Timeout: cmp.Or(op.Timeout, doTimeout), Lease: op.Lease, Isolation: op.Isolation, TxRetries: op.TxRetries,
	}.defaults()
	if err := rules.validate(); err != nil {
		return nil, err
	}
	rules.CancelOnDisconnect = true
	key := Key{Scope: op.Scope, Principal: cmp.Or(op.Principal, noCaller), Value: op.Key}
	key, other := key.stored(g.cfg.HashPrincipal)
	if err := key.check(); err != nil {
		return nil, err
	}
	if err := g.fault(); err != nil {
		return nil, err
	}
	text, err := json.Marshal(op.Input)
	if err != nil {
		return nil, fmt.Errorf("write the input: %w", err)
	}
	reprint := func(kind fingerprint.Kind) (fingerprint.Sum, error) { return fingerprint.OfInput(text, kind) }
	print, err := reprint(fingerprint.Input)
	if err != nil {
		return nil, err
	}
	return &operation{key: key, other: other, keyed: true, lock: key.lock(g.store.schema), rules: &rules, timeout: rules.Timeout, print: print, reprint: reprint}, nil
}
