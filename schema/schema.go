// Package schema creates and checks the tables of Postroom.
//
// Migrations are numbered SQL files, embedded, forward only and additive within
// a major version. Nothing in Postroom runs them by itself: call [Migrate] from
// a deployment step, run "postroom migrate up", or give the text of [Print] to
// the tool you have.
package schema

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// DefaultName is the schema that is used if none is configured.
const DefaultName = "postroom"

// ErrInvalidName is returned for a schema name that is not made of lower-case
// letters, digits and underscores, does not begin with a letter or underscore,
// is longer than 63 bytes, or is one that PostgreSQL keeps for itself.
var ErrInvalidName = errors.New("invalid schema name")

// validName is narrower than what PostgreSQL takes: a name of this form is the
// same with and without quotes and cannot carry SQL.
var validName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

// literal is the schema name as the .sql files write it: before a dot, at the
// end of a statement, or quoted.
var literal = regexp.MustCompile(`\bpostroom([.;'])`)

// Name returns name, or [DefaultName] if it is empty. It returns
// [ErrInvalidName] for a name that Postroom does not take.
func Name(name string) (string, error) {
	if name == "" {
		return DefaultName, nil
	}
	if !validName.MatchString(name) || strings.HasPrefix(name, "pg_") || name == "information_schema" {
		return "", fmt.Errorf("%w %.70q: use lower-case letters, digits and '_', at most 63, not beginning with a digit or pg_", ErrInvalidName, name)
	}
	return name, nil
}

// In returns a statement that is written against the schema postroom as it
// reads for the schema of the given name. The files so stay plain SQL that
// pastes into psql. It panics if [Name] has not accepted the name: that
// would be a way for SQL to come in.
func In(name, sql string) string {
	if name == DefaultName {
		return sql
	}
	if accepted, err := Name(name); err != nil || accepted != name {
		panic("schema: In called with a name that Name did not accept")
	}
	return literal.ReplaceAllString(sql, `"`+name+`"$1`)
}
