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

// Upkeep has the statements that are not about single events: for instance, they write the rows of
// processes, count held events, and remove old inbox rows.
type Upkeep struct{ *DB }

// Beat writes a process's sign of life, and returns the data that the database sends back. Beat
// runs at READ COMMITTED, because it may wait for a step of a sweep. After such a wait it must see
// up to which time that step removed rows.
func (db Upkeep) Beat(ctx context.Context, id uuid.UUID, s delivery.Sign) (b delivery.Beat, err error) {
	ctx, cancel := context.WithTimeout(ctx, WritePatience)
	defer cancel()
	handlers, keep, ages := columnsOf(s.Windows)
	var expired []*time.Time
	batch := &pgx.Batch{} // one batch, because a process that stalls between two statements would prevent sweeps by other processes
	//guard:a-sign-of-life-reads-what-was-committed 1 = "BEGIN ISOLATION LEVEL REPEATABLE READ"
	batch.Queue("BEGIN ISOLATION LEVEL READ COMMITTED")
	batch.Queue(db.sql.Node, id, s.Name, handlers, keep, ages, s.Keep, s.Paused).QueryRow(func(row pgx.Row) error {
		return row.Scan(&b.At, &b.Instance, &expired)
	})
	batch.Queue("COMMIT")
	if err := db.pool.SendBatch(ctx, batch).Close(); err != nil {
		return b, fmt.Errorf("write sign of life: %w", err)
	}
	b.ExpiredBefore = make(map[string]time.Time)
	for i, at := range expired {
		if at != nil {
			b.ExpiredBefore[handlers[i]] = *at
		}
	}
	return b, nil
}

func columnsOf(all []delivery.Window) (handlers []string, keep, ages []time.Duration) {
	handlers, keep, ages = []string{}, []time.Duration{}, []time.Duration{} // none is NULL
	for _, w := range all {
		handlers, keep, ages = append(handlers, w.Handler), append(keep, w.Keep), append(ages, w.Age)
	}
	return handlers, keep, ages
}

// Leave removes the row of a process that ends.
func (db Upkeep) Leave(ctx context.Context, id uuid.UUID) error {
	ctx, cancel := context.WithTimeout(ctx, RollbackPatience)
	defer cancel()
	_, err := db.pool.Exec(ctx, db.sql.Leave, id)
	return err
}

// Instance returns the id of this Postroom database.
func (db Upkeep) Instance(ctx context.Context) (instance string, err error) {
	if err = db.pool.QueryRow(ctx, db.sql.Instance).Scan(&instance); err != nil {
		return "", fmt.Errorf("look up the instance: %w", err)
	}
	return instance, nil
}

// Isolation returns the default isolation level of transactions.
func (db Upkeep) Isolation(ctx context.Context) (level string, err error) {
	if err = db.pool.QueryRow(ctx, "SELECT current_setting('default_transaction_isolation')").Scan(&level); err != nil {
		return "", fmt.Errorf("look up the isolation level: %w", err)
	}
	return level, nil
}

// Known reports whether a process has read the stream of the handler before.
func (db Upkeep) Known(ctx context.Context, handler string) (bool, error) {
	err := db.pool.QueryRow(ctx, db.sql.Types, handler).Scan(new([]string)) // NULL means all types
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look for the subscription of handler %s: %w", handler, err)
	}
	return true, nil
}

// Unknown returns the handlers that no process runs. It leaves out the given handlers.
func (db Upkeep) Unknown(ctx context.Context, handlers []string) ([]delivery.OrphanHandler, error) {
	rows, _ := db.pool.Query(ctx, db.sql.Unknown, handlers) // CollectRows returns its error
	return pgx.CollectRows(rows, pgx.RowToStructByPos[delivery.OrphanHandler])
}

// Paused returns which of the given handlers an operator has paused.
func (db Upkeep) Paused(ctx context.Context, handlers []string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, WritePatience)
	defer cancel()
	rows, _ := db.pool.Query(ctx, db.sql.Paused, handlers) // CollectRows returns its error
	paused, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("ask which handlers are paused: %w", err)
	}
	return paused, nil
}

// OtherWindows returns live processes that need the inbox rows of a handler for longer or shorter
// than the given windows say. It returns at most one process for each handler.
func (db Upkeep) OtherWindows(ctx context.Context, windows []delivery.Window) ([]delivery.OtherWindow, error) {
	handlers, keep, _ := columnsOf(windows)
	rows, _ := db.pool.Query(ctx, db.sql.OtherWindows, handlers, keep) // CollectRows returns its error
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (d delivery.OtherWindow, err error) {
		var keeps float64
		err = row.Scan(&d.Handler, &d.Process, &keeps)
		d.Keep = seconds(keeps)
		return d, err
	})
	if err != nil {
		return nil, fmt.Errorf("look at other processes: %w", err)
	}
	return all, nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
