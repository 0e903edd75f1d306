package devstack

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// awaitFrozen waits until [sigFreeze] has stopped every thread of a child. After this process has
// sent the signal, a thread on another processor still runs for a moment, and can answer clients.
// awaitFrozen polls, because a blocking wait for the stop would not return if the child ends
// instead.
func awaitFrozen(pid int) error {
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		stopped, err := hasStopped(pid)
		switch {
		case err != nil && !errors.Is(err, syscall.EINTR):
			return fmt.Errorf("wait until it has stopped: %w", err)
		case stopped:
			return nil
		case time.Now().After(end):
			return fmt.Errorf("process %d has not stopped after 10 s", pid)
		}
	}
}

// hasStopped reports whether a child has stopped. It uses the system call waitid, for which package
// syscall has no function. Because of WNOWAIT, a later call can get the same answer.
func hasStopped(pid int) (bool, error) {
	const (
		idIsPID = 1
		noWait  = 0x1000000 // WNOWAIT
	)
	var info struct {
		signal int32     // the first field of the kernel's siginfo_t; 0 if the child has not stopped
		_      [31]int32 // the rest of its 128 bytes
	}
	_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, idIsPID, uintptr(pid), uintptr(unsafe.Pointer(&info)),
		syscall.WSTOPPED|syscall.WNOHANG|noWait, 0, 0)
	if errno != 0 {
		return false, errno
	}
	return info.signal != 0, nil
}

// killAll ends a child and the children of the child at once, like a crash of the machine. It
// returns when all have ended. It kills the children too, because they would go on for a moment,
// and a session of PostgreSQL could still commit.
func (p *process) killAll() error {
	pid := p.cmd.Process.Pid
	if err := p.cmd.Process.Signal(sigFreeze); err == nil { // so that the child starts no more children
		if err := awaitFrozen(pid); err != nil {
			return err
		}
	}
	children := childrenOf(pid)
	if err := p.end(syscall.SIGKILL, 5*time.Second); err != nil {
		return err
	}
	for _, child := range children {
		if err := syscall.Kill(child, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
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

// childrenOf returns the ids of the processes that a process has started.
func childrenOf(pid int) (children []int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid)) // a kernel may lack this file: then the children end by themselves
	for _, field := range strings.Fields(string(text)) {
		if child, err := strconv.Atoi(field); err == nil {
			children = append(children, child)
		}
	}
	return children
}

// runs reports whether a process runs. A zombie does not run.
func runs(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, ok := strings.Cut(string(text), ") ")
	return err == nil && ok && !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}
