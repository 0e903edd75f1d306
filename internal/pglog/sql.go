package pglog

import (
	"embed"

	"github.com/postroom/postroom/internal/sqlfile"
	"github.com/postroom/postroom/schema"
)

//go:embed sql/*.sql
var files embed.FS

// statements are the statements of this package, for one schema. Each has a file in sql.
//
// Wide because each statement is a field.
type statements struct {
	Connect, Reader, PID     string
	Free, Confirm            string
	Lead, Restored, Sequence string
	Pass, Gather, Pending    string
	Ahead, Keys              string
	Behind, Search           string
	LateByXID, LateBySeq     string
	Record, Renew, Release   string
	Schedule, Hold, Rehold   string
	HoldBare                 string
	Settle, Settled, Wake    string
	Mark, Late               string
	Rewound, Advance, Prune  string
	Places, Sources, Marks   string
	PublishedBy, Published   string
	Backlog, Subjects, Sizes string
	Reach, Probe             string
}

var written = sqlfile.MustRead[statements](files)

// load returns the statements for a schema whose name schema.Name accepted.
func load(name string) statements {
	return sqlfile.Map(written, func(sql string) string { return schema.In(name, sql) })
}
