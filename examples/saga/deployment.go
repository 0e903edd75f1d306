package main

import (
	"context"
	_ "embed" // the statements
	"errors"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/examples/internal/demo"
	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/natsjs"
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

// audit is the name of the auditor's database in the map books. The auditor is the part of the
// program that runs the proof. Each other database has the name of its service.
const audit = "audit"

// deployment has the servers and processes of the services, and the databases that the auditor
// reads. The services do not know the deployment.
type deployment struct {
	opt     options
	story   *demo.Story
	nc      *nats.Conn
	books   books
	staff   *staff
	crashes *crashes
}

// books has the databases of the services and of the auditor, by name. The services do not use
// these connections, but their own.
type books map[string]*demo.Database

// open makes the databases, tables and streams. In production an operator does so before the
// services start. The caller closes the deployment.
func open(ctx context.Context, servers *devstack.Stack, opt options, log io.Writer, story *demo.Story) (_ *deployment, err error) {
	d := &deployment{opt: opt, story: story, books: make(books)}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	if err := d.books.open(ctx, servers.Postgres); err != nil {
		return nil, err
	}
	if err := d.books.stockUp(ctx, opt.orders); err != nil {
		return nil, fmt.Errorf("fill tables: %w", err)
	}
	if d.nc, err = demo.NATS(servers.NATS.URL()); err != nil {
		return nil, err
	}
	jobs := make(map[string]job)
	for _, name := range services {
		cfg := jetstream.StreamConfig{Name: streams[name], Subjects: []string{name + ".>"}}
		if err := natsjs.EnsureStream(ctx, d.nc, cfg); err != nil {
			return nil, err
		}
		jobs[name] = job{
			Service: name, Database: d.books[name].URL, NATS: servers.NATS.URL(), Verbose: opt.verbose,
			Seed: opt.seed, Orders: opt.orders, Rate: opt.rate, Patience: opt.patience,
		}
	}
	d.staff = newStaff(jobs, log)
	d.crashes = newCrashes(d)
	return d, nil
}

// open makes the databases. The auditor's database has none of Postroom's tables.
func (b books) open(ctx context.Context, server *devstack.Postgres) (err error) {
	for name, tables := range map[string]string{order: orderTables, payment: paymentTables, stock: stockTables, audit: auditTables} {
		db, err := demo.CreateDatabase(ctx, server, "saga_"+name, 2)
		if err != nil {
			return err
		}
		b[name] = db
		create := db.Migrate
		if name == audit {
			create = db.CreateTables
		}
		if err := create(ctx, tables); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// stockUp inserts the accounts of the customers, and the items with their stock.
func (b books) stockUp(ctx context.Context, orders int) error {
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
		items.Queue(insertItem, sku(item), false, inStock(orders))
	}
	items.Queue(insertItem, supplied, true, 0)
	return errors.Join(b[payment].Pool.SendBatch(ctx, accounts).Close(), b[stock].Pool.SendBatch(ctx, items).Close())
}

// close ends the services, even if the run failed. Then it closes the connections.
func (d *deployment) close() (err error) {
	if d.staff != nil {
		err = d.staff.end()
	}
	if d.nc != nil {
		d.nc.Close()
	}
	for _, db := range d.books {
		db.Close()
	}
	return err
}
