package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom/inbox/internal/delivery"
)

// Save begins the part of the transaction in which one event of a batch runs, so that [Tx.Undo] can
// undo this event without the events before it. It is a round trip of its own, because only then
// the savepoint is certain: a statement of the handler may fail before it reaches the server. Each
// savepoint has a name of its own, so that Undo cannot find the one of an earlier event.
func (t *Tx) Save(ctx context.Context) error {
	sql := ""
	if t.member != "" {
		sql = "RELEASE SAVEPOINT " + t.member + "; "
	}
	t.members++
	t.member = fmt.Sprintf("postroom_member_%d", t.members)
	_, err := t.Tx.Exec(ctx, sql+"SAVEPOINT "+t.member)
	return t.saved("begin one event of a batch", err)
}

// Undo undoes what happened since Save.
func (t *Tx) Undo(ctx context.Context) error {
	_, err := t.Tx.Exec(ctx, "ROLLBACK TO SAVEPOINT "+t.member+"; RELEASE SAVEPOINT "+t.member)
	t.member = ""
	return t.saved("roll back one event of a batch", err)
}

// saved describes the error of a statement about a savepoint. If there is no such savepoint, or no
// transaction, a handler has ended the transaction.
func (t *Tx) saved(doing string, err error) error {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && (pg.Code == "3B001" || pg.Code == "25P01") {
		return &delivery.EndedError{}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}
