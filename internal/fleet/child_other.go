//go:build !unix

package fleet

import "syscall"

// apart does nothing here.
func apart() *syscall.SysProcAttr { return nil }
