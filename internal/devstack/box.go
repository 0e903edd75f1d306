package devstack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	// containerPatience limits a start, including the download of the image.
	containerPatience = 3 * time.Minute

	// dockerPatience limits all other commands of Docker.
	dockerPatience = time.Minute
)

// Labels of a container or a network: the machine and the id of the process that created it.
const (
	hostLabel = "postroom.devstack.host"
	pidLabel  = "postroom.devstack.pid"
)

// containerFile and networkFile are files in a guarded directory. They name the container
// and the network that the watchdog removes together with the directory.
const (
	containerFile = "container"
	networkFile   = "network"
)

// A box is a server in a container. The server's port stays the same after restarts. The methods of
// a box must not be called concurrently.
type box struct {
	image  string
	name   string // the name of the container, and its hostname
	host   string // the address at which Docker publishes ports; it is an address of the machine on which Docker runs
	port   int
	guard  *guard
	frozen bool
}

// boxSpec says what to run in a container.
type boxSpec struct {
	what, image string
	port        string // the server's port in the container
	signal      string // the signal for an orderly stop of the server
	command     []string
	logger      *slog.Logger

	// prepare returns more arguments for docker run. startBox calls prepare before Docker creates
	// the container. By then b has a name, a port and a directory.
	prepare func(b *box) ([]string, error)

	// answers returns nil if the server accepts connections.
	answers func(ctx context.Context, b *box) error
}

// startBox creates a container and starts it. It returns when the server answers.
func startBox(ctx context.Context, spec boxSpec) (b *box, err error) {
	ctx, cancel := context.WithTimeout(ctx, containerPatience)
	defer cancel()
	b = &box{image: spec.image}
	defer func() {
		if err != nil {
			b, err = nil, errors.Join(err, b.close())
		}
	}()
	if b.host, err = findDocker(ctx, spec.logger); err != nil {
		return b, err
	}
	if b.guard, err = newGuard("", spec.what); err != nil {
		return b, err
	}
	b.name = filepath.Base(b.guard.dir)
	if err := b.make(ctx, spec); err != nil {
		return b, fmt.Errorf("start %s: %w", spec.image, err)
	}
	if err := b.await(ctx, spec.answers); err != nil {
		return b, fmt.Errorf("start %s: %w\n%s", spec.image, err, b.lastWords())
	}
	spec.logger.DebugContext(ctx, "container started", "image", spec.image, "name", b.name, "port", b.port)
	return b, nil
}

// make creates the container on a free port and starts it.
func (b *box) make(ctx context.Context, spec boxSpec) error {
	for try := 1; ; try++ {
		var err error
		if b.port, err = freePort(); err != nil {
			return err
		}
		err = b.makeOnPort(ctx, spec)
		if err == nil || try == portTries || portFreeAt(b.host, b.port) == nil {
			return err
		}
		spec.logger.DebugContext(ctx, "port was taken, trying another", "port", b.port)
		if err := b.remove(); err != nil {
			return err
		}
	}
}

func (b *box) makeOnPort(ctx context.Context, spec boxSpec) error {
	published := fmt.Sprint(b.port, ":", spec.port)
	if net.ParseIP(b.host) != nil {
		published = b.host + ":" + published // so that other machines cannot connect
	}
	more, err := spec.prepare(b)
	if err != nil {
		return err
	}
	args := append([]string{
		"run", "--detach", "--name", b.name, "--hostname", b.name, "--publish", published, "--stop-signal", spec.signal,
	}, ownLabels()...)
	args = append(append(append(args, more...), spec.image), spec.command...)
	// Write the name before Docker creates the container, so that the watchdog can remove the
	// container even if this process is killed meanwhile.
	if err := os.WriteFile(filepath.Join(b.guard.dir, containerFile), []byte(b.name+"\n"), 0o600); err != nil {
		return fmt.Errorf("tell watchdog: %w", err)
	}
	_, err = docker(ctx, args...)
	return err
}

// await waits until the server answers.
func (b *box) await(ctx context.Context, answers func(context.Context, *box) error) error {
	ctx, cancel := context.WithTimeout(ctx, localPatience)
	defer cancel()
	for {
		err := answers(ctx, b)
		if err == nil {
			return nil
		}
		if state, fault := docker(ctx, "inspect", "--format", "{{.State.Running}} {{.State.ExitCode}}", b.name); fault == nil {
			if status, ended := strings.CutPrefix(state, "false "); ended {
				return fmt.Errorf("the server ended at start with status %s", status)
			}
		}
		if pause(ctx, 20*time.Millisecond) != nil {
			return fmt.Errorf("wait for the server: %w", err)
		}
	}
}

// start starts the server again after a stop or a kill.
func (b *box) start(ctx context.Context, answers func(context.Context, *box) error) error {
	ctx, cancel := context.WithTimeout(ctx, localPatience)
	defer cancel()
	if _, err := docker(ctx, "start", b.name); err != nil {
		return err
	}
	if err := b.await(ctx, answers); err != nil {
		return fmt.Errorf("%w\n%s", err, b.lastWords())
	}
	return nil
}

// stop shuts down the server in an orderly way. If that takes longer than 10 seconds, Docker kills
// the server. The method does nothing if the server is not running.
func (b *box) stop() error {
	if err := b.thaw(); err != nil {
		return err
	}
	return b.do("stop", "--time", "10")
}

// kill ends all processes of the container like kill -9, and waits for their end.
func (b *box) kill() error {
	if err := b.thaw(); err != nil { // a frozen process does not end
		return err
	}
	if err := b.signal("SIGKILL"); err != nil {
		return err
	}
	return b.do("wait")
}

func (b *box) signal(signal string) error { return b.do("kill", "--signal", signal) }

// do runs a command of Docker on the container.
func (b *box) do(args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), dockerPatience)
	defer cancel()
	_, err := docker(ctx, append(args, b.name)...)
	return err
}

// freeze pauses every process of the container until the next call of thaw.
func (b *box) freeze() error {
	err := b.do("pause")
	b.frozen = b.frozen || err == nil
	return err
}

// thaw continues a frozen container. It does nothing if the container is not frozen.
func (b *box) thaw() error {
	if !b.frozen {
		return nil
	}
	err := b.do("unpause")
	b.frozen = err != nil
	return err
}

// lastWords returns the end of the server's output.
func (b *box) lastWords() string {
	ctx, cancel := context.WithTimeout(context.Background(), dockerPatience)
	defer cancel()
	// Servers write to standard output and to standard error.
	text, err := exec.CommandContext(ctx, "docker", "logs", "--tail", "50", b.name).CombinedOutput()
	if err != nil {
		return "    its log cannot be read: " + err.Error()
	}
	return lastLines(string(text))
}

// remove removes the container and its data.
func (b *box) remove() error {
	if b.guard == nil {
		return nil
	}
	_ = b.thaw() // ignore the error: the next command reports whether Docker removes the container
	if err := unlessGone(b.do("rm", "--force", "--volumes")); err != nil {
		return fmt.Errorf("remove container: %w", err)
	}
	if err := os.Remove(filepath.Join(b.guard.dir, containerFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("tell watchdog: %w", err)
	}
	return nil
}

// close removes the container, its directory and its watchdog.
func (b *box) close() error {
	err := b.remove() // if this fails, the watchdog removes the container
	if b.guard != nil {
		err = errors.Join(err, b.guard.Close())
	}
	return err
}
