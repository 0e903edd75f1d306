package ledger

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Trial is a dry run that an operator asked for.
type Trial struct {
	ID      int64
	Handler string
	held    int64
}

// Change is what the handler would have changed in a table, or which events it would
// have written.
type Change struct {
	Kind     string `json:"kind"` // table, event
	Name     string `json:"name"`
	Inserted int64  `json:"inserted,omitempty"`
	Updated  int64  `json:"updated,omitempty"`
	Deleted  int64  `json:"deleted,omitempty"`
}

// Try reads the event of a dry run; none if it is not held any more.
func (db *DB) Try(ctx context.Context, tr Trial) ([]Held, error) {
	rows, _ := db.pool.Query(ctx, db.sql.try, tr.held, tr.Handler) // readHeld reports the error
	found, err := readHeld(rows)
	if err != nil {
		return nil, fmt.Errorf("read held event: %w", err)
	}
	return found, nil
}

// Changes returns what a connection has changed lately, and the transaction with it.
func (db *DB) Changes(ctx context.Context, tx *Tx) ([]Change, error) {
	rows, _ := tx.Tx.Query(ctx, db.sql.changes) // CollectRows reports the error
	changes, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Change])
	if err != nil {
		return nil, fmt.Errorf("ask what was changed: %w", err)
	}
	return changes, nil
}

// Tried stores what came of a dry run.
func (db *DB) Tried(ctx context.Context, id int64, finding string) error {
	_, err := db.pool.Exec(ctx, db.sql.tried, id, finding)
	return err
}

// CouldCommit reports what would come to light at the commit. What follows is run as the
// inbox's user.
func (db *DB) CouldCommit(ctx context.Context, tx *Tx) error {
	if err := tx.isStill(ctx, db.sql.still); err != nil {
		return err
	}
	if _, err := tx.Tx.Exec(ctx, "SET CONSTRAINTS ALL IMMEDIATE"); err != nil {
		return err
	}
	return tx.asOwn(ctx)
}
