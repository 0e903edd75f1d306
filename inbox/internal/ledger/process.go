package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Beat writes a process's sign of life, and returns the database's time and the id of
// this Postroom.
func (db *DB) Beat(ctx context.Context, id uuid.UUID, name string, handlers []string, ledger, gate time.Duration) (at time.Time, instance string, err error) {
	if err = db.pool.QueryRow(ctx, db.sql.node, id, name, handlers, ledger, gate).Scan(&at, &instance); err != nil {
		return at, instance, fmt.Errorf("write sign of life: %w", err)
	}
	return at, instance, nil
}

// Leave removes a process.
func (db *DB) Leave(ctx context.Context, id uuid.UUID) error {
	_, err := db.pool.Exec(ctx, db.sql.leave, id)
	return err
}

// Instance returns the id of this Postroom.
func (db *DB) Instance(ctx context.Context) (instance string, err error) {
	if err = db.pool.QueryRow(ctx, db.sql.instance).Scan(&instance); err != nil {
		return "", fmt.Errorf("look up the instance: %w", err)
	}
	return instance, nil
}

// Isolation returns the level at which transactions begin.
func (db *DB) Isolation(ctx context.Context) (level string, err error) {
	if err = db.pool.QueryRow(ctx, "SELECT current_setting('default_transaction_isolation')").Scan(&level); err != nil {
		return "", fmt.Errorf("look up the isolation level: %w", err)
	}
	return level, nil
}

// orphaned is a handler that nobody runs, and how many events are held for it.
type orphaned struct {
	Handler string
	Held    int64
}

// Unknown returns the handlers, besides the given ones, that nobody runs.
func (db *DB) Unknown(ctx context.Context, handlers []string) ([]orphaned, error) {
	rows, _ := db.pool.Query(ctx, db.sql.unknown, handlers) // its error is returned by CollectRows
	return pgx.CollectRows(rows, pgx.RowToStructByPos[orphaned])
}

// process is another one, and for how long it keeps and trusts the ledger.
type process struct {
	Name         string
	Ledger, Gate time.Duration
}

// Disagrees returns a process that lives and does not agree on how long the ledger is
// kept and trusted; nil if all do.
func (db *DB) Disagrees(ctx context.Context, ledger, gate time.Duration) (*process, error) {
	var p process
	var keeps, trusts float64
	err := db.pool.QueryRow(ctx, db.sql.ledgers, ledger, gate).Scan(&p.Name, &keeps, &trusts)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, nil //nolint:nilnil // nobody disagrees
	case err != nil:
		return nil, fmt.Errorf("look at other processes: %w", err)
	}
	p.Ledger, p.Gate = seconds(keeps), seconds(trusts)
	return &p, nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// AskedFor returns the types that any process of a handler asked for, as far as is
// recorded; nil for all.
func (db *DB) AskedFor(ctx context.Context, handler string) (types []string, err error) {
	err = db.pool.QueryRow(ctx, db.sql.types, handler).Scan(&types)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil // somebody deleted the row: nothing is known, and so nothing is lost
	}
	return types, err
}
