package idempotency

import (
	"embed"

	"github.com/postroom/postroom/internal/sqlfile"
	"github.com/postroom/postroom/schema"
)

//go:embed sql/*.sql
var files embed.FS

// statements are the statements of this package, for one schema. Each has a file in sql.
type statements struct {
	Lock, Present, Look             string
	Began, Still                    string
	Clear, Store                    string
	Touch, Delete, Purge, PurgeKept string
}

var written = sqlfile.MustRead[statements](files)

func load(name string) statements {
	return sqlfile.Map(written, func(sql string) string { return schema.In(name, sql) })
}
