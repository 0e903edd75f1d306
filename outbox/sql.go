package outbox

import (
	_ "embed" // the statements

	"github.com/postroom/postroom/schema"
)

var (
	//go:embed sql/write.sql
	writeSQL string
	//go:embed sql/digest.sql
	digestSQL string
	//go:embed sql/conflict.sql
	conflictSQL string
	//go:embed sql/connect.sql
	connectSQL string
	//go:embed sql/lead.sql
	leadSQL string
	//go:embed sql/restored.sql
	restoredSQL string
	//go:embed sql/sequence.sql
	sequenceSQL string
	//go:embed sql/pass.sql
	passSQL string
	//go:embed sql/gather.sql
	gatherSQL string
	//go:embed sql/pending.sql
	pendingSQL string
	//go:embed sql/record.sql
	recordSQL string
	//go:embed sql/renew.sql
	renewSQL string
	//go:embed sql/release.sql
	releaseSQL string
)

// statements are the statements of this package, for one schema.
type statements struct {
	write, digest, conflict  string
	connect                  string
	lead, restored, sequence string
	pass, gather, pending    string
	record, renew, release   string
}

// load returns the statements for a schema whose name schema.Name accepted.
func load(name string) statements {
	return statements{
		write: schema.In(name, writeSQL), digest: schema.In(name, digestSQL), conflict: schema.In(name, conflictSQL),
		connect: schema.In(name, connectSQL),
		lead:    schema.In(name, leadSQL), restored: schema.In(name, restoredSQL), sequence: schema.In(name, sequenceSQL),
		pass: schema.In(name, passSQL), gather: schema.In(name, gatherSQL), pending: schema.In(name, pendingSQL),
		record: schema.In(name, recordSQL), renew: schema.In(name, renewSQL), release: schema.In(name, releaseSQL),
	}
}
