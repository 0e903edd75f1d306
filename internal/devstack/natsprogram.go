package devstack

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// natsVariable names the program that is a NATS server, where it is not to be built.
const natsVariable = "POSTROOM_TEST_BROKER"

// ErrNoNATS says that there is no NATS server to start.
var ErrNoNATS = errors.New(`no NATS server to start: this does not run in a checkout of Postroom, where one is built.
Build integration/natsd in a checkout, and let ` + natsVariable + ` name it`)

// natsProgram returns the program that is a NATS server: the one that the environment
// names, else integration/natsd of the checkout, which is built where it is missing or
// old. It is a program of its own so that this module needs no server, and so that
// tests' race detector, which is about our code, does not slow a server down.
var natsProgram = sync.OnceValues(func() (string, error) {
	if given := os.Getenv(natsVariable); given != "" {
		return given, nil
	}
	root, ok := checkout()
	if !ok {
		return "", ErrNoNATS
	}
	program := filepath.Join(root, "bin", "natsd")
	if err := os.MkdirAll(filepath.Dir(program), 0o755); err != nil {
		return "", fmt.Errorf("make a directory for the NATS server: %w", err)
	}
	unlock, err := lock(program + ".lock") // the tests of many packages begin at once
	if err != nil {
		return "", fmt.Errorf("wait for others that build the NATS server: %w", err)
	}
	defer unlock()
	build := exec.Command("go", "build", "-o", program, "./natsd")
	build.Dir = filepath.Join(root, "integration")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the NATS server (make setup downloads what it needs; or let %s name one): %w\n%s", natsVariable, err, lastLines(string(out)))
	}
	return program, nil
})

// checkout returns the root of the checkout that this process works in, or that its
// program lies in.
func checkout() (root string, ok bool) {
	var starts []string
	if dir, err := os.Getwd(); err == nil {
		starts = append(starts, dir)
	}
	if self, err := os.Executable(); err == nil {
		starts = append(starts, filepath.Dir(self))
	}
	for _, at := range starts {
		for ; at != filepath.Dir(at); at = filepath.Dir(at) {
			if text, err := os.ReadFile(filepath.Join(at, "go.mod")); err != nil || !strings.HasPrefix(string(text), "module github.com/postroom/postroom\n") {
				continue
			}
			if _, err := os.Stat(filepath.Join(at, "integration", "natsd")); err == nil {
				return at, true
			}
		}
	}
	return "", false
}
