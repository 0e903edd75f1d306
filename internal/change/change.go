// Package change has the transaction, the locks and the audit row of an operator's change, for
// instance of held or discarded events.
package change

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom/internal/remedy"
	"github.com/postroom/postroom/internal/sqlfile"
	"github.com/postroom/postroom/internal/text"
	"github.com/postroom/postroom/schema"
)

// BulkSize is the largest number of events that one transaction changes. Each event may
// need its own lock, and the server has room for a few thousand locks.
const BulkSize = 1000

//go:embed sql/*.sql
var files embed.FS

// statements are the statements of this package, for one schema. Each has a file in sql.
type statements struct{ Plan, Audit, RelayLock, KeysLock, Wake string }

var written = sqlfile.MustRead[statements](files)

// DB is a *pgxpool.Pool or a *pgx.Conn.
type DB interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Tables are the tables of one schema of a database.
type Tables struct {
	db     DB
	schema string
	sql    statements
}

// New returns the tables of a schema. The caller must have checked the name with schema.Name.
func New(db DB, name string) Tables {
	return Tables{db: db, schema: name, sql: sqlfile.Map(written, func(sql string) string { return schema.In(name, sql) })}
}

// Explain returns err. If rights or tables are missing, it adds the command that corrects this.
func (t *Tables) Explain(err error) error {
	return remedy.Explain(err, remedy.Use{Grant: "operator", Schema: t.schema, DB: t.db})
}

// InTx runs the function do in a transaction. If the transaction fails because of a conflict with
// another transaction, InTx tries again, up to five times in all.
func (t *Tables) InTx(ctx context.Context, do func(tx pgx.Tx) error) error {
	for round := 1; ; round++ {
		err := t.InTxOnce(ctx, do)
		if err == nil || round == 5 || !retryable(err) {
			return err
		}
	}
}

// InTxOnce runs the function do in a transaction, without a second try.
func (t *Tables) InTxOnce(ctx context.Context, do func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, t.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, t.sql.Plan); err != nil {
			return fmt.Errorf("choose plans: %w", err)
		}
		return do(tx)
	})
}

// retryable reports whether a transaction failed because of a conflict with another transaction,
// and may succeed at the next try. The conflicts are a deadlock, a serialization failure, and a
// violation of the index held_key_due. A violation happens if two transactions give due times to
// two events of the same key.
func retryable(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	return pg.Code == "40001" || pg.Code == "40P01" || pg.Code == "23505" && pg.ConstraintName == "held_key_due"
}

// Lock takes the locks that are necessary to change the given rows of the table held: first the
// lock that LockRelay takes, then the locks of the keys. All code that takes both kinds of lock
// takes them in this order, so that transactions do not deadlock.
func (t *Tables) Lock(ctx context.Context, tx pgx.Tx, ids []int64) error {
	var batch pgx.Batch
	batch.Queue(t.sql.RelayLock, ids)
	batch.Queue(t.sql.KeysLock, ids)
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("lock keys: %w", err)
	}
	return nil
}

// LockRelay locks the row of the leading relay if one of the events is outgoing: an event that the
// relay publishes. Until the transaction ends, the relay can record nothing.
func (t *Tables) LockRelay(ctx context.Context, tx pgx.Tx, ids []int64) error {
	if _, err := tx.Exec(ctx, t.sql.RelayLock, ids); err != nil {
		return fmt.Errorf("wait for the relay: %w", err)
	}
	return nil
}

// Wake makes the first event of each key due, unless this event is dead, or an event of the key has
// a due time already. Call Wake after rows of these keys were removed from the table held. Element
// n of handlers and element n of keys identify one key. The caller has locked the keys.
func (t *Tables) Wake(ctx context.Context, tx pgx.Tx, handlers, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, t.sql.Wake, handlers, keys); err != nil {
		return fmt.Errorf("release the next events of their keys: %w", err)
	}
	return nil
}

// By says who changes something, and why.
type By struct{ Actor, Reason string }

// Validate says what is wrong with b.
func (b By) Validate() error {
	switch {
	case b.Actor == "":
		return errors.New("Audit.Actor is empty: name who does it")
	case len(b.Actor) > 255 || !text.Valid(b.Actor):
		return errors.New("Audit.Actor must be valid UTF-8 of at most 255 bytes")
	case len(b.Reason) > 4096 || !text.Valid(b.Reason):
		return errors.New("Audit.Reason must be valid UTF-8 of at most 4096 bytes")
	}
	return nil
}

// Action is a row of the audit.
type Action struct {
	Name                   string
	By                     By
	Events                 int64
	Handler, Source, Event string // set if the action is about one event
	Replay                 int64
	Details                any // a value to store as JSON, or nil
}

// Audit stores an action in the audit, and returns the id of its row.
func (t *Tables) Audit(ctx context.Context, tx pgx.Tx, a Action) (id int64, err error) {
	var details *string
	if a.Details != nil {
		document, err := json.Marshal(a.Details)
		if err != nil {
			return 0, fmt.Errorf("encode as JSON: %w", err)
		}
		details = given(string(document))
	}
	var replay *int64
	if a.Replay != 0 {
		replay = &a.Replay
	}
	err = tx.QueryRow(ctx, t.sql.Audit, a.By.Actor, a.Name, a.By.Reason, a.Events, given(a.Handler), given(a.Source), given(a.Event),
		replay, details).Scan(&id)
	if err != nil {
		return 0, fmt.Errorf("record the action: %w", err)
	}
	return id, nil
}

// given returns a pointer to s. If s is empty, it returns nil, which is NULL in SQL.
func given(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
