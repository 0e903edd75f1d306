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
