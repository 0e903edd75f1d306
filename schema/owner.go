package schema

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom/internal/remedy"
)

// explainOwner adds advice to an error of a migration: if this role may not migrate, which
// role must do that.
func explainOwner(err error, db DB, name string) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "42501" {
		return err
	}
	return &remedy.Error{Err: err, Do: fmt.Sprintf(
		"migrate as the owner of the schema %s and its tables; to create them, the role %s needs: GRANT CREATE ON DATABASE … TO %s", name, remedy.RoleOf(db), remedy.RoleOf(db))}
}

// explainReader adds advice to an error from reading the list of migrations: which role may
// read it. There may be no function that grants that right, because the tables may be of an
// older version.
func explainReader(err error, name string) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "42501" {
		return err
	}
	return &remedy.Error{Err: err, Do: fmt.Sprintf("run it as the owner of the schema %s, who migrates", name)}
}
