package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/postroom/postroom/inspect"
)

// inspection is the database of a command, and the broker if one is given.
type inspection struct {
	db     database
	broker broker
	asJSON bool
}

func newInspection(getenv func(string) string) *inspection {
	return &inspection{db: database{getenv: getenv}, broker: broker{getenv: getenv}}
}

// addFlags adds the flags for the database, and for the broker if the command uses one.
func (s *inspection) addFlags(cmd *cobra.Command, andBroker bool) {
	s.db.addSchemaFlag(cmd)
	s.db.addURLFlag(cmd)
	if andBroker {
		s.broker.addFlags(cmd)
	}
	addJSON(cmd, &s.asJSON)
}

// withDatabase calls do with an inspector of the database alone.
func (s *inspection) withDatabase(ctx context.Context, cfg inspect.Config, do func(i *inspect.Inspector) error) error {
	return s.db.with(ctx, func(conn *pgx.Conn, name string) error {
		cfg.Schema = name
		return do(inspect.New(conn, nil, cfg))
	})
}

// withBroker calls do with an inspector, and with the error of the connection to the broker.
// If no URL is given, the broker is not asked, and there is no error.
func (s *inspection) withBroker(ctx context.Context, do func(i *inspect.Inspector, away error) error) error {
	nc, away := s.connect()
	var usage *usageError
	if errors.As(away, &usage) {
		return away
	}
	if nc != nil {
		defer nc.Close()
	}
	return s.db.with(ctx, func(conn *pgx.Conn, name string) error {
		return do(inspect.New(conn, nc, inspect.Config{Schema: name}), away)
	})
}

// withDatabases calls do with an inspector of each database that it could connect to, and
// with the errors of the others. Without URLs it uses the database of the environment.
func (s *inspection) withDatabases(ctx context.Context, urls []string, do func(all []*inspect.Inspector, away error) error) error {
	name, err := s.db.schema()
	if err != nil {
		return err
	}
	if len(urls) == 0 {
		urls = []string{""}
	}
	var all []*inspect.Inspector
	var away error
	for _, url := range urls {
		db := database{getenv: s.db.getenv, url: url}
		conn, err := db.connect(ctx)
		if err != nil {
			away = errors.Join(away, err)
			continue
		}
		defer func() { _ = closeConn(ctx, conn) }() // nothing was written
		all = append(all, inspect.New(conn, nil, inspect.Config{Schema: name}))
	}
	if len(all) == 0 {
		return away
	}
	return do(all, away)
}

// connect connects to the broker, if one is given.
func (s *inspection) connect() (*nats.Conn, error) {
	if url, _ := firstOf(s.broker.getenv, s.broker.url, "--nats-url", "POSTROOM_NATS_URL", "NATS_URL"); url == "" {
		return nil, nil
	}
	return s.broker.connect()
}

// setBrokerFault adds to a result why the broker could not be asked.
func setBrokerFault(b *inspect.Broker, away error) {
	if away != nil {
		b.Asked, b.Fault = true, away.Error()
	}
}

// spanOf formats a number of seconds for a person.
func spanOf(seconds float64) string { return span(time.Duration(seconds * float64(time.Second))) }

// count formats a number in a table.
func count(n int64) string { return fmt.Sprintf("%d", n) }
