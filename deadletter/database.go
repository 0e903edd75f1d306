package deadletter

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/change"
	"github.com/postroom/postroom/internal/held"
)

// database is the database of a Store, with the Store's statements.
type database struct {
	db     DB
	name   string // of the schema
	err    error  // the fault of the Config
	sql    statements
	tables change.Tables
	pause  func(ctx context.Context, d time.Duration) bool // waits; false if ctx ends
}

// explain adds advice to an error of the database.
func (s *database) explain(err error) error { return s.tables.Explain(err) }

// inTx runs the function do in a transaction. It tries again if the transaction fails because of a
// conflict with another transaction.
func (s *database) inTx(ctx context.Context, do func(tx pgx.Tx) error) error {
	if s.err != nil {
		return s.err
	}
	return s.tables.InTx(ctx, do)
}

// reader returns a reader of the database, or of a transaction.
func (s *database) reader(db held.Queryer) reader { return reader{db, &s.sql} }

// jsonText encodes v as JSON text, for a parameter.
func jsonText(v any) (*string, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode as JSON: %w", err)
	}
	s := string(text)
	return &s, nil
}
