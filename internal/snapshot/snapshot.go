// Package snapshot reads a database as it is at one moment, without becoming a burden to it.
package snapshot

import (
	"context"
	_ "embed" // for plan.sql
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// patience limits a look as a whole. plan.sql has the limit of a statement.
const patience = 15 * time.Second

//go:embed sql/plan.sql
var plan string

// DB is a *pgxpool.Pool or a *pgx.Conn. It is an interface to allow both.
type DB interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// Read calls do with a read-only transaction that shows one moment. Statements find what
// they look for by its index. One that takes 10 seconds is cancelled, and the whole ends
// after 15 seconds. The context that do gets ends then.
func Read(ctx context.Context, db DB, do func(ctx context.Context, tx pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tx, err := db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return fmt.Errorf("begin to look: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // there is nothing to commit
	if _, err := tx.Exec(ctx, plan); err != nil {
		return fmt.Errorf("begin to look: %w", err)
	}
	return do(ctx, tx)
}
