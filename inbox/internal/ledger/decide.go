package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom/inbox/internal/delivery"
)

// Handler is the ledger of one handler.
type Handler struct {
	*DB

	name      string
	isolation pgx.TxIsoLevel
	idleLimit string // in milliseconds: how long the handler may leave its transaction idle
}

// NewHandler returns the ledger of a handler. The parameter idle is how long the handler may leave
// its transaction idle.
func NewHandler(db *DB, name string, isolation pgx.TxIsoLevel, idle time.Duration) *Handler {
	return &Handler{DB: db, name: name, isolation: isolation, idleLimit: milliseconds(idle)}
}

// milliseconds formats a duration for the database.
func milliseconds(d time.Duration) string { return strconv.FormatInt(max(d.Milliseconds(), 1), 10) }

// Decision returns the statement that decides a delivery: it inserts the inbox row, if there is
// none. If the delivery must wait for held events of its key, the parameter key is that key;
// otherwise it is "". If the parameter maybe is true, events of that key may be held.
func (a *Handler) Decision(d *delivery.Delivery, key string, maybe bool) *Statement {
	switch {
	case key == "":
		return &Statement{sql: a.sql.Decide, args: []any{a.name, d.Key, d.Digest, a.idleLimit}}
	case !maybe:
		return &Statement{sql: a.sql.DecideFree, args: []any{a.name, d.Key, d.Digest, a.idleLimit, key, d.Epoch()}}
	}
	return &Statement{sql: a.sql.DecideOrdered, args: []any{a.name, d.Key, d.Digest, a.idleLimit, key, d.Pos, d.Epoch()}}
}

// Decide begins a transaction with the statement that decides a delivery.
func (a *Handler) Decide(ctx context.Context, decision *Statement) (*Tx, pgconn.CommandTag, error) {
	return a.begin(ctx, a.isolation, *decision)
}

// Undecided returns why no inbox row was inserted: ErrDuplicate, ErrConflict, or ErrBlocked if the
// event must wait for its key, or if the term of this reader is over.
func (a *Handler) Undecided(ctx context.Context, tx *Tx, d *delivery.Delivery, key string) error {
	var same bool
	err := tx.Tx.QueryRow(ctx, a.sql.Verdict, a.name, d.Key, d.Digest).Scan(&same)
	switch {
	case errors.Is(err, pgx.ErrNoRows) && key != "":
		return delivery.ErrBlocked
	case errors.Is(err, pgx.ErrNoRows): // the row has expired meanwhile
		return delivery.ErrDuplicate
	case err != nil:
		return fmt.Errorf("compare inbox row: %w", err)
	case !same:
		return delivery.ErrConflict
	}
	return delivery.ErrDuplicate
}

// DecideBatch begins the transaction of a batch and inserts the inbox rows. It sorts these rows by
// their keys, because two batches with different orders could wait for each other. It returns the
// keys that were not decided before.
func (a *Handler) DecideBatch(ctx context.Context, members []*delivery.Delivery) (*Tx, map[string]bool, error) {
	byKey := slices.SortedFunc(slices.Values(members), func(x, y *delivery.Delivery) int { return cmp.Compare(x.Key, y.Key) })
	keys, digests := make([]string, len(byKey)), make([][]byte, len(byKey))
	for i, d := range byKey {
		keys[i], digests[i] = d.Key, d.Digest
	}
	fresh := make(map[string]bool, len(members))
	var id string
	read := func(rows pgx.Rows) error {
		for rows.Next() {
			var key string
			if err := rows.Scan(&key, &id); err != nil {
				return err
			}
			fresh[key] = true
		}
		return rows.Err()
	}
	tx, _, err := a.begin(ctx, a.isolation,
		Statement{sql: a.sql.DecideBatch, args: []any{a.name, keys, digests, a.idleLimit}, read: read})
	if tx != nil {
		tx.ID = id
	}
	return tx, fresh, err
}

// HoldIn holds events in the transaction that decides them.
func (a *Handler) HoldIn(ctx context.Context, tx *Tx, events []Owed) error {
	hold, err := a.holdStatement(false, events...)
	if err != nil {
		return err
	}
	if err := tx.asOwn(ctx); err != nil {
		return err
	}
	for _, statement := range append([]Statement{*hold}, a.archiveStatements(events...)...) {
		if _, err := tx.Tx.Exec(ctx, statement.sql, statement.args...); err != nil {
			return &delivery.LedgerError{Err: err}
		}
	}
	return nil
}

// StoreIn holds one event in a transaction, and returns its fate.
func (a *Handler) StoreIn(ctx context.Context, tx *Tx, o Owed) (fate delivery.Fate, err error) {
	hold, err := a.holdStatement(!o.H.Decided, o)
	if err != nil {
		return "", err
	}
	if err := tx.Tx.QueryRow(ctx, hold.sql, hold.args...).Scan(&fate); err != nil {
		return "", &delivery.LedgerError{Err: err}
	}
	return fate, nil
}

// Begin begins the transaction of a held event.
func (a *Handler) Begin(ctx context.Context) (*Tx, error) {
	owner, err := a.acquire(ctx)
	if err != nil {
		return nil, err
	}
	joins := a.joins(ctx, owner.Conn())
	tx, _, err := a.beginOn(ctx, owner, a.isolation, *a.Beginning())
	if tx != nil {
		tx.joins = joins
	}
	return tx, err
}

// Beginning returns the statement that begins the transaction of a held event.
func (a *Handler) Beginning() *Statement {
	return &Statement{sql: a.sql.Limits, args: []any{a.idleLimit}}
}

// BeginAlong begins the transaction of a held event, and reads the events that will run in the same
// transaction. These are the next events of its key: at most n, with at most the given bytes
// together, and only with types and subjects that this process takes.
func (a *Handler) BeginAlong(ctx context.Context, head *delivery.HeldEvent, n int, bytes int64, types, subjects *string) (*Tx, []delivery.HeldEvent, error) {
	var along []delivery.HeldEvent
	tx, _, err := a.begin(ctx, a.isolation,
		Statement{sql: a.sql.Limits, args: []any{a.idleLimit}},
		Statement{sql: "SAVEPOINT postroom_plan"}, // so that the settings for the plan of along.sql can be undone before the handler runs
		Statement{sql: a.sql.Plan},
		Statement{
			sql: a.sql.Along, args: []any{a.name, head.Blocking, head.Pos, n, types, subjects, bytes},
			read: intoHeld(&along),
		},
		Statement{sql: "ROLLBACK TO SAVEPOINT postroom_plan"},
		Statement{sql: "RELEASE SAVEPOINT postroom_plan"},
	)
	return tx, along, err
}

// Within runs f in a transaction.
func (a *Handler) Within(ctx context.Context, f func(tx *Tx) error) error {
	tx, err := a.Begin(ctx)
	if tx == nil {
		return err
	}
	if err == nil {
		err = f(tx)
	}
	return a.End(ctx, tx, err)
}

// Commit commits. If the parameter next is not nil, the same round trip begins the transaction of
// the next delivery.
func (a *Handler) Commit(ctx context.Context, tx *Tx, next *Statement) (*Opened, error) {
	return tx.commit(ctx, a.sql.Still, a.isolation, next)
}

// Leave rolls back. If the parameter next is not nil, the same round trip begins the transaction of
// the next delivery.
func (a *Handler) Leave(ctx context.Context, tx *Tx, next *Statement) *Opened {
	if next == nil {
		tx.Abort(ctx)
		return nil
	}
	// If the rollback fails, endWith closes the connection, and the server rolls back.
	_, following, err := tx.endWith(ctx, a.isolation, []Statement{rollbackStatement}, next)
	if err != nil {
		return nil
	}
	return following
}

// End commits. If err is not nil, it rolls back instead and returns the error.
func (a *Handler) End(ctx context.Context, tx *Tx, err error) error {
	var gone *delivery.AbandonedError
	switch {
	case errors.As(err, &gone):
		return err // Abandon has closed the connection, so the server rolls back
	case err != nil:
		err = Lost(tx, err)
		tx.Abort(ctx)
		return err
	}
	_, err = tx.commit(ctx, a.sql.Still, a.isolation, nil)
	return err
}
