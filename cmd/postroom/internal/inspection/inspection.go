// Package inspection makes inspectors for commands, with the database and the broker that flags or
// the environment name.
package inspection

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/broker"
	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/cmd/postroom/internal/database"
	"github.com/postroom/postroom/cmd/postroom/internal/exit"
	"github.com/postroom/postroom/internal/inspect"
)

// Sources has the database of a command, and its broker if a flag or the environment names one.
type Sources struct {
	DB     database.Target
	Broker *broker.Target
	JSON   bool
}

// New returns Sources with the database and the broker that the environment names. Flags can name
// other servers.
func New(getenv func(string) string) *Sources {
	return &Sources{DB: database.New(getenv), Broker: broker.New(getenv)}
}

// AddFlags adds the flags that name the database and, if andBroker is true, the broker.
func (s *Sources) AddFlags(cmd *cobra.Command, andBroker bool) {
	s.DB.AddSchemaFlag(cmd)
	s.DB.AddURLFlag(cmd)
	if andBroker {
		s.Broker.AddFlags(cmd)
	}
	command.AddJSON(cmd, &s.JSON)
}

// WithDatabase calls the function do with an inspector that asks only the database.
func (s *Sources) WithDatabase(ctx context.Context, cfg inspect.Config, do func(i *inspect.Inspector) error) error {
	return s.DB.With(ctx, func(conn *pgx.Conn, name string) error {
		cfg.Schema = name
		return do(inspect.New(conn, nil, cfg))
	})
}

// WithBroker calls the function do with an inspector of the database and the broker. If WithBroker
// cannot connect to the broker, the argument away is the error. If no URL of a broker is given, the
// inspector asks only the database, and away is nil.
func (s *Sources) WithBroker(ctx context.Context, do func(i *inspect.Inspector, away error) error) error {
	nc, away := s.connect()
	var usage *exit.UsageError
	if errors.As(away, &usage) {
		return away
	}
	if nc != nil {
		defer nc.Close()
	}
	return s.DB.With(ctx, func(conn *pgx.Conn, name string) error {
		return do(inspect.New(conn, nc, inspect.Config{Schema: name}), away)
	})
}

// WithDatabases calls the function do once, with inspectors of all databases to which it could
// connect. The argument away has the errors of the other databases. If there are only errors,
// WithDatabases returns them. If urls is empty, it uses the database that the environment names.
func (s *Sources) WithDatabases(ctx context.Context, urls []string, do func(all []*inspect.Inspector, away error) error) error {
	name, err := s.DB.Schema()
	if err != nil {
		return err
	}
	if len(urls) == 0 {
		urls = []string{""}
	}
	var all []*inspect.Inspector
	var away error
	for _, url := range urls {
		db := s.DB.At(url)
		conn, err := db.Connect(ctx)
		if err != nil {
			away = errors.Join(away, err)
			continue
		}
		defer func() { _ = database.Close(ctx, conn) }() // nothing was written
		all = append(all, inspect.New(conn, nil, inspect.Config{Schema: name}))
	}
	if len(all) == 0 {
		return away
	}
	return do(all, away)
}

// connect connects to the broker, if a flag or the environment names one.
func (s *Sources) connect() (*nats.Conn, error) {
	if !s.Broker.IsGiven() {
		return nil, nil
	}
	return s.Broker.Connect()
}

// SetBrokerFault records in a result why the command could not reach the broker. If away is nil, it
// does nothing.
func SetBrokerFault(b *inspect.Broker, away error) {
	if away != nil {
		b.Asked, b.Fault = true, away.Error()
	}
}
