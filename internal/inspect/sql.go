package inspect

import (
	"embed"

	"github.com/postroom/postroom/internal/sqlfile"
	"github.com/postroom/postroom/schema"
)

//go:embed sql/*.sql
var files embed.FS

// statements are the SQL statements of this package, for one schema. Each has a file in sql.
type statements struct {
	Relay, HeldCounts, DiscardedCount, RunningReplays, Processes, Subscriptions string
	Keys, Key, HandlersWithKeys                                                 string
	TableSizes, OldestRows, Sweep, VacuumBlockers, SeesAllSessions              string
	LogEntries, CausedEvents, Decisions, Steps, EventRepublishes                string
	Revisions, ReplayItems, Sources, RunningRepublishes                         string
	Audit, AuditEvent, AuditReplay, Pauses, OverdueType, FailingEndpoints       string
}

var written = sqlfile.MustRead[statements](files)

// load returns a schema's statements. schema.Name must have accepted its name.
func load(name string) statements {
	return sqlfile.Map(written, func(sql string) string { return schema.In(name, sql) })
}
