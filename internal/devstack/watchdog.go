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

// watchdogPatience limits the wait for the end of a watchdog. It is longer than the longest time
// that the script needs to stop a local server and remove the directory.
const watchdogPatience = 30 * time.Second

// guards has a reference to every open guard. Without a reference, the garbage collector could free
// a guard. Then its pipe would end, and the watchdog would stop the server.
var guards sync.Map

// A guard owns a temporary directory and a watchdog. The watchdog is a process that stops the
// servers of the directory and removes the directory when this process has ended.
type guard struct {
	dir   string
	child *exec.Cmd      // the watchdog; nil on Windows
	pipe  io.WriteCloser // the watchdog's standard input; it is close-on-exec, so no other child keeps it open
	close func() error
}

// newGuard creates a temporary directory in the directory parent and starts its watchdog. The
// parameter what is a part of the directory's name.
func newGuard(parent, what string) (*guard, error) {
	dir, err := os.MkdirTemp(parent, "postroom-"+what+"-")
	if err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	// The path must have only one spelling, because cluster.probe compares it with the directory
	// that PostgreSQL reports, and the watchdog looks for it in the arguments of processes.
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

// Close makes the watchdog stop the servers and remove the directory, and waits until the watchdog
// has ended. A second call does nothing.
func (g *guard) Close() error { return g.close() }

// finish makes the watchdog stop the servers and remove the directory, so that there is only one
// way to clean up. If the watchdog was killed, finish removes the directory itself.
func (g *guard) finish() error {
	defer guards.Delete(g)
	if g.child != nil {
		closing := g.pipe.Close()
		late := time.AfterFunc(watchdogPatience, func() { _ = g.child.Process.Kill() })
		_ = g.child.Wait() // ignore its error: RemoveAll reports whether the directory is removed
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
