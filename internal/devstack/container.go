package devstack

import (
	"context"
	"crypto/rand"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"
)

// postgresContainer is PostgreSQL in a container.
type postgresContainer struct{ box Box }

// startContainer starts PostgreSQL in a container.
func startContainer(ctx context.Context, cfg Config) (*Postgres, error) {
	password := rand.Text() // needed if other machines can reach the port, for instance because Docker runs on another machine
	at := func(address string) string {
		return (&url.URL{
			Scheme:   "postgres",
			User:     url.UserPassword("postgres", password),
			Host:     address,
			Path:     "/postgres",
			RawQuery: "sslmode=disable",
		}).String()
	}
	name := "postroom-postgres-" + strings.ToLower(rand.Text()[:10])
	b, err := runBox(ctx, BoxSpec{
		Server: PostgresServer, Name: name,
		Command: containerCommand(cfg), Env: containerEnv(cfg, password),
		// The official image first starts a server for its set-up, which listens only on a Unix socket
		// and so does not answer on the port.
		Answers: func(ctx context.Context, address string) error {
			return session(ctx, at(address), func(conn *pgx.Conn) error { return conn.Ping(ctx) })
		},
	})
	if err != nil {
		return nil, err
	}
	return &Postgres{url: at(b.Address()), source: "container " + b.Image(), close: b.Close, owned: postgresContainer{b}, hostname: name, idle: make(chan *pgx.Conn, mostIdle)}, nil
}

func containerCommand(cfg Config) []string {
	command := []string{"postgres"}
	for _, set := range cfg.settings() {
		command = append(command, "-c", set[0]+"="+set[1])
	}
	return command
}

func containerEnv(cfg Config, password string) map[string]string {
	initdb := "--encoding=UTF8 --locale=C"
	if !cfg.Durable {
		initdb += " --no-sync"
	}
	return map[string]string{
		"POSTGRES_USER":        "postgres",
		"POSTGRES_PASSWORD":    password,
		"POSTGRES_DB":          "postgres",
		"POSTGRES_INITDB_ARGS": initdb,
	}
}

func (c postgresContainer) kill() error                       { return c.box.Kill() }
func (c postgresContainer) stop() error                       { return c.box.Stop() }
func (c postgresContainer) restart(ctx context.Context) error { return c.box.Start(ctx) }
