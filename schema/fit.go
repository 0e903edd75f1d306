package schema

import (
	"context"
	_ "embed" // the statement
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/remedy"
)

//go:embed fit.sql
var fitSQL string

var (
	// ErrEncoding says that the encoding of the database is not UTF8. Events are UTF-8. In another
	// encoding, the database computes other digests of their texts, or refuses them.
	ErrEncoding = errors.New("the encoding of the database is not UTF8")

	// ErrRowSecurity says that row-level security is active on Postroom's tables for the role of the
	// connection. The role cannot tell a row that it may not see from one that does not exist. Disable
	// row-level security for the tables that the error lists, or give the role BYPASSRLS.
	ErrRowSecurity = errors.New("row-level security is active on Postroom's tables")
)

// fits returns an error if Postroom cannot work in the database of tx, or if this role does not see
// all rows of the schema.
func fits(ctx context.Context, tx pgx.Tx, db DB, name string) error {
	var encoding, secured string
	if err := tx.QueryRow(ctx, In(name, fitSQL)).Scan(&encoding, &secured); err != nil {
		return fmt.Errorf("look at the database: %w", err)
	}
	//guard:only-utf8-databases false
	if encoding != "UTF8" {
		return postroom.Unrecoverable(&remedy.Error{
			Err: fmt.Errorf("%w: %s has the encoding %s", ErrEncoding, remedy.DatabaseOf(db), encoding),
			Do:  "use a database of CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0",
		})
	}
	//guard:no-work-under-row-security false
	if secured != "" {
		return postroom.Unrecoverable(&remedy.Error{
			Err: fmt.Errorf("%w: in the schema %s of %s, on %s", ErrRowSecurity, name, remedy.DatabaseOf(db), secured),
			Do:  remedy.RowSecurity(db),
		})
	}
	return nil
}
