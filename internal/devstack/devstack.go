// Package devstack starts real PostgreSQL and NATS servers for demos, benchmarks and tests,
// which need no set-up by their user.
//
// PostgreSQL is the server that POSTROOM_DATABASE_URL names; else a throwaway cluster, made
// with the programs on this machine; else a container.
//
// NATS is a process or, on request, a container, alone or as a cluster, with JetStream in a
// temporary directory. Its program is the one that POSTROOM_TEST_BROKER names; else
// integration/natsd, built in a checkout; else nats-server on the PATH; else one that is
// built in the user's cache.
//
// All servers listen on the loopback interface, except containers of a Docker on another
// machine. Servers and directories are removed when the process that started them ends, also
// when it panics, calls os.Exit or is killed: see watchdog.sh.
//
// The servers are for development: a local one trusts every client that reaches its port.
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
	// Logger receives what is tried and started. Nil means [slog.Default].
	Logger *slog.Logger

	// Durable keeps committed data through a crash of the machine, as in
	// production: fsync and synchronous_commit are on. Without it they are
	// off, which is faster and still survives the end of any process.
	//
	// It has no effect on the server of POSTROOM_DATABASE_URL.
	Durable bool

	// Local admits only a throwaway cluster made with local binaries, and
	// Container only a container of the image that POSTROOM_POSTGRES_IMAGE names,
	// or postgres:17-alpine. [Postgres.Kill] and [Postgres.Restart] serve both.
	Local     bool
	Container bool

	// Dir is the directory in which a throwaway cluster makes one of its own.
	//
	// Defaults to the system's for temporary files.
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

// settings returns the server's parameters, for a cluster and for a container.
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

// Start starts both servers; with cfg.Container, both in containers. ctx bounds the start, not the servers: they run
// until [Stack.Close].
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

// Close stops both servers and removes what they stored. It is idempotent.
func (s *Stack) Close() error {
	return errors.Join(s.Postgres.Close(), s.NATS.Close())
}

// Installed returns nil if this machine has, without Docker, what [Start] needs: a
// PostgreSQL server that is named or whose programs are there, and a program or a
// checkout for the NATS server. It starts nothing.
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
