package pglog

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
)

// readBuffer is how many bytes are read from a connection at once. The driver reads 8 kB by
// default, so a page would take a hundred reads.
const readBuffer = 64 << 10

// dialer opens the connections of a term.
type dialer struct {
	pool *pgxpool.Pool
	sql  *statements
}

// connections are the two connections of a term.
type connections struct {
	writer, reader *pgx.Conn
	writerPID      uint32        // the server process of writer
	roundTrip      time.Duration // the time of a round trip to the database
}

// close closes the connections that are open.
func (c connections) close() error {
	var faults []error
	for _, conn := range []*pgx.Conn{c.writer, c.reader} {
		if conn != nil {
			faults = append(faults, closeConn(conn))
		}
	}
	return errors.Join(faults...)
}

// stepTimeout limits each step of connecting, because a database that has vanished does not answer.
// The total time has no limit, because all steps together take long if the database is far away.
const stepTimeout = time.Minute

// within runs a step with stepTimeout.
func within(ctx context.Context, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	return f(ctx)
}

// concurrently runs two functions in parallel, because each waits for the database.
func concurrently(f, g func() error) error {
	first := make(chan error, 1)
	go func() { first <- f() }()
	err := g()
	return errors.Join(<-first, err)
}

// open returns the two connections of a term. Only the relay uses these connections, so its
// settings for them do not affect the commits of other programs.
func (d dialer) open(ctx context.Context) (both connections, err error) {
	connect := func(conn **pgx.Conn) func() error {
		return func() error {
			return within(ctx, func(ctx context.Context) (err error) {
				*conn, err = d.connect(ctx)
				return err
			})
		}
	}
	if err := concurrently(connect(&both.writer), connect(&both.reader)); err != nil {
		return both, errors.Join(err, both.close())
	}
	if both.roundTrip, both.writerPID, err = d.requireDirect(ctx, both.writer, both.reader); err == nil {
		err = concurrently(
			func() error { return d.setUp(ctx, both.writer, d.sql.Connect) },
			func() error { return d.setUp(ctx, both.reader, d.sql.Connect, d.sql.Reader) },
		)
	}
	if err != nil {
		return both, errors.Join(fmt.Errorf("set up connections: %w", err), both.close())
	}
	return both, nil
}

// setUp runs statements that set up a connection.
func (d dialer) setUp(ctx context.Context, conn *pgx.Conn, statements ...string) error {
	for _, sql := range statements {
		err := within(ctx, func(ctx context.Context) error {
			_, err := conn.Exec(ctx, sql)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// connect opens a connection that is not in the pool. It uses the pool's configuration, so the
// pool's hooks run.
func (d dialer) connect(ctx context.Context) (*pgx.Conn, error) {
	pool, err := pgxpool.NewWithConfig(ctx, d.ownConfig())
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	defer pool.Close()
	one, err := pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return one.Hijack(), nil
}

// ownConfig returns the configuration for a pool of one connection: the configuration of
// the given pool, with a larger read buffer.
func (d dialer) ownConfig() *pgxpool.Config {
	cfg := d.pool.Config()
	cfg.MaxConns, cfg.MinConns, cfg.MinIdleConns = 1, 0, 0
	build := cfg.ConnConfig.BuildFrontend
	cfg.ConnConfig.BuildFrontend = func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		return build(bufio.NewReaderSize(r, readBuffer), w)
	}
	return cfg
}

// poolerRounds is how many rounds requireDirect makes if there is a pooler. With so many rounds, a
// transaction pooler almost never looks like two direct connections.
const poolerRounds = 8

// requireDirect returns the time of a round trip to the database, and the server process of the first
// connection. It returns [ErrPooled] if the connections do not have one server process each. While a transaction pooler has no other client, it gives
// both connections the same process. If it has other clients, it gives each statement any free
// process. So requireDirect asks each connection for its process several times, in an order in
// which a pooler does not look like two direct connections. [eventlog.Term.Read] checks this again.
func (d dialer) requireDirect(ctx context.Context, a, b *pgx.Conn) (roundTrip time.Duration, pid uint32, err error) {
	pids := make(map[*pgx.Conn]uint32)
	var took []time.Duration
	rounds := 1
	for round := 0; round < rounds; round++ {
		for _, conn := range []*pgx.Conn{a, b, b, a, a, b} {
			var pid uint32
			began := time.Now()
			err := within(ctx, func(ctx context.Context) error { return conn.QueryRow(ctx, d.sql.PID, noPlan).Scan(&pid) })
			if err != nil {
				return 0, 0, fmt.Errorf("ask for the server process: %w", err)
			}
			took = append(took, time.Since(began))
			if was, asked := pids[conn]; asked && was != pid {
				return 0, 0, postroom.Unrecoverable(ErrPooled)
			}
			if pids[conn] = pid; pid != conn.PgConn().PID() { // there is a pooler of some kind
				rounds = poolerRounds
			}
		}
	}
	if pids[a] == pids[b] {
		return 0, 0, postroom.Unrecoverable(ErrPooled)
	}
	slices.Sort(took)
	return took[len(took)/2], pids[a], nil
}

// pooled turns an error into [ErrPooled] if only a pooler can have caused it: a statement prepared
// on this connection is missing, or a statement that was not prepared exists.
func pooled(err error) error {
	const duplicate, missing = "42P05", "26000"
	if pg := (*pgconn.PgError)(nil); errors.As(err, &pg) && (pg.Code == duplicate || pg.Code == missing) {
		return postroom.Unrecoverable(fmt.Errorf("%w: %w", ErrPooled, err))
	}
	return err
}

// closeConn closes a connection. It waits at most a second, because the connection may hang.
func closeConn(conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return conn.Close(ctx)
}
