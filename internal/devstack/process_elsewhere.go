//go:build !linux

package devstack

import (
	"syscall"
	"time"
)

// awaitFrozen does not wait on this system, so a frozen process may still answer for a
// moment.
func awaitFrozen(int) error { return nil }

// killAll ends a child. The children of the child end by themselves, a moment later.
func (p *process) killAll() error { return p.end(syscall.SIGKILL, 5*time.Second) }
