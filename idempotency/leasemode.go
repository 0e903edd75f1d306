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
)

// execer is what a claim needs of a database: a pool, or a transaction.
type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// lease is an attempt's claim on a key. Every write carries its owner and its fence.
type lease struct {
	store *store
	op    *operation
	owner string
	fence int64

	number int       // of the attempt
	began  string    // the point at which it began
	asked  time.Time // before the statement that took the claim was sent: it holds from then on
	lose   context.CancelCauseFunc

	mu    sync.Mutex
	steps map[string]json.RawMessage // that are done, with what they returned
	busy  map[string]struct{}        // calls that are under way
	dark  map[string]struct{}        // phases of which it is not known whether they were committed
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
		bounded, cancel := l.store.bounded(ctx)
		before, stop := context.WithDeadline(bounded, until)
		err := l.write(before, l.store.pool, "renew claim", l.store.sql.Renew, length)
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
			l.store.cfg.Logger.WarnContext(ctx, "the claim of an idempotency key was not renewed", "error", err)
			next.Reset(min(length/6, time.Until(until)))
		}
	}
}

// lease returns the claim of an attempt that has not claimed its key yet.
func (s *store) lease(op *operation) *lease {
	return &lease{
		store: s, op: op, owner: uuid.NewString(), number: 1,
		steps: make(map[string]json.RawMessage), busy: make(map[string]struct{}), dark: make(map[string]struct{}),
	}
}

// claim takes the key where there is no row, and reports whether it did.
func (l *lease) claim(ctx context.Context) (bool, error) { return l.take(ctx, l.store.sql.Claim) }

// takeOver takes the key as its row was seen, and reports whether it did.
func (l *lease) takeOver(ctx context.Context, found *row) (bool, error) {
	return l.take(ctx, l.store.sql.Take, found.fence, found.Fingerprint[:])
}

func (l *lease) take(ctx context.Context, sql string, more ...any) (bool, error) {
	k, op := l.op.key, l.op
	args := append([]any{k.Scope, k.Principal, k.Value, op.print[:], l.owner, op.rules.Lease, op.lock, op.rules.TTL}, more...)
	var point *string
	var steps []byte
	l.asked = time.Now()
	err := l.store.pool.QueryRow(ctx, sql, args...).Scan(&l.fence, &l.number, &point, &steps)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, nil
	case err == nil:
		err = l.resume(value(point), steps)
	}
	if err != nil {
		return false, fmt.Errorf("%w: claim key: %w", ErrUnavailable, l.store.advise(err))
	}
	return true, nil
}

// hold renews the claim until ctx ends, and has lose be called once it is lost. letGo
// waits for the last renewal.
func (l *lease) hold(ctx context.Context, lose context.CancelCauseFunc) (letGo func()) {
	l.lose = lose
	var renewing sync.WaitGroup
	if l.op.keyed {
		renewing.Go(func() { l.renew(ctx) })
	}
	return renewing.Wait
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
	ctx, cancel := l.store.bounded(ctx)
	defer cancel()
	columns, err := keep(ctx, l.store.cfg.Codec, l.op.key, res.kept, a.ref, res.dropped)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	err = l.write(ctx, l.store.pool, "keep answer", l.store.sql.Complete, columns.status, columns.headers, columns.body, columns.ref,
		columns.dropped, l.op.rules.TTL, l.op.rules.From == FromCreation)
	if err != nil && !errors.Is(err, ErrLeaseLost) {
		return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	return err
}

// fail gives the claim back. Where that does not succeed, it runs out.
func (l *lease) fail(ctx context.Context) {
	if !l.op.keyed {
		return
	}
	ctx, cancel := l.store.bounded(ctx)
	defer cancel()
	if err := l.write(ctx, l.store.pool, "give claim back", l.store.sql.Fail, l.op.rules.TTL); err != nil {
		l.store.cfg.Logger.WarnContext(ctx, "the claim of an idempotency key was not given back", "error", err)
	}
}
