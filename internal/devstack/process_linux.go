package devstack

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
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

// killAll ends a child and its own children at once, as a crash of the machine would,
// and returns when all are gone. Children that were left would go on for a moment: a
// session of PostgreSQL can commit then.
func (p *process) killAll() error {
	pid := p.cmd.Process.Pid
	if err := p.cmd.Process.Signal(sigFreeze); err == nil { // so that it starts no more of them
		if err := awaitFrozen(pid); err != nil {
			return err
		}
	}
	children := childrenOf(pid)
	if err := p.end(unix.SIGKILL, 5*time.Second); err != nil {
		return err
	}
	for _, child := range children {
		if err := unix.Kill(child, unix.SIGKILL); err != nil && err != unix.ESRCH {
			return fmt.Errorf("kill process %d: %w", child, err)
		}
	}
	for end := time.Now().Add(10 * time.Second); slices.ContainsFunc(children, runs); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("processes of %d still run 10 s after they were killed", pid)
		}
	}
	return nil
}

// childrenOf returns the processes that a process has started.
func childrenOf(pid int) (children []int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid)) // where there is no such file, they end by themselves
	for _, field := range strings.Fields(string(text)) {
		if child, err := strconv.Atoi(field); err == nil {
			children = append(children, child)
		}
	}
	return children
}

// runs reports whether a process has not ended; one that nobody reaped has.
func runs(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, ok := strings.Cut(string(text), ") ")
	return err == nil && ok && !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}
