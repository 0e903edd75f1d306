//go:build unix

package main

import "syscall"

// apart puts a child into a process group of its own, so that a Ctrl-C in the
// terminal does not reach it: this program ends its services itself, in its own time.
func apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
