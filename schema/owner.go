package schema

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom/internal/remedy"
)

// explainOwner adds advice to an error of a migration. If the role of db may not migrate, the
// advice says which role must migrate.
func explainOwner(err error, db DB, name string) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "42501" {
		return err
	}
	return &remedy.Error{Err: err, Do: fmt.Sprintf(
		"migrate as the owner of the schema %s of %s and its tables; to create them, the role %s needs: GRANT CREATE ON DATABASE … TO %s", name, remedy.DatabaseOf(db), remedy.RoleOf(db), remedy.RoleOf(db))}
}

// explainReader adds advice to an error from reading the list of migrations. The advice says which
// role may read the list. It names no grant function, because the schema may have an older version
// that lacks the function.
func explainReader(err error, db DB, name string) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "42501" {
		return err
	}
	return &remedy.Error{Err: err, Do: fmt.Sprintf("run it as the owner of the schema %s of %s, who migrates", name, remedy.DatabaseOf(db))}
}
