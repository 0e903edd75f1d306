package devstack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// localPatience limits a start whose context has no earlier deadline.
	localPatience = 3 * time.Minute

	// portTries is how many ports a start tries. Another process can take a port after this process
	// has chosen it, and before the server starts.
	portTries = 3
)

// A cluster is a throwaway PostgreSQL cluster that local binaries run. Its methods must not be
// called concurrently.
type cluster struct {
	bin    binaries
	as     *account
	guard  *guard
	logger *slog.Logger
	port   int
	server *process // nil if the server is stopped
}

// startCluster creates a cluster in a new directory and starts it.
func startCluster(ctx context.Context, bin binaries, cfg Config) (*cluster, error) {
	as, err := serverAccount()
	if err != nil {
		return nil, err
	}
	g, err := newGuard(cfg.Dir, "postgres")
	if err != nil {
		return nil, err
	}
	c := &cluster{bin: bin, as: as, guard: g, logger: cfg.Logger}
	if err := c.create(ctx, cfg); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	if err := c.startOnFreePort(ctx); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return c, nil
}

func (c *cluster) data() string { return filepath.Join(c.guard.dir, "data") }
func (c *cluster) log() string  { return filepath.Join(c.guard.dir, "log") }

func (c *cluster) url() string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", c.port)
}

// create creates the data directory.
func (c *cluster) create(ctx context.Context, cfg Config) error {
	if err := c.as.give(c.guard.dir); err != nil {
		return fmt.Errorf("give directory to %s: %w", c.as.name, err)
	}
	args := []string{"-D", c.data(), "-U", "postgres", "--auth=trust", "-E", "UTF8", "--locale=C"}
	if !cfg.Durable {
		args = append(args, "--no-sync")
	}
	initdb := exec.CommandContext(ctx, c.bin.path("initdb"), args...)
	c.prepare(initdb)
	initdb.WaitDelay = time.Second // do not wait longer: initdb's child processes can keep the output open
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, lastLines(string(out)))
	}
	return c.configure(cfg)
}

func (c *cluster) configure(cfg Config) error {
	var conf strings.Builder
	conf.WriteString("\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = ''\n")
	if !cfg.Durable {
		// With mmap, the shared memory is in the data directory, so a killed server leaves nothing
		// in /dev/shm.
		conf.WriteString("dynamic_shared_memory_type = mmap\n")
	}
	for _, set := range cfg.settings() {
		fmt.Fprintf(&conf, "%s = %s\n", set[0], set[1])
	}
	file, err := os.OpenFile(filepath.Join(c.data(), "postgresql.conf"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return fmt.Errorf("configure: %w", err)
	}
	_, err = file.WriteString(conf.String())
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("configure: %w", err)
	}
	return nil
}

// startOnFreePort starts the server for the first time.
func (c *cluster) startOnFreePort(ctx context.Context) error {
	for try := 1; ; try++ {
		port, err := freePort()
		if err != nil {
			return err
		}
		c.port = port
		err = c.start(ctx)
		if err == nil || try == portTries || !errors.Is(err, errPortTaken) {
			return err
		}
		c.logger.DebugContext(ctx, "port was taken, trying another", "port", port)
	}
}

// restart starts the server again with the same data and port. After a kill, it tries again until
// the port and the shared memory of the killed processes are free.
func (c *cluster) restart(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, localPatience)
	defer cancel()
	for {
		err := c.start(ctx)
		if err == nil || !errors.Is(err, errPortTaken) && !errors.Is(err, errMemoryInUse) {
			return err
		}
		if pause(ctx, 100*time.Millisecond) != nil {
			return err
		}
	}
}

// start starts the server and returns when it answers.
func (c *cluster) start(ctx context.Context) error {
	log, err := os.Create(c.log())
	if err != nil {
		return fmt.Errorf("make log: %w", err)
	}
	defer func() { _ = log.Close() }() // the child has its own file descriptor
	postgres := exec.Command(c.bin.path("postgres"), "-D", c.data(), "-p", fmt.Sprint(c.port))
	c.prepare(postgres)
	postgres.Stdout, postgres.Stderr = log, log
	server, err := startProcess(postgres)
	if err != nil {
		return fmt.Errorf("start postgres: %w", err)
	}
	if err := c.await(ctx, server); err != nil {
		return errors.Join(err, server.end(syscall.SIGKILL, time.Second))
	}
	c.server = server
	c.logger.DebugContext(ctx, "postgres started", "bin", c.bin.dir, "port", c.port, "pid", postgres.Process.Pid)
	return nil
}

// await waits until the server answers.
func (c *cluster) await(ctx context.Context, server *process) error {
	ctx, cancel := context.WithTimeout(ctx, localPatience)
	defer cancel()
	for {
		answer := c.probe(ctx)
		select {
		case <-server.done:
			return c.early(server.err)
		default:
		}
		if answer == nil {
			return nil
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return fmt.Errorf("wait for postgres: %w: %w", err, answer)
		}
	}
}

// probe returns nil if the server of this cluster answers. It compares the data directory, because
// another server may have taken the port first.
func (c *cluster) probe(ctx context.Context) error {
	var dir string
	err := session(ctx, c.url(), func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "SHOW data_directory").Scan(&dir)
	})
	if err != nil {
		return err
	}
	if dir != c.data() {
		return fmt.Errorf("port %d: %w: the server on it serves %s", c.port, errPortTaken, dir)
	}
	return nil
}

var (
	errPortTaken   = errors.New("port is taken")
	errMemoryInUse = errors.New("shared memory is in use")
)

// early returns the reason why a server ended while it was starting. The server has no exit codes
// for the reasons, so early reads the log. The log is in English because of initdb --locale=C.
func (c *cluster) early(exit error) error {
	text, err := os.ReadFile(c.log())
	if err != nil {
		return errors.Join(exit, err)
	}
	log := string(text)
	reason := errors.New("postgres ended at start")
	switch {
	case strings.Contains(log, "could not bind"):
		reason = errPortTaken
	case strings.Contains(log, "pre-existing shared memory block"):
		reason = errMemoryInUse
	}
	return fmt.Errorf("start postgres: %w: %w\n%s", reason, exit, lastLines(log))
}

// stop shuts down the server. It tries a fast shutdown first, then an immediate shutdown, and then
// kills the server.
func (c *cluster) stop() error {
	if c.server == nil {
		return nil
	}
	server := c.server
	c.server = nil
	if server.end(syscall.SIGINT, 10*time.Second) == nil {
		return nil
	}
	if server.end(syscall.SIGQUIT, 5*time.Second) == nil {
		return nil
	}
	return server.end(syscall.SIGKILL, 5*time.Second)
}

// kill ends the postmaster and its child processes, like a crash.
func (c *cluster) kill() error {
	if c.server == nil {
		return errors.New("not running")
	}
	server := c.server
	c.server = nil
	return server.killAll()
}

func (c *cluster) close() error { return errors.Join(c.stop(), c.guard.Close()) }

// prepare sets the directory, the user, a new session and the environment of a server program. The
// environment lacks this process's variables for PostgreSQL and for the language.
func (c *cluster) prepare(cmd *exec.Cmd) {
	cmd.Dir = c.guard.dir
	cmd.SysProcAttr = ownSession(c.as)
	for _, pair := range os.Environ() {
		if strings.HasPrefix(pair, "PG") || strings.HasPrefix(pair, "LC_") || strings.HasPrefix(pair, "LANG") {
			continue
		}
		cmd.Env = append(cmd.Env, pair)
	}
	cmd.Env = append(cmd.Env, "LC_ALL=C")
}

func freePort() (int, error) {
	ports, err := FreePorts(1)
	if err != nil {
		return 0, err
	}
	return ports[0], nil
}

// lastLines returns the last lines of a log, indented for an error's text.
func lastLines(log string) string {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	if len(lines) > 8 {
		lines = lines[len(lines)-8:]
	}
	return "    " + strings.Join(lines, "\n    ")
}
