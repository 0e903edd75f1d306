// Package remedy adds advice to an error of the database. If Postroom's tables or rights are
// missing, the advice is the command that corrects the set-up.
//
// It recognises errors by their SQLSTATE, which the errors of all drivers have.
package remedy

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Use says which part of Postroom uses the tables, in which schema, and on which connection.
type Use struct {
	// Grant is the part's name in the function that grants its rights: "producer", "relay",
	// "inbox", "operator", "webhooks" or "idempotency".
	Grant string

	// Schema is the schema of the tables.
	Schema string

	// DB is a *pgxpool.Pool, a *pgx.Conn or a pgx.Tx of the part, from which the error takes the
	// name of the role. If DB has any other type, the error does not name the role.
	DB any
}

// The SQLSTATEs for which there is a remedy.
const (
	insufficientPrivilege = "42501"
	undefinedTable        = "42P01"
	undefinedSchema       = "3F000"
	undefinedColumn       = "42703"
	undefinedFunction     = "42883"
)

// Explain adds a command to err if rights are missing, or if tables are missing or too old. The
// command grants the rights, or creates or migrates the tables. The result wraps err. Explain
// returns all other errors unchanged. These include errors that Explain has explained before, and
// errors of failed connections.
//
// The failed statement must be one of Postroom's. If a statement of the user failed, the advice
// would be wrong.
func Explain(err error, use Use) error {
	var server interface{ SQLState() string }
	var known *Error
	var connect *pgconn.ConnectError
	//guard:an-error-is-explained-once 2 = @ && false
	//guard:a-login-that-fails-needs-no-grant 3 false
	if err == nil || errors.As(err, &known) || errors.As(err, &connect) || !errors.As(err, &server) {
		return err
	}
	switch server.SQLState() {
	case insufficientPrivilege:
		return &Error{Err: err, Do: use.grant()}
	case undefinedTable, undefinedSchema:
		return &Error{Err: err, Do: fmt.Sprintf("Postroom's tables are not in the schema %s of this database; create them: %s", use.Schema, use.migrate())}
	case undefinedColumn, undefinedFunction:
		return &Error{Err: err, Do: fmt.Sprintf("Postroom's tables in the schema %s are older than this program; migrate them: %s", use.Schema, use.migrate())}
	}
	return err
}

// IsUndefined reports whether a statement failed because it names a table, a column or a
// function that does not exist.
func IsUndefined(err error) bool {
	var server interface{ SQLState() string }
	if !errors.As(err, &server) {
		return false
	}
	switch server.SQLState() {
	case undefinedTable, undefinedSchema, undefinedColumn, undefinedFunction:
		return true
	}
	return false
}

// Error is an error with advice.
type Error struct {
	Err error
	Do  string
}

func (e *Error) Error() string { return e.Err.Error() + ": " + e.Do }

// Unwrap returns the error without the advice.
func (e *Error) Unwrap() error { return e.Err }

func (u Use) grant() string {
	return fmt.Sprintf("the role lacks rights; as the owner of the tables run: SELECT %s.grant_%s(%s)", u.Schema, u.Grant, regrole(RoleOf(u.DB)))
}

// RoleOf returns the role that db uses to connect. If RoleOf cannot find out the role from db, it
// returns the words "the role of this connection". RoleOf does not notice a later SET ROLE.
func RoleOf(db any) string { return cmp.Or(userOf(db), "the role of this connection") }

func userOf(db any) string {
	switch db := db.(type) {
	case *pgxpool.Pool:
		if db != nil {
			return db.Config().ConnConfig.User
		}
	case interface{ Config() *pgx.ConnConfig }:
		return db.Config().User
	case interface{ Conn() *pgx.Conn }:
		if conn := db.Conn(); conn != nil {
			return conn.Config().User
		}
	}
	return ""
}

func (u Use) migrate() string {
	if u.Schema == "postroom" {
		return "postroom migrate up"
	}
	return "postroom migrate up --schema " + u.Schema
}

var plainName = regexp.MustCompile(`^[a-z_][a-z0-9_]*$`)

// regrole returns a role as an SQL literal that PostgreSQL can cast to its type regrole.
func regrole(role string) string {
	if !plainName.MatchString(role) {
		role = `"` + strings.ReplaceAll(role, `"`, `""`) + `"`
	}
	//guard:a-role-is-quoted 2 = @1
	return "'" + strings.ReplaceAll(role, "'", "''") + "'"
}
