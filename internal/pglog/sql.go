package pglog

import (
	"embed"

	"github.com/postroom/postroom/internal/sqlfile"
	"github.com/postroom/postroom/schema"
)

//go:embed sql/*.sql
var files embed.FS

// statements has the statements of this package for one schema. Each has a file in the folder sql.
type statements struct {
	Connect, Reader, PID                    string
	LeaseFree, Confirm, Paused              string
	Lead, Adopt, Sequence, Ahead            string
	Pass, Pending                           string
	HeldAhead, HeldKeys                     string
	Unlocked, StillDue                      string
	SearchBounds, Search                    string
	LateByXID, LateBySeq                    string
	Record, Renew, Release                  string
	Schedule, Hold, HoldAgain               string
	HoldUnstorable                          string
	DeletePublished, NotePublished, Unblock string
	Checkpoint, RepublishLate               string
	RepublishPage, RepublishProgress, Prune string
	Positions, Sources, Checkpoints         string
	PublishedBounds, Published              string
	Blockers                                string
	Lag, Subjects, Sizes                    string
	Extent, FirstEvent                      string
}

var written = sqlfile.MustRead[statements](files)

// load returns the statements for a schema, whose name schema.Name accepted.
func load(name string) statements {
	return sqlfile.Map(written, func(sql string) string { return schema.In(name, sql) })
}
