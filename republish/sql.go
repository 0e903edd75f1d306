package republish

import (
	"embed"

	"github.com/postroom/postroom/internal/sqlfile"
	"github.com/postroom/postroom/schema"
)

//go:embed sql/*.sql
var files embed.FS

// statements has the statements of this package for one schema. Each has a file in sql.
type statements struct {
	Count               string
	Start, List, Cancel string
}

var written = sqlfile.MustRead[statements](files)

// load returns the statements for a schema. The name must be one that schema.Name
// accepted.
func load(name string) statements {
	return sqlfile.Map(written, func(sql string) string { return schema.In(name, sql) })
}
