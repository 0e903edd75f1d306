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

// database is where a store works, and how.
type database struct {
	db   DB
	name string // of the schema
	err  error  // what is wrong with the Config
	sql  statements
	held held.Reader
}

// explain returns an error of the database with what to do about it, so that an operator
// can work.
func (s *database) explain(err error) error {
	return remedy.Explain(err, remedy.Use{Grant: "operator", Schema: s.name, DB: s.db})
}

// inTx runs do in a transaction.
func (s *database) inTx(ctx context.Context, do func(tx pgx.Tx) error) error {
	if s.err != nil {
		return s.err
	}
	// What loses to another transaction is done again: nothing of it has happened.
	for round := 1; ; round++ {
		err := s.inTxOnce(ctx, do)
		if err == nil || round == 5 || !retryable(err) {
			return err
		}
	}
}

// inTxOnce runs do in a transaction, and not again.
func (s *database) inTxOnce(ctx context.Context, do func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, s.sql.Plan); err != nil {
			return fmt.Errorf("choose plans: %w", err)
		}
		return do(tx)
	})
}

// lockRows locks what has to be locked before the rows of held with these ids change:
// the leading relay's row, which comes first wherever both are taken, and the keys.
func (s *database) lockRows(ctx context.Context, tx pgx.Tx, ids []int64) error {
	var batch pgx.Batch
	batch.Queue(s.sql.RelayLock, ids)
	batch.Queue(s.sql.KeysLock, ids)
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("lock keys: %w", err)
	}
	return nil
}

// retryable reports whether a transaction lost to another one, and may well succeed now: a
// deadlock, a serialization failure, or two that made one of a key due at once.
func retryable(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	return pg.Code == "40001" || pg.Code == "40P01" || pg.Code == "23505" && pg.ConstraintName == "held_key_due"
}

// reader returns what reads in the database, or in a transaction.
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

// addAudit notes an action, and returns its row's id.
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
		return 0, fmt.Errorf("note the action: %w", err)
	}
	return id, nil
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// jsonText returns v as the database takes JSON.
func jsonText(v any) (*string, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode as JSON: %w", err)
	}
	s := string(text)
	return &s, nil
}
