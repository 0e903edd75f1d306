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

// natsModule is the module of the server that installNATS builds. Its version is the version in
// integration/go.mod.
const natsModule = "github.com/nats-io/nats-server/v2@v2.15.2"

// natsVariable is the environment variable with the path of a NATS server's program. If it is set,
// the package builds no server.
const natsVariable = "POSTROOM_TEST_BROKER"

// ErrNoNATS says that there is no NATS server to start.
var ErrNoNATS = errors.New(`no NATS server to start. Do one of these:

  put nats-server on the PATH   for instance with: go install ` + natsModule + `
  name it                       ` + natsVariable + `=/path/to/nats-server
  in tests, use containers      package postroomtest/containers`)

// natsProgram returns the path of a NATS server's program. The first of these applies: the
// program that the environment names; in a checkout, integration/natsd, which natsProgram builds;
// nats-server on the PATH; a program that go install builds in the user's cache. The server is a
// separate program, so that this module does not depend on it, and so that the race detector does
// not slow it down.
var natsProgram = sync.OnceValues(func() (string, error) {
	if given := os.Getenv(natsVariable); given != "" {
		return given, nil
	}
	if root, ok := checkout(); ok {
		return buildInCheckout(root)
	}
	if found, err := exec.LookPath("nats-server"); err == nil {
		return found, nil
	}
	return installNATS()
})

// natsArguments returns the arguments that name the configuration file. nats-server has an option
// for the file. For natsd, the file is the only argument.
func natsArguments(program, file string) []string {
	if strings.HasPrefix(filepath.Base(program), "nats-server") {
		return []string{"-c", file}
	}
	return []string{file}
}

// buildInCheckout builds integration/natsd.
func buildInCheckout(root string) (string, error) {
	program := filepath.Join(root, "bin", "natsd")
	build := exec.Command("go", "build", "-o", program, "./natsd")
	build.Dir = filepath.Join(root, "integration")
	if err := buildAlone(program, build); err != nil {
		return "", fmt.Errorf("build the NATS server (make setup downloads what it needs; or let %s name one): %w", natsVariable, err)
	}
	return program, nil
}

// installNATS builds nats-server in the user's cache, once for each version. If necessary, go
// install downloads the module.
func installNATS() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("%w\n%w", ErrNoNATS, err)
	}
	_, version, _ := strings.Cut(natsModule, "@")
	program := filepath.Join(cache, "postroom", version, "nats-server")
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	install := exec.Command("go", "install", natsModule)
	install.Dir = os.TempDir() // a directory that is not in a module
	install.Env = append(os.Environ(), "GOBIN="+filepath.Dir(program), "GOFLAGS=", "GOWORK=off")
	if err := buildAlone(program, install); err != nil {
		return "", fmt.Errorf("%w\n%w", ErrNoNATS, err)
	}
	return program, nil
}

// buildAlone runs the build of a program. It first waits until no other process builds the program,
// because the tests of many packages begin at the same time.
func buildAlone(program string, build *exec.Cmd) error {
	if err := os.MkdirAll(filepath.Dir(program), 0o755); err != nil {
		return fmt.Errorf("make a directory for the NATS server: %w", err)
	}
	unlock, err := lock(program + ".lock")
	if err != nil {
		return fmt.Errorf("wait for others that build the NATS server: %w", err)
	}
	defer unlock()
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, lastLines(string(out)))
	}
	return nil
}

// checkout returns the root of the checkout that contains the working directory or the program of
// this process.
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
