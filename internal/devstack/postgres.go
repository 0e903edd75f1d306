package devstack

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const urlVariable = "POSTROOM_TEST_DATABASE_URL"

// ErrNotLocal says that the server is the user's server, and not a throwaway server.
// [Postgres.Kill] and [Postgres.Restart] return it. Config.Local or Config.Container requests a
// throwaway server.
var ErrNotLocal = errors.New("devstack: only a throwaway server can be killed or restarted")

// A Postgres is a running PostgreSQL server. Its methods may be called
// concurrently.
type Postgres struct {
	url    string
	source string
	close  func() error

	hostname string
	strategy string // how the server copies a template

	mu      sync.Mutex // serialises changes of the server's state
	owned   throwaway  // nil for the user's server
	foreign bool       // true for the user's server: DropDatabase drops only databases that this process created
	created map[string]bool
	idle    chan *pgx.Conn // to create and drop databases: to open a session costs as much as a database
}

const mostIdle = 2 // tests that run side by side seldom need more

// throwaway has the methods that differ between a cluster and a container. [Postgres] does not call
// them concurrently.
type throwaway interface {
	kill() error                       // like a crash
	stop() error                       // an orderly stop; does nothing if the server is not running
	restart(ctx context.Context) error // for a server that is not running
}

// StartPostgres returns the server that POSTROOM_TEST_DATABASE_URL names. If the variable is not set,
// or cfg asks for a throwaway server, it starts a throwaway server with local binaries or, if
// cfg.Container is set, in a container. It returns when the server answers. ctx limits only the start: the server runs until
// [Postgres.Close], or the end of this process.
//
// If StartPostgres cannot start a server, the error says what to install, and what was tried.
func StartPostgres(ctx context.Context, cfg Config) (*Postgres, error) {
	cfg = cfg.defaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("devstack: %w", err)
	}
	if given := os.Getenv(urlVariable); given != "" && !cfg.Local && !cfg.Container {
		p, err := useGiven(ctx, given)
		if err != nil {
			// Do not start another server, because the user has chosen this server.
			return nil, fmt.Errorf("devstack: %s: %w", urlVariable, err)
		}
		return p, nil
	}
	if cfg.Container {
		p, err := startContainer(ctx, cfg)
		if err != nil {
			return nil, fmt.Errorf("devstack: container: %w", err)
		}
		return p, nil
	}
	p, err := startLocal(ctx, cfg)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%s\n\n%w", missing, err)
	}
	if err != nil {
		return nil, fmt.Errorf("devstack: %w", err)
	}
	cfg.Logger.DebugContext(ctx, "postgres is ready", "source", p.source)
	return p, nil
}

const missing = `no PostgreSQL to start. Do one of these:

  Debian, Ubuntu   sudo apt-get install postgresql    (make setup does it)
  macOS            brew install postgresql@17
  in tests         use containers: package postroomtest/containers
  or               set ` + urlVariable + ` to the URL of a server, version 14 or later

What was tried:`

// startLocal starts a throwaway cluster with the first binaries that work.
func startLocal(ctx context.Context, cfg Config) (*Postgres, error) {
	found, unusable := newFinder().find(ctx)
	errs := []error{unusable}
	for _, bin := range found {
		local, err := startCluster(ctx, bin, cfg)
		if err == nil {
			if skipped := errors.Join(errs...); skipped != nil {
				cfg.Logger.InfoContext(ctx, "skipped other PostgreSQL binaries", "reason", skipped)
			}
			p := &Postgres{url: local.url(), source: bin.dir, close: local.close, owned: local, idle: make(chan *pgx.Conn, mostIdle)}
			if bin.major >= 15 {
				// Where nothing is synced, copying files takes half of the time that the server needs
				// to copy pages through its log.
				p.strategy = " STRATEGY FILE_COPY"
			}
			return p, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", bin.dir, err))
	}
	return nil, errors.Join(errs...)
}

// useGiven returns the user's own server.
func useGiven(ctx context.Context, given string) (*Postgres, error) {
	p := &Postgres{url: given, source: urlVariable, foreign: true, idle: make(chan *pgx.Conn, mostIdle)}
	p.close = p.dropCreated
	var version int
	err := session(ctx, given, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "SELECT current_setting('server_version_num')::int").Scan(&version)
	})
	if err != nil {
		return nil, err
	}
	return p, requireVersion(version / 10000)
}

// URL returns a connection URL of the server's default database. On a throwaway server, the URL's
// user is a superuser. On the user's own server, the URL is POSTROOM_TEST_DATABASE_URL.
func (p *Postgres) URL() string { return p.url }

// Source says how the package found the server, for instance "POSTROOM_TEST_DATABASE_URL",
// "/usr/lib/postgresql/17/bin" or "container postgres:17-alpine".
func (p *Postgres) Source() string { return p.source }

// Hostname returns the name of the server's container, or "" if the server does not run
// in a container of this package.
func (p *Postgres) Hostname() string { return p.hostname }

// CreateDatabase creates a database and returns its URL. The database is a copy of the given
// template or, if that is "", of the server's default template. While CreateDatabase runs, no
// session may be connected to the template.
func (p *Postgres) CreateDatabase(ctx context.Context, name, template string) (string, error) {
	to, err := databaseURL(p.url, name)
	if err != nil {
		return "", fmt.Errorf("devstack: create database %s: %w", name, err)
	}
	sql := "CREATE DATABASE " + pgx.Identifier{name}.Sanitize()
	if template != "" {
		sql += " TEMPLATE " + pgx.Identifier{template}.Sanitize()
		sql += p.strategy
	}
	if err := p.exec(ctx, sql); err != nil {
		return "", fmt.Errorf("devstack: create database %s: %w", name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.created == nil {
		p.created = map[string]bool{}
	}
	p.created[name] = true
	return to, nil
}

// DropDatabase ends the sessions of a database and drops it. On the server of
// POSTROOM_TEST_DATABASE_URL it drops only databases that [Postgres.CreateDatabase] created.
func (p *Postgres) DropDatabase(ctx context.Context, name string) error {
	p.mu.Lock()
	known := p.created[name]
	p.mu.Unlock()
	if p.foreign && !known {
		return fmt.Errorf("devstack: drop database %s: not created here", name)
	}
	sql := "DROP DATABASE IF EXISTS " + pgx.Identifier{name}.Sanitize() + " WITH (FORCE)"
	if err := p.exec(ctx, sql); err != nil {
		return fmt.Errorf("devstack: drop database %s: %w", name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.created, name)
	return nil
}

// Kill ends all processes of the server with kill -9, like a crash. It returns
// [ErrNotLocal] for the user's server.
func (p *Postgres) Kill() error {
	if p.owned == nil {
		return ErrNotLocal
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.owned.kill(); err != nil {
		return fmt.Errorf("devstack: kill postgres: %w", err)
	}
	return nil
}

// Restart starts the server again with the same data and the same URL. If the server is running,
// Restart shuts it down first. Restart returns when the server answers. It returns [ErrNotLocal]
// for the user's server.
func (p *Postgres) Restart(ctx context.Context) error {
	if p.owned == nil {
		return ErrNotLocal
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.owned.stop(); err != nil {
		return fmt.Errorf("devstack: stop postgres: %w", err)
	}
	if err := p.owned.restart(ctx); err != nil {
		return fmt.Errorf("devstack: restart postgres: %w", err)
	}
	return nil
}

// Close stops a throwaway server and removes its data. The server of POSTROOM_TEST_DATABASE_URL keeps
// running, and Close drops the databases that this process created there. A second call does
// nothing.
func (p *Postgres) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.close == nil {
		return nil
	}
	closing := p.close
	p.close = nil
	err := closing()
	for len(p.idle) > 0 {
		_ = (<-p.idle).Close(context.Background()) // a throwaway server has ended them
	}
	if err != nil {
		return fmt.Errorf("devstack: close postgres: %w", err)
	}
	return nil
}

// dropCreated does the work of Close for the user's server. The caller holds the mutex mu.
func (p *Postgres) dropCreated() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var errs []error
	for name := range p.created {
		errs = append(errs, p.exec(ctx, "DROP DATABASE IF EXISTS "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)"))
	}
	clear(p.created)
	return errors.Join(errs...)
}

// exec executes a statement in a session of its own, and keeps the session for the next statement.
func (p *Postgres) exec(ctx context.Context, sql string) error {
	conn, err := p.session(ctx)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	select {
	case p.idle <- conn: // session finds out whether it still works
		return err
	default:
		return errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
	}
}

// session returns a session that works.
func (p *Postgres) session(ctx context.Context) (*pgx.Conn, error) {
	for {
		select {
		case conn := <-p.idle:
			if conn.Ping(ctx) == nil {
				return conn, nil
			}
			_ = conn.Close(context.WithoutCancel(ctx)) // the server has ended it
		default:
			return pgx.Connect(ctx, p.url)
		}
	}
}

// session calls the function do with a new connection.
func session(ctx context.Context, url string, do func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	return errors.Join(do(conn), conn.Close(context.WithoutCancel(ctx)))
}

// databaseURL puts the given database name into the connection string of a server, and returns the
// result. The string may be a URL or a list of key=value pairs.
func databaseURL(server, name string) (string, error) {
	if !strings.HasPrefix(server, "postgres://") && !strings.HasPrefix(server, "postgresql://") {
		quoted := strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(name)
		return server + " dbname='" + quoted + "'", nil // the last dbname counts
	}
	u, err := url.Parse(server)
	if err != nil {
		return "", errors.New("parse URL") // the parser's error shows the password
	}
	query := u.Query()
	query.Del("dbname")
	query.Del("database")
	u.RawQuery = query.Encode()
	u.Path, u.RawPath = "/"+name, ""
	return u.String(), nil
}
