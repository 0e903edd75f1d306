//go:build unix

package childproc

import "syscall"

// apart puts a child into a separate process group, so Ctrl-C does not reach the child. If this
// program dies while a signal has stopped the child, the kernel continues the child and sends it a
// hang-up.
func apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
