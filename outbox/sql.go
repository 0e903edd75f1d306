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
	//go:embed sql/insert_usual.sql
	insertUsualSQL string
	//go:embed sql/insert_new.sql
	insertNewSQL string
	//go:embed sql/insert_one.sql
	insertOneSQL string
	//go:embed sql/compare.sql
	compareSQL string
	//go:embed sql/connect.sql
	connectSQL string
	//go:embed sql/reader.sql
	readerSQL string
	//go:embed sql/pid.sql
	pidSQL string
	//go:embed sql/confirm.sql
	confirmSQL string
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
	//go:embed sql/behind.sql
	behindSQL string
	//go:embed sql/search.sql
	searchSQL string
	//go:embed sql/late_by_xid.sql
	lateByXIDSQL string
	//go:embed sql/late_by_seq.sql
	lateBySeqSQL string
	//go:embed sql/pending.sql
	pendingSQL string
	//go:embed sql/record.sql
	recordSQL string
	//go:embed sql/mark.sql
	markSQL string
	//go:embed sql/late.sql
	lateSQL string
	//go:embed sql/settled.sql
	settledSQL string
	//go:embed sql/marks.sql
	marksSQL string
	//go:embed sql/places.sql
	placesSQL string
	//go:embed sql/sources.sql
	sourcesSQL string
	//go:embed sql/published_by.sql
	publishedBySQL string
	//go:embed sql/published.sql
	publishedSQL string
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
	//go:embed sql/rewound.sql
	rewoundSQL string
	//go:embed sql/advance.sql
	advanceSQL string
	//go:embed sql/rewind.sql
	rewindSQL string
	//go:embed sql/rewinds.sql
	rewindsSQL string
	//go:embed sql/cancel_rewind.sql
	cancelRewindSQL string
	//go:embed sql/reach.sql
	reachSQL string
	//go:embed sql/probe.sql
	probeSQL string
	//go:embed sql/hold_bare.sql
	holdBareSQL string
	//go:embed sql/count.sql
	countSQL string
	//go:embed sql/prune.sql
	pruneSQL string
	//go:embed sql/sizes.sql
	sizesSQL string
)

// statements are the statements of this package, for one schema.
type statements struct {
	write, writeOne          string
	insertUsual, insertNew   string
	insertOne, compare       string
	connect, reader, pid     string
	free, confirm            string
	lead, restored, sequence string
	pass, gather, pending    string
	behind, search           string
	lateByXID, lateBySeq     string
	record, renew, release   string
	schedule, hold, rehold   string
	holdBare                 string
	settle, wake             string
	keys, ahead              string
	mark, settled, marks     string
	late, places             string
	sources                  string
	publishedBy, published   string
	backlog                  string
	subjects                 string
	prune, sizes             string
	rewound, advance         string
	rewind, rewinds          string
	cancelRewind             string
	reach, probe, count      string
}

// load returns the statements for a schema whose name schema.Name accepted.
func load(name string) statements {
	return statements{
		subjects: schema.In(name, subjectsSQL),
		write:    schema.In(name, writeSQL), writeOne: schema.In(name, writeOneSQL),
		insertUsual: schema.In(name, insertUsualSQL), insertNew: schema.In(name, insertNewSQL),
		insertOne: schema.In(name, insertOneSQL), compare: schema.In(name, compareSQL),
		connect: schema.In(name, connectSQL), reader: schema.In(name, readerSQL), pid: pidSQL,
		free: schema.In(name, freeSQL), confirm: schema.In(name, confirmSQL),
		lead: schema.In(name, leadSQL), restored: schema.In(name, restoredSQL), sequence: schema.In(name, sequenceSQL),
		pass: schema.In(name, passSQL), gather: schema.In(name, gatherSQL), pending: schema.In(name, pendingSQL),
		behind: schema.In(name, behindSQL), search: searchSQL,
		lateByXID: schema.In(name, lateByXIDSQL), lateBySeq: schema.In(name, lateBySeqSQL),
		schedule: schema.In(name, scheduleSQL), hold: schema.In(name, holdSQL), rehold: schema.In(name, reholdSQL),
		holdBare: schema.In(name, holdBareSQL),
		settle:   schema.In(name, settleSQL), wake: schema.In(name, wakeSQL),
		keys: schema.In(name, keysSQL), ahead: schema.In(name, aheadSQL),
		backlog: schema.In(name, backlogSQL),
		mark:    schema.In(name, markSQL), settled: schema.In(name, settledSQL), marks: schema.In(name, marksSQL),
		late: schema.In(name, lateSQL), places: schema.In(name, placesSQL),
		sources:     schema.In(name, sourcesSQL),
		publishedBy: schema.In(name, publishedBySQL), published: schema.In(name, publishedSQL),
		prune: schema.In(name, pruneSQL), sizes: schema.In(name, sizesSQL),
		rewound: schema.In(name, rewoundSQL), advance: schema.In(name, advanceSQL),
		rewind: schema.In(name, rewindSQL), rewinds: schema.In(name, rewindsSQL), cancelRewind: schema.In(name, cancelRewindSQL),
		reach: schema.In(name, reachSQL), probe: schema.In(name, probeSQL), count: schema.In(name, countSQL),
		record: schema.In(name, recordSQL), renew: schema.In(name, renewSQL), release: schema.In(name, releaseSQL),
	}
}
