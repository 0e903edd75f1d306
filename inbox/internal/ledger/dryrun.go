package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/inbox/internal/delivery"
)

// Try reads the event of a dry run. If the event is no longer held, it returns no row.
func (db Claims) Try(ctx context.Context, tr delivery.DryRun) ([]delivery.HeldEvent, error) {
	rows, _ := db.pool.Query(ctx, db.sql.Try, tr.Held, tr.Handler) // readHeld reports the error
	found, err := readHeld(rows)
	if err != nil {
		return nil, fmt.Errorf("read held event: %w", err)
	}
	return found, nil
}

// changes returns the connection's recent changes, with those of the open transaction.
func (a *Handler) changes(ctx context.Context, tx *Tx) ([]delivery.Change, error) {
	rows, _ := tx.Tx.Query(ctx, a.sql.Changes) // CollectRows reports the error
	changes, err := pgx.CollectRows(rows, pgx.RowToStructByPos[delivery.Change])
	if err != nil {
		return nil, fmt.Errorf("ask what was changed: %w", err)
	}
	return changes, nil
}

// Found is the result of a dry run.
type Found struct {
	Err     error // the error of the handler, or the error that a commit would have returned; or nil
	Changes []delivery.Change
	Took    time.Duration
}

// DryRun runs a handler in a transaction that is rolled back. It returns an error if the
// dry run itself could not be made.
func (a *Handler) DryRun(ctx context.Context, run func(ctx context.Context, tx *Tx) error) (f Found, err error) {
	tx, err := a.Begin(ctx)
	if tx == nil {
		return f, err
	}
	var before []delivery.Change
	if err == nil {
		before, err = a.changes(ctx, tx)
	}
	if err == nil {
		began := time.Now()
		err = run(ctx, tx)
		f.Took = time.Since(began)
	}
	if err == nil {
		err = a.couldCommit(ctx, tx)
	}
	if err == nil {
		f.Changes, err = a.changes(ctx, tx)
		f.Changes = since(before, f.Changes)
	}
	if !delivery.IsAbandoned(err) {
		tx.Abort(ctx)
	}
	if err != nil {
		switch committed, asking := a.WasCommitted(ctx, tx.ID); {
		case asking != nil:
			return f, errors.Join(err, asking)
		//guard:a-dry-run-tells-what-was-committed false
		case committed: // the handler committed, so this was not a dry run
			err = &delivery.EndedError{Committed: true}
		}
	}
	f.Err = err
	return f, nil
}

// since returns the changes between two measurements. One measurement is not enough, because the
// server's counts also include recent transactions of the same connection.
func since(before, after []delivery.Change) (changes []delivery.Change) {
	earlier := make(map[string]delivery.Change, len(before))
	for _, b := range before {
		earlier[b.Kind+" "+b.Name] = b
	}
	for _, c := range after {
		b := earlier[c.Kind+" "+c.Name]
		c.Inserted, c.Updated, c.Deleted = c.Inserted-b.Inserted, c.Updated-b.Updated, c.Deleted-b.Deleted
		if c.Inserted != 0 || c.Updated != 0 || c.Deleted != 0 {
			changes = append(changes, c)
		}
	}
	return changes
}

// Tried stores the result of a dry run.
func (db Claims) Tried(ctx context.Context, id int64, finding string) error {
	ctx, cancel := context.WithTimeout(ctx, WritePatience)
	defer cancel()
	_, err := db.pool.Exec(ctx, db.sql.Tried, id, finding)
	return err
}

// couldCommit returns the error that a commit would return. Later statements run as the inbox's
// user.
func (a *Handler) couldCommit(ctx context.Context, tx *Tx) error {
	//guard:a-dry-run-asks-whether-it-is-the-same-transaction 0 = error(nil)
	if err := tx.isStill(ctx, a.sql.Still); err != nil {
		return err
	}
	if _, err := tx.Tx.Exec(ctx, "SET CONSTRAINTS ALL IMMEDIATE"); err != nil {
		return err
	}
	return tx.asOwn(ctx)
}
