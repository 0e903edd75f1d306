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

// readBuffer is how much is read of a connection at once. The driver by itself reads
// 8 kB, which makes a hundred reads of a page.
const readBuffer = 64 << 10

// dialer makes the connections of a term.
type dialer struct {
	pool *pgxpool.Pool
	sql  *statements
}

// connections are those of a term.
type connections struct {
	writer, reader *pgx.Conn
	roundTrip      time.Duration // a statement to the database and back
}

// close closes those that there are.
func (c connections) close() error {
	var faults []error
	for _, conn := range []*pgx.Conn{c.writer, c.reader} {
		if conn != nil {
			faults = append(faults, closeConn(conn))
		}
	}
	return errors.Join(faults...)
}

// stepTimeout bounds each step of connecting: a database whose other end vanished does
// not answer. There is no bound for all of them together, which a database that is far
// away would never keep.
const stepTimeout = time.Minute

// within gives a step its time.
func within(ctx context.Context, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	return f(ctx)
}

// beside runs two functions at the same time: each waits for the database.
func beside(f, g func() error) error {
	first := make(chan error, 1)
	go func() { first <- f() }()
	err := g()
	return errors.Join(<-first, err)
}

// both returns the two connections of a term, set up for the relay alone: what
// is set on them would otherwise be set for somebody else's commits.
func (d dialer) both(ctx context.Context) (both connections, err error) {
	connect := func(conn **pgx.Conn) func() error {
		return func() error {
			return within(ctx, func(ctx context.Context) (err error) {
				*conn, err = d.connect(ctx)
				return err
			})
		}
	}
	if err := beside(connect(&both.writer), connect(&both.reader)); err != nil {
		return both, errors.Join(err, both.close())
	}
	if both.roundTrip, err = d.requireOwn(ctx, both.writer, both.reader); err == nil {
		err = beside(
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

// connect returns a connection made as the pool's are, with what the caller's hooks do to
// those, but beside it.
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

// ownConfig returns the configuration of a pool for one connection that is made as the
// given pool's are, but reads more at once.
func (d dialer) ownConfig() *pgxpool.Config {
	cfg := d.pool.Config()
	cfg.MaxConns, cfg.MinConns, cfg.MinIdleConns = 1, 0, 0
	build := cfg.ConnConfig.BuildFrontend
	cfg.ConnConfig.BuildFrontend = func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		return build(bufio.NewReaderSize(r, readBuffer), w)
	}
	return cfg
}

// manyTurns is how often two connections are asked behind a pooler. By chance those of
// a transaction pooler pass as two that stay the same in one of very many attempts.
const manyTurns = 8

// requireOwn returns [ErrPooled] where two connections have no server process of their
// own each, and otherwise how long a statement takes to the database and back. A
// transaction pooler gives both the same process while nobody else is there, and
// otherwise whichever is free: each is asked several times, in turns of which no order
// of its servers makes two that stay the same. [eventlog.Term.Read] goes on to look.
func (d dialer) requireOwn(ctx context.Context, a, b *pgx.Conn) (roundTrip time.Duration, err error) {
	pids := make(map[*pgx.Conn]uint32)
	var took []time.Duration
	turns := 1
	for turn := 0; turn < turns; turn++ {
		for _, conn := range []*pgx.Conn{a, b, b, a, a, b} {
			var pid uint32
			began := time.Now()
			err := within(ctx, func(ctx context.Context) error { return conn.QueryRow(ctx, d.sql.PID, unplanned).Scan(&pid) })
			if err != nil {
				return 0, fmt.Errorf("ask for the server process: %w", err)
			}
			took = append(took, time.Since(began))
			if was, asked := pids[conn]; asked && was != pid {
				return 0, postroom.Unrecoverable(ErrPooled)
			}
			if pids[conn] = pid; pid != conn.PgConn().PID() { // a pooler, of whichever kind
				turns = manyTurns
			}
		}
	}
	if pids[a] == pids[b] {
		return 0, postroom.Unrecoverable(ErrPooled)
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

// pooled returns an error as [ErrPooled] where only a pooler explains it: what was
// prepared on this connection is not there, or something else is.
func pooled(err error) error {
	const duplicate, missing = "42P05", "26000"
	if pg := (*pgconn.PgError)(nil); errors.As(err, &pg) && (pg.Code == duplicate || pg.Code == missing) {
		return postroom.Unrecoverable(fmt.Errorf("%w: %w", ErrPooled, err))
	}
	return err
}

// closeConn closes a connection that may hang, without waiting for long.
func closeConn(conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return conn.Close(ctx)
}
