package inspect

import (
	"embed"

	"github.com/postroom/postroom/internal/sqlfile"
	"github.com/postroom/postroom/schema"
)

//go:embed sql/*.sql
var files embed.FS

// statements are the statements of this package, for one schema.
//
// Wide because each has a file in sql.
type statements struct {
	Plan                                                   string
	Relay, Held, Discarded, Jobs, Processes, Subscriptions string
	Keys, Key, Holders                                     string
	Tables, Oldest, Sweep, Horizon, Sees                   string
	Logged, Caused, Decided, Receipts, EventRepublishes    string
	Revisions, Replays, Traces, Rewinds                    string
	Audit, AuditEvent, AuditJob                            string
}

var written = sqlfile.MustRead[statements](files)

// load returns the statements for a schema whose name schema.Name accepted.
func load(name string) statements {
	return sqlfile.Map(written, func(sql string) string { return schema.In(name, sql) })
}
