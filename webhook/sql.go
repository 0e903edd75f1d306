package webhook

import (
	"embed"

	"github.com/postroom/postroom/internal/sqlfile"
)

//go:embed sql/*.sql
var files embed.FS

// statements has the statements of this package for one schema. Each has a file in sql.
type statements struct {
	Add, Rotate, Disable, Enable, Remove  string // statements of Endpoints
	List                                  string
	Matching, Endpoint, Succeeded, Failed string // statements of a Sender
	Disabled                              string // statements of a Sender's gauge
	Owed, Enabled, Recognised             string // statements of a Sender that resends
	Decided                               string // statements of a Receiver
}

var written = sqlfile.MustRead[statements](files)
