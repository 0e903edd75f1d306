//go:build !unix

package childproc

import "syscall"

// apart does nothing here.
func apart() *syscall.SysProcAttr { return nil }
