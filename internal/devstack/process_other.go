//go:build !unix

package devstack

import (
	"errors"
	"syscall"
)

type account struct{ name string }

func ownSession(*account) *syscall.SysProcAttr { return nil }

func serverAccount() (*account, error) {
	return nil, errors.New("a local PostgreSQL is started on Unix only")
}

func (*account) give(string) error { return nil }

// processLives cannot know that on this system. It returns true, so that nothing counts
// as left behind.
func processLives(int) bool { return true }

// lock does not wait on this system.
func lock(string) (unlock func(), err error) { return func() {}, nil }

// This system has no such signals: to send them fails.
const (
	sigFreeze = syscall.Signal(0x13)
	sigThaw   = syscall.Signal(0x12)
	sigReload = syscall.SIGHUP
)
