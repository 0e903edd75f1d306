package schema

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom/internal/remedy"
)

// explainOwner adds to an error of a migration which role has to migrate, if this role may
// not.
func explainOwner(err error, db DB, name string) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "42501" {
		return err
	}
	return &remedy.Error{Err: err, Do: fmt.Sprintf(
		"migrate as the owner of the schema %s and its tables; to create them, the role %s needs: GRANT CREATE ON DATABASE … TO %s", name, remedy.RoleOf(db), remedy.RoleOf(db))}
}

// explainReader adds to an error of reading the migrations which role may read them. Tables
// of an older version may have no function that grants that right.
func explainReader(err error, name string) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "42501" {
		return err
	}
	return &remedy.Error{Err: err, Do: fmt.Sprintf("run it as the owner of the schema %s, who migrates", name)}
}
