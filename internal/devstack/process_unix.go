//go:build unix

package devstack

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// account is the user that runs a server. nil means the caller's user.
type account struct {
	name     string
	uid, gid int
}

// ownSession returns attributes for a child that starts in its own session, without the terminal.
// So Ctrl-C does not reach the child, and a demo can finish its work before it stops the child. The
// parameter tells which account runs the child: nil means the caller's user.
func ownSession(as *account) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true}
	if as != nil {
		attr.Credential = &syscall.Credential{Uid: uint32(as.uid), Gid: uint32(as.gid)}
	}
	return attr
}

// serverAccount returns the user to run PostgreSQL if this process runs as root, because PostgreSQL
// refuses to run as root. Otherwise it returns nil.
func serverAccount() (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		if found, err := user.Lookup(name); err == nil {
			uid, errUID := strconv.Atoi(found.Uid)
			gid, errGID := strconv.Atoi(found.Gid)
			if errUID == nil && errGID == nil && uid > 0 {
				return &account{name: name, uid: uid, gid: gid}, nil
			}
		}
	}
	return nil, fmt.Errorf("postgres refuses to run as root, and there is no user postgres or nobody to run it as")
}

// give makes the account the owner of the file at path.
func (a *account) give(path string) error {
	if a == nil {
		return nil
	}
	return os.Chown(path, a.uid, a.gid)
}

// ProcessLives reports whether a process of this machine exists. A process that has ended still
// exists until its parent has waited for it.
func ProcessLives(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// The signals that freeze a process, thaw it, and make a server reload its configuration.
const (
	sigFreeze = syscall.SIGSTOP
	sigThaw   = syscall.SIGCONT
	sigReload = syscall.SIGHUP
)

// lock waits until this process has an exclusive lock on the file at path.
func lock(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() { _ = file.Close() }, nil // closing the file also unlocks it
}
