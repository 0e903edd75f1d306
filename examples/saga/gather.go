package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/examples/internal/demo"
)

// tableCopy copies the rows of a statement (sql) from the database of a service to a table of the
// auditor (to). The columns that the statement returns have the names of the table's columns.
type tableCopy struct{ service, to, sql string }

// evidence returns all copies: of the services' own tables, and of Postroom's tables.
func evidence() []tableCopy {
	all := []tableCopy{
		{order, "placed", "SELECT id, customer, sku, quantity, amount, state, reason, placed_at, ended_at FROM orders"},
		{order, "process", "SELECT key AS order_id, state FROM postroom.saga"},
		{payment, "account", "SELECT customer, before, credit FROM account"},
		{payment, "money", "SELECT order_id, customer, kind, amount, at FROM movement"},
		{stock, "item", "SELECT sku, supplied, before, available, lowest FROM item"},
		{stock, "goods", "SELECT order_id, sku, quantity, at FROM movement"},
		{stock, "asked", "SELECT order_id, at FROM supplier_request"},
	}
	for _, service := range services {
		all = append(
			all,
			tableCopy{service, "event", "SELECT event_id, type, key, correlation_id, causation_id, created_at AS at FROM postroom.outbox"},
			tableCopy{service, "decided", "SELECT handler, dedupe_key, at FROM postroom.inbox"},
			tableCopy{service, "held", "SELECT handler, event_id, dead_at IS NOT NULL AS dead FROM postroom.held"},
		)
	}
	return all
}

// gather empties the auditor's tables and fills them again: with rows of the services' databases,
// with the ids and types of the streams' messages, and with the types that each handler reads.
func (b books) gather(ctx context.Context, nc *nats.Conn, from map[string]demo.Querier) error {
	auditor := b[audit].Pool
	if _, err := auditor.Exec(ctx, "TRUNCATE placed, process, account, money, item, goods, asked, event, decided, held, message, subscribed"); err != nil {
		return fmt.Errorf("empty the auditor's tables: %w", err)
	}
	var all []demo.Evidence
	for _, c := range evidence() {
		read, err := c.read(ctx, from[c.service])
		if err != nil {
			return fmt.Errorf("copy %s of %s: %w", c.to, c.service, err)
		}
		all = append(all, read)
	}
	var messages, subscribed [][]any
	for _, name := range services {
		read, err := demo.ReadStream(ctx, nc, streams[name])
		if err != nil {
			return err
		}
		for _, m := range read {
			messages = append(messages, []any{m.ID(), m.Type()})
		}
	}
	for _, s := range subscriptions() {
		for _, eventType := range s.Types {
			subscribed = append(subscribed, []any{s.Name, eventType})
		}
	}
	all = append(all,
		demo.Evidence{Table: "message", Columns: []string{"event_id", "type"}, Rows: messages},
		demo.Evidence{Table: "subscribed", Columns: []string{"handler", "type"}, Rows: subscribed})
	return demo.Store(ctx, auditor, all...)
}

// read reads the rows of one statement. If the auditor's table has rows of several services, each
// row also gets the service's name.
func (c tableCopy) read(ctx context.Context, from demo.Querier) (demo.Evidence, error) {
	rows, err := from.Query(ctx, c.sql)
	if err != nil {
		return demo.Evidence{}, err
	}
	e := demo.Evidence{Table: c.to}
	for _, f := range rows.FieldDescriptions() {
		e.Columns = append(e.Columns, f.Name)
	}
	named := c.to == "event" || c.to == "decided" || c.to == "held"
	if named {
		e.Columns = append(e.Columns, "service")
	}
	e.Rows, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) ([]any, error) {
		values, err := row.Values()
		if named {
			values = append(values, c.service)
		}
		return values, err
	})
	return e, err
}

// deliveries returns how many deliveries the broker made to the handlers that have a durable
// consumer. Ordered handlers have no durable consumer.
func deliveries(ctx context.Context, nc *nats.Conn) (int64, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return 0, err
	}
	var n int64
	for _, name := range streams {
		stream, err := js.Stream(ctx, name)
		if err != nil {
			return 0, fmt.Errorf("look up stream %s: %w", name, err)
		}
		consumers := stream.ListConsumers(ctx)
		for c := range consumers.Info() {
			if c.Config.Durable != "" {
				n += int64(c.Delivered.Consumer) //nolint:gosec // not that many
			}
		}
		if err := consumers.Err(); err != nil {
			return 0, fmt.Errorf("look up consumers of %s: %w", name, err)
		}
	}
	return n, nil
}
