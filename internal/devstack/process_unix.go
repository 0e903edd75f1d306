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

// account is the user that a server runs as; nil for the caller's own.
type account struct {
	name     string
	uid, gid int
}

// ownSession starts a child apart from the terminal, so that Ctrl-C reaches it
// only through us: a demo drains first. as is nil for the caller's own user.
func ownSession(as *account) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true}
	if as != nil {
		attr.Credential = &syscall.Credential{Uid: uint32(as.uid), Gid: uint32(as.gid)}
	}
	return attr
}

// serverAccount returns whom to run PostgreSQL as: it refuses to run as root.
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

// give makes the account the owner of path.
func (a *account) give(path string) error {
	if a == nil {
		return nil
	}
	return os.Chown(path, a.uid, a.gid)
}

// processLives says whether a process of this machine runs, or ended and was not
// reaped by its parent.
func processLives(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// signals of a process that is frozen and thawed.
const (
	sigFreeze = syscall.SIGSTOP
	sigThaw   = syscall.SIGCONT
	sigReload = syscall.SIGHUP
)

// lock waits until this process alone has the file of a path locked.
func lock(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() { _ = file.Close() }, nil // which unlocks it
}
