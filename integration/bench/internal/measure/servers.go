package measure

import (
	"context"
	"crypto/rand"
	_ "embed" // for the SQL statements
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/schema"
)

// cleanPatience limits the time of requests that create or remove objects.
const cleanPatience = 30 * time.Second

const (
	source     = "/bench"
	eventBytes = 512
)

var (
	//go:embed sql/orders.sql
	ordersSQL string
	//go:embed sql/load.sql
	loadSQL string
	//go:embed sql/rewind.sql
	rewindSQL string
	//go:embed sql/held.sql
	heldSQL string
	//go:embed sql/empty.sql
	emptySQL string
	//go:embed sql/disconnect.sql
	disconnectSQL string
)

// servers has the servers of the measurements, and the objects that this package created.
type servers struct {
	cfg      Config
	name     string // the name of the connections; the names of all created objects are made from it
	pool     *pgxpool.Pool
	schemas  []string          // the created schemas, which the method close drops
	logs     map[string]string // the schemas of logs, by the name that createLog gets
	restless bool              // the role may not run CHECKPOINT
	atomic   bool              // the next measurement's relay publishes in atomic batches

	*broker
	synced *broker // the broker that syncs every message; nil if there is none
}

// connectTo connects to the servers.
func connectTo(ctx context.Context, cfg Config) (_ *servers, err error) {
	b := &servers{cfg: cfg, name: "postroom_bench_" + strings.ToLower(rand.Text()[:10]), logs: make(map[string]string)}
	database := cfg.Database.Copy()
	database.MaxConns = clients + 4 // the other connections are for the set-up and for a relay
	database.ConnConfig.RuntimeParams["application_name"] = b.name
	if b.pool, err = pgxpool.NewWithConfig(ctx, database); err != nil {
		return nil, err
	}
	if err := b.pool.Ping(ctx); err != nil {
		b.pool.Close()
		return nil, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	if b.broker, err = b.dial(cfg.Broker.URL); err != nil {
		b.pool.Close()
		return nil, err
	}
	if cfg.Broker.SyncedURL != "" {
		if b.synced, err = b.dial(cfg.Broker.SyncedURL); err != nil {
			b.pool.Close()
			b.nc.Close()
			return nil, err
		}
	}
	return b, nil
}

// A broker is a NATS server, with a connection that only manages its streams. Each measurement
// opens another connection for messages: see withStream.
type broker struct {
	url string
	nc  *nats.Conn
	js  jetstream.JetStream
}

// dial connects to a broker.
func (b *servers) dial(url string) (*broker, error) {
	nc, err := connectNATS(url, b.cfg.Broker.Creds, b.name)
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, err
	}
	return &broker{url, nc, js}, nil
}

// connect returns a connection with the options that a relay needs.
func (b *servers) connect() (*nats.Conn, error) {
	return connectNATS(b.url, b.cfg.Broker.Creds, b.name)
}

func connectNATS(url, creds, name string) (*nats.Conn, error) {
	options := append(natsjs.ConnectOptions(), nats.Name(name))
	if creds != "" {
		options = append(options, nats.UserCredentials(creds))
	}
	nc, err := nats.Connect(url, options...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	return nc, nil
}

// close removes the created objects and closes the connections.
func (b *servers) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanPatience)
	defer cancel()
	err := b.removeStream(ctx, b.broker)
	b.nc.Close()
	if b.synced != nil {
		err = errors.Join(err, b.removeStream(ctx, b.synced))
		b.synced.nc.Close()
	}
	b.pool.Close()
	if len(b.schemas) > 0 {
		err = errors.Join(err, b.dropSchemas(ctx))
	}
	return err
}

func (b *servers) dropSchemas(ctx context.Context) error {
	cfg := b.cfg.Database.ConnConfig.Copy()
	cfg.RuntimeParams["application_name"] = b.name
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return fmt.Errorf("drop %s: %w", strings.Join(b.schemas, ", "), err)
	}
	defer func() { _ = conn.Close(ctx) }() // the connection is closed even if this fails
	if _, err := conn.Exec(ctx, disconnectSQL, b.name); err != nil {
		return fmt.Errorf("end sessions: %w", err)
	}
	for _, name := range b.schemas {
		if _, err := conn.Exec(ctx, "DROP SCHEMA IF EXISTS "+pgx.Identifier{name}.Sanitize()+" CASCADE"); err != nil {
			return fmt.Errorf("drop schema %s: %w", name, err)
		}
	}
	return nil
}

// stream returns the name of the stream. There is one stream at a time.
func (b *servers) stream() string { return strings.ToUpper(b.name) }

// subject returns the type of all events, which is also the subject of the stream.
func (b *servers) subject() string { return b.name + ".event" }

// withStream creates a new stream, calls do, and removes the stream.
func (b *servers) withStream(ctx context.Context, do func(nc *nats.Conn) (sample, error)) (_ sample, err error) {
	// The end of ctx does not interrupt this request. If it did, the broker could still create the
	// stream after removeStream found no stream to delete, because the broker works on several
	// requests at once.
	create, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanPatience)
	defer cancel()
	err = natsjs.EnsureStream(create, b.nc, jetstream.StreamConfig{
		Name: b.stream(), Subjects: []string{b.subject()}, AllowAtomicPublish: b.atomic,
	})
	if err != nil {
		return sample{}, err
	}
	defer func() {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanPatience)
		defer cancel()
		err = errors.Join(err, b.removeStream(clean, b.broker))
	}()
	nc, err := b.connect()
	if err != nil {
		return sample{}, err
	}
	defer nc.Close()
	return do(nc)
}

func (b *servers) removeStream(ctx context.Context, from *broker) error {
	err := from.js.DeleteStream(ctx, b.stream())
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("delete stream %s: %w", b.stream(), err)
	}
	return nil
}

// stored returns the number of events in the stream.
func (b *servers) stored(ctx context.Context) (int, error) {
	stream, err := b.js.Stream(ctx, b.stream())
	if err != nil {
		return 0, fmt.Errorf("count messages: %w", err)
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(b.subject()))
	if err != nil {
		return 0, fmt.Errorf("count messages: %w", err)
	}
	return int(info.State.Subjects[b.subject()]), nil //nolint:gosec // far below the largest int
}

// createLog returns the schema of the log with the given name, and creates it if needed.
func (b *servers) createLog(ctx context.Context, name string) (_ string, created bool, err error) {
	if there, ok := b.logs[name]; ok {
		return there, false, nil
	}
	schemaName := fmt.Sprintf("%s_%d", b.name, len(b.schemas))
	b.schemas = append(b.schemas, schemaName) // first, so that close drops the schema even if the creation is interrupted
	if _, err := schema.Migrate(ctx, b.pool, schemaName); err != nil {
		return "", false, err
	}
	if _, err := b.pool.Exec(ctx, schema.In(schemaName, ordersSQL)); err != nil {
		return "", false, fmt.Errorf("create tables: %w", err)
	}
	b.logs[name] = schemaName
	return schemaName, true, nil
}

// backlog returns the schema of a log with Config.Events events. None of them counts as published.
// The parameters keys and n are $5 and $6 of load.sql.
func (b *servers) backlog(ctx context.Context, keys string, n int) (string, error) {
	schemaName, created, err := b.createLog(ctx, fmt.Sprint(keys, n))
	if err != nil {
		return "", err
	}
	if created {
		_, err := b.pool.Exec(ctx, schema.In(schemaName, loadSQL), b.cfg.Events, eventBytes, b.subject(), source, keys, n)
		if err != nil {
			return "", fmt.Errorf("load: %w", err)
		}
		if _, err := b.pool.Exec(ctx, "ANALYZE "+pgx.Identifier{schemaName, "outbox"}.Sanitize()); err != nil {
			return "", fmt.Errorf("analyze: %w", err)
		}
	}
	if _, err := b.pool.Exec(ctx, schema.In(schemaName, rewindSQL)); err != nil {
		return "", fmt.Errorf("rewind: %w", err)
	}
	return schemaName, b.rest(ctx)
}

// empty returns the schema of an empty log for producers.
func (b *servers) empty(ctx context.Context) (string, error) {
	schemaName, _, err := b.createLog(ctx, "producers")
	if err != nil {
		return "", err
	}
	if _, err := b.pool.Exec(ctx, schema.In(schemaName, emptySQL)); err != nil {
		return "", fmt.Errorf("empty tables: %w", err)
	}
	return schemaName, b.rest(ctx)
}

// rest makes PostgreSQL write the data of earlier measurements to the disk, if the role may run
// CHECKPOINT.
func (b *servers) rest(ctx context.Context) error {
	if b.restless {
		return nil
	}
	_, err := b.pool.Exec(ctx, "CHECKPOINT")
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == "42501" { // insufficient_privilege
		b.restless = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

// log returns the log of a schema, for a relay.
func (b *servers) log(schemaName string) *pglog.Log {
	return pglog.New(b.pool).WithSchema(schemaName)
}
