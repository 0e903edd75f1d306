package schema

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// LocksOf returns the tables that a migration locks before it does anything, and how.
func LocksOf(m Migration) map[string]string {
	locks := map[string]string{}
	for _, l := range locksOf(m.source) {
		locks[l.table] = l.mode
	}
	return locks
}

// Holders returns the transactions that have a lock of a table.
func Holders(ctx context.Context, tx pgx.Tx, table string) (holders []string, err error) {
	var exists bool
	err = tx.QueryRow(ctx, holdersSQL, table).Scan(&exists, &holders)
	return holders, err
}

// Blockers returns who may be in the way.
func Blockers(ctx context.Context, tx pgx.Tx, holders []string) ([]Blocker, error) {
	return blockers(ctx, tx, DefaultName, holders)
}

// ReadBlockers returns who may be in the way, with the sessions as the transaction saw
// them first.
func ReadBlockers(ctx context.Context, tx pgx.Tx, holders []string) ([]Blocker, error) {
	return readBlockers(ctx, tx, DefaultName, holders)
}
