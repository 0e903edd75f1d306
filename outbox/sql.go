package outbox

import (
	_ "embed" // the statements

	"github.com/postroom/postroom/schema"
)

var (
	//go:embed sql/write.sql
	writeSQL string
	//go:embed sql/write_one.sql
	writeOneSQL string
	//go:embed sql/insert_one.sql
	insertOneSQL string
	//go:embed sql/compare.sql
	compareSQL string
	//go:embed sql/connect.sql
	connectSQL string
	//go:embed sql/reader.sql
	readerSQL string
	//go:embed sql/free.sql
	freeSQL string
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
	//go:embed sql/schedule.sql
	scheduleSQL string
	//go:embed sql/hold.sql
	holdSQL string
	//go:embed sql/rehold.sql
	reholdSQL string
	//go:embed sql/settle.sql
	settleSQL string
	//go:embed sql/wake.sql
	wakeSQL string
	//go:embed sql/keys.sql
	keysSQL string
	//go:embed sql/ahead.sql
	aheadSQL string
	//go:embed sql/backlog.sql
	backlogSQL string
	//go:embed sql/renew.sql
	renewSQL string
	//go:embed sql/release.sql
	releaseSQL string
	//go:embed sql/prune.sql
	pruneSQL string
	//go:embed sql/sizes.sql
	sizesSQL string
)

// statements are the statements of this package, for one schema.
type statements struct {
	write, writeOne          string
	insertOne, compare       string
	connect, reader          string
	free                     string
	lead, restored, sequence string
	pass, gather, pending    string
	record, renew, release   string
	schedule, hold, rehold   string
	settle, wake             string
	keys, ahead              string
	backlog                  string
	subjects                 string
	prune, sizes             string
}

// load returns the statements for a schema whose name schema.Name accepted.
func load(name string) statements {
	return statements{
		subjects: schema.In(name, subjectsSQL),
		write:    schema.In(name, writeSQL), writeOne: schema.In(name, writeOneSQL),
		insertOne: schema.In(name, insertOneSQL), compare: schema.In(name, compareSQL),
		connect: schema.In(name, connectSQL), reader: schema.In(name, readerSQL),
		free: schema.In(name, freeSQL),
		lead: schema.In(name, leadSQL), restored: schema.In(name, restoredSQL), sequence: schema.In(name, sequenceSQL),
		pass: schema.In(name, passSQL), gather: schema.In(name, gatherSQL), pending: schema.In(name, pendingSQL),
		schedule: schema.In(name, scheduleSQL), hold: schema.In(name, holdSQL), rehold: schema.In(name, reholdSQL),
		settle: schema.In(name, settleSQL), wake: schema.In(name, wakeSQL),
		keys: schema.In(name, keysSQL), ahead: schema.In(name, aheadSQL),
		backlog: schema.In(name, backlogSQL),
		prune:   schema.In(name, pruneSQL), sizes: schema.In(name, sizesSQL),
		record: schema.In(name, recordSQL), renew: schema.In(name, renewSQL), release: schema.In(name, releaseSQL),
	}
}
