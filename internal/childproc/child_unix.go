//go:build unix

package childproc

import "syscall"

// apart puts a child into a process group of its own: a Ctrl-C does not reach it, and
// the kernel wakes it with a hang-up when this program dies while it is stopped.
func apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
