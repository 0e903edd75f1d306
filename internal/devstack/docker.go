package devstack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
)

// errUnknown says that Docker does not know the requested object, or is already removing it. The
// reason may be that a watchdog removes the same object.
var errUnknown = errors.New("unknown to Docker")

// docker runs Docker's command and returns its output. The package does not use Docker's client
// library, because the library depends on more modules than this whole module does.
func docker(ctx context.Context, args ...string) (string, error) {
	var out, problems bytes.Buffer
	cmd := exec.CommandContext(ctx, "docker", args...)
	cmd.Stdout, cmd.Stderr = &out, &problems
	err := cmd.Run()
	if err == nil {
		return strings.TrimSpace(out.String()), nil
	}
	said := strings.TrimSpace(problems.String())
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	for _, unknown := range []string{"No such", "not found", "is already in progress"} {
		if strings.Contains(said, unknown) {
			err = fmt.Errorf("%w: %w", errUnknown, err)
			break
		}
	}
	return "", fmt.Errorf("docker %s: %w\n%s", args[0], err, lastLines(said))
}

// findDocker returns the address at which Docker publishes ports, if Docker answers. Its first call
// in a process also removes containers and networks of processes that were killed together with
// their watchdogs.
func findDocker(ctx context.Context, logger *slog.Logger) (host string, err error) {
	if _, err := exec.LookPath("docker"); err != nil {
		return "", fmt.Errorf("find Docker: %w", err)
	}
	if _, err := docker(ctx, "version", "--format", "{{.Server.Version}}"); err != nil {
		return "", fmt.Errorf("find Docker: %w", err)
	}
	if host, err = dockerHost(ctx); err != nil {
		return "", fmt.Errorf("find Docker: %w", err)
	}
	sweep.Do(func() {
		if err := removeLeftOvers(ctx); err != nil {
			logger.WarnContext(ctx, "containers of processes that are gone could not be removed", "error", err)
		}
	})
	return host, nil
}

// dockerHost returns the address at which Docker publishes ports: an address of the machine on
// which Docker runs.
func dockerHost(ctx context.Context) (string, error) {
	endpoint := os.Getenv("DOCKER_HOST")
	if endpoint == "" {
		var err error
		if endpoint, err = docker(ctx, "context", "inspect", "--format", "{{.Endpoints.docker.Host}}"); err != nil {
			return "", err
		}
	}
	at, err := url.Parse(endpoint)
	if err != nil {
		return "", fmt.Errorf("read the address of Docker: %w", err)
	}
	if host := at.Hostname(); host != "" && host != "localhost" && (at.Scheme == "tcp" || at.Scheme == "ssh") {
		return host, nil
	}
	if _, err := os.Stat("/.dockerenv"); err != nil {
		return "127.0.0.1", nil
	}
	// This process runs in a container, so its loopback interface may not be Docker's.
	gateway, err := docker(ctx, "network", "inspect", "bridge", "--format", "{{range .IPAM.Config}}{{.Gateway}} {{end}}")
	if err != nil {
		return "", err
	}
	if all := strings.Fields(gateway); len(all) > 0 {
		return all[0], nil
	}
	return "127.0.0.1", nil
}

var sweep sync.Once

// removeLeftOvers removes the containers and networks that a process of this machine created, if
// that process has ended.
func removeLeftOvers(ctx context.Context) error {
	host, _ := os.Hostname()
	ours := []string{"--filter", "label=" + hostLabel + "=" + host, "--filter", "label=" + pidLabel, "--format", `{{.ID}} {{.Label "` + pidLabel + `"}}`}
	boxes, err := docker(ctx, append([]string{"ps", "--all"}, ours...)...)
	if err != nil {
		return fmt.Errorf("list containers: %w", err)
	}
	var errs []error
	for _, id := range leftOver(boxes) {
		_, err := docker(ctx, "rm", "--force", "--volumes", id)
		errs = append(errs, unlessGone(err))
	}
	networks, err := docker(ctx, append([]string{"network", "ls"}, ours...)...)
	if err != nil {
		return fmt.Errorf("list networks: %w", err)
	}
	for _, id := range leftOver(networks) {
		_, err := docker(ctx, "network", "rm", id)
		errs = append(errs, unlessGone(err))
	}
	return errors.Join(errs...)
}

// leftOver reads a list. Each line has the id of an object and the id of the process that created
// it. leftOver returns the ids of the objects whose process has ended.
func leftOver(list string) (ids []string) {
	for line := range strings.Lines(list) {
		id, process, _ := strings.Cut(strings.TrimSpace(line), " ")
		if pid, err := strconv.Atoi(process); err == nil && !processLives(pid) {
			ids = append(ids, id)
		}
	}
	return ids
}

func unlessGone(err error) error {
	if errors.Is(err, errUnknown) {
		return nil
	}
	return err
}

// ownLabels returns arguments for Docker's command. They set labels that name this process.
func ownLabels() []string {
	host, _ := os.Hostname() // if this fails, all machines without a hostname count as the same machine
	return []string{"--label", hostLabel + "=" + host, "--label", pidLabel + "=" + strconv.Itoa(os.Getpid())}
}
