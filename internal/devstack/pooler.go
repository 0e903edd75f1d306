package devstack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrNoPooler says that this machine has no PgBouncer. [StartPooler] returns it.
var ErrNoPooler = errors.New("no pgbouncer on PATH or in /usr/sbin; make setup installs it")

// The files in a pooler's directory.
const (
	poolerConfFile = "pgbouncer.ini"
	poolerLogFile  = "pgbouncer.log"
	poolerPIDFile  = "pooler.pid"
)

// PoolerConfig tunes a [Pooler].
type PoolerConfig struct {
	// Size is the largest number of connections to the database.
	//
	// Defaults to 20.
	Size int

	// Session gives each client its own connection to the database while the client is connected.
	// If Session is false, each transaction, and each statement outside a transaction, gets any
	// free connection. Then a client loses the state of its session, or gets the state of another
	// client.
	Session bool
}

// A Pooler is a PgBouncer in front of a database.
type Pooler struct {
	target *pgconn.Config
	cfg    PoolerConfig
	guard  *guard
	port   int
	server *process
}

// StartPooler starts a pooler in front of a database. It returns when the pooler answers.
// The pooler runs until [Pooler.Close], or the end of this process.
func StartPooler(ctx context.Context, database string, cfg PoolerConfig) (*Pooler, error) {
	cfg.Size = cmp.Or(cfg.Size, 20)
	target, err := pgconn.ParseConfig(database)
	if err != nil {
		return nil, errors.New("devstack: pooler: parse URL") // the parser's error shows the password
	}
	g, err := newGuard("", "pooler")
	if err != nil {
		return nil, fmt.Errorf("devstack: pooler: %w", err)
	}
	p := &Pooler{target: target, cfg: cfg, guard: g}
	if err := p.startOnFreePort(ctx); err != nil {
		return nil, fmt.Errorf("devstack: pooler: %w", errors.Join(err, g.Close()))
	}
	return p, nil
}

// URL returns a connection URL of the database behind the pooler.
func (p *Pooler) URL() string {
	return fmt.Sprintf("postgres://postroom@127.0.0.1:%d/%s?sslmode=disable", p.port, p.target.Database)
}

// Close stops the pooler. The pooler's clients lose their connections.
func (p *Pooler) Close() error { return p.guard.Close() }

func (p *Pooler) startOnFreePort(ctx context.Context) error {
	for try := 1; ; try++ {
		var err error
		if p.port, err = freePort(); err != nil {
			return err
		}
		err = p.start(ctx)
		if err == nil || try == portTries || portFree(p.port) == nil {
			return err
		}
	}
}

func (p *Pooler) start(ctx context.Context) error {
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		if program, err = exec.LookPath("/usr/sbin/pgbouncer"); err != nil {
			return ErrNoPooler
		}
	}
	as, err := serverAccount() // PgBouncer also refuses to run as root
	if err != nil {
		return err
	}
	conf := filepath.Join(p.guard.dir, poolerConfFile) // the watchdog recognises the pooler by this path
	if err := os.WriteFile(conf, []byte(p.settings()), 0o600); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	if err := errors.Join(as.give(p.guard.dir), as.give(conf)); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(p.guard.dir, poolerLogFile))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the pooler has its own file descriptor
	cmd := exec.Command(program, conf)
	cmd.Dir, cmd.Stderr, cmd.SysProcAttr = p.guard.dir, log, ownSession(as)
	if p.server, err = startProcess(cmd); err != nil {
		return err
	}
	if err := p.await(ctx); err != nil {
		words, unread := os.ReadFile(log.Name())
		return errors.Join(fmt.Errorf("%w\n%s", err, lastLines(string(words))), unread, p.server.end(syscall.SIGKILL, time.Second))
	}
	return nil
}

// settings returns the text of the configuration file. Like the servers, the pooler trusts every
// client that reaches its port.
func (p *Pooler) settings() string {
	mode, password := "transaction", ""
	if p.cfg.Session {
		mode = "session"
	}
	if p.target.Password != "" { // an empty password would be an error
		password = " password='" + strings.ReplaceAll(p.target.Password, "'", "''") + "'"
	}
	return fmt.Sprintf(`[databases]
%s = host=%s port=%d dbname=%s user=%s%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = %s
default_pool_size = %d
max_client_conn = 500
pidfile = %s
`, p.target.Database, p.target.Host, p.target.Port, p.target.Database, p.target.User, password,
		p.port, mode, p.cfg.Size, filepath.Join(p.guard.dir, poolerPIDFile))
}

// await waits until the database answers through the pooler.
func (p *Pooler) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, localPatience)
	defer cancel()
	for {
		answer := session(ctx, p.URL(), func(conn *pgx.Conn) error { return conn.Ping(ctx) })
		select {
		case <-p.server.done:
			return fmt.Errorf("the pooler ended at start: %w", p.server.err)
		default:
		}
		if answer == nil {
			return nil
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return fmt.Errorf("wait for the pooler: %w: %w", err, answer)
		}
	}
}
