// Package schema creates and checks the tables of Postroom.
//
// Migrations are numbered SQL files, embedded in the program. They only go forward. Within a major
// version they only add to the schema. No part of Postroom runs migrations by itself: call
// [Migrate] when you deploy, run "postroom migrate up", or give the text of [Print] to your own
// migration tool.
package schema

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// DefaultName is the name of the schema if the program configures none.
const DefaultName = "postroom"

// ErrInvalidName says that a schema name is not valid. A valid name has lower-case
// letters, digits and underscores, at most 63 bytes, and does not begin with a digit.
// Names that PostgreSQL reserves are not valid.
var ErrInvalidName = errors.New("invalid schema name")

// validName accepts fewer names than PostgreSQL does. A name that it accepts cannot contain SQL.
// Such a name needs no quotes, unless it is a keyword of SQL.
var validName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

// The expression literal matches the schema name in the .sql files: before a dot, at the end of a
// statement, or in quotes.
var literal = regexp.MustCompile(`\bpostroom([.;'])`)

// Name returns name, or [DefaultName] if name is empty. If name is not valid, Name returns an error
// that matches [ErrInvalidName].
func Name(name string) (string, error) {
	if name == "" {
		return DefaultName, nil
	}
	//guard:no-schema-name-of-the-server 2,3 false
	if !validName.MatchString(name) || strings.HasPrefix(name, "pg_") || name == "information_schema" {
		return "", fmt.Errorf("%w %.70q: use lower-case letters, digits and '_', at most 63, not beginning with a digit or pg_", ErrInvalidName, name)
	}
	return name, nil
}

// In returns the statement sql with the given name in place of the schema postroom. The .sql files
// use the name postroom, so that people can paste them into psql. In panics if name is empty, or if
// [Name] does not accept the name, because such a name could contain SQL.
func In(name, sql string) string {
	if name == DefaultName {
		return sql
	}
	//guard:no-sql-by-a-schema-name remove
	if accepted, err := Name(name); err != nil || accepted != name {
		panic("schema: In called with a name that Name did not accept")
	}
	return literal.ReplaceAllString(sql, `"`+name+`"$1`)
}
