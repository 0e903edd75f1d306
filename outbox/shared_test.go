package outbox_test

import "github.com/postroom/postroom/internal/devtest/logtest"

// What tests of the log share.
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
