// Package ledger has every transaction and every statement of the inbox. It begins and ends the
// transactions of handlers, and stores the inbox's state. It decides events, holds them, and
// settles them: it removes an event from the table held when the event has taken effect. It uses no
// broker and calls no handler.
package ledger

import (
	"context"
	_ "embed" // the statements

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/session"
	"github.com/postroom/postroom/schema"
)

var (
	//go:embed sql/decide.sql
	decideSQL string
	//go:embed sql/decide_free.sql
	decideFreeSQL string
	//go:embed sql/keys.sql
	keysSQL string
	//go:embed sql/decide_ordered.sql
	decideOrderedSQL string
	//go:embed sql/verdict.sql
	verdictSQL string
	//go:embed sql/lock_key.sql
	lockKeySQL string
	//go:embed sql/leave_key.sql
	leaveKeySQL string
	//go:embed sql/identify.sql
	identifySQL string
	//go:embed sql/more.sql
	moreSQL string
	//go:embed sql/along.sql
	alongSQL string
	//go:embed sql/settle_last.sql
	settleLastSQL string
	//go:embed sql/settle_along.sql
	settleAlongSQL string
	//go:embed sql/follow.sql
	followSQL string
	//go:embed sql/lead.sql
	leadSQL string
	//go:embed sql/keep.sql
	keepSQL string
	//go:embed sql/restart.sql
	restartSQL string
	//go:embed sql/decide_batch.sql
	decideBatchSQL string
	//go:embed sql/still.sql
	stillSQL string
	//go:embed sql/committed.sql
	committedSQL string
	//go:embed sql/writer.sql
	writerSQL string
	//go:embed sql/current.sql
	currentSQL string
	//go:embed sql/decided.sql
	decidedSQL string
	//go:embed sql/hold.sql
	holdSQL string
	//go:embed sql/archive.sql
	archiveSQL string
	//go:embed sql/result.sql
	resultSQL string
	//go:embed sql/accept.sql
	acceptSQL string
	//go:embed sql/generic.sql
	genericSQL string
	//go:embed sql/plan.sql
	planSQL string
	//go:embed sql/due.sql
	dueSQL string
	//go:embed sql/claim.sql
	claimSQL string
	//go:embed sql/claim_alone.sql
	claimAloneSQL string
	//go:embed sql/postpone.sql
	postponeSQL string
	//go:embed sql/orphans.sql
	orphansSQL string
	//go:embed sql/limits.sql
	limitsSQL string
	//go:embed sql/settle.sql
	settleSQL string
	//go:embed sql/paused.sql
	pausedSQL string
	//go:embed sql/give_back.sql
	giveBackSQL string
	//go:embed sql/given.sql
	givenSQL string
	//go:embed sql/fail.sql
	failSQL string
	//go:embed sql/noted.sql
	notedSQL string
	//go:embed sql/settle_many.sql
	settleManySQL string
	//go:embed sql/renew.sql
	renewSQL string
	//go:embed sql/start.sql
	startSQL string
	//go:embed sql/done.sql
	doneSQL string
	//go:embed sql/undo.sql
	undoSQL string
	//go:embed sql/forget.sql
	forgetSQL string
	//go:embed sql/release.sql
	releaseSQL string
	//go:embed sql/subscribe.sql
	subscribeSQL string
	//go:embed sql/recreated.sql
	recreatedSQL string
	//go:embed sql/lower.sql
	lowerSQL string
	//go:embed sql/types.sql
	typesSQL string
	//go:embed sql/floor.sql
	floorSQL string
	//go:embed sql/place.sql
	placeSQL string
	//go:embed sql/dead_keys.sql
	deadKeysSQL string
	//go:embed sql/skip_dead.sql
	skipDeadSQL string
	//go:embed sql/wake.sql
	wakeSQL string
	//go:embed sql/pardon.sql
	pardonSQL string
	//go:embed sql/skipped.sql
	skippedSQL string
	//go:embed sql/lacking.sql
	lackingSQL string
	//go:embed sql/node.sql
	nodeSQL string
	//go:embed sql/instance.sql
	instanceSQL string
	//go:embed sql/leave.sql
	leaveSQL string
	//go:embed sql/other_windows.sql
	otherWindowsSQL string
	//go:embed sql/unknown.sql
	unknownSQL string
	//go:embed sql/sweep.sql
	sweepSQL string
	//go:embed sql/impatient.sql
	impatientSQL string
	//go:embed sql/lock_nodes.sql
	lockNodesSQL string
	//go:embed sql/windows.sql
	windowsSQL string
	//go:embed sql/expire.sql
	expireSQL string
	//go:embed sql/swept.sql
	sweptSQL string
	//go:embed sql/trials.sql
	trialsSQL string
	//go:embed sql/try.sql
	trySQL string
	//go:embed sql/tried.sql
	triedSQL string
	//go:embed sql/changes.sql
	changesSQL string
	//go:embed sql/backlog.sql
	backlogSQL string
)

// The statements are the statements of this package, for one schema.
type statements struct {
	decide, decideBatch, decided, hold        string
	decideOrdered, verdict, decideFree, keys  string
	lockKey, follow, along, settleAlong, more string
	lead, pardon, keep, restart               string
	deadKeys, skipDead, wake                  string
	still, committed, leaveKey, identify      string
	writer, current                           string
	generic, archive, result                  string
	accept                                    string
	plan, due, claim, claimAlone              string
	orphans, giveBack, given                  string
	paused, postpone                          string
	limits, settle, fail, noted, release      string
	settleLast, settleMany, renew             string
	start, done, undo, forget                 string
	subscribe, recreated, types, floor, lower string
	place, skipped, lacking                   string
	node, instance, leave, unknown            string
	otherWindows, impatient                   string
	sweep, lockNodes, windows, expire, swept  string
	backlog                                   string
	trials, try, tried, changes               string
}

func load(name string) statements {
	in := func(sql string) string { return schema.In(name, sql) }
	return statements{
		decide: in(decideSQL), decideBatch: in(decideBatchSQL), decided: in(decidedSQL), hold: in(holdSQL),
		decideOrdered: in(decideOrderedSQL), decideFree: in(decideFreeSQL), keys: in(keysSQL), verdict: in(verdictSQL),
		lockKey: in(lockKeySQL), follow: in(followSQL), more: in(moreSQL), along: in(alongSQL), settleAlong: in(settleAlongSQL),
		lead: in(leadSQL), pardon: in(pardonSQL), keep: in(keepSQL), restart: in(restartSQL),
		deadKeys: in(deadKeysSQL), skipDead: in(skipDeadSQL), wake: in(wakeSQL),
		still: in(stillSQL), committed: in(committedSQL), writer: in(writerSQL), current: in(currentSQL), leaveKey: in(leaveKeySQL), identify: in(identifySQL),
		generic: in(genericSQL), archive: in(archiveSQL), result: in(resultSQL),
		accept: in(acceptSQL),
		plan:   in(planSQL), due: in(dueSQL), claim: in(claimSQL), claimAlone: in(claimAloneSQL),
		orphans: in(orphansSQL), giveBack: in(giveBackSQL), given: in(givenSQL), paused: in(pausedSQL), postpone: in(postponeSQL),
		limits: in(limitsSQL), settle: in(settleSQL), fail: in(failSQL), noted: in(notedSQL), release: in(releaseSQL),
		settleLast: in(settleLastSQL), settleMany: in(settleManySQL), renew: in(renewSQL),
		start: in(startSQL), done: in(doneSQL), undo: in(undoSQL), forget: in(forgetSQL),
		subscribe: in(subscribeSQL), recreated: in(recreatedSQL), types: in(typesSQL), floor: in(floorSQL), lower: in(lowerSQL),
		place: in(placeSQL), skipped: in(skippedSQL), lacking: in(lackingSQL),
		node: in(nodeSQL), instance: in(instanceSQL), leave: in(leaveSQL), otherWindows: in(otherWindowsSQL), unknown: in(unknownSQL),
		sweep: in(sweepSQL), impatient: in(impatientSQL), lockNodes: in(lockNodesSQL), windows: in(windowsSQL), expire: in(expireSQL), swept: in(sweptSQL),
		backlog: in(backlogSQL),
		trials:  in(trialsSQL), try: in(trySQL), tried: in(triedSQL), changes: in(changesSQL),
	}
}

// optional returns nil for a zero value.
func optional[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// DB is the inbox's part of the database. Each method runs its own transaction, unless the method
// has a transaction as a parameter.
type DB struct {
	pool     *pgxpool.Pool
	sql      statements
	sessions *session.Pool
	lost     func(ctx context.Context, why error) // called when a connection was closed
}

// New returns the ledger of a schema. If a handler leaves a connection in a state in which it
// cannot be used again, the ledger closes the connection and calls the function lost.
func New(pool *pgxpool.Pool, schema string, lost func(ctx context.Context, why error)) *DB {
	return &DB{pool: pool, sql: load(schema), sessions: session.Of(pool), lost: lost}
}
