package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/schema"
)

// With starts servers that keep their data on the disk, calls the function do with the servers, and
// closes the servers. The parameter start is devstack.Start or devstack.StartPostgres.
func With[S io.Closer](ctx context.Context, start func(context.Context, devstack.Config) (S, error), log *slog.Logger, do func(S) error) (err error) {
	servers, err := start(ctx, devstack.Config{Durable: true, Logger: log})
	if err != nil && ctx.Err() != nil {
		return errors.New("interrupted while the servers were starting")
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, servers.Close()) }()
	return do(servers)
}

// Log returns a logger that writes lines to w, if they have at least the given level.
func Log(w io.Writer, level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}

// ServiceLog returns the logger of an example's service. It writes only errors, because the example
// provokes many warnings. If verbose is true, it also writes warnings and information.
func ServiceLog(w io.Writer, verbose bool) *slog.Logger {
	if verbose {
		return Log(w, slog.LevelInfo)
	}
	return Log(w, slog.LevelError)
}

// Verbose returns w if verbose is true, otherwise a writer that drops everything.
func Verbose(verbose bool, w io.Writer) io.Writer {
	if verbose {
		return w
	}
	return io.Discard
}

// Database is a database that an example made for itself.
type Database struct {
	Name, URL string
	Pool      *pgxpool.Pool
}

// CreateDatabase makes a database whose name begins with postroom_ and prefix, and connects to it.
// When the caller closes the server, that drops the database. So an example leaves nothing behind
// on a user's own server.
func CreateDatabase(ctx context.Context, server *devstack.Postgres, prefix string, connections int) (*Database, error) {
	db := &Database{Name: "postroom_" + prefix + "_" + strings.ToLower(rand.Text()[:10])}
	var err error
	if db.URL, err = server.CreateDatabase(ctx, db.Name, ""); err != nil {
		return nil, err
	}
	if db.Pool, err = Pool(ctx, db.URL, connections); err != nil {
		return nil, err
	}
	return db, nil
}

// OpenDatabase makes a database as CreateDatabase does, with Postroom's tables and the example's.
func OpenDatabase(ctx context.Context, server *devstack.Postgres, prefix string, connections int, tables string) (*Database, error) {
	db, err := CreateDatabase(ctx, server, prefix, connections)
	if err != nil {
		return nil, err
	}
	if err := db.Migrate(ctx, tables); err != nil {
		db.Close()
		return nil, err
	}
	return db, nil
}

// Migrate makes Postroom's tables and the example's.
func (db *Database) Migrate(ctx context.Context, tables string) error {
	if _, err := schema.Migrate(ctx, db.Pool, ""); err != nil {
		return err
	}
	return db.CreateTables(ctx, tables)
}

// CreateTables makes the example's tables.
func (db *Database) CreateTables(ctx context.Context, tables string) error {
	if _, err := db.Pool.Exec(ctx, tables); err != nil {
		return fmt.Errorf("create tables: %w", err)
	}
	return nil
}

// Close ends the connections. It does nothing if db is nil.
func (db *Database) Close() {
	if db != nil {
		db.Pool.Close()
	}
}

// Base is what most examples need: connections to a database and to a broker.
type Base struct {
	*Database

	NATS *nats.Conn
}

// OpenBase makes a database with Postroom's tables and the example's, and a stream. In production
// an operator makes them before a service starts.
func OpenBase(ctx context.Context, servers *devstack.Stack, prefix string, connections int, tables string, stream jetstream.StreamConfig) (_ *Base, err error) {
	b := &Base{}
	defer func() {
		if err != nil {
			b.Close()
		}
	}()
	if b.Database, err = OpenDatabase(ctx, servers.Postgres, prefix, connections, tables); err != nil {
		return nil, err
	}
	if b.NATS, err = NATS(servers.NATS.URL()); err != nil {
		return nil, err
	}
	if err := natsjs.EnsureStream(ctx, b.NATS, stream); err != nil {
		return nil, err
	}
	return b, nil
}

// Connect connects to an existing database and broker.
func Connect(ctx context.Context, database, broker string, connections int) (*Base, error) {
	pool, err := Pool(ctx, database, connections)
	if err != nil {
		return nil, err
	}
	nc, err := NATS(broker)
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &Base{Database: &Database{URL: database, Pool: pool}, NATS: nc}, nil
}

// Close ends the connections, if there are any.
func (b *Base) Close() {
	if b == nil {
		return
	}
	if b.NATS != nil {
		b.NATS.Close()
	}
	b.Database.Close()
}

// Pool connects to a database, with at most the given number of connections.
func Pool(ctx context.Context, url string, connections int) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("parse database URL: %w", err)
	}
	cfg.MaxConns = int32(connections) //nolint:gosec // examples have few
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	return pool, nil
}

// NATS connects to a broker.
func NATS(url string) (*nats.Conn, error) {
	nc, err := nats.Connect(url, natsjs.ConnectOptions()...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	return nc, nil
}

// Session opens a connection, calls the function do with it, and closes it.
func Session(ctx context.Context, url string, do func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	return errors.Join(do(conn), conn.Close(context.WithoutCancel(ctx)))
}
