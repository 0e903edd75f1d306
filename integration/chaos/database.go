//go:build linux || darwin

package main

import (
	"context"
	_ "embed" // the tables
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/fleet"
	"github.com/postroom/postroom/schema"
)

//go:embed sql/shop.sql
var shopSQL string

//go:embed sql/books.sql
var booksSQL string

// postgres is the server, with the database of the producers and that of the handlers.
type postgres struct {
	server      *devstack.Postgres
	data        string // its directory
	shop, books database
}

// database is one of them, and the rig's own sessions to it.
type database struct {
	url  string
	pool *pgxpool.Pool
}

// ours is how the rig's own sessions are called.
const ours = "chaos"

// startPostgres starts the server, with the tables that the processes work with. What
// it commits it keeps, whatever becomes of it.
func startPostgres(ctx context.Context, dir string) (p *postgres, err error) {
	quiet := slog.New(slog.DiscardHandler)
	server, err := devstack.StartPostgres(ctx, devstack.Config{Durable: true, Local: true, Dir: dir, Logger: quiet})
	if err != nil {
		return nil, err
	}
	p = &postgres{server: server}
	for _, d := range []struct {
		db          *database
		name, table string
	}{{&p.shop, "shop", shopSQL}, {&p.books, "books", booksSQL}} {
		if err := p.create(ctx, d.db, d.name, d.table); err != nil {
			return p, fmt.Errorf("make database %s: %w", d.name, err)
		}
	}
	return p, p.shop.pool.QueryRow(ctx, "SELECT current_setting('data_directory')").Scan(&p.data)
}

func (p *postgres) create(ctx context.Context, d *database, name, tables string) (err error) {
	if d.url, err = p.server.CreateDatabase(ctx, name, ""); err != nil {
		return err
	}
	cfg, err := pgxpool.ParseConfig(d.url)
	if err != nil {
		return err
	}
	cfg.MaxConns = 6
	cfg.ConnConfig.RuntimeParams["application_name"] = ours
	if d.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return err
	}
	if _, err := schema.Migrate(ctx, d.pool, ""); err != nil {
		return err
	}
	_, err = d.pool.Exec(ctx, tables)
	return err
}

// address is where it listens.
func (p *postgres) address() string {
	u, err := url.Parse(p.server.URL())
	if err != nil {
		return "" // devstack's own
	}
	return u.Host
}

// restart has it answer again, whatever state it is in.
func (p *postgres) restart(ctx context.Context) error {
	_ = p.server.Kill() // fails where it is gone already
	return p.server.Restart(ctx)
}

// answers reports whether it takes a write.
func (p *postgres) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	_, err := p.shop.pool.Exec(ctx, "UPDATE account SET n = n WHERE id = -1; SELECT pg_current_xact_id()")
	return err == nil
}

// signal sends a signal to all processes of the server.
func (p *postgres) signal(s syscall.Signal) error {
	text, err := os.ReadFile(p.data + "/postmaster.pid")
	if err != nil {
		return fmt.Errorf("find the server's process: %w", err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	master, err := strconv.Atoi(first)
	if err != nil {
		return fmt.Errorf("find the server's process: %w", err)
	}
	for _, pid := range append([]int{master}, children(master)...) {
		_ = syscall.Kill(pid, s) // it may have ended by now
	}
	return nil
}

// children are the processes that another one started.
func children(parent int) (all []int) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", parent, parent))
	if err != nil {
		return nil
	}
	for _, field := range strings.Fields(string(text)) {
		if pid, err := strconv.Atoi(field); err == nil {
			all = append(all, pid)
		}
	}
	return all
}

func (p *postgres) close() error {
	p.shop.pool.Close()
	p.books.pool.Close()
	return p.server.Close()
}

// number asks a question whose answer is a number.
func (d *database) number(ctx context.Context, sql string, args ...any) (n int, err error) {
	if err = d.pool.QueryRow(ctx, sql, args...).Scan(&n); err != nil {
		err = fmt.Errorf("%.60s: %w", sql, err)
	}
	return n, err
}

// patience is how long the rig waits for what a server or the system does for it. It
// decides nothing about postroom: where it runs out the run is undecided.
const patience = 3 * time.Minute

// again repeats what fails while a server comes back. It returns [fleet.ErrLate] with
// the last failure where it takes longer than within.
func again(ctx context.Context, within time.Duration, what string, try func(ctx context.Context) error) error {
	var last error
	err := fleet.Eventually(ctx, within, what, func(ctx context.Context) (bool, error) {
		attempt, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		last = try(attempt)
		return last == nil, nil
	})
	if err != nil && last != nil {
		return fmt.Errorf("%w, at last: %w", err, last)
	}
	return err
}
