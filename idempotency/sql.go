package idempotency

import (
	_ "embed" // the statements

	"github.com/postroom/postroom/schema"
)

var (
	//go:embed sql/lock.sql
	lockSQL string
	//go:embed sql/began.sql
	beganSQL string
	//go:embed sql/still.sql
	stillSQL string
	//go:embed sql/present.sql
	presentSQL string
	//go:embed sql/look.sql
	lookSQL string
	//go:embed sql/clear.sql
	clearSQL string
	//go:embed sql/store.sql
	storeSQL string
	//go:embed sql/claim.sql
	claimSQL string
	//go:embed sql/take.sql
	takeSQL string
	//go:embed sql/renew.sql
	renewSQL string
	//go:embed sql/begin.sql
	beginSQL string
	//go:embed sql/undo.sql
	undoSQL string
	//go:embed sql/advance.sql
	advanceSQL string
	//go:embed sql/complete.sql
	completeSQL string
	//go:embed sql/fail.sql
	failSQL string
	//go:embed sql/touch.sql
	touchSQL string
	//go:embed sql/delete.sql
	deleteSQL string
	//go:embed sql/purge.sql
	purgeSQL string
	//go:embed sql/purge_kept.sql
	purgeKeptSQL string
)

// statements are the statements of this package, for one schema.
type statements struct {
	lock, present, look             string
	began, still                    string
	clear, store                    string
	claim, take, renew              string
	begin, undo                     string
	advance, complete, fail         string
	touch, delete, purge, purgeKept string
}

func load(name string) statements {
	in := func(sql string) string { return schema.In(name, sql) }
	return statements{
		lock: lockSQL, present: in(presentSQL), look: in(lookSQL),
		began: beganSQL, still: stillSQL,
		clear: in(clearSQL), store: in(storeSQL),
		claim: in(claimSQL), take: in(takeSQL), renew: in(renewSQL),
		begin: in(beginSQL), undo: in(undoSQL),
		advance: in(advanceSQL), complete: in(completeSQL), fail: in(failSQL),
		touch: in(touchSQL), delete: in(deleteSQL), purge: in(purgeSQL), purgeKept: in(purgeKeptSQL),
	}
}
