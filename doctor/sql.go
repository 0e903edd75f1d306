package doctor

import (
	_ "embed" // the statements

	"github.com/postroom/postroom/internal/eventtype"
	"github.com/postroom/postroom/schema"
)

var (
	//go:embed sql/begin.sql
	beginSQL string
	//go:embed sql/clock.sql
	clockSQL string
	//go:embed sql/connections.sql
	connectionsSQL string
	//go:embed sql/idle_jobs.sql
	idleJobsSQL string
	//go:embed sql/instance.sql
	instanceSQL string
	//go:embed sql/nodes.sql
	nodesSQL string
	//go:embed sql/obstacles.sql
	obstaclesSQL string
	//go:embed sql/old_dead.sql
	oldDeadSQL string
	//go:embed sql/producer_rights.sql
	producerRightsSQL string
	//go:embed sql/public_rights.sql
	publicRightsSQL string
	//go:embed sql/published.sql
	publishedSQL string
	//go:embed sql/relay.sql
	relaySQL string
	//go:embed sql/role_rights.sql
	roleRightsSQL string
	//go:embed sql/role_settings.sql
	roleSettingsSQL string
	//go:embed sql/sequence.sql
	sequenceSQL string
	//go:embed sql/settings.sql
	settingsSQL string
	//go:embed sql/subjects.sql
	subjectsSQL string
	//go:embed sql/subscriptions.sql
	subscriptionsSQL string
	//go:embed sql/unknown.sql
	unknownSQL string
	//go:embed sql/untaken.sql
	untakenSQL string
	//go:embed sql/unvacuumed.sql
	unvacuumedSQL string
)

// statements are the statements of this package, for one schema.
type statements struct {
	begin, clock, connections, idleJobs, instance           string
	nodes, obstacles, oldDead, producerRights, publicRights string
	published, relay, roleRights, roleSettings, sequence    string
	settings, subjects, subscriptions, unknown, untaken     string
	unvacuumed, used                                        string
}

// load returns the statements for a schema whose name schema.Name accepted.
func load(name string) statements {
	in := func(sql string) string { return schema.In(name, sql) }
	return statements{
		begin: in(beginSQL), clock: in(clockSQL), connections: in(connectionsSQL),
		idleJobs: in(idleJobsSQL), instance: in(instanceSQL), nodes: in(nodesSQL),
		obstacles: in(obstaclesSQL), oldDead: in(oldDeadSQL), producerRights: in(producerRightsSQL),
		publicRights: in(publicRightsSQL), published: in(publishedSQL), relay: in(relaySQL),
		roleRights: in(roleRightsSQL), roleSettings: in(roleSettingsSQL), sequence: in(sequenceSQL),
		settings: in(settingsSQL), subjects: in(subjectsSQL), subscriptions: in(subscriptionsSQL),
		used: in(eventtype.UsedSQL), unknown: in(unknownSQL), untaken: in(untakenSQL), unvacuumed: in(unvacuumedSQL),
	}
}
