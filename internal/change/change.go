// Package change has what every change of held events by an operator needs: its transaction,
// its locks, and its row in the audit.
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

// BulkSize is how many events one transaction changes. Each event may need a lock of its
// own, and the server has room for a few thousand locks.
const BulkSize = 1000

//go:embed sql/*.sql
var files embed.FS

// statements are the statements of this package, for one schema. Each has a file in sql.
type statements struct{ Plan, Audit, RelayLock, KeysLock, Wake string }

var written = sqlfile.MustRead[statements](files)

// DB is a *pgxpool.Pool or a *pgx.Conn. It is an interface to allow both.
type DB interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Tables are the tables of one schema of a database.
type Tables struct {
	db     DB
	schema string
	sql    statements
}

// New returns the tables of a schema whose name schema.Name accepted.
func New(db DB, name string) Tables {
	return Tables{db: db, schema: name, sql: sqlfile.Map(written, func(sql string) string { return schema.In(name, sql) })}
}

// Explain adds to an error of the database what an operator can do about it.
func (t *Tables) Explain(err error) error {
	return remedy.Explain(err, remedy.Use{Grant: "operator", Schema: t.schema, DB: t.db})
}

// InTx runs do in a transaction. It tries again if the transaction loses to another one.
func (t *Tables) InTx(ctx context.Context, do func(tx pgx.Tx) error) error {
	for round := 1; ; round++ {
		err := t.InTxOnce(ctx, do)
		if err == nil || round == 5 || !retryable(err) {
			return err
		}
	}
}

// InTxOnce runs do in a transaction, once.
func (t *Tables) InTxOnce(ctx context.Context, do func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, t.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, t.sql.Plan); err != nil {
			return fmt.Errorf("choose plans: %w", err)
		}
		return do(tx)
	})
}

// retryable reports whether a transaction lost to another one and may succeed if it is tried
// again: a deadlock, a serialization failure, or two transactions that made an event of the
// same key due.
func retryable(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	return pg.Code == "40001" || pg.Code == "40P01" || pg.Code == "23505" && pg.ConstraintName == "held_key_due"
}

// Lock takes the locks that a change of these rows of held needs: the row of the leading
// relay first, then the keys. All code that takes both takes them in this order.
func (t *Tables) Lock(ctx context.Context, tx pgx.Tx, ids []int64) error {
	var batch pgx.Batch
	batch.Queue(t.sql.RelayLock, ids)
	batch.Queue(t.sql.KeysLock, ids)
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("lock keys: %w", err)
	}
	return nil
}

// LockRelay keeps the leading relay from recording, if any of the events is an outgoing one.
func (t *Tables) LockRelay(ctx context.Context, tx pgx.Tx, ids []int64) error {
	if _, err := tx.Exec(ctx, t.sql.RelayLock, ids); err != nil {
		return fmt.Errorf("wait for the relay: %w", err)
	}
	return nil
}

// Wake makes the first event of each key due, now that what it waited for is gone. Element n
// of both slices is one key. The keys are locked before.
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

// Validate says what is wrong with it.
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
	Handler, Source, Event string // of an action on one event
	Replay                 int64
	Details                any // nil, or what becomes JSON
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

// given is a text, or NULL if it is empty.
func given(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
