package deadletter

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
	Groups                                               string
	Steps, Revisions, History                            string
	Serial, JobCreate, JobItems, Jobs                    string
	JobLock, JobClose, JobNext, JobRelease               string
	JobStuck, JobUnclaimed, JobWithdraw, JobUnchain      string
	JobLeave, JobNote, JobAgain, JobJudge                string
	Plan, RelayLock, KeysLock, Audit                     string
	DiscardLock, Discard, Wake, ReopenLock, Reopen       string
	LockDead, Edit, ResolveDone, ResolveUndone           string
	Export, ExportDiscarded, Purge, PurgeHistory         string
	Preview, Sample, TrialAsk, TrialAnswers, TrialForget string
}

var written = sqlfile.MustRead[statements](files)

// load returns the statements for a schema whose name schema.Name accepted.
func load(name string) statements {
	return sqlfile.Map(written, func(sql string) string { return schema.In(name, sql) })
}
