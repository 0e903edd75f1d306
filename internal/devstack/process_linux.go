package devstack

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// awaitFrozen waits until every thread of a child has taken [sigFreeze]. Sending
// the signal does not: a thread that runs on another processor goes on for a
// moment, and can answer. It asks again and again, since a wait for a stop that
// blocks is not woken by a child that ends instead.
func awaitFrozen(pid int) error {
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WSTOPPED|unix.WNOHANG|unix.WNOWAIT, nil)
		switch {
		case err != nil && err != unix.EINTR:
			return fmt.Errorf("wait until it has stopped: %w", err)
		case err == nil && info.Signo != 0:
			return nil
		case time.Now().After(end):
			return fmt.Errorf("process %d has not stopped after 10 s", pid)
		}
	}
}
