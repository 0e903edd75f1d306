package held

import (
	"embed"

	"github.com/postroom/postroom/internal/sqlfile"
	"github.com/postroom/postroom/schema"
)

//go:embed sql/*.sql
var files embed.FS

// statements are the statements of this package, for one schema.
type statements struct {
	List, ListDiscarded       string
	Count, CountDiscarded     string
	Find, FindDiscarded       string
	OfEvent, OfEventDiscarded string
	Show                      string
	Holders                   string
	PageDue, PageWaiting      string
	PageDead, PageGiven       string
	OfKey                     string
}

var written = sqlfile.MustRead[statements](files)

func load(name string) statements {
	return sqlfile.Map(written, func(sql string) string { return schema.In(name, sql) })
}
