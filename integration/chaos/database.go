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

	"github.com/postroom/postroom/integration/rig"
	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/schema"
)

//go:embed sql/shop.sql
var shopSQL string

//go:embed sql/books.sql
var booksSQL string

// postgres is the server, with the producers' database and the handlers' database.
type postgres struct {
	server      *devstack.Postgres
	data        string // the server's directory
	shop, books *rig.Database
}

// The constant ours is the application name of the rig's own sessions.
const ours = "chaos"

// startPostgres starts the server, with the tables of the processes. The server does not lose
// commits, even if it crashes.
func startPostgres(ctx context.Context, dir string) (p *postgres, err error) {
	quiet := slog.New(slog.DiscardHandler)
	server, err := devstack.StartPostgres(ctx, devstack.Config{Durable: true, Local: true, Dir: dir, Logger: quiet})
	if err != nil {
		return nil, err
	}
	p = &postgres{server: server}
	for _, d := range []struct {
		db          **rig.Database
		name, table string
	}{{&p.shop, "shop", shopSQL}, {&p.books, "books", booksSQL}} {
		if *d.db, err = p.create(ctx, d.name, d.table); err != nil {
			return p, fmt.Errorf("make database %s: %w", d.name, err)
		}
	}
	return p, p.shop.Pool.QueryRow(ctx, "SELECT current_setting('data_directory')").Scan(&p.data)
}

func (p *postgres) create(ctx context.Context, name, tables string) (*rig.Database, error) {
	d, err := rig.CreateDatabase(ctx, p.server, name, ours, 6)
	if err != nil {
		return nil, err
	}
	if _, err := schema.Migrate(ctx, d.Pool, ""); err != nil {
		return d, err
	}
	return d, d.Exec(ctx, tables)
}

// address returns the address at which the server listens.
func (p *postgres) address() string {
	u, err := url.Parse(p.server.URL())
	if err != nil {
		return "" // not reached: devstack made the URL
	}
	return u.Host
}

// restart makes the server answer again. If the server still runs, it is killed first.
func (p *postgres) restart(ctx context.Context) error {
	_ = p.server.Kill() // this fails if the server is gone already
	return p.server.Restart(ctx)
}

// answers reports whether the server accepts a write.
func (p *postgres) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	_, err := p.shop.Pool.Exec(ctx, "UPDATE account SET n = n WHERE id = -1; SELECT pg_current_xact_id()")
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
		_ = syscall.Kill(pid, s) // the process may have ended by now
	}
	return nil
}

// children returns the child processes of a process.
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
	for _, d := range []*rig.Database{p.shop, p.books} {
		if d != nil {
			d.Pool.Close()
		}
	}
	return p.server.Close()
}
