package eventsearch

import (
	"embed"

	"github.com/postroom/postroom/internal/sqlfile"
	"github.com/postroom/postroom/schema"
)

//go:embed sql/*.sql
var files embed.FS

// statements are the statements of this package, for one schema.
type statements struct {
	PageLog, PageCaused, PageHeld, PageArchive string
	SeqAt                                      string
	Handlers                                   string
	ByID, ByCause, Process                     string
}

var written = sqlfile.MustRead[statements](files)

func load(name string) statements {
	return sqlfile.Map(written, func(sql string) string { return schema.In(name, sql) })
}
