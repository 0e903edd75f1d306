package doctor

import (
	"embed"

	"github.com/postroom/postroom/internal/sqlfile"
	"github.com/postroom/postroom/schema"
)

//go:embed sql/*.sql
var files embed.FS

// statements are the SQL statements of this package, for one schema. Each has a file in sql.
type statements struct {
	Begin, Clock, Connections, Instance, Unvacuumed                  string
	Processes, VacuumBlockers, OldDead, ProducerRights, PublicRights string
	PublishedEvents, RoleRights, RoleSettings, Sequence, DatesAhead  string
	Settings, Subscriptions, UnknownHandlers, Sequences, Lacking     string
}

var written = sqlfile.MustRead[statements](files)

// load returns the statements for the schema name, which schema.Name has accepted.
func load(name string) statements {
	return sqlfile.Map(written, func(sql string) string { return schema.In(name, sql) })
}
