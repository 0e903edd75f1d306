package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"
)

// querier is what is read from: the auditor's connections, or a test's transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// copied says what is copied from a service's database into a table of the
// auditor's, whose columns have the names that the statement gives them.
type copied struct{ service, to, sql string }

// evidence is all that is copied: the services' own tables, and Postroom's.
func evidence() []copied {
	all := []copied{
		{order, "placed", "SELECT id, customer, sku, quantity, amount, state, reason, placed_at, ended_at FROM orders"},
		{payment, "account", "SELECT customer, before, credit FROM account"},
		{payment, "money", "SELECT order_id, customer, kind, amount, at FROM movement"},
		{stock, "item", "SELECT sku, supplied, before, available, lowest FROM item"},
		{stock, "goods", "SELECT order_id, sku, quantity, at FROM movement"},
		{stock, "asked", "SELECT order_id, at FROM supplier_request"},
	}
	for _, service := range services {
		all = append(
			all,
			copied{service, "event", "SELECT event_id, type, key, correlation_id, causation_id, created_at AS at FROM postroom.outbox"},
			copied{service, "decided", "SELECT handler, dedupe_key, at FROM postroom.inbox"},
			copied{service, "held", "SELECT handler, event_id, dead_at IS NOT NULL AS dead FROM postroom.held"},
		)
	}
	return all
}

// gather copies the evidence from the services' databases, and the ids of what is in
// the streams, anew.
func (d *demo) gather(ctx context.Context, from map[string]querier) error {
	if _, err := d.books[audit].Exec(ctx, "TRUNCATE placed, account, money, item, goods, asked, event, decided, held, message, subscribed"); err != nil {
		return fmt.Errorf("empty the auditor's tables: %w", err)
	}
	for _, c := range evidence() {
		if err := d.copy(ctx, c, from[c.service]); err != nil {
			return fmt.Errorf("copy %s of %s: %w", c.to, c.service, err)
		}
	}
	var messages, subscribed [][]any
	for _, name := range services {
		read, err := d.readStream(ctx, streams[name])
		if err != nil {
			return fmt.Errorf("read stream %s: %w", streams[name], err)
		}
		messages = append(messages, read...)
	}
	for _, s := range subscriptions {
		for _, eventType := range s.types {
			subscribed = append(subscribed, []any{s.handler, eventType})
		}
	}
	return errors.Join(
		d.insert(ctx, "message", []string{"event_id", "type"}, messages),
		d.insert(ctx, "subscribed", []string{"handler", "type"}, subscribed),
		d.analyze(ctx),
	)
}

// copy copies the rows of one statement. Rows of a table that has those of all
// services get the service's name.
func (d *demo) copy(ctx context.Context, c copied, from querier) error {
	rows, err := from.Query(ctx, c.sql)
	if err != nil {
		return err
	}
	var columns []string
	for _, f := range rows.FieldDescriptions() {
		columns = append(columns, f.Name)
	}
	named := c.to == "event" || c.to == "decided" || c.to == "held"
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) ([]any, error) {
		values, err := row.Values()
		if named {
			values = append(values, c.service)
		}
		return values, err
	})
	if err != nil {
		return err
	}
	if named {
		columns = append(columns, "service")
	}
	return d.insert(ctx, c.to, columns, all)
}

func (d *demo) insert(ctx context.Context, table string, columns []string, rows [][]any) error {
	if _, err := d.books[audit].CopyFrom(ctx, pgx.Identifier{table}, columns, pgx.CopyFromRows(rows)); err != nil {
		return fmt.Errorf("store evidence in %s: %w", table, err)
	}
	return nil
}

// analyze is needed because the tables were filled a moment ago, and count as empty.
func (d *demo) analyze(ctx context.Context) error {
	_, err := d.books[audit].Exec(ctx, "ANALYZE")
	return err
}

// readStream reads the headers of all messages that a stream has now.
func (d *demo) readStream(ctx context.Context, name string) ([][]any, error) {
	js, err := jetstream.New(d.nc)
	if err != nil {
		return nil, err
	}
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return nil, err
	}
	left := stream.CachedInfo().State.Msgs
	if left == 0 {
		return nil, nil
	}
	reader, err := js.OrderedConsumer(ctx, name, jetstream.OrderedConsumerConfig{HeadersOnly: true})
	if err != nil {
		return nil, err
	}
	messages, err := reader.Messages()
	if err != nil {
		return nil, err
	}
	defer messages.Stop()
	var all [][]any
	for ; left > 0; left-- {
		msg, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return nil, fmt.Errorf("after %d messages: %w", len(all), err)
		}
		all = append(all, []any{msg.Headers().Get("ce-id"), msg.Headers().Get("ce-type")})
	}
	return all, nil
}

// deliveries returns how many deliveries the broker made to the services' handlers
// in all. The inbox decided each event once.
func (d *demo) deliveries(ctx context.Context) (int64, error) {
	js, err := jetstream.New(d.nc)
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
