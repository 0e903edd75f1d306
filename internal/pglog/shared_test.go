package pglog_test

import "github.com/postroom/postroom/internal/devtest/logtest"

// What tests of the log share.
var (
	shop         = logtest.Shop
	named        = logtest.Named
	letters      = logtest.Letters
	write        = logtest.Write
	openWith     = logtest.OpenWith
	commit       = logtest.Commit
	read         = logtest.Read
	wantIDs      = logtest.WantIDs
	record       = logtest.Record
	again        = logtest.Again
	publishAgain = logtest.PublishAgain
	prune        = logtest.Prune
	wantLog      = logtest.WantLog
	mustExec     = logtest.Exec
)
