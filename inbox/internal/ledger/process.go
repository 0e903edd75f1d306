package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/inbox/internal/delivery"
)

// Upkeep has the statements that are not about single events: rows of processes, and the
// ledger's size.
type Upkeep struct{ *DB }

// Beat writes a process's sign of life, and returns what the process learns from the
// answer.
func (db Upkeep) Beat(ctx context.Context, id uuid.UUID, name string, handlers []string, dedupeWindow, maxEventAge time.Duration, paused string) (delivery.Beat, error) {
	ctx, cancel := context.WithTimeout(ctx, WritePatience)
	defer cancel()
	var b delivery.Beat
	var expired *time.Time
	if err := db.pool.QueryRow(ctx, db.sql.node, id, name, handlers, dedupeWindow, maxEventAge, paused).Scan(&b.At, &b.Instance, &expired); err != nil {
		return b, fmt.Errorf("write sign of life: %w", err)
	}
	if expired != nil {
		b.ExpiredBefore = *expired
	}
	return b, nil
}

// Leave removes a process.
func (db Upkeep) Leave(ctx context.Context, id uuid.UUID) error {
	ctx, cancel := context.WithTimeout(ctx, RollbackPatience)
	defer cancel()
	_, err := db.pool.Exec(ctx, db.sql.leave, id)
	return err
}

// Instance returns the id of this Postroom.
func (db Upkeep) Instance(ctx context.Context) (instance string, err error) {
	if err = db.pool.QueryRow(ctx, db.sql.instance).Scan(&instance); err != nil {
		return "", fmt.Errorf("look up the instance: %w", err)
	}
	return instance, nil
}

// Isolation returns the level at which transactions begin.
func (db Upkeep) Isolation(ctx context.Context) (level string, err error) {
	if err = db.pool.QueryRow(ctx, "SELECT current_setting('default_transaction_isolation')").Scan(&level); err != nil {
		return "", fmt.Errorf("look up the isolation level: %w", err)
	}
	return level, nil
}

// Unknown returns handlers that no process runs, except the given ones.
func (db Upkeep) Unknown(ctx context.Context, handlers []string) ([]delivery.OrphanHandler, error) {
	rows, _ := db.pool.Query(ctx, db.sql.unknown, handlers) // CollectRows returns its error
	return pgx.CollectRows(rows, pgx.RowToStructByPos[delivery.OrphanHandler])
}

// Paused returns those of the handlers that an operator has paused.
func (db Upkeep) Paused(ctx context.Context, handlers []string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, WritePatience)
	defer cancel()
	rows, _ := db.pool.Query(ctx, db.sql.paused, handlers) // CollectRows returns its error
	paused, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("ask which handlers are paused: %w", err)
	}
	return paused, nil
}

// Disagrees returns a live process whose settings conflict with these about how long
// ledger rows are kept; nil if there is none.
func (db Upkeep) Disagrees(ctx context.Context, dedupeWindow, maxEventAge time.Duration) (*delivery.Process, error) {
	var p delivery.Process
	var keeps, trusts float64
	err := db.pool.QueryRow(ctx, db.sql.ledgers, dedupeWindow, maxEventAge).Scan(&p.Name, &keeps, &trusts)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, nil //nolint:nilnil // no process disagrees
	case err != nil:
		return nil, fmt.Errorf("look at other processes: %w", err)
	}
	p.DedupeWindow, p.MaxEventAge = seconds(keeps), seconds(trusts)
	return &p, nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
