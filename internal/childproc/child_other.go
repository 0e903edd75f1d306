//go:build !unix

package childproc

import "syscall"

// apart returns nil, because this system has no process groups of Unix.
func apart() *syscall.SysProcAttr { return nil }
