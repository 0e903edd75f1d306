// Package snapshot reads the state of a database at one moment. It stops after a limited time, so
// that it does not disturb other work.
package snapshot

import (
	"context"
	_ "embed" // for plan.sql
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// patience limits the time of a complete Read. plan.sql limits the time of a statement.
const patience = 15 * time.Second

//go:embed sql/plan.sql
var plan string

// DB is a *pgxpool.Pool or a *pgx.Conn.
type DB interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// Read calls the function do with a read-only transaction that has one snapshot. The settings of
// the transaction make statements use indexes. The server cancels a statement after 10 seconds.
// After 15 seconds the context of do ends, and the transaction ends with it.
func Read(ctx context.Context, db DB, do func(ctx context.Context, tx pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	//guard:looks-cannot-write 2.2 remove
	//guard:a-look-is-of-one-moment 2.1 remove
	tx, err := db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return fmt.Errorf("begin to look: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // a read-only transaction has nothing to commit
	if _, err := tx.Exec(ctx, plan); err != nil {
		return fmt.Errorf("begin to look: %w", err)
	}
	return do(ctx, tx)
}
