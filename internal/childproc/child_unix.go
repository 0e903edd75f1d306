//go:build unix

package childproc

import "syscall"

// apart puts a child into a separate process group. So Ctrl-C does not reach the child.
// And if this program dies while the child is stopped by a signal, the kernel continues
// the child and sends it a hang-up.
func apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
