// Package sameschema compares the schema of an inbox with the schemas of its handlers' parts, such as
// the outbox of a saga. A handler's transaction has one database, but each part names its schema
// itself. If the schemas differ, a handler would read rows in one schema and write events in another.
package sameschema

import (
	"context"
	"fmt"

	"github.com/postroom/postroom"
)

type key struct{}

// Of returns a context for the method Check of an inbox's handlers. It has the schema of the inbox.
func Of(ctx context.Context, schema string) context.Context {
	return context.WithValue(ctx, key{}, schema)
}

// Check returns an error if ctx has the schema of an inbox, and this schema is not the schema of the
// part. The error names both.
func Check(ctx context.Context, part, schema string) error {
	of, called := ctx.Value(key{}).(string)
	//guard:a-handler-has-the-schema-of-its-inbox false
	if called && of != schema {
		return postroom.Unrecoverable(fmt.Errorf("%s has the schema %s, and the inbox has the schema %s: set Schema of both to the same name", part, schema, of))
	}
	return nil
}
