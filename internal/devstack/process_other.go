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

// processLives cannot be known here: nothing is taken for left behind.
func processLives(int) bool { return true }

// lock does not wait here.
func lock(string) (unlock func(), err error) { return func() {}, nil }

// There are no such signals here: sending them fails.
const (
	sigFreeze = syscall.Signal(0x13)
	sigThaw   = syscall.Signal(0x12)
	sigReload = syscall.SIGHUP
)
