package idempotency

import (
	"context"
	"errors"
	"fmt"

	"github.com/postroom/postroom/idempotency/internal/claim"
)

// lease is an attempt's claim on its key.
type lease struct {
	*claim.Claim

	store *store
	op    *operation
}

// lease returns the lease with which an attempt can claim its key.
func (s *store) lease(op *operation) *lease {
	return &lease{store: s, op: op, Claim: s.claims.New(claim.Terms{
		Key: claim.Key{Scope: op.key.Scope, Principal: op.key.Principal, Value: op.key.Value}, Other: op.other, Keyed: op.keyed, Lock: op.lock, Print: op.print[:], Length: op.rules.Lease, TTL: op.rules.TTL,
	})}
}

// is lets the operation and its claim have the key of the row.
func (l *lease) is(f *row) {
	l.op.is(f)
	l.Key.Principal, l.Other = l.op.key.Principal, l.op.other
}

// took returns mine, of Take or TakeOver. It wraps err in ErrUnavailable, with advice.
func (l *lease) took(mine bool, err error) (bool, error) {
	if err != nil {
		return false, fmt.Errorf("%w: claim key: %w", ErrUnavailable, l.store.advise(err))
	}
	return mine, nil
}

// complete stores the answer.
func (l *lease) complete(ctx context.Context, a *attempt, res result) error {
	ctx, cancel := l.store.bounded(ctx)
	defer cancel()
	columns, err := keep(ctx, l.store.cfg.Codec, l.op.key, res.kept, a.refOf(res), res.dropped)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	err = l.Complete(ctx, columns, l.op.rules.From == FromCreation)
	if err != nil && !errors.Is(err, ErrLeaseLost) {
		return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	return err
}
