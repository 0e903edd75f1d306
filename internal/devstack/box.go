package devstack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
)

const (
	// containerPatience bounds a start, with the image's download.
	containerPatience = 60 * time.Second

	// dockerPatience bounds whatever else is asked of Docker.
	dockerPatience = 30 * time.Second
)

// The labels of a container or a network name the process that it belongs to.
const (
	hostLabel = "postroom.devstack.host"
	pidLabel  = "postroom.devstack.pid"
)

// containerFile and networkFile are the files in a guarded directory that name
// what the watchdog removes with it.
const (
	containerFile = "container"
	networkFile   = "network"
)

// A box is a server in a container, with a port that stays the same through
// restarts. Its owner serialises the calls.
type box struct {
	image  string
	name   string // the container's, and its hostname
	host   string // where Docker publishes ports: an address of this machine, unless Docker is another one
	port   int
	guard  *guard
	docker *testcontainers.DockerProvider
	made   *testcontainers.DockerContainer
	frozen bool
}

// boxSpec says what to run in a container.
type boxSpec struct {
	what, image string
	port        string // the server's, in the container: "5432/tcp"
	signal      string // stops the server in order
	command     []string
	logger      *slog.Logger

	// prepare is called before the container is made, with what is known of it.
	prepare func(b *box) ([]testcontainers.ContainerCustomizer, error)

	// answers returns nil once the server can be used.
	answers func(ctx context.Context, b *box) error
}

// startBox makes a container and starts it. It returns once the server answers.
func startBox(ctx context.Context, spec boxSpec) (b *box, err error) {
	ctx, cancel := context.WithTimeout(ctx, containerPatience)
	defer cancel()
	b = &box{image: spec.image}
	defer func() {
		// testcontainers panics where it finds no Docker.
		if fault := recover(); fault != nil {
			err = fmt.Errorf("find Docker: %v", fault)
		}
		if err != nil {
			b, err = nil, errors.Join(err, b.close())
		}
	}()
	if b.docker, err = openDocker(ctx, spec.logger); err != nil {
		return b, fmt.Errorf("find Docker: %w", err)
	}
	if b.host, err = b.docker.DaemonHost(ctx); err != nil {
		return b, fmt.Errorf("find Docker: %w", err)
	}
	if b.host == "localhost" {
		b.host = "127.0.0.1"
	}
	if b.guard, err = newGuard("", spec.what, client.EnvOverrideHost+"="+b.docker.Client().DaemonHost()); err != nil {
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

// make makes the container on a free port and starts it.
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
	port, err := network.ParsePort(spec.port)
	if err != nil {
		return err
	}
	published := network.PortBinding{HostPort: strconv.Itoa(b.port)}
	if ip, err := netip.ParseAddr(b.host); err == nil {
		published.HostIP = ip // else everybody can reach it who reaches that machine
	}
	more, err := spec.prepare(b)
	if err != nil {
		return err
	}
	options := append([]testcontainers.ContainerCustomizer{
		testcontainers.WithName(b.name),
		testcontainers.WithLabels(ownLabels()),
		testcontainers.WithExposedPorts(spec.port),
		testcontainers.WithHostConfigModifier(func(h *container.HostConfig) {
			h.PortBindings = network.PortMap{port: {published}}
		}),
		testcontainers.WithCmd(spec.command...),
		testcontainers.WithConfigModifier(func(c *container.Config) { c.Hostname, c.StopSignal = b.name, spec.signal }),
	}, more...)
	// The watchdog is told first: there is no moment in which a container that
	// is there is not known to it.
	if err := os.WriteFile(filepath.Join(b.guard.dir, containerFile), []byte(b.name+"\n"), 0o600); err != nil {
		return fmt.Errorf("tell watchdog: %w", err)
	}
	b.made, err = testcontainers.Run(ctx, spec.image, options...)
	return err
}

// await returns nil once the server answers.
func (b *box) await(ctx context.Context, answers func(context.Context, *box) error) error {
	ctx, cancel := context.WithTimeout(ctx, localPatience)
	defer cancel()
	for {
		err := answers(ctx, b)
		if err == nil {
			return nil
		}
		if state, fault := b.made.State(ctx); fault == nil && !state.Running {
			return fmt.Errorf("the server ended at start with status %d", state.ExitCode)
		}
		if pause(ctx, 20*time.Millisecond) != nil {
			return fmt.Errorf("wait for the server: %w", err)
		}
	}
}

// start starts the server again, after it was stopped or killed.
func (b *box) start(ctx context.Context, answers func(context.Context, *box) error) error {
	ctx, cancel := context.WithTimeout(ctx, localPatience)
	defer cancel()
	if _, err := b.docker.Client().ContainerStart(ctx, b.name, client.ContainerStartOptions{}); err != nil {
		return err
	}
	if err := b.await(ctx, answers); err != nil {
		return fmt.Errorf("%w\n%s", err, b.lastWords())
	}
	return nil
}

// stop shuts the server down in order, or by force where that takes long. It does
// nothing if the server is not running.
func (b *box) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), dockerPatience)
	defer cancel()
	if err := b.thaw(); err != nil {
		return err
	}
	seconds := 10
	_, err := b.docker.Client().ContainerStop(ctx, b.name, client.ContainerStopOptions{Timeout: &seconds})
	return err
}

// kill ends every process of the container as kill -9 does, and returns when they
// are gone.
func (b *box) kill() error {
	ctx, cancel := context.WithTimeout(context.Background(), dockerPatience)
	defer cancel()
	if err := b.thaw(); err != nil { // a frozen process does not end
		return err
	}
	gone := b.docker.Client().ContainerWait(ctx, b.name, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	if err := b.signal(ctx, "SIGKILL"); err != nil {
		return err
	}
	select {
	case <-gone.Result:
		return nil
	case err := <-gone.Error:
		return fmt.Errorf("wait for its end: %w", err)
	}
}

func (b *box) signal(ctx context.Context, signal string) error {
	_, err := b.docker.Client().ContainerKill(ctx, b.name, client.ContainerKillOptions{Signal: signal})
	return err
}

// freeze stops every process of the container where it is, until thaw.
func (b *box) freeze() error {
	ctx, cancel := context.WithTimeout(context.Background(), dockerPatience)
	defer cancel()
	_, err := b.docker.Client().ContainerPause(ctx, b.name, client.ContainerPauseOptions{})
	b.frozen = b.frozen || err == nil
	return err
}

// thaw lets a frozen container go on.
func (b *box) thaw() error {
	if !b.frozen {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), dockerPatience)
	defer cancel()
	_, err := b.docker.Client().ContainerUnpause(ctx, b.name, client.ContainerUnpauseOptions{})
	b.frozen = err != nil
	return err
}

// lastWords returns the end of what the server wrote.
func (b *box) lastWords() string {
	ctx, cancel := context.WithTimeout(context.Background(), dockerPatience)
	defer cancel()
	text, err := logOf(ctx, b.made)
	if err != nil {
		return "    its log cannot be read: " + err.Error()
	}
	return lastLines(text)
}

// remove removes the container with what it stored.
func (b *box) remove() error {
	if b.guard == nil {
		return nil
	}
	_ = b.thaw() // removing it is what counts
	ctx, cancel := context.WithTimeout(context.Background(), dockerPatience)
	defer cancel()
	_, err := b.docker.Client().ContainerRemove(ctx, b.name, client.ContainerRemoveOptions{RemoveVolumes: true, Force: true})
	if err != nil && !isGone(err) {
		return fmt.Errorf("remove container: %w", err)
	}
	if err := os.Remove(filepath.Join(b.guard.dir, containerFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("tell watchdog: %w", err)
	}
	return nil
}

// close removes the container, its directory and its watchdog.
func (b *box) close() error {
	err := b.remove() // what is left after a fault is the watchdog's
	if b.guard != nil {
		err = errors.Join(err, b.guard.Close())
	}
	if b.docker != nil {
		err = errors.Join(err, b.docker.Close())
	}
	return err
}

// ownLabels names this process.
func ownLabels() map[string]string {
	host, _ := os.Hostname() // without a name all unnamed ones are one
	return map[string]string{hostLabel: host, pidLabel: strconv.Itoa(os.Getpid())}
}

// silence keeps testcontainers from printing: it has one logger per process.
var silence sync.Once

// quiet gives testcontainers' progress to a logger, as details.
type quiet struct{ logger *slog.Logger }

func (q quiet) Printf(format string, args ...any) { q.logger.Debug(fmt.Sprintf(format, args...)) }

var _ log.Logger = quiet{}
