package outbox

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom"
)

// conflictState is the SQLSTATE that postroom.refuse_conflict raises if the log has an event with
// the same source and id, and other content. The statements of Write, Queue and WriteSQL call this
// function if the log has the id already.
const conflictState = "23PR1"

// explain converts the error of an insert into an error of this package. It converts a conflict
// into one error for each event that conflicts.
func (rs newRows) explain(err error) error {
	var server interface{ SQLState() string } // the errors of all drivers have this method
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &server) || server.SQLState() != conflictState:
		return fmt.Errorf("outbox: write: %w", err)
	}
	var taken []string
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		taken = strings.Fields(strings.TrimPrefix(pg.Detail, "Taken: "))
	}
	var conflicts []error
	for _, r := range rs {
		if len(rs) == 1 || slices.Contains(taken, r.ID) {
			conflicts = append(conflicts, &postroom.EventError{Op: "write", ID: r.ID, Type: r.Type, Err: postroom.ErrEventConflict})
		}
	}
	if len(conflicts) == 0 { // this driver's error is no PgError, so the ids are not known
		return fmt.Errorf("outbox: write: %w: %w", postroom.ErrEventConflict, err)
	}
	return fmt.Errorf("outbox: %w", errors.Join(conflicts...))
}
