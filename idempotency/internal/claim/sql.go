package claim

import (
	"embed"

	"github.com/postroom/postroom/internal/sqlfile"
	"github.com/postroom/postroom/schema"
)

//go:embed sql/*.sql
var files embed.FS

// Statements are the statements of this package, for one schema. Each has a file in sql.
type Statements struct {
	Hold, Claim, Take, Mine string
	Renew, Begin, Undo      string
	Advance, Complete, Fail string
}

var written = sqlfile.MustRead[Statements](files)

// Load returns the statements for a schema.
func Load(name string) Statements {
	return sqlfile.Map(written, func(sql string) string { return schema.In(name, sql) })
}
