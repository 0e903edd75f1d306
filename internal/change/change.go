// Package change has the transaction, the locks and the audit row of an operator's change, for
// instance of held or discarded events.
package change

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/remedy"
	"github.com/postroom/postroom/internal/sqlfile"
	"github.com/postroom/postroom/internal/text"
	"github.com/postroom/postroom/schema"
)

const (
	// BulkSize is the largest number of events that one transaction changes. Each event may
	// need its own lock, and the server has room for a few thousand locks.
	BulkSize = 1000

	// bulkBytes limits the bytes that one transaction writes while the relay cannot record. A
	// transaction takes some ten milliseconds then, and the relay keeps its lease.
	bulkBytes = 4 << 20
)

//go:embed sql/*.sql
var files embed.FS

// statements are the statements of this package, for one schema. Each has a file in sql.
type statements struct {
	Plan, Audit, Handlers, DeadLock, RelayLock, KeysLock, Wake, Sizes, Current, Committed string
}

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
// another transaction, InTx tries again, up to five times in all. If the server does not answer the
// COMMIT, InTx asks whether the transaction committed.
func (t *Tables) InTx(ctx context.Context, do func(tx pgx.Tx) error) error {
	for round := 1; ; round++ {
		var id *string
		err := t.inTx(ctx, &idleLimit, func(tx pgx.Tx) error {
			if err := do(tx); err != nil {
				return err
			}
			return tx.QueryRow(ctx, t.sql.Current).Scan(&id)
		})
		//guard:an-operators-act-knows-its-own-commit 2.2 false
		if err == nil || id != nil && t.committed(ctx, *id) {
			return nil
		}
		if round == 5 || !retryable(err) {
			return err
		}
	}
}

// committed reports whether the transaction with the given id committed. If the server does not
// answer, it returns false.
func (t *Tables) committed(ctx context.Context, id string) (yes bool) {
	err := pgx.BeginFunc(ctx, t.db, func(tx pgx.Tx) error { return tx.QueryRow(ctx, t.sql.Committed, id).Scan(&yes) })
	return err == nil && yes
}

// idleLimit is how long a transaction of InTx may do nothing. After that time the server ends it.
var idleLimit = "10s"

// InTxOnce runs the function do in a transaction, without a second try. The function may wait for
// long, for instance while it writes to a file, so it must take no lock for which others wait. If the
// connections of a pool take no writes, and new connections do, InTxOnce fails, and the next call
// gets a new connection.
func (t *Tables) InTxOnce(ctx context.Context, do func(tx pgx.Tx) error) error {
	return t.inTx(ctx, nil, do)
}

// inTx runs the function do in a transaction that may do nothing for the time idle, if it is not nil.
func (t *Tables) inTx(ctx context.Context, idle *string, do func(tx pgx.Tx) error) error {
	err := pgx.BeginFunc(ctx, t.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, t.sql.Plan, idle); err != nil {
			return fmt.Errorf("choose plans: %w", err)
		}
		return do(tx)
	})
	//guard:an-operator-leaves-a-server-that-takes-no-writes 2 false
	if pool, ok := t.db.(*pgxpool.Pool); ok && err != nil {
		remedy.Renew(ctx, pool, err)
	}
	return err
}

// retryable reports whether a transaction failed because of a conflict with another transaction,
// and may succeed at the next try. The conflicts are a deadlock, a serialization failure, and a
// violation of the index held_chain_due. A violation happens if two transactions give due times to
// two events of the same key.
func retryable(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	return pg.Code == "40001" || pg.Code == "40P01" || pg.Code == "23505" && pg.ConstraintName == "held_chain_due"
}

// Portions calls the function do with portions of the given events. In one transaction do can move the
// events of a portion between the tables held and archive. A portion has at most BulkSize events, and
// outgoing events of about bulkBytes.
func (t *Tables) Portions(ctx context.Context, ids []int64, do func(ids []int64) error) error {
	for some := range slices.Chunk(ids, BulkSize) {
		var sizes []int64
		err := t.InTxOnce(ctx, func(tx pgx.Tx) (err error) {
			rows, _ := tx.Query(ctx, t.sql.Sizes, some) // CollectRows reports the error
			sizes, err = pgx.CollectRows(rows, pgx.RowTo[int64])
			return err
		})
		if err != nil {
			return fmt.Errorf("read the sizes of events: %w", err)
		}
		for len(some) > 0 {
			n, bytes := 1, sizes[0]
			//guard:operators-move-few-bytes-at-once 2 true
			for n < len(some) && bytes+sizes[n] <= bulkBytes {
				bytes += sizes[n]
				n++
			}
			if err := do(some[:n:n]); err != nil {
				return err
			}
			some, sizes = some[n:], sizes[n:]
		}
	}
	return nil
}

// Lock takes the locks that are necessary to change the given rows of the table held: first those of
// the dead rows, then those of the keys, and last the lock that LockRelay takes. A producer may have
// locked a dead row for long, and a handler its key. If this transaction had locked the row of relay
// before, the relay would wait for them too, and lose its lease.
func (t *Tables) Lock(ctx context.Context, tx pgx.Tx, ids []int64) error {
	var batch pgx.Batch
	//guard:no-relay-waits-for-a-producer remove
	batch.Queue(t.sql.DeadLock, ids)
	//guard:no-relay-waits-for-a-handler do batch.Queue(t.sql.RelayLock, ids); @
	batch.Queue(t.sql.KeysLock, ids)
	batch.Queue(t.sql.RelayLock, ids)
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("lock events and keys: %w", err)
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

// Valid returns the fault of an Audit, or nil.
func Valid(by postroom.Audit) error {
	switch {
	case by.Actor == "":
		return errors.New("Audit.Actor is empty: name who does it")
	case len(by.Actor) > 255 || !text.Valid(by.Actor):
		return errors.New("Audit.Actor must be valid UTF-8 of at most 255 bytes")
	case len(by.Reason) > 4096 || !text.Valid(by.Reason):
		return errors.New("Audit.Reason must be valid UTF-8 of at most 4096 bytes")
	}
	return nil
}

// Action is a row of the audit.
type Action struct {
	Name                   string
	By                     postroom.Audit
	Events                 int64
	Handler, Source, Event string // set if the action is about one event
	Replay                 int64
	IDs                    []int64 // the events, if there are several, held or discarded
	Details                any     // a value to store as JSON, or nil
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
	var handlers []string // several, or none
	//guard:the-audit-names-the-handlers-of-many-events false
	if a.Handler == "" && (replay != nil || len(a.IDs) > 0) {
		rows, _ := tx.Query(ctx, t.sql.Handlers, replay, a.IDs) // CollectRows reports the error
		if handlers, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
			return 0, fmt.Errorf("read the handlers of the events: %w", err)
		}
	}
	if len(handlers) <= 1 {
		a.Handler, handlers = strings.Join(append(handlers, a.Handler), ""), nil
	}
	err = tx.QueryRow(ctx, t.sql.Audit, a.By.Actor, a.Name, a.By.Reason, a.Events, given(a.Handler), given(a.Source), given(a.Event),
		replay, details, handlers).Scan(&id)
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
