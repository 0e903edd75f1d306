// Package devstack starts real PostgreSQL and NATS servers for demos, benchmarks and tests.
// The user need not set up anything.
//
// PostgreSQL is the server that POSTROOM_TEST_DATABASE_URL names. If the variable is not set, it is a
// throwaway cluster that PostgreSQL's programs on this machine run, or, on request, a container.
//
// NATS is one server or a cluster of servers. A server is a process or, on request, a container.
// Its JetStream storage is in a temporary directory. A server that is a process runs the program
// that POSTROOM_TEST_BROKER names. If the variable is not set, and the package finds a checkout of
// this repository, it builds integration/natsd and runs that. Without a checkout, it runs
// nats-server from the PATH. If there is none, it builds nats-server in the user's cache.
//
// All servers listen on the loopback interface. Containers are an exception if Docker runs on
// another machine, or if this process itself runs in a container. When this process ends, a
// watchdog removes the servers and their directories, even if the process panics, calls os.Exit or
// is killed: see watchdog.sh.
//
// The servers are for development only: a local server trusts every client that reaches
// its port.
package devstack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
)

// Config tunes a [Postgres]. The zero value is ready to use.
type Config struct {
	// Logger receives a message for each server that starts, and for binaries that the package
	// skips. Nil means [slog.Default].
	Logger *slog.Logger

	// Durable keeps committed data even if the machine crashes, as in production: fsync and
	// synchronous_commit are on. If Durable is false, they are off, and the server is faster. Then
	// a server that is killed may lose the last commits, but no others.
	//
	// Durable has no effect on the server of POSTROOM_TEST_DATABASE_URL.
	Durable bool

	// Local asks for a throwaway cluster of local binaries, and Container for a container: see
	// [Containers]. Neither uses the server of POSTROOM_TEST_DATABASE_URL. [Postgres.Kill] and
	// [Postgres.Restart] work with both.
	Local     bool
	Container bool

	// Dir is the directory in which a throwaway cluster creates its own directory.
	//
	// Defaults to the system's directory for temporary files.
	Dir string

	// MaxConnections is the server's max_connections.
	//
	// Defaults to 200.
	MaxConnections int

	// PreparedTransactions is the server's max_prepared_transactions.
	//
	// Defaults to 16.
	PreparedTransactions int
}

func (c Config) defaults() Config {
	c.Logger = cmp.Or(c.Logger, slog.Default())
	c.MaxConnections = cmp.Or(c.MaxConnections, 200)
	c.PreparedTransactions = cmp.Or(c.PreparedTransactions, 16)
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.MaxConnections < 1 {
		errs = append(errs, fmt.Errorf("config: MaxConnections is %d, want 1 or more", c.MaxConnections))
	}
	if c.PreparedTransactions < 0 {
		errs = append(errs, fmt.Errorf("config: PreparedTransactions is %d, want 0 or more", c.PreparedTransactions))
	}
	if c.Local && c.Container {
		errs = append(errs, errors.New("config: Local and Container: want one of them"))
	}
	return errors.Join(errs...)
}

// settings returns the server's parameters. A cluster and a container use the same ones.
func (c Config) settings() [][2]string {
	set := [][2]string{
		{"max_connections", fmt.Sprint(c.MaxConnections)},
		{"max_prepared_transactions", fmt.Sprint(c.PreparedTransactions)},
	}
	if c.Durable {
		return set
	}
	return append(set,
		[2]string{"fsync", "off"},
		[2]string{"full_page_writes", "off"},
		[2]string{"synchronous_commit", "off"},
	)
}

// Stack is a PostgreSQL server and a NATS server.
type Stack struct {
	Postgres *Postgres
	NATS     *NATS
}

// Start starts both servers. If cfg.Container is set, both run in containers. ctx limits only the
// start: the servers run until [Stack.Close].
func Start(ctx context.Context, cfg Config) (*Stack, error) {
	broker, err := StartNATS(ctx, NATSConfig{Logger: cfg.Logger, Container: cfg.Container})
	if err != nil {
		return nil, err
	}
	db, err := StartPostgres(ctx, cfg)
	if err != nil {
		return nil, errors.Join(err, broker.Close())
	}
	return &Stack{Postgres: db, NATS: broker}, nil
}

// Close stops both servers and removes their data. A second call does nothing.
func (s *Stack) Close() error {
	return errors.Join(s.Postgres.Close(), s.NATS.Close())
}

// Installed returns nil if this machine has what [Start] needs: the variable
// POSTROOM_TEST_DATABASE_URL or PostgreSQL's programs, and a program or a checkout for the NATS server.
// It does not count that Start can also download the NATS server. Installed starts nothing.
func Installed(ctx context.Context) error {
	if os.Getenv(natsVariable) == "" {
		_, inCheckout := checkout()
		if _, err := exec.LookPath("nats-server"); err != nil && !inCheckout {
			return ErrNoNATS
		}
	}
	if os.Getenv(urlVariable) != "" {
		return nil
	}
	found, err := newFinder().find(ctx)
	if len(found) == 0 {
		return fmt.Errorf("find PostgreSQL: %w", err)
	}
	return nil
}
