package deadletter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom/internal/held"
	"github.com/postroom/postroom/internal/remedy"
)

// database is the database of a store, with its statements.
type database struct {
	db   DB
	name string // of the schema
	err  error  // what is wrong with the Config
	sql  statements
	held held.Reader
}

// explain adds to an error of the database what to do about it.
func (s *database) explain(err error) error {
	return remedy.Explain(err, remedy.Use{Grant: "operator", Schema: s.name, DB: s.db})
}

// inTx runs do in a transaction. It tries again if the transaction loses to another one.
func (s *database) inTx(ctx context.Context, do func(tx pgx.Tx) error) error {
	if s.err != nil {
		return s.err
	}
	for round := 1; ; round++ {
		err := s.inTxOnce(ctx, do)
		if err == nil || round == 5 || !retryable(err) {
			return err
		}
	}
}

// inTxOnce runs do in a transaction, once.
func (s *database) inTxOnce(ctx context.Context, do func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, s.sql.Plan); err != nil {
			return fmt.Errorf("choose plans: %w", err)
		}
		return do(tx)
	})
}

// lockRows takes the locks that a change of these rows of held needs: the row of the leading
// relay first, then the keys. All code that takes both takes them in this order.
func (s *database) lockRows(ctx context.Context, tx pgx.Tx, ids []int64) error {
	var batch pgx.Batch
	batch.Queue(s.sql.RelayLock, ids)
	batch.Queue(s.sql.KeysLock, ids)
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("lock keys: %w", err)
	}
	return nil
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

// reader returns a reader of the database, or of a transaction.
func (s *database) reader(db held.Queryer) reader { return reader{db, &s.sql, s.held} }

// action is a row of the audit.
type action struct {
	name                   string
	by                     Audit
	events                 int64
	handler, source, event string // of an action on one event
	job                    int64
	details                any // nil, or what becomes JSON
}

// addAudit stores an action in the audit, and returns the id of its row.
func (s *database) addAudit(ctx context.Context, tx pgx.Tx, a action) (id int64, err error) {
	var details *string
	if a.details != nil {
		if details, err = jsonText(a.details); err != nil {
			return 0, err
		}
	}
	var job *int64
	if a.job != 0 {
		job = &a.job
	}
	err = tx.QueryRow(ctx, s.sql.Audit, a.by.Actor, a.name, a.by.Reason, a.events, optional(a.handler), optional(a.source), optional(a.event),
		job, details).Scan(&id)
	if err != nil {
		return 0, fmt.Errorf("record the action: %w", err)
	}
	return id, nil
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// jsonText encodes v as JSON text, for a parameter.
func jsonText(v any) (*string, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode as JSON: %w", err)
	}
	s := string(text)
	return &s, nil
}
