package devstack

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
	"github.com/testcontainers/testcontainers-go/wait"
)

const (
	imageVariable = "POSTROOM_POSTGRES_IMAGE"
	defaultImage  = "postgres:17-alpine"

	// containerPatience bounds a start, with the image's download.
	containerPatience = 60 * time.Second

	postgresPort = "5432/tcp"
)

// silence keeps testcontainers from printing: it has one logger per process.
var silence sync.Once

// startContainer starts PostgreSQL in a container. If this process is killed,
// the container is removed by testcontainers' own watchdog, a container too.
func startContainer(ctx context.Context, cfg Config) (p *Postgres, err error) {
	defer func() {
		// testcontainers panics where it finds no Docker.
		if fault := recover(); fault != nil {
			p, err = nil, fmt.Errorf("find Docker: %v", fault)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, containerPatience)
	defer cancel()
	silence.Do(func() { log.SetDefault(quiet{cfg.Logger}) })
	if err := dockerAnswers(ctx); err != nil {
		return nil, fmt.Errorf("find Docker: %w", err)
	}

	// A published port can be reached from other machines.
	password := rand.Text()
	image := cmp.Or(os.Getenv(imageVariable), defaultImage)
	box, err := testcontainers.Run(ctx, image, containerOptions(cfg, password)...)
	remove := func() error { return testcontainers.TerminateContainer(box) }
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", image, err), remove())
	}
	to, err := containerURL(ctx, box, password)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", image, err), remove())
	}
	return &Postgres{url: to, source: "container " + image, close: remove}, nil
}

func dockerAnswers(ctx context.Context) error {
	provider, err := testcontainers.NewDockerProvider()
	if err != nil {
		return err
	}
	return errors.Join(provider.Health(ctx), provider.Close())
}

func containerOptions(cfg Config, password string) []testcontainers.ContainerCustomizer {
	command := []string{"postgres"}
	for _, set := range cfg.settings() {
		command = append(command, "-c", set[0]+"="+set[1])
	}
	return []testcontainers.ContainerCustomizer{
		testcontainers.WithEnv(map[string]string{
			"POSTGRES_USER":        "postgres",
			"POSTGRES_PASSWORD":    password,
			"POSTGRES_DB":          "postgres",
			"POSTGRES_INITDB_ARGS": "--encoding=UTF8 --locale=C",
		}),
		testcontainers.WithCmd(command...),
		testcontainers.WithExposedPorts(postgresPort),
		// The image starts a server for its own set-up first, on a socket
		// only: the port answers when the real one runs.
		testcontainers.WithWaitStrategyAndDeadline(containerPatience,
			wait.ForListeningPort(postgresPort).SkipInternalCheck()),
	}
}

// containerURL returns the URL of the container's server, once it answers.
func containerURL(ctx context.Context, box *testcontainers.DockerContainer, password string) (string, error) {
	address, err := box.PortEndpoint(ctx, postgresPort, "")
	if err != nil {
		return "", fmt.Errorf("find its port: %w", err)
	}
	to := (&url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword("postgres", password),
		Host:     address,
		Path:     "/postgres",
		RawQuery: "sslmode=disable",
	}).String()
	for {
		err := session(ctx, to, func(conn *pgx.Conn) error { return conn.Ping(ctx) })
		if err == nil {
			return to, nil
		}
		if pause(ctx, 50*time.Millisecond) != nil {
			return "", fmt.Errorf("wait for postgres: %w", err)
		}
	}
}

// quiet gives testcontainers' progress to a logger, as details.
type quiet struct{ logger *slog.Logger }

func (q quiet) Printf(format string, args ...any) { q.logger.Debug(fmt.Sprintf(format, args...)) }
