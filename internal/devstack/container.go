package devstack

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"

	"github.com/jackc/pgx/v5"
)

const (
	imageVariable = "POSTROOM_POSTGRES_IMAGE"
	defaultImage  = "postgres:17-alpine"

	postgresPort = "5432"
)

// postgresContainer is PostgreSQL in a container.
type postgresContainer struct {
	*box

	password string
}

// startContainer starts PostgreSQL in a container.
func startContainer(ctx context.Context, cfg Config) (*Postgres, error) {
	c := &postgresContainer{password: rand.Text()}
	b, err := startBox(ctx, boxSpec{
		what: "postgres", image: cmp.Or(os.Getenv(imageVariable), defaultImage),
		port: postgresPort, signal: "SIGINT", logger: cfg.Logger,
		command: containerCommand(cfg),
		prepare: func(*box) ([]string, error) { return containerOptions(cfg, c.password), nil },
		answers: c.answers,
	})
	if err != nil {
		return nil, err
	}
	c.box = b
	return &Postgres{url: c.url(b), source: "container " + b.image, close: b.close, owned: c, hostname: b.name, idle: make(chan *pgx.Conn, mostIdle)}, nil
}

func containerCommand(cfg Config) []string {
	command := []string{"postgres"}
	for _, set := range cfg.settings() {
		command = append(command, "-c", set[0]+"="+set[1])
	}
	return command
}

// containerOptions returns arguments of docker run.
func containerOptions(cfg Config, password string) []string {
	initdb := "--encoding=UTF8 --locale=C"
	if !cfg.Durable {
		initdb += " --no-sync"
	}
	return []string{
		"--env", "POSTGRES_USER=postgres",
		"--env", "POSTGRES_PASSWORD=" + password, // needed if Docker runs on another machine, because then other machines can reach the port
		"--env", "POSTGRES_DB=postgres",
		"--env", "POSTGRES_INITDB_ARGS=" + initdb,
		"--shm-size", "256m", // parallel queries use this memory
	}
}

func (c *postgresContainer) url(b *box) string {
	return (&url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword("postgres", c.password),
		Host:     net.JoinHostPort(b.host, strconv.Itoa(b.port)),
		Path:     "/postgres",
		RawQuery: "sslmode=disable",
	}).String()
}

// answers returns nil when the server answers on its port. The image first starts a server for its
// set-up, which listens only on a Unix socket and so does not answer on the port.
func (c *postgresContainer) answers(ctx context.Context, b *box) error {
	return session(ctx, c.url(b), func(conn *pgx.Conn) error { return conn.Ping(ctx) })
}

// restart starts the server again with the same data and port.
func (c *postgresContainer) restart(ctx context.Context) error {
	if err := c.start(ctx, c.answers); err != nil {
		return fmt.Errorf("start %s: %w", c.image, err)
	}
	return nil
}
