package devstack

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"time"
)

//go:embed watchdog.sh
var watchdogScript string

// watchdogPatience limits the wait for a watchdog that was told to finish. It is longer
// than the longest time that the script needs.
const watchdogPatience = 30 * time.Second

// guards has a reference to every open guard. Without a reference, a guard would be garbage
// collected, and the end of its pipe would stop the server.
var guards sync.Map

// A guard owns a temporary directory and a watchdog process, which removes the directory
// when this process has ended.
type guard struct {
	dir   string
	child *exec.Cmd      // nil if there is no /bin/sh
	pipe  io.WriteCloser // its standard input; it is close-on-exec, so no other child keeps it open
	close func() error
}

// newGuard creates a temporary directory in parent. what is a part of its name.
func newGuard(parent, what string) (*guard, error) {
	dir, err := os.MkdirTemp(parent, "postroom-"+what+"-")
	if err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	// PostgreSQL reports its directory, and the watchdog looks for that text, so the path
	// must have only one spelling.
	if resolved, err := filepath.EvalSymlinks(dir); err == nil {
		dir = resolved
	}

	g := &guard{dir: dir}
	g.close = sync.OnceValue(g.finish)
	if err := g.watch(); err != nil {
		return nil, errors.Join(fmt.Errorf("start watchdog: %w", err), os.RemoveAll(dir))
	}
	guards.Store(g, nil)
	return g, nil
}

func (g *guard) watch() error {
	if runtime.GOOS == "windows" {
		return nil
	}
	child := exec.Command("/bin/sh", "-c", watchdogScript, "postroom-watchdog", g.dir)
	child.Dir = "/"
	child.SysProcAttr = ownSession(nil)
	pipe, err := child.StdinPipe()
	if err != nil {
		return err
	}
	if err := child.Start(); err != nil {
		return err
	}
	g.child, g.pipe = child, pipe
	return nil
}

// Close removes the directory and ends the watchdog. It is idempotent.
func (g *guard) Close() error { return g.close() }

// finish makes the watchdog clean up, so that there is only one way to clean up. If the
// watchdog was killed, finish does the rest of the work.
func (g *guard) finish() error {
	defer guards.Delete(g)
	if g.child != nil {
		closing := g.pipe.Close()
		late := time.AfterFunc(watchdogPatience, func() { _ = g.child.Process.Kill() })
		_ = g.child.Wait() // what matters is whether the directory was removed
		late.Stop()
		if closing != nil {
			return fmt.Errorf("close watchdog: %w", closing)
		}
	}
	if err := os.RemoveAll(g.dir); err != nil {
		return fmt.Errorf("remove directory: %w", err)
	}
	return nil
}
