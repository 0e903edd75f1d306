package held

import (
	"embed"

	"github.com/postroom/postroom/internal/sqlfile"
	"github.com/postroom/postroom/schema"
)

//go:embed sql/*.sql
var files embed.FS

// statements are the statements of this package, for one schema. Each has a file in sql.
type statements struct{ Choose, LockOutgoing, Lock, Name, Move, Archive string }

var written = sqlfile.MustRead[statements](files)

// load returns the statements for a schema. The function schema.Name must have accepted the name.
func load(name string) statements {
	return sqlfile.Map(written, func(sql string) string { return schema.In(name, sql) })
}
