//go:build !unix

package main

import "syscall"

// apart does nothing here: services ignore a Ctrl-C once they have started.
func apart() *syscall.SysProcAttr { return nil }
