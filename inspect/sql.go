package inspect

import (
	_ "embed" // the statements

	"github.com/postroom/postroom/internal/eventtype"
	"github.com/postroom/postroom/schema"
)

var (
	//go:embed sql/plan.sql
	planSQL string
	//go:embed sql/relay.sql
	relaySQL string
	//go:embed sql/held.sql
	heldSQL string
	//go:embed sql/discarded.sql
	discardedSQL string
	//go:embed sql/jobs.sql
	jobsSQL string
	//go:embed sql/rewinds.sql
	rewindsSQL string
	//go:embed sql/processes.sql
	processesSQL string
	//go:embed sql/subscriptions.sql
	subscriptionsSQL string
	//go:embed sql/keys.sql
	keysSQL string
	//go:embed sql/key.sql
	keySQL string
	//go:embed sql/holders.sql
	holdersSQL string
	//go:embed sql/tables.sql
	tablesSQL string
	//go:embed sql/oldest.sql
	oldestSQL string
	//go:embed sql/sweep.sql
	sweepSQL string
	//go:embed sql/horizon.sql
	horizonSQL string
	//go:embed sql/sees.sql
	seesSQL string
	//go:embed sql/logged.sql
	loggedSQL string
	//go:embed sql/caused.sql
	causedSQL string
	//go:embed sql/event_held.sql
	eventHeldSQL string
	//go:embed sql/event_archived.sql
	eventArchivedSQL string
	//go:embed sql/decided.sql
	decidedSQL string
	//go:embed sql/receipts.sql
	receiptsSQL string
	//go:embed sql/revisions.sql
	revisionsSQL string
	//go:embed sql/replays.sql
	replaysSQL string
	//go:embed sql/traces.sql
	tracesSQL string
	//go:embed sql/audit.sql
	auditSQL string
	//go:embed sql/audit_event.sql
	auditEventSQL string
	//go:embed sql/audit_job.sql
	auditJobSQL string
)

// statements are the statements of this package, for one schema.
type statements struct {
	plan                                                        string
	relay, held, discarded, jobs, processes, subscriptions      string
	keys, key, holders, used                                    string
	tables, oldest, sweep, horizon, sees                        string
	logged, caused, eventHeld, eventArchived, decided, receipts string
	revisions, replays, traces, rewinds                         string
	audit, auditEvent, auditJob                                 string
}

// load returns the statements for a schema whose name schema.Name accepted.
func load(name string) statements {
	in := func(sql string) string { return schema.In(name, sql) }
	return statements{
		plan:  in(planSQL),
		relay: in(relaySQL), held: in(heldSQL), discarded: in(discardedSQL), jobs: in(jobsSQL), processes: in(processesSQL), subscriptions: in(subscriptionsSQL),
		keys: in(keysSQL), key: in(keySQL), holders: in(holdersSQL), used: in(eventtype.UsedSQL),
		tables: in(tablesSQL), oldest: in(oldestSQL), sweep: in(sweepSQL), horizon: in(horizonSQL), sees: in(seesSQL),
		logged: in(loggedSQL), caused: in(causedSQL), eventHeld: in(eventHeldSQL), eventArchived: in(eventArchivedSQL), decided: in(decidedSQL), receipts: in(receiptsSQL),
		revisions: in(revisionsSQL), replays: in(replaysSQL), traces: in(tracesSQL), rewinds: in(rewindsSQL),
		audit: in(auditSQL), auditEvent: in(auditEventSQL), auditJob: in(auditJobSQL),
	}
}
