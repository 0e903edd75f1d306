package deadletter

import (
	_ "embed" // the statements

	"github.com/postroom/postroom/schema"
)

var (
	//go:embed sql/audit.sql
	auditSQL string
	//go:embed sql/count.sql
	countSQL string
	//go:embed sql/count_discarded.sql
	countDiscardedSQL string
	//go:embed sql/discard.sql
	discardSQL string
	//go:embed sql/discard_lock.sql
	discardLockSQL string
	//go:embed sql/edit.sql
	editSQL string
	//go:embed sql/export.sql
	exportSQL string
	//go:embed sql/export_discarded.sql
	exportDiscardedSQL string
	//go:embed sql/find.sql
	findSQL string
	//go:embed sql/find_discarded.sql
	findDiscardedSQL string
	//go:embed sql/groups.sql
	groupsSQL string
	//go:embed sql/history.sql
	historySQL string
	//go:embed sql/job_again.sql
	jobAgainSQL string
	//go:embed sql/job_close.sql
	jobCloseSQL string
	//go:embed sql/job_create.sql
	jobCreateSQL string
	//go:embed sql/job_items.sql
	jobItemsSQL string
	//go:embed sql/job_judge.sql
	jobJudgeSQL string
	//go:embed sql/job_leave.sql
	jobLeaveSQL string
	//go:embed sql/job_lock.sql
	jobLockSQL string
	//go:embed sql/job_next.sql
	jobNextSQL string
	//go:embed sql/job_note.sql
	jobNoteSQL string
	//go:embed sql/job_release.sql
	jobReleaseSQL string
	//go:embed sql/job_stuck.sql
	jobStuckSQL string
	//go:embed sql/job_unchain.sql
	jobUnchainSQL string
	//go:embed sql/job_unclaimed.sql
	jobUnclaimedSQL string
	//go:embed sql/job_withdraw.sql
	jobWithdrawSQL string
	//go:embed sql/jobs.sql
	jobsSQL string
	//go:embed sql/keys_lock.sql
	keysLockSQL string
	//go:embed sql/list.sql
	listSQL string
	//go:embed sql/list_discarded.sql
	listDiscardedSQL string
	//go:embed sql/lock_dead.sql
	lockDeadSQL string
	//go:embed sql/plan.sql
	planSQL string
	//go:embed sql/purge_history.sql
	purgeHistorySQL string
	//go:embed sql/preview.sql
	previewSQL string
	//go:embed sql/purge.sql
	purgeSQL string
	//go:embed sql/relay_lock.sql
	relayLockSQL string
	//go:embed sql/reopen.sql
	reopenSQL string
	//go:embed sql/reopen_lock.sql
	reopenLockSQL string
	//go:embed sql/resolve_done.sql
	resolveDoneSQL string
	//go:embed sql/resolve_undone.sql
	resolveUndoneSQL string
	//go:embed sql/revisions.sql
	revisionsSQL string
	//go:embed sql/sample.sql
	sampleSQL string
	//go:embed sql/serial.sql
	serialSQL string
	//go:embed sql/show.sql
	showSQL string
	//go:embed sql/steps.sql
	stepsSQL string
	//go:embed sql/trial_answers.sql
	trialAnswersSQL string
	//go:embed sql/trial_ask.sql
	trialAskSQL string
	//go:embed sql/trial_forget.sql
	trialForgetSQL string
	//go:embed sql/wake.sql
	wakeSQL string
)

// statements are the statements of this package, for one schema.
type statements struct {
	list, listDiscarded, count, countDiscarded, groups   string
	show, steps, revisions, history                      string
	serial, jobCreate, jobItems, jobs                    string
	jobLock, jobClose, jobNext, jobRelease               string
	jobStuck, jobUnclaimed, jobWithdraw, jobUnchain      string
	jobLeave, jobNote, jobAgain, jobJudge                string
	plan, relayLock, keysLock, audit                     string
	find, findDiscarded                                  string
	discardLock, discard, wake, reopenLock, reopen       string
	lockDead, edit, resolveDone, resolveUndone           string
	export, exportDiscarded, purge, purgeHistory         string
	preview, sample, trialAsk, trialAnswers, trialForget string
}

func load(name string) statements {
	in := func(sql string) string { return schema.In(name, sql) }
	return statements{
		list: in(listSQL), listDiscarded: in(listDiscardedSQL), count: in(countSQL), countDiscarded: in(countDiscardedSQL), groups: in(groupsSQL),
		show: in(showSQL), steps: in(stepsSQL), revisions: in(revisionsSQL), history: in(historySQL),
		serial: in(serialSQL), jobCreate: in(jobCreateSQL), jobItems: in(jobItemsSQL), jobs: in(jobsSQL),
		jobLock: in(jobLockSQL), jobClose: in(jobCloseSQL), jobNext: in(jobNextSQL), jobRelease: in(jobReleaseSQL),
		jobStuck: in(jobStuckSQL), jobUnclaimed: in(jobUnclaimedSQL), jobWithdraw: in(jobWithdrawSQL), jobUnchain: in(jobUnchainSQL),
		jobLeave: in(jobLeaveSQL), jobNote: in(jobNoteSQL), jobAgain: in(jobAgainSQL), jobJudge: in(jobJudgeSQL),
		plan: in(planSQL), relayLock: in(relayLockSQL), keysLock: in(keysLockSQL), audit: in(auditSQL),
		find: in(findSQL), findDiscarded: in(findDiscardedSQL),
		discardLock: in(discardLockSQL), discard: in(discardSQL), wake: in(wakeSQL), reopenLock: in(reopenLockSQL), reopen: in(reopenSQL),
		lockDead: in(lockDeadSQL), edit: in(editSQL), resolveDone: in(resolveDoneSQL), resolveUndone: in(resolveUndoneSQL),
		export: in(exportSQL), exportDiscarded: in(exportDiscardedSQL), purge: in(purgeSQL), purgeHistory: in(purgeHistorySQL),
		preview: in(previewSQL), sample: in(sampleSQL), trialAsk: in(trialAskSQL), trialAnswers: in(trialAnswersSQL), trialForget: in(trialForgetSQL),
	}
}
