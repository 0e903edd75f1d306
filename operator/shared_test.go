package operator_test

import "github.com/postroom/postroom/internal/devtest/logtest"

// These are shared by the tests of the log.
var (
	shop         = logtest.Shop
	named        = logtest.Named
	letters      = logtest.Letters
	write        = logtest.Write
	read         = logtest.Read
	wantIDs      = logtest.WantIDs
	record       = logtest.Record
	again        = logtest.Again
	publishAgain = logtest.PublishAgain
	prune        = logtest.Prune
	wantLog      = logtest.WantLog
	mustExec     = logtest.Exec
)
