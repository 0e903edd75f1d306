package outbox

import (
	"context"
	_ "embed" // the statement
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
)

//go:embed sql/subjects.sql
var subjectsSQL string

// Subjects returns the subjects that are in use, each once: those of the 1,000
// newest events and of the 1,000 that are published next. It reads no more of
// the log, however long that is.
func (l *Log) Subjects(ctx context.Context) ([]string, error) {
	if l.err != nil {
		return nil, fmt.Errorf("outbox: %w", postroom.Refuse(l.err))
	}
	rows, _ := l.pool.Query(ctx, l.sql.subjects) // CollectRows reports the error
	subjects, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("outbox: read subjects: %w", l.advise(err))
	}
	return subjects, nil
}
