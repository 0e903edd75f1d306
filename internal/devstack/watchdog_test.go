package devstack_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/postroom/postroom/internal/devstack"
)

func TestGuardRemovesItsDirectory(t *testing.T) {
	t.Parallel()
	g, err := devstack.NewGuard("", "test")
	check(t, err)
	check(t, os.MkdirAll(filepath.Join(g.Dir(), "data", "deep"), 0o700))
	check(t, g.Close())
	check(t, g.Close())
	if _, err := os.Stat(g.Dir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is left: %v", g.Dir(), err)
	}
}

func TestGuardSparesAProcessThatOnlyHasThePID(t *testing.T) {
	t.Parallel()
	g, err := devstack.NewGuard("", "test")
	check(t, err)
	check(t, os.Mkdir(filepath.Join(g.Dir(), "data"), 0o700))
	lock := filepath.Join(g.Dir(), "data", "postmaster.pid")
	check(t, os.WriteFile(lock, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600))
	check(t, g.Close()) // this must not kill this process
}

func TestGuardThatNobodyRefersToStaysOpen(t *testing.T) {
	t.Parallel()
	g, err := devstack.NewGuard("", "test")
	check(t, err)
	dir := g.Dir()
	g = nil
	for range 3 {
		runtime.GC()
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
	check(t, devstack.CloseGuard(dir))
}
