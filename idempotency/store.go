package idempotency

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/idempotency/internal/claim"
	"github.com/postroom/postroom/internal/remedy"
	"github.com/postroom/postroom/internal/session"
)

// store is the table of keys, and the connections on which it is reached.
type store struct {
	pool     *pgxpool.Pool
	sessions *session.Pool
	schema   string
	sql      statements
	claims   *claim.Table // in lease mode
	cfg      *Config
}

// advise returns an error of a statement of ours with what to do about it.
func (s *store) advise(err error) error {
	return remedy.Explain(err, remedy.Use{Grant: "idempotency", Schema: s.schema, DB: s.pool})
}

// bounded returns a context for a use of the database: it does not end with the caller's,
// which would break the connection off.
func (s *store) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), s.cfg.StoreTimeout)
}

// look returns the row of a key, or nil where there is none, without a transaction.
func (s *store) look(ctx context.Context, k Key) (*row, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	return s.lookIn(ctx, s.pool, k)
}

func (s *store) lookIn(ctx context.Context, db querier, k Key) (*row, error) {
	rows, _ := db.Query(ctx, s.sql.Look, k.Scope, k.Principal, k.Value) // collecting reports the error
	f, err := pgx.CollectOneRow(rows, scanRow)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return f, err
}

// querier is a pool, or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// touch keeps an answer that was just repeated for longer.
func (s *store) touch(ctx context.Context, op *operation) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	if _, err := s.pool.Exec(ctx, s.sql.Touch, op.key.Scope, op.key.Principal, op.key.Value, op.rules.TTL); err != nil {
		s.cfg.Logger.WarnContext(ctx, "the time of an idempotency key was not extended", "error", err)
	}
}
