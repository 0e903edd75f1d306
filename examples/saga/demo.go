package main

import (
	"context"
	"crypto/rand"
	_ "embed" // the statements
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/examples/internal/narrate"
	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/schema"
)

var (
	//go:embed sql/order.sql
	orderTables string
	//go:embed sql/payment.sql
	paymentTables string
	//go:embed sql/stock.sql
	stockTables string
	//go:embed sql/audit.sql
	auditTables string
)

// audit is the name of the auditor's database, beside those of the services.
const audit = "audit"

// demo is what the services stand on, and the auditor who looks into their books.
// The services know nothing of it.
type demo struct {
	opt     options
	story   *narrate.Story
	servers *devstack.Stack
	nc      *nats.Conn
	urls    map[string]string        // of the databases, by service
	books   map[string]*pgxpool.Pool // the auditor's connections to them
	staff   *staff
	crashes *crashes
}

// open makes databases, tables and streams: what an operator does before services
// start. The caller closes the demo.
func open(ctx context.Context, servers *devstack.Stack, opt options, log io.Writer, story *narrate.Story) (_ *demo, err error) {
	d := &demo{opt: opt, story: story, servers: servers, urls: map[string]string{}, books: map[string]*pgxpool.Pool{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	suffix := strings.ToLower(rand.Text()[:10])
	for name, tables := range map[string]string{order: orderTables, payment: paymentTables, stock: stockTables, audit: auditTables} {
		if err := d.openDatabase(ctx, name, suffix, tables); err != nil {
			return nil, err
		}
	}
	if err := d.stockUp(ctx); err != nil {
		return nil, fmt.Errorf("fill tables: %w", err)
	}
	if d.nc, err = nats.Connect(servers.NATS.URL(), natsjs.ConnectOptions()...); err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	jobs := make(map[string]job)
	for _, name := range services {
		cfg := jetstream.StreamConfig{Name: streams[name], Subjects: []string{name + ".>"}}
		if err := natsjs.EnsureStream(ctx, d.nc, cfg); err != nil {
			return nil, err
		}
		jobs[name] = job{
			Service: name, Database: d.urls[name], NATS: servers.NATS.URL(), Verbose: opt.verbose,
			Seed: opt.seed, Orders: opt.orders, Rate: opt.rate, Patience: opt.patience,
		}
	}
	d.staff = newStaff(jobs, log)
	d.crashes = &crashes{demo: d}
	return d, nil
}

func (d *demo) openDatabase(ctx context.Context, name, suffix, tables string) error {
	url, err := d.servers.Postgres.CreateDatabase(ctx, "postroom_saga_"+name+"_"+suffix, "")
	if err != nil {
		return err
	}
	d.urls[name] = url
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return fmt.Errorf("parse database URL: %w", err)
	}
	cfg.MaxConns = 2
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	d.books[name] = pool
	if name != audit {
		if _, err := schema.Migrate(ctx, pool, ""); err != nil {
			return err
		}
	}
	if _, err := pool.Exec(ctx, tables); err != nil {
		return fmt.Errorf("create tables of %s: %w", name, err)
	}
	return nil
}

// stockUp fills the accounts and the shelves.
func (d *demo) stockUp(ctx context.Context) error {
	const (
		insertAccount = "INSERT INTO account (customer, before, credit) VALUES ($1, $2, $2)"
		insertItem    = "INSERT INTO item (sku, supplied, before, available, lowest) VALUES ($1, $2, $3, $3, $3)"
	)
	accounts, items := &pgx.Batch{}, &pgx.Batch{}
	for customer := 1; customer <= people; customer++ {
		credit := int64(1) << 40
		if isRefused(customer) {
			credit = 0
		}
		accounts.Queue(insertAccount, customer, credit)
	}
	for item := range goods {
		items.Queue(insertItem, sku(item), false, inStock(d.opt.orders))
	}
	items.Queue(insertItem, supplied, true, 0)
	return errors.Join(d.books[payment].SendBatch(ctx, accounts).Close(), d.books[stock].SendBatch(ctx, items).Close())
}

// close ends the services, however the run ended, and then the connections.
func (d *demo) close() (err error) {
	if d.staff != nil {
		err = d.staff.end()
	}
	if d.nc != nil {
		d.nc.Close()
	}
	for _, pool := range d.books {
		pool.Close()
	}
	return err
}
