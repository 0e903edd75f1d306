package outbox_test

import "github.com/postroom/postroom/internal/devtest/logtest"

// These are shared by the tests of the log.
var (
	shop     = logtest.Shop
	named    = logtest.Named
	write    = logtest.Write
	openWith = logtest.OpenWith
	commit   = logtest.Commit
	lead     = logtest.Lead
	read     = logtest.Read
	wantIDs  = logtest.WantIDs
	mustExec = logtest.Exec
)
