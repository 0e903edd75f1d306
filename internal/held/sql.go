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
	OfEvent, OfEventDiscarded                       string
	Holders, PageDue, PageWaiting                   string
	PageDead, PageGiven, OfKey                      string
	Choose, LockOutgoing, Lock, Name, Move, Archive string
}

var written = sqlfile.MustRead[statements](files)

func load(name string) statements {
	return sqlfile.Map(written, func(sql string) string { return schema.In(name, sql) })
}

// given returns a pointer to v, or nil, which is NULL, if v is the zero value.
func given[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}
