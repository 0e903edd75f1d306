package devstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
)

// reaperVariable turns testcontainers' own watchdog off. That is a container,
// with an image of its own that has to be pulled; watchdog.sh needs nothing but
// Docker's command.
const reaperVariable = "TESTCONTAINERS_RYUK_DISABLED"

// openDocker returns Docker, if it answers. What processes left behind that were
// killed together with their watchdogs is removed, once.
func openDocker(ctx context.Context, logger *slog.Logger) (*testcontainers.DockerProvider, error) {
	silence.Do(func() {
		log.SetDefault(quiet{logger})
		if _, err := exec.LookPath("docker"); err == nil && runtime.GOOS != "windows" && os.Getenv(reaperVariable) == "" {
			_ = os.Setenv(reaperVariable, "true") // fails for odd names only
		}
	})
	provider, err := testcontainers.NewDockerProvider()
	if err != nil {
		return nil, err
	}
	if err := provider.Health(ctx); err != nil {
		return nil, errors.Join(err, provider.Close())
	}
	sweep.Do(func() {
		if err := removeLeftOvers(ctx, provider.Client()); err != nil {
			logger.WarnContext(ctx, "containers of processes that are gone could not be removed", "error", err)
		}
	})
	return provider, nil
}

var sweep sync.Once

// removeLeftOvers removes the containers and networks of processes of this
// machine that are gone.
func removeLeftOvers(ctx context.Context, docker client.APIClient) error {
	own := ownLabels()
	ours := client.Filters{}.Add("label", hostLabel+"="+own[hostLabel], pidLabel)
	boxes, err := docker.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: ours})
	if err != nil {
		return fmt.Errorf("list containers: %w", err)
	}
	var errs []error
	for _, b := range boxes.Items {
		if gone(b.Labels) {
			_, err := docker.ContainerRemove(ctx, b.ID, client.ContainerRemoveOptions{RemoveVolumes: true, Force: true})
			errs = append(errs, unlessGone(err))
		}
	}
	networks, err := docker.NetworkList(ctx, client.NetworkListOptions{Filters: ours})
	if err != nil {
		return fmt.Errorf("list networks: %w", err)
	}
	for _, n := range networks.Items {
		if gone(n.Labels) {
			_, err := docker.NetworkRemove(ctx, n.ID, client.NetworkRemoveOptions{})
			errs = append(errs, unlessGone(err))
		}
	}
	return errors.Join(errs...)
}

// gone says whether the process that labels name is.
func gone(labels map[string]string) bool {
	pid, err := strconv.Atoi(labels[pidLabel])
	return err == nil && !processLives(pid)
}

// isGone says whether Docker does not know what it was asked for, or is removing
// it: the watchdog of another process does the same.
func isGone(err error) bool { return errdefs.IsNotFound(err) || errdefs.IsConflict(err) }

func unlessGone(err error) error {
	if isGone(err) {
		return nil
	}
	return err
}

// logOf returns what a container wrote.
func logOf(ctx context.Context, c *testcontainers.DockerContainer) (text string, err error) {
	if c == nil {
		return "", errors.New("there is no container")
	}
	out, err := c.Logs(ctx)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	all, err := io.ReadAll(out)
	return string(all), err
}
