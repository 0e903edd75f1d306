package deadletter

import (
	"embed"

	"github.com/postroom/postroom/internal/sqlfile"
	"github.com/postroom/postroom/schema"
)

//go:embed sql/*.sql
var files embed.FS

// statements are the SQL statements of this package, for one schema. Each has a file in sql.
type statements struct {
	List, ListDiscarded, Count, CountDiscarded                        string
	Find, FindDiscarded, Show                                         string
	Groups, GroupsFound                                               string
	Steps, Revisions, History                                         string
	ReplaySerialize, ReplayCreate, ReplayItems, Replays               string
	ReplayLock, ReplayOutcomes, ReplayNext, ReplayRelease             string
	ReplayStuck, ReplayUnclaimed, ReplayTakeBack, ReplayUnchain       string
	ReplaySkip, ReplaySave, ReplayResume, ReplayRestartCounts         string
	DiscardLock, Discard, ReopenLock, Reopen                          string
	LockDead, Edit, ResolveHappened, ResolveNotHappened               string
	Export, ExportDiscarded, Purge, PurgeRevisions, PurgeReplays      string
	Preview, DryRunChoose, DryRunRequest, DryRunResults, DryRunDelete string
}

var written = sqlfile.MustRead[statements](files)

// load returns the statements for the schema name, which schema.Name has accepted.
func load(name string) statements {
	return sqlfile.Map(written, func(sql string) string { return schema.In(name, sql) })
}
