// Package remedy adds advice to an error of the database. If Postroom's tables or rights are
// missing, the advice is the command that corrects the set-up.
//
// It recognises errors by their SQLSTATE, which the errors of all drivers have.
package remedy

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
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
	// names of the role and of the database. If DB has any other type, the error does not have
	// these names.
	DB any
}

// The SQLSTATEs for which there is a remedy.
const (
	insufficientPrivilege = "42501"
	undefinedTable        = "42P01"
	undefinedSchema       = "3F000"
	undefinedColumn       = "42703"
	undefinedFunction     = "42883"
	readOnlyTransaction   = "25006"
	duplicateStatement    = "42P05"
	missingStatement      = "26000"
)

// Explain adds a command to err if rights are missing, or if tables are missing or too old. The
// command grants the rights, or creates or migrates the tables. If the database takes no writes,
// Explain says so. If a pooler keeps no prepared statements, Explain names the parameter of the URL. The
// result wraps err. Explain
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
	if IsUnprepared(err) {
		return &Error{Err: err, Do: UseExec}
	}
	switch server.SQLState() {
	case insufficientPrivilege:
		//guard:row-security-is-not-a-missing-grant false
		if isRowSecurity(err) {
			return &Error{Err: err, Do: "row-level security is active on Postroom's tables: " + RowSecurity(use.DB)}
		}
		return &Error{Err: err, Do: use.grant()}
	case undefinedTable, undefinedSchema:
		return &Error{Err: err, Do: fmt.Sprintf("Postroom's tables are not in the schema %s of %s; create them: %s", use.Schema, DatabaseOf(use.DB), use.migrate())}
	case undefinedColumn, undefinedFunction:
		return &Error{Err: err, Do: fmt.Sprintf("Postroom's tables in the schema %s of %s are older than this program; migrate them: %s", use.Schema, DatabaseOf(use.DB), use.migrate())}
	case readOnlyTransaction:
		return &Error{Err: err, Do: "the database takes no writes: connect to its primary server, or find out who set default_transaction_read_only (some providers do while a disk is nearly full)"}
	}
	return err
}

// RowSecurity returns the advice if row-level security is active on Postroom's tables for the role of
// db.
func RowSecurity(db any) string {
	return fmt.Sprintf("as the owner of the tables run, for each: ALTER TABLE … DISABLE ROW LEVEL SECURITY; or as a superuser: ALTER ROLE %s BYPASSRLS", cmp.Or(userOf(db), "…"))
}

// isRowSecurity reports whether a statement failed because of row-level security. The SQLSTATE is that
// of a missing right, and the message depends on the language: only the name of the server's function
// tells.
func isRowSecurity(err error) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && (server.Routine == "check_enable_rls" || server.Routine == "ExecWithCheckOptions")
}

// UseExec is the advice if a pooler keeps no prepared statements.
const UseExec = "a transaction pooler is between this program and the database, and keeps no prepared statements; put default_query_exec_mode=exec into the database URL of the program, or connect directly"

// IsUnprepared reports whether a statement failed because a pooler keeps no prepared statements: a
// statement that the driver prepared does not exist, or a statement that it did not prepare exists. It
// returns false for a statement to which the user's code gave a name.
func IsUnprepared(err error) bool {
	var server *pgconn.PgError
	if !errors.As(err, &server) || server.Code != duplicateStatement && server.Code != missingStatement {
		return false
	}
	//guard:a-statement-that-a-user-named-is-no-fault-of-a-pooler true
	return strings.Contains(server.Message, `"stmtcache_`) || strings.Contains(server.Message, `"stmt_`) || !strings.Contains(server.Message, `"`)
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

// IsDenied reports whether a statement failed because the role lacks a right.
func IsDenied(err error) bool {
	var server interface{ SQLState() string }
	var connect *pgconn.ConnectError
	return !errors.As(err, &connect) && errors.As(err, &server) && server.SQLState() == insufficientPrivilege
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

// RoleOf returns the role that db uses to connect, or to which its settings change. If RoleOf cannot
// find out the role from db, it returns the words "the role of this connection". RoleOf does not
// notice a later SET ROLE.
func RoleOf(db any) string { return cmp.Or(userOf(db), "the role of this connection") }

func userOf(db any) string {
	if cfg := configOf(db); cfg != nil {
		return cmp.Or(cfg.RuntimeParams["role"], cfg.User)
	}
	return ""
}

// DatabaseOf names the database and the server to which db connects, without user and password. If
// DatabaseOf cannot find them out from db, it returns the words "this database".
func DatabaseOf(db any) string {
	cfg := configOf(db)
	//guard:an-error-names-the-database true
	if cfg == nil {
		return "this database"
	}
	return fmt.Sprintf("database %q at %s", cfg.Database, net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port))))
}

// configOf returns the settings of db's connections, or nil.
func configOf(db any) *pgx.ConnConfig {
	switch db := db.(type) {
	case *pgxpool.Pool:
		if db != nil {
			return db.Config().ConnConfig
		}
	case interface{ Config() *pgx.ConnConfig }:
		return db.Config()
	case interface{ Conn() *pgx.Conn }:
		if conn := db.Conn(); conn != nil {
			return conn.Config()
		}
	}
	return nil
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
