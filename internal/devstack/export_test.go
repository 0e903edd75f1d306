package devstack

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// The tests in package devstack_test use these.

var (
	DatabaseURL  = databaseURL
	MajorVersion = majorVersion
	NewGuard     = newGuard
)

func (g *guard) Dir() string { return g.dir }

// Dirs returns the directories of s.
func (s *Stack) Dirs() []string { return []string{s.Postgres.Dir(), s.NATS.server.dir()} }

func (p *Postgres) Dir() string { return p.owned.(*cluster).guard.dir }

// PostmasterPID returns the process id in a data directory below dir.
func PostmasterPID(dir string) (int, error) {
	lock, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(lock), "\n")
	return strconv.Atoi(line)
}

// FakeMachine describes a machine to Find: the resolved path of each
// executable that exists, and the version of each postgres.
type FakeMachine struct {
	Executables map[string]string
	Globs       map[string][]string
	Versions    map[string]string
}

// Find returns the directories with usable server binaries on that machine, in order.
func (m FakeMachine) Find() ([]string, error) {
	f := finder{
		lookPath: func(name string) (string, error) {
			if path, ok := m.Executables[name]; ok {
				return path, nil
			}
			return "", os.ErrNotExist
		},
		glob:    func(pattern string) ([]string, error) { return m.Globs[pattern], nil },
		version: func(_ context.Context, postgres string) (string, error) { return m.Versions[postgres], nil },
	}
	found, err := f.find(context.Background())
	var dirs []string
	for _, b := range found {
		dirs = append(dirs, b.dir)
	}
	return dirs, err
}

// FindHere returns the directories with usable server binaries on this machine.
func FindHere(ctx context.Context) ([]string, error) {
	found, err := newFinder().find(ctx)
	var dirs []string
	for _, b := range found {
		dirs = append(dirs, b.dir)
	}
	return dirs, err
}

// CloseGuard closes the guard of a directory.
func CloseGuard(dir string) error {
	for g := range guards.Range {
		if g := g.(*guard); g.dir == dir {
			return g.Close()
		}
	}
	return os.ErrNotExist
}

// ServerDir returns the directory of a server.
func ServerDir(n *NATS) string { return n.server.dir() }

// ServerPID returns the process id of a server that runs as a process.
func ServerPID(n *NATS) int { return n.server.(*natsProcess).server.cmd.Process.Pid }
