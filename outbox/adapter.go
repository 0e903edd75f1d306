package outbox

import (
	"context"
	"database/sql"
	"encoding/hex"
	"strings"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/telemetry"
)

// SQLTx is a transaction for [Outbox.WriteSQL]: a *sql.Tx, or a library's type that wraps a
// *sql.Tx.
//
// SQLTx is an interface because some libraries do not return their *sql.Tx. WriteSQL does
// not call Commit. It calls Rollback only if it could send nothing, for instance because the rows
// of a query are open. The interface has both methods so that a *sql.DB, which is not a
// transaction, does not implement it.
type SQLTx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	Commit() error
	Rollback() error
}

// WriteSQL is [Outbox.Write] for a transaction of database/sql, with pgx/stdlib, lib/pq or another
// driver for PostgreSQL. With Bun or sqlx, pass the library's transaction. With sqlc, pass the
// transaction that you gave to sqlc's code. With GORM, with or without PrepareStmt, get the
// transaction like this:
//
//	db.Transaction(func(db *gorm.DB) error {
//		if err := db.Create(&order).Error; err != nil {
//			return err
//		}
//		tx, ok := db.Statement.ConnPool.(outbox.SQLTx)
//		if !ok {
//			return errors.New("not in a transaction")
//		}
//		return shop.WriteSQL(db.Statement.Context, tx, ev)
//	})
func (o *Outbox) WriteSQL(ctx context.Context, tx SQLTx, events ...postroom.Event) error {
	written, err := o.prepare(telemetry.TraceOf(ctx), events)
	if err != nil || len(written) == 0 {
		return err
	}
	statement, parameters := o.insert(written)
	for i, p := range parameters {
		parameters[i] = plain(p)
	}
	_, err = tx.ExecContext(ctx, statement, parameters...)
	o.abort(ctx, err, func(ctx context.Context) error {
		_, err := tx.ExecContext(ctx, o.sql.Abort)
		return err
	}, func(context.Context) { _ = tx.Rollback() }) // it fails only if the transaction has ended
	return written.explain(o.advise(err, nil))
}

// plain converts a parameter to a type that every driver accepts. It converts a slice of values to
// the text of an SQL array.
func plain(parameter any) any {
	switch values := parameter.(type) {
	case []string:
		return literal(values, func(s string) (string, bool) { return s, true })
	case []*string:
		return literal(values, func(s *string) (string, bool) {
			if s == nil {
				return "", false
			}
			return *s, true
		})
	case []*time.Time:
		return literal(values, func(t *time.Time) (string, bool) {
			if t == nil {
				return "", false
			}
			return t.UTC().Format("2006-01-02T15:04:05.999999Z07:00"), true
		})
	case [][]byte:
		return literal(values, func(b []byte) (string, bool) { return `\x` + hex.EncodeToString(b), true })
	}
	return parameter
}

// literal writes an SQL array. Its parameter text writes an element; false means NULL.
func literal[T any](values []T, text func(T) (string, bool)) string {
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	var b strings.Builder
	b.WriteByte('{')
	for i, v := range values {
		if i > 0 {
			b.WriteByte(',')
		}
		if s, ok := text(v); ok {
			b.WriteByte('"')
			b.WriteString(escape.Replace(s))
			b.WriteByte('"')
		} else {
			b.WriteString("NULL")
		}
	}
	b.WriteByte('}')
	return b.String()
}
