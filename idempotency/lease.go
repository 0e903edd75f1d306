package idempotency

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom/internal/guard"
)

// execer is what a claim needs of a database: a pool, or a transaction.
type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// lease is an attempt's claim on a key. Every write carries its owner and its fence.
type lease struct {
	g     *Guard
	op    *operation
	owner string
	fence int64
	began string    // the point at which it began
	asked time.Time // before the statement that took the claim was sent: it holds from then on
	lose  context.CancelCauseFunc

	mu    sync.Mutex
	steps map[string]json.RawMessage // that are done, with what they returned
	busy  map[string]struct{}        // calls that are under way
	dark  map[string]struct{}        // phases of which it is not known whether they were committed
}

// Phase runs a step of a handler in lease mode: fn in a transaction that commits together
// with the record that the step is done. Where an earlier attempt has done it, fn does not
// run, and what it returned then is returned; T must survive JSON, without U+0000. Names are unique within
// an operation.
//
// After [ErrLeaseLost] nothing of the step was done: return, another attempt is at work.
// [ErrOutcomeUnknown] is a commit that was not answered: return as well, the next attempt
// knows. Phase panics outside a handler of lease mode.
func Phase[T any](ctx context.Context, name string, fn func(ctx context.Context, tx pgx.Tx) (T, error)) (T, error) {
	l := leaseFrom(ctx, "Phase")
	var out T
	if done, err := l.checkpoint(name, &out); done || err != nil {
		return out, err
	}
	if l.isDark(name) {
		return out, fmt.Errorf("phase %s: %w: the commit of an earlier run was not answered", name, ErrOutcomeUnknown)
	}
	var text []byte
	recorded := false
	what := &fate{sessions: l.g.sessions}
	err := l.g.lend(ctx, l.op.rules.Isolation, what, func(inner pgx.Tx) error {
		t := &tx{handle: handle{inner, what}} // which ends with fn, and by nobody's hand before
		err := inner.QueryRow(ctx, l.g.sql.began).Scan(&t.began)
		if err != nil {
			return err
		}
		out, err = fn(ctx, t)
		t.over.Store(true)
		if err != nil {
			return err
		}
		if text, err = json.Marshal(out); err != nil {
			return fmt.Errorf("write what phase %s returned: %w", name, err)
		}
		if _, err = inner.Exec(ctx, l.g.sql.still, t.began); isOther(err) {
			return errEnded
		} else if err != nil {
			return err
		}
		if err := l.record(ctx, inner, name, text); err != nil {
			return err
		}
		recorded = true
		return nil
	})
	if err != nil && recorded && !isRefusal(err) && !errors.Is(err, pgx.ErrTxCommitRollback) {
		l.darken(name)
		err = fmt.Errorf("phase %s: %w: %w", name, ErrOutcomeUnknown, err)
	}
	if err != nil {
		return out, because(ctx, err)
	}
	l.remember(name, text)
	return out, nil
}

// darken notes that it is not known whether a phase was committed: run again in this
// attempt, it could have two effects.
func (l *lease) darken(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dark[name] = struct{}{}
}

func (l *lease) isDark(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, dark := l.dark[name]
	return dark
}

// because says of an error whose context ended with the claim that this is why.
func because(ctx context.Context, err error) error {
	if err == nil || !errors.Is(context.Cause(ctx), ErrLeaseLost) {
		return err
	}
	if !guard.Is(guard.Tree(err), ErrLeaseLost) { // a tree of a user's errors may have no end
		return fmt.Errorf("%w: %w", ErrLeaseLost, err)
	}
	return err
}

func leaseFrom(ctx context.Context, who string) *lease {
	a := attemptFrom(ctx)
	if a == nil || a.lease == nil {
		panic("idempotency: " + who + " was called outside a handler of lease mode")
	}
	return a.lease
}

func (l *lease) derived(name string) string {
	if !l.op.keyed() {
		return DeriveKey(l.owner, name)
	}
	return DeriveKey(DeriveKey(l.op.key.Scope, l.op.key.Principal), DeriveKey(l.op.key.Value, name))
}

// checkpoint reads what a step returned that is done.
func (l *lease) checkpoint(name string, into any) (bool, error) {
	if name == "" {
		return true, errStepName
	}
	l.mu.Lock()
	text, ok := l.steps[name]
	l.mu.Unlock()
	if !ok {
		return false, nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		return true, fmt.Errorf("read what %s returned in an earlier attempt: %w", name, err)
	}
	return true, nil
}

func (l *lease) remember(name string, text []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.steps[name] = text
}

// record writes that a step is done, under the claim.
func (l *lease) record(ctx context.Context, db execer, name string, text []byte) error {
	if !l.op.keyed() {
		return nil
	}
	return l.write(ctx, db, "record "+name, l.g.sql.advance, name, string(text))
}

// write runs a statement that carries owner and fence.
func (l *lease) write(ctx context.Context, db execer, what, sql string, args ...any) error {
	k := l.op.key
	tag, err := db.Exec(ctx, sql, append([]any{k.Scope, k.Principal, k.Value, l.owner, l.fence}, args...)...)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if tag.RowsAffected() == 0 {
		l.lose(ErrLeaseLost)
		return fmt.Errorf("%s: %w", what, ErrLeaseLost)
	}
	return nil
}

// renew holds the claim for as long as ctx lasts. Once it cannot be renewed before it runs
// out, it counts as lost, whatever the server thinks.
func (l *lease) renew(ctx context.Context) {
	length := l.op.rules.Lease
	until := l.asked.Add(length)
	next := time.NewTimer(time.Until(l.asked.Add(length / 3)))
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		begun := time.Now()
		bounded, cancel := l.g.bounded(ctx)
		before, stop := context.WithDeadline(bounded, until)
		err := l.write(before, l.g.pool, "renew claim", l.g.sql.renew, length)
		stop()
		cancel()
		switch {
		case err == nil:
			until = begun.Add(length)
			next.Reset(time.Until(begun.Add(length / 3)))
		case errors.Is(err, ErrLeaseLost):
			return
		case !time.Now().Before(until):
			l.lose(ErrLeaseLost)
			return
		default:
			l.g.cfg.Logger.WarnContext(ctx, "the claim of an idempotency key was not renewed", "error", err)
			next.Reset(min(length/6, time.Until(until)))
		}
	}
}

// leased makes an attempt in lease mode.
func (g *Guard) leased(ctx context.Context, op *operation) (e ended) {
	l := &lease{
		g: g, op: op, owner: uuid.NewString(),
		steps: make(map[string]json.RawMessage), busy: make(map[string]struct{}), dark: make(map[string]struct{}),
	}
	a := &attempt{op: op, number: 1, lease: l}
	if l.op.keyed() {
		found, what, err := g.claim(ctx, a)
		switch {
		case err != nil:
			return ended{err: err}
		case what == replay:
			return g.replay(ctx, op, found)
		case what == resume:
			e.from, e.takeover = found.State, found.State == StatePending
		}
	}
	e.number = a.number

	inner, lose, cancel := op.context(ctx, a)
	l.lose = lose
	var renewing sync.WaitGroup
	if l.op.keyed() {
		renewing.Go(func() { l.renew(inner) })
	}
	returned := false
	defer func() {
		cancel()
		renewing.Wait()
		if !returned { // it panics
			l.fail(ctx)
		}
	}()
	res, err := op.run(inner, a)
	returned = true
	e.response, e.err = res.response, err
	switch {
	case !l.op.keyed():
	case err != nil || res.verdict == undo:
		l.fail(ctx)
		e.to = StateFailed
		if errors.Is(context.Cause(inner), ErrLeaseLost) { // whatever the handler made of it
			e.err, e.to = errors.Join(ErrLeaseLost, err), StatePending
		}
	default:
		if e.err = l.complete(ctx, a, res); e.err == nil {
			e.kept, e.to = true, StateComplete
		}
	}
	return e
}

// claim takes the key for an attempt, or says what stands in its way.
func (g *Guard) claim(ctx context.Context, a *attempt) (*row, decision, error) {
	bounded, cancel := g.bounded(ctx)
	defer cancel()
	op, l := a.op, a.lease
	take := func(sql string, more ...any) (bool, error) {
		k := op.key
		args := append([]any{k.Scope, k.Principal, k.Value, op.print[:], l.owner, op.rules.Lease, op.lock, op.rules.TTL}, more...)
		var point *string
		var steps []byte
		l.asked = time.Now()
		err := g.pool.QueryRow(bounded, sql, args...).Scan(&l.fence, &a.number, &point, &steps)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return false, nil
		case err == nil:
			err = l.resume(value(point), steps)
		}
		if err != nil {
			return false, fmt.Errorf("%w: claim key: %w", ErrUnavailable, g.advise(err))
		}
		return true, nil
	}
	if mine, err := take(g.sql.claim); mine || err != nil {
		return nil, free, err
	}
	for range twinRounds {
		found, err := g.look(ctx, op.key)
		if err != nil {
			return nil, free, fmt.Errorf("%w: look up key: %w", ErrUnavailable, err)
		}
		if found == nil { // a transaction is at it, or it was removed just now
			mine, err := take(g.sql.claim)
			if mine || err != nil {
				return nil, free, err
			}
			continue
		}
		what, err := op.decide(found)
		if err != nil || what == replay {
			return found, what, err
		}
		if mine, err := take(g.sql.take, found.fence, found.Fingerprint[:]); mine || err != nil {
			return found, what, err
		}
	}
	return nil, free, ErrInProgress
}

// resume goes on where an earlier attempt stopped: as it was when its claim was taken,
// because until then it may have recorded more than was seen.
func (l *lease) resume(point string, steps []byte) error {
	l.began = point
	if len(steps) == 0 {
		return nil
	}
	if err := json.Unmarshal(steps, &l.steps); err != nil {
		return fmt.Errorf("read what is done: %w", err)
	}
	return nil
}

// complete keeps the answer.
func (l *lease) complete(ctx context.Context, a *attempt, res result) error {
	ctx, cancel := l.g.bounded(ctx)
	defer cancel()
	columns, err := l.g.keep(ctx, l.op.key, res.kept, a.ref, res.dropped)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	err = l.write(ctx, l.g.pool, "keep answer", l.g.sql.complete, columns.status, columns.headers, columns.body, columns.ref,
		columns.dropped, l.op.rules.TTL, l.op.rules.From == FromCreation)
	if err != nil && !errors.Is(err, ErrLeaseLost) {
		return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	return err
}

// fail gives the claim back. Where that does not succeed, it runs out.
func (l *lease) fail(ctx context.Context) {
	if !l.op.keyed() {
		return
	}
	ctx, cancel := l.g.bounded(ctx)
	defer cancel()
	if err := l.write(ctx, l.g.pool, "give claim back", l.g.sql.fail, l.op.rules.TTL); err != nil {
		l.g.cfg.Logger.WarnContext(ctx, "the claim of an idempotency key was not given back", "error", err)
	}
}
