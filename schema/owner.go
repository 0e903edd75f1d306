package schema

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom/internal/remedy"
)

// explainOwner returns an error of a migration with who has to make it, if the role may
// not.
func explainOwner(err error, db DB, name string) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "42501" {
		return err
	}
	return &remedy.Error{Err: err, Do: fmt.Sprintf(
		"migrate as the owner of the schema %s and its tables; to create them, the role %s needs: GRANT CREATE ON DATABASE … TO %s", name, remedy.RoleOf(db), remedy.RoleOf(db))}
}

// explainReader returns an error of who looks at migrations with who may. Older tables have
// no function that grants it.
func explainReader(err error, name string) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "42501" {
		return err
	}
	return &remedy.Error{Err: err, Do: fmt.Sprintf("run it as the owner of the schema %s, who migrates", name)}
}
