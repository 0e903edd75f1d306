package containers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
	natscontainer "github.com/testcontainers/testcontainers-go/modules/nats"
	pgcontainer "github.com/testcontainers/testcontainers-go/modules/postgres"
	tcnetwork "github.com/testcontainers/testcontainers-go/network"
	"github.com/testcontainers/testcontainers-go/wait"

	"github.com/postroom/postroom/internal/devstack"
)

const (
	// pullPatience limits a start, including the download of the image.
	pullPatience = 3 * time.Minute

	// patience limits all other commands.
	patience = time.Minute

	// portTries is how many ports a start tries. Another process can take a port after this process
	// has found it free.
	portTries = 3
)

// images has the image of each server, and the variable that names another one.
var images = map[devstack.Server]struct{ variable, image, port string }{
	devstack.PostgresServer: {"POSTROOM_POSTGRES_IMAGE", "postgres:17-alpine", "5432/tcp"},
	devstack.NATSServer:     {"POSTROOM_NATS_IMAGE", "nats:2", "4222/tcp"},
}

func init() {
	devstack.Containers.Run = func(ctx context.Context, spec devstack.BoxSpec) (devstack.Box, error) { return run(ctx, spec) }
	devstack.Containers.Network = makeNetwork
}

// daemon is the Docker that runs the containers.
type daemon struct {
	client client.APIClient
	host   string // the address at which Docker publishes ports
}

// docker connects to Docker on its first call. It also removes containers and networks of processes
// that were killed together with their watchdogs, and starts the watchdog of this process.
var docker = sync.OnceValues(func() (_ *daemon, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	d, err := connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("find Docker: %w (is it installed, and may this user reach it?)", err)
	}
	if err := d.remove(ctx, func(pid int) bool { return !devstack.ProcessLives(pid) }); err != nil {
		fmt.Fprintln(os.Stderr, "containers: remove containers of processes that have ended:", err)
	}
	return d, startWatchdog()
})

func connect(ctx context.Context) (*daemon, error) {
	// testcontainers has only this variable to say that it must not start its reaper, and reads the
	// variable once.
	const reaperVariable = "TESTCONTAINERS_RYUK_DISABLED"
	if os.Getenv(reaperVariable) == "" {
		if err := os.Setenv(reaperVariable, "true"); err != nil {
			return nil, err
		}
	}
	loud := log.Default()
	log.SetDefault(log.NewNoopLogger()) // otherwise the provider prints a dozen lines about Docker
	defer log.SetDefault(loud)
	provider, err := testcontainers.NewDockerProvider()
	if err != nil {
		return nil, err
	}
	d := &daemon{client: provider.Client()}
	if d.host, err = provider.DaemonHost(ctx); err != nil {
		return nil, err
	}
	// testcontainers takes a machine with the file /.dockerenv for a container, and its router for
	// Docker's machine. But if the bridge of Docker is here, Docker publishes ports here.
	_, noBridge := net.InterfaceByName("docker0")
	if d.host == "localhost" || noBridge == nil && strings.HasPrefix(d.client.DaemonHost(), "unix:") {
		d.host = "127.0.0.1"
	}
	return d, nil
}

// box is a server in a container.
type box struct {
	docker  *daemon
	spec    devstack.BoxSpec
	image   string
	port    int // on d.host
	running testcontainers.Container
	paused  bool
}

// run creates a container and starts it. It returns when the server answers.
func run(ctx context.Context, spec devstack.BoxSpec, more ...testcontainers.ContainerCustomizer) (*box, error) {
	d, err := docker()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, pullPatience)
	defer cancel()
	is := images[spec.Server]
	b := &box{docker: d, spec: spec, image: cmp.Or(os.Getenv(is.variable), is.image)}
	for try := 1; ; try++ {
		err := b.run(ctx, more)
		if err == nil {
			return b, nil
		}
		taken := strings.Contains(err.Error(), "port is already allocated") || strings.Contains(err.Error(), "address already in use")
		err = fmt.Errorf("start %s: %w%s", b.image, err, b.lastWords())
		if err = errors.Join(err, b.Close()); !taken || try == portTries {
			return nil, err
		}
	}
}

func (b *box) run(ctx context.Context, more []testcontainers.ContainerCustomizer) error {
	ports, err := devstack.FreePorts(1)
	if err != nil {
		return err
	}
	b.port = ports[0]
	more = append(more, testcontainers.CustomizeRequestOption(b.customize), testcontainers.WithLogger(log.NewNoopLogger()))
	if b.spec.Server == devstack.PostgresServer {
		c, err := pgcontainer.Run(ctx, b.image, more...)
		if c != nil {
			b.running = c
		}
		return err
	}
	c, err := natscontainer.Run(ctx, b.image, more...)
	if c != nil {
		b.running = c
	}
	return err
}

// customize puts b.spec into the request of a module.
func (b *box) customize(req *testcontainers.GenericContainerRequest) error {
	at, err := netip.ParseAddr(b.docker.host)
	if err != nil || !at.IsLoopback() {
		at = netip.IPv4Unspecified() // Docker is on another machine, or this process is in a container
	}
	port := images[b.spec.Server].port
	req.Name, req.ExposedPorts, req.WaitingFor = b.spec.Name, []string{port}, b
	if b.spec.Command != nil {
		req.Cmd = b.spec.Command
	}
	if b.spec.Network != "" {
		req.Networks = []string{b.spec.Network}
		req.NetworkAliases = map[string][]string{b.spec.Network: {b.spec.Alias}}
	}
	req.ConfigModifier = func(c *container.Config) {
		c.Hostname, c.User = b.spec.Name, b.spec.User
		if b.spec.Server == devstack.PostgresServer {
			c.StopSignal = "SIGINT" // a fast shutdown
		}
	}
	req.HostConfigModifier = func(c *container.HostConfig) {
		c.PortBindings = network.PortMap{network.MustParsePort(port): {{HostIP: at, HostPort: strconv.Itoa(b.port)}}}
		c.Binds = b.spec.Binds
		c.ShmSize = 256 << 20 // parallel queries of PostgreSQL use this memory
	}
	for _, opt := range []testcontainers.CustomizeRequestOption{testcontainers.WithEnv(b.spec.Env), testcontainers.WithLabels(ownLabels())} {
		if err := opt(req); err != nil {
			return err
		}
	}
	return nil
}

// WaitUntilReady waits until the server answers. testcontainers calls it at each start.
func (b *box) WaitUntilReady(ctx context.Context, at wait.StrategyTarget) error {
	ctx, cancel := context.WithTimeout(ctx, pullPatience)
	defer cancel()
	for {
		err := b.spec.Answers(ctx, b.Address())
		if err == nil {
			return nil
		}
		if state, fault := at.State(ctx); fault == nil && !state.Running {
			return fmt.Errorf("the server ended at start with status %d", state.ExitCode)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the server: %w: %w", ctx.Err(), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Image returns the name of the container's image.
func (b *box) Image() string { return b.image }

// Address returns the server's address. It stays the same after restarts.
func (b *box) Address() string { return net.JoinHostPort(b.docker.host, strconv.Itoa(b.port)) }

// Start starts the server again after a stop or a kill.
func (b *box) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pullPatience)
	defer cancel()
	if err := b.running.Start(ctx); err != nil {
		return fmt.Errorf("start %s: %w%s", b.image, err, b.lastWords())
	}
	return nil
}

// Stop shuts down the server in an orderly way. If that takes longer than 10 seconds, Docker kills
// the server. Stop does nothing if the server is not running.
func (b *box) Stop() error {
	if err := b.Resume(); err != nil { // a paused process does not end
		return err
	}
	return b.do(func(ctx context.Context) error {
		within := 10 * time.Second
		return b.running.Stop(ctx, &within)
	})
}

// Kill ends all processes of the container like kill -9, and waits for their end.
func (b *box) Kill() error {
	if err := b.Resume(); err != nil {
		return err
	}
	return b.do(func(ctx context.Context) error {
		ended := b.docker.client.ContainerWait(ctx, b.spec.Name, client.ContainerWaitOptions{Condition: container.WaitConditionNextExit})
		if _, err := b.docker.client.ContainerKill(ctx, b.spec.Name, client.ContainerKillOptions{Signal: "SIGKILL"}); err != nil {
			return err
		}
		select {
		case <-ended.Result:
			return nil
		case err := <-ended.Error:
			return err
		}
	})
}

// Signal sends a signal to the server.
func (b *box) Signal(signal string) error {
	return b.do(func(ctx context.Context) error {
		_, err := b.docker.client.ContainerKill(ctx, b.spec.Name, client.ContainerKillOptions{Signal: signal})
		return err
	})
}

// Pause freezes every process of the container until the next call of Resume.
func (b *box) Pause() error {
	err := b.do(func(ctx context.Context) error {
		_, err := b.docker.client.ContainerPause(ctx, b.spec.Name, client.ContainerPauseOptions{})
		return err
	})
	b.paused = b.paused || err == nil
	return err
}

// Resume continues a paused container. It does nothing if the container is not paused.
func (b *box) Resume() error {
	if !b.paused {
		return nil
	}
	err := b.do(func(ctx context.Context) error {
		_, err := b.docker.client.ContainerUnpause(ctx, b.spec.Name, client.ContainerUnpauseOptions{})
		return err
	})
	b.paused = err != nil
	return err
}

// Close removes the container and its data. If that fails, the watchdog removes them.
func (b *box) Close() error {
	return b.do(func(ctx context.Context) error { return b.docker.removeContainer(ctx, b.spec.Name) })
}

// do calls a function that waits for Docker.
func (b *box) do(call func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return errors.Join(call(ctx), b.docker.client.Close()) // it closes only idle connections
}

// lastWords returns the end of the server's output.
func (b *box) lastWords() string {
	if b.running == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, err := b.running.Logs(ctx)
	if err != nil {
		return "\n    its log cannot be read: " + err.Error()
	}
	text, _ := io.ReadAll(out) // what was read before an error is better than nothing
	return "\n" + string(text[max(0, len(text)-4096):])
}

// makeNetwork makes a network for containers.
func makeNetwork(ctx context.Context) (name string, remove func() error, err error) {
	d, err := docker()
	if err != nil {
		return "", nil, err
	}
	n, err := tcnetwork.New(ctx, tcnetwork.WithLabels(ownLabels()))
	if err != nil {
		return "", nil, fmt.Errorf("make network: %w", err)
	}
	return n.Name, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		return errors.Join(d.removeNetwork(ctx, n.ID), d.client.Close())
	}, nil
}

func (d *daemon) removeContainer(ctx context.Context, name string) error {
	_, err := d.client.ContainerRemove(ctx, name, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	return unlessGone(err)
}

func (d *daemon) removeNetwork(ctx context.Context, id string) error {
	_, err := d.client.NetworkRemove(ctx, id, client.NetworkRemoveOptions{})
	return unlessGone(err)
}

// unlessGone returns err, or nil if Docker does not know the object, or another process is already
// removing it.
func unlessGone(err error) error {
	if errdefs.IsNotFound(err) || err != nil && strings.Contains(err.Error(), "is already in progress") {
		return nil
	}
	return err
}
