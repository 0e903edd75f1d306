package outbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
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

// connectBoth returns the two connections of a term, set up for the relay alone: what
// is set on them would otherwise be set for somebody else's commits.
func (l *Log) connectBoth(ctx context.Context) (writer, reader *pgx.Conn, err error) {
	if writer, err = l.connect(ctx); err != nil {
		return nil, nil, err
	}
	if reader, err = l.connect(ctx); err != nil {
		return nil, nil, errors.Join(err, closeConn(writer))
	}
	if err = l.requireOwn(ctx, writer, reader); err == nil {
		_, err = writer.Exec(ctx, l.sql.connect)
	}
	if err == nil {
		_, err = reader.Exec(ctx, l.sql.connect)
	}
	if err == nil {
		_, err = reader.Exec(ctx, l.sql.reader)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("set up connections: %w", err), closeConn(writer), closeConn(reader))
	}
	return writer, reader, nil
}

// connect returns a connection made as the pool's are, with what the caller's hooks do to
// those, but beside it.
func (l *Log) connect(ctx context.Context) (*pgx.Conn, error) {
	pool, err := pgxpool.NewWithConfig(ctx, l.ownConfig())
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
func (l *Log) ownConfig() *pgxpool.Config {
	cfg := l.pool.Config()
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
// own each. A transaction pooler gives both the same one while nobody else is there,
// and otherwise whichever is free: each is asked several times, in turns of which no
// order of its servers makes two that stay the same. [Term.Read] goes on to look.
func (l *Log) requireOwn(ctx context.Context, a, b *pgx.Conn) error {
	pids := make(map[*pgx.Conn]uint32)
	turns := 1
	for turn := 0; turn < turns; turn++ {
		for _, conn := range []*pgx.Conn{a, b, b, a, a, b} {
			var pid uint32
			if err := conn.QueryRow(ctx, l.sql.pid, unplanned).Scan(&pid); err != nil {
				return fmt.Errorf("ask for the server process: %w", err)
			}
			if was, asked := pids[conn]; asked && was != pid {
				return postroom.Refuse(ErrPooled)
			}
			if pids[conn] = pid; pid != conn.PgConn().PID() { // a pooler, of whichever kind
				turns = manyTurns
			}
		}
	}
	if pids[a] == pids[b] {
		return postroom.Refuse(ErrPooled)
	}
	return nil
}

// pooled returns an error as [ErrPooled] where only a pooler explains it: what was
// prepared on this connection is not there, or something else is.
func pooled(err error) error {
	const duplicate, missing = "42P05", "26000"
	if pg := (*pgconn.PgError)(nil); errors.As(err, &pg) && (pg.Code == duplicate || pg.Code == missing) {
		return postroom.Refuse(fmt.Errorf("%w: %w", ErrPooled, err))
	}
	return err
}

// closeConn closes a connection that may hang, without waiting for long.
func closeConn(conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return conn.Close(ctx)
}
