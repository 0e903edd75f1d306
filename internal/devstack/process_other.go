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

// ProcessLives returns true, because it cannot find out on this system whether a process lives.
func ProcessLives(int) bool { return true }

// lock does nothing on this system.
func lock(string) (unlock func(), err error) { return func() {}, nil }

// This system does not have these signals. An attempt to send them fails.
const (
	sigFreeze = syscall.Signal(0x13)
	sigThaw   = syscall.Signal(0x12)
	sigReload = syscall.SIGHUP
)
